"""How late do 10,000 listeners of one topic hear its events? `python -m bench.listen`.

One broker on one core; the listeners, the producer and the clock on the other. An event's value is
when it was sent, so each delivery is measured by itself: from before the produce to when the bytes
were read here. Bars: p99 of at most 100 ms, at most one core, at most 20 KiB for each listener.
"""

import argparse
import os
import resource
import select
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.machine import CLIENT_CORE, SERVER_CORE

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from running import RunningBroker

P99_MS_MAX, CORES_MAX, LISTENER_BYTES_MAX = 100.0, 1.0, 20 * 1024
SPARE = 10
"""Connections of the broker that are no listeners: the producer's, and those that measure."""
TIMED = 20
"""One listener of so many is measured: Python takes longer to look at an event than to get it."""
LINES = 3
"""Of an event: id, data, and an empty one. A comment has two."""
_MARK = b'"value":"at '


class Crowd:
    """All listeners, read by one thread: of all it counts lines, of one in some the times."""

    def __init__(self, port: int, count: int) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._timed: dict[int, bytes] = {}
        """What is left of a line, of those whose times are looked at."""
        self.delays: list[float] = []
        self.ended = self.lines = 0
        for number in range(count):
            each = socket.create_connection(("127.0.0.1", port), timeout=60)
            each.sendall(b"GET /v1/topic/t/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = b""
            while b"\r\n\r\n" not in head:
                head += each.recv(4096)
            assert head.startswith(b"HTTP/1.1 200"), head
            each.setblocking(False)
            self._sockets[each.fileno()] = each
            if number % TIMED == 0:
                self._timed[each.fileno()] = b""
            self._poll.register(each, select.EPOLLIN)

    def read(self, wait: float) -> None:
        """What has come."""
        for fd, _ in self._poll.poll(wait, 256):
            piece = self._sockets[fd].recv(1 << 16)
            if not piece:
                self.ended += 1
                self._poll.unregister(fd)
                continue
            self.lines += piece.count(b"\n")
            if fd in self._timed:
                self._time(fd, piece, time.monotonic())

    def _time(self, fd: int, piece: bytes, now: float) -> None:
        *whole, self._timed[fd] = (self._timed[fd] + piece).split(b"\n\n")
        for event in whole:
            stamp = event.partition(_MARK)[2].partition(b'"')[0]
            if stamp:  # Else a comment.
                self.delays.append(now - float(stamp))


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
    wanted = sent[0] * listeners
    while crowd.lines < wanted * LINES and time.monotonic() < end:
        crowd.read(0.05)
    delays = sorted(crowd.delays)
    missing = wanted - crowd.lines // LINES
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
