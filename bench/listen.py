"""How late do 10,000 listeners of one topic hear its events? `python -m bench.listen`.

One broker on one core; the listeners, the producer and the clock on the other. An event's value is
when it was sent, so each delivery is measured by itself: from before the produce to when the bytes
were read here. Bars: p99 of at most 100 ms, at most one core, at most 20 KiB for each listener.
"""

import argparse
import os
import resource
import selectors
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.machine import CLIENT_CORE, SERVER_CORE
from tests.integration.running import RunningBroker

P99_MS_MAX, CORES_MAX, LISTENER_BYTES_MAX = 100.0, 1.0, 20 * 1024
SPARE = 10
"""Connections of the broker that are no listeners: the producer's, and those that measure."""
_MARK = b'"value":"at '


class Crowd:
    """All listeners, read by one thread: it looks at nothing but the times in what comes."""

    def __init__(self, port: int, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self.delays: list[float] = []
        self.ended = 0
        self._rest: dict[int, bytes] = {}
        for _ in range(count):
            each = socket.create_connection(("127.0.0.1", port), timeout=60)
            each.sendall(b"GET /v1/topic/t/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += each.recv(4096)
            assert head.startswith(b"HTTP/1.1 200"), head
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    def read(self, wait: float) -> None:
        """What has come."""
        for key, _ in self._selector.select(wait):
            each = key.fileobj
            assert isinstance(each, socket.socket)
            piece = each.recv(1 << 16)
            now = time.monotonic()
            if not piece:
                self.ended += 1
                self._selector.unregister(each)
                continue
            parts = (self._rest.pop(key.fd, b"") + piece).split(_MARK)
            for part in parts[1:]:
                stamp, quote, _ = part.partition(b'"')
                if quote:
                    self.delays.append(now - float(stamp))
            last = parts[-1] if len(parts) == 1 or b'"' in parts[-1] else _MARK + parts[-1]
            self._rest[key.fd] = last[-(len(_MARK) - 1) :] if last in parts else last


def produce(broker: RunningBroker, rate: int, seconds: float) -> int:
    """Events at an even pace, each with its own time; how many."""
    with socket.create_connection(("127.0.0.1", broker.port("produce")), timeout=30) as link:
        count = int(rate * seconds)
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            body = b'"at %.6f"' % time.monotonic()
            head = b"POST /v1/topic/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
            link.sendall(head + b"%d\r\n\r\n%s" % (len(body), body))
            assert link.recv(4096).startswith(b"HTTP/1.1 200")
    return count


def used(pid: int) -> tuple[float, int]:
    """Seconds of a core, and resident bytes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def measure(broker: RunningBroker, listeners: int, rate: int, seconds: float) -> bool:
    """Prints a line; whether all bars passed."""
    broker.produce("t", b"0\n")
    (worker,) = broker.worker_pids()
    os.sched_setaffinity(worker, {SERVER_CORE})
    _, before = used(worker)
    crowd = Crowd(broker.port(), listeners)
    _, after = used(worker)
    began, cpu = time.monotonic(), used(worker)[0]
    sent: list[int] = []
    writer = threading.Thread(target=lambda: sent.append(produce(broker, rate, seconds)))
    writer.start()
    while writer.is_alive():
        crowd.read(0.05)
    took, cores = time.monotonic() - began, used(worker)[0] - cpu
    end = time.monotonic() + 10
    while len(crowd.delays) < sent[0] * listeners and time.monotonic() < end:
        crowd.read(0.05)
    delays = sorted(crowd.delays)
    missing = sent[0] * listeners - len(delays)
    p50, p99 = (delays[int(len(delays) * share)] * 1000 for share in (0.5, 0.99))
    each = (after - before) / listeners
    passed = p99 <= P99_MS_MAX and cores / took <= CORES_MAX and each <= LISTENER_BYTES_MAX
    print(
        f"{listeners} listeners, {sent[0]} events in {took:.1f} s: p50 {p50:.1f} ms, "
        f"p99 {p99:.1f} ms, {cores / took:.2f} core, {each / 1024:.1f} KiB each; "
        f"{missing} missing, {crowd.ended} ended"
    )
    return passed and missing == 0 and crowd.ended == 0


def main() -> int:
    """0: every bar passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listeners", type=int, default=10_000 - SPARE)
    parser.add_argument("--rate", type=int, default=100, help="events a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {CLIENT_CORE})
    with tempfile.TemporaryDirectory() as directory:
        broker = RunningBroker(Path(directory) / "data", workers=1)
        broker.start()
        try:
            return 0 if measure(broker, args.listeners, args.rate, args.seconds) else 1
        finally:
            broker.end()


if __name__ == "__main__":
    sys.exit(main())
