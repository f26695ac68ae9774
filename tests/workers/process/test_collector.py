"""The collector of cycles runs little at a time, however many requests are under way."""

import gc
from collections import deque
from collections.abc import Iterator

import pytest

from barco.workers.process.collector import YOUNG_REQUESTS, Collector

OBJECTS = 40
"""Made for each request here."""

UNDER_WAY = 3000


@pytest.fixture
def collector() -> Iterator[Collector]:
    usual = gc.get_threshold()
    made = Collector()
    made.take_over()
    yield made
    gc.set_threshold(*usual)
    gc.unfreeze()
    gc.enable()


def test_what_a_look_finds_is_what_few_requests_made(collector: Collector) -> None:
    """The interpreter's own way finds all that are under way in a "young" look: each that is freed
    while another one comes counts against it."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(len(gc.get_objects(generation=0)))

    under_way: deque[list[list[int]]] = deque()
    gc.callbacks.append(note)
    try:
        for number in range(3 * UNDER_WAY):
            collector.asked()
            under_way.append([[] for _ in range(OBJECTS)])
            if UNDER_WAY < number < 3 * UNDER_WAY - 2 * YOUNG_REQUESTS:
                under_way.popleft()
    finally:
        gc.callbacks.remove(note)
    assert len(found) >= 3 * UNDER_WAY // YOUNG_REQUESTS
    assert max(found) < 2 * YOUNG_REQUESTS * OBJECTS


def test_cycles_of_requests_are_freed(collector: Collector) -> None:
    class Cycle:
        alive = 0

        def __init__(self) -> None:
            Cycle.alive += 1
            self.own = self

        def __del__(self) -> None:
            Cycle.alive -= 1

    for _ in range(10 * YOUNG_REQUESTS):
        collector.asked()
        Cycle()
    assert Cycle.alive <= YOUNG_REQUESTS


def test_old_cycles_are_freed_now_and_then(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda generation=2: looks.append(generation))
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    made = Collector()
    for _ in range(100):
        made.tidy()
        now += 1.0
    assert looks == [2] * 9
