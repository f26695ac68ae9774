"""How much does a ring yield while one of its three brokers is down?"""

from typing import Any

import pytest

from bench.harness import LAB, METER, SETTINGS, ratios
from bench.ring import SIZE, Ring, Work, keyed, ring

CASES = ("three brokers", "one of three is down")


def _with_one_down(brokers: Ring, ordinal: int) -> Work:
    brokers.kill(ordinal)
    try:
        return keyed(brokers)
    finally:
        brokers.start([ordinal])


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Work]]:
    """Each round with all, then without one of them, which comes back."""
    with LAB.question("ring-down", "ring-down-core"), ring() as brokers:
        done: dict[str, list[Work]] = {name: [] for name in CASES}
        for number in range(SETTINGS.rounds):
            done[CASES[0]].append(keyed(brokers))
            done[CASES[1]].append(_with_one_down(brokers, number % SIZE))
        note = " against ".join(done[name][-1].words() for name in reversed(CASES))
        for row, figure in (("ring-down", "per_second"), ("ring-down-core", "per_core")):
            all_, without = ([getattr(run, figure) for run in done[name]] for name in CASES)
            LAB.record(row, ratios(without, all_), note=note)
        return done


@pytest.mark.benchmark(group="one broker down, CPU of all an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_ring_down(benchmark: Any, runs: dict[str, list[Work]], case: str) -> None:
    """Each state of the ring."""
    METER.replay(benchmark, [1 / run.per_core for run in runs[case]])
