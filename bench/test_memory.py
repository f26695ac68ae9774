"""How much memory does a worker take: idle, and at most under whatever load?"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

from bench import machine
from bench.cases import KiB, fill, ndjson, single
from bench.harness import LAB, SETTINGS
from bench.load import Load, median
from bench.machine import MiB
from bench.reading import read_looping, slice_paths
from bench.servers import NDJSON, TOPIC, Broker
from bench.servers import broker as new_broker

IDLE_STARTS = 3
IDLE_SECONDS = 2.0
SLOW_READERS = 64
HALF_SENT = 128
TOPIC_0 = TOPIC.format(topic="0000")


def test_idle() -> None:
    """Resident memory of a worker that has done nothing yet."""
    found = []
    with LAB.question("memory-idle"):
        for _ in range(IDLE_STARTS):
            with new_broker() as server:
                time.sleep(IDLE_SECONDS)
                found.append(machine.memory(server.pids[0]))
        note = f"proportional share {median([m['pss'] for m in found]) / MiB:.1f} MiB"
        LAB.record("memory-idle", [m["rss"] / MiB for m in found], note=note)


@contextlib.contextmanager
def _connections(server: Broker, count: int) -> Iterator[list[socket.socket]]:
    opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def _slow_readers(server: Broker) -> None:
    """Consumers that ask for as much as they may and then do not read it."""
    path = slice_paths(server, TOPIC_0)[0].format(cursor="earliest")
    path = path.replace(f"maxBytes={4 * MiB}", f"maxBytes={16 * MiB}")
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with _connections(server, SLOW_READERS) as opened:
        for one in opened:
            one.sendall(request)
        time.sleep(SETTINGS.seconds)


def _half_sent(server: Broker) -> None:
    """Producers that announce 16 MiB, send half of it, and stop."""
    head = f"POST /v1/topic/{TOPIC_0}/messages HTTP/1.1\r\nHost: localhost\r\n{NDJSON}\r\n"
    head += f"Content-Length: {16 * MiB}\r\n\r\n"
    with _connections(server, HALF_SENT) as opened:
        for one in opened:
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.send(head.encode())
        body, deadline = b"x" * (256 * KiB), time.monotonic() + SETTINGS.seconds
        while time.monotonic() < deadline:
            for one in opened:
                with contextlib.suppress(OSError):
                    one.send(body)
            time.sleep(0.01)


def _loads(server: Broker) -> dict[str, Callable[[], Load | None]]:
    large = {"event_bytes": 1000 * KiB, "pool_mib": 128, "check": False}
    return {
        "NDJSON of 1 MiB, 64 connections": lambda: ndjson(server, 1024 * KiB, connections=64),
        "singles, 256 x 16": lambda: single(server, connections=256, depth=16),
        "1,000 topics": lambda: single(server, depth=16, topics=1000),
        "events of 1 MB, 128 connections": lambda: single(server, connections=128, **large),
        "bodies of 15 MiB, 32 connections": lambda: ndjson(
            server, 15 * MiB, connections=32, check=False
        ),
        "reading 4 MiB at a time": lambda: read_looping(server, TOPIC_0, per_slice=8, check=False),
        "readers that do not read": lambda: _slow_readers(server),
        "bodies that do not end": lambda: _half_sent(server),
    }


def test_load() -> None:
    """Peak of resident memory, over the budget, under each of the loads in turn."""
    budget = 256 * MiB
    with LAB.question("memory-load"), new_broker(limits_memory_bytes=budget) as server:
        pid = server.pids[0]
        fill(server, 64 * MiB)
        peaks = {}
        for name, run in _loads(server).items():
            machine.memory_peak_reset(pid)
            run()
            peaks[name] = machine.memory(pid)["peak"] / MiB
        worst = max(peaks, key=lambda name: peaks[name])
        note = f"peak {peaks[worst]:.0f} MiB with a budget of {budget // MiB} MiB: {worst}"
        LAB.record("memory-load", [peaks[worst] - budget / MiB], note=note, peaks=peaks)
