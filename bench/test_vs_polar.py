"""Replicated and durable, against PolarStreams, which answers from memory: three brokers each."""

from typing import Any

import pytest

from bench.harness import LAB, METER, SETTINGS, ratios
from bench.ring import Work, interleave_work, keyed, polar_program, polars, ring

CASES = ("barco, on disk", "PolarStreams, in memory")


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Work]]:
    """Both rings under one load, interleaved; each rests while the other is loaded."""
    with LAB.question("polar"):
        polar_program()
        with ring() as brokers, polars() as peers:
            done = interleave_work(
                {CASES[0]: lambda: keyed(brokers), CASES[1]: lambda: keyed(peers)},
                SETTINGS.rounds,
            )
        ours, theirs = ([run.per_core for run in done[name]] for name in CASES)
        words = [done[name][-1].words() for name in CASES]
        LAB.record("polar", ratios(ours, theirs), note=f"{words[0]} against {words[1]}")
        return done


@pytest.mark.benchmark(group="against PolarStreams, CPU of all an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_vs_polar(benchmark: Any, runs: dict[str, list[Work]], case: str) -> None:
    """Each ring in CPU of all its processes an event."""
    METER.replay(benchmark, [1 / run.per_core for run in runs[case]])
