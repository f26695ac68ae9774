"""How late do 10,000 listeners of one topic hear its events? `python -m bench.listen`.

One broker on one core; the listeners (`ears`, one thread of C), the producer and the clock on the
other. An event's value is when it was sent, so each delivery is measured by itself: from before the
produce to when the bytes were read there. Bars: p99 of at most 100 ms, at most one core, at most
20 KiB for each listener.

A sender on the same machine wakes who sleeps, and pays for it. With `--awake` the listeners never
sleep: what is left is closer to listeners that are elsewhere.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.load import compile_program
from bench.machine import CLIENT_CORE, SERVER_CORE

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from running import RunningBroker

P99_MS_MAX, CORES_MAX, LISTENER_BYTES_MAX = 100.0, 1.0, 20 * 1024
SOURCE = Path(__file__).parent / "ears" / "ears.c"
SPARE = 10
"""Connections of the broker that are no listeners: the producer's, and those that measure."""


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


def measure(
    broker: RunningBroker, listeners: int, rate: int, seconds: float, *, awake: bool
) -> bool:
    """Prints a line; whether all bars passed."""
    broker.produce("t", b"0\n")
    (worker,) = broker.worker_pids()
    os.sched_setaffinity(worker, {SERVER_CORE})
    _, before = used(worker)
    ears = subprocess.Popen(
        [
            str(compile_program("ears", [SOURCE])),
            str(broker.port()),
            str(listeners),
            str(CLIENT_CORE),
            *(["awake"] if awake else []),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ears.stdin is not None and ears.stdout is not None
    assert ears.stdout.readline() == "ready\n"
    _, after = used(worker)
    began, cpu = time.monotonic(), used(worker)[0]
    sent = produce(broker, rate, seconds)
    took, cores = time.monotonic() - began, used(worker)[0] - cpu
    ears.stdin.write(f"{sent}\n")
    ears.stdin.flush()
    told = json.loads(ears.stdout.readline())
    assert ears.wait(60) == 0
    missing = sent * listeners - told["heard"]
    each = (after - before) / listeners
    passed = told["p99"] <= P99_MS_MAX and cores / took <= CORES_MAX and each <= LISTENER_BYTES_MAX
    print(
        f"{listeners} listeners, {sent} events in {took:.1f} s: p50 {told['p50']:.1f} ms, "
        f"p99 {told['p99']:.1f} ms (after 20 turns of each {told['settled_p99']:.1f}), "
        f"99.9 % {told['p999']:.1f} ms, {cores / took:.2f} core, "
        f"{each / 1024:.1f} KiB each; {missing} missing, {told['ended']} ended; each has a turn "
        f"every {told['turn_p50']:.1f} ms, p99 {told['turn_p99']:.1f} ms; "
        f"the ears took {told['cpu'] / took:.2f} core"
    )
    return passed and missing == 0 and told["ended"] == 0


def main() -> int:
    """0: every bar passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listeners", type=int, default=10_000 - SPARE)
    parser.add_argument("--rate", type=int, default=100, help="events a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--awake", action="store_true", help="listeners that never sleep")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {CLIENT_CORE})
    with tempfile.TemporaryDirectory() as directory:
        broker = RunningBroker(Path(directory) / "data", workers=1)
        broker.start()
        try:
            return 0 if measure(broker, **vars(args)) else 1
        finally:
            broker.end()


if __name__ == "__main__":
    sys.exit(main())
