"""Does a ring keep its leaders while something else uses all cores?"""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barco.supervisor.tied import start_tied
from bench import machine
from bench.harness import LAB, METER, SETTINGS
from bench.load import LoadFailed
from bench.ring import Ring, keyed, ring

CONNECTIONS = 12
LOAD_EVERY_SECONDS = 5.0
Generations = dict[str, int]
"""Of each range, by its token."""


@contextlib.contextmanager
def _busy(loops: int) -> Iterator[None]:
    idlers = [start_tied([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for idler in idlers:
            idler.kill()
            idler.wait()


def _versions(brokers: Ring) -> Generations:
    return {str(shard["token"]): int(shard["version"]) for shard in brokers.shards()}


def _load(brokers: Ring) -> int:
    """Events acknowledged; a refused one is what a fail-over may lead to, and is told as none."""
    try:
        return keyed(brokers, CONNECTIONS).events
    except LoadFailed:
        return 0


def _changes(brokers: Ring, seconds: float) -> tuple[int, float, int]:
    """Generations opened meanwhile, CPU seconds of the brokers, events acknowledged."""
    before = _versions(brokers)
    pids = [pid for ordinal in brokers.alive for pid in brokers.pids(ordinal)]
    spent = sum(map(machine.cpu_seconds, pids))
    events = 0
    with _busy(len(machine.CORES)):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            events += _load(brokers)
            time.sleep(max(min(left, LOAD_EVERY_SECONDS) - SETTINGS.seconds, 0))
        after = _versions(brokers)
    spent = sum(map(machine.cpu_seconds, pids)) - spent
    return sum(after[token] - version for token, version in before.items()), spent, events


@pytest.fixture(scope="module")
def runs() -> list[float]:
    """Wall seconds."""
    with LAB.question("pressure"), ring() as brokers:
        began = time.monotonic()
        changes, spent, events = _changes(brokers, SETTINGS.pressure_seconds)
        took = time.monotonic() - began
        note = f"{took:.0f} s, {spent:.1f} s of CPU left for three brokers, {events:,} events"
        LAB.record("pressure", [changes], note=note)
        return [took]


@pytest.mark.benchmark(group="a ring beside busy loops, wall time", timer=METER.read)
def test_ring_pressure(benchmark: Any, runs: list[float]) -> None:
    """How long it was watched."""
    METER.replay(benchmark, runs)
