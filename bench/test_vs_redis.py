"""Durable events against redis-server, which syncs before it answers: 50 connections x 16."""

from functools import partial
from typing import Any

import pytest

from bench.cases import single, xadd
from bench.harness import LAB, METER, interleave, ratios, report
from bench.load import Load, median
from bench.servers import Broker, redis

CASES = ("barco, POST", "redis, XADD")


def _redis_once() -> Load:
    """A new server each time: its memory grows with every event it holds."""
    with redis() as peer:
        return xadd(peer)


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """Both servers under the same events, interleaved."""
    ours_once = partial(single, broker, connections=50, depth=16)
    with LAB.question("redis"):
        done = interleave({CASES[0]: ours_once, CASES[1]: _redis_once})
        ours, theirs = ([run.events / run.seconds for run in done[name]] for name in CASES)
        cores = [[run.events_per_core for run in done[name]] for name in CASES]
        by_cpu = median(ratios(*cores))
        note = f"{ours[-1]:,.0f} against {theirs[-1]:,.0f} events/s; {by_cpu:.2f} x by CPU"
        LAB.record("redis", ratios(ours, theirs), note=note, ratio_by_cpu=by_cpu)
    return done


@pytest.mark.benchmark(group="against redis, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_vs_redis(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each server in its CPU an event."""
    report(benchmark, runs[case])
