"""Durable events against an HTTP server that stores nothing: nginx with `return 204`."""

from typing import Any

import pytest

from bench.cases import single
from bench.harness import LAB, METER, interleave, ratios, report
from bench.load import Load
from bench.servers import Broker, nginx

CASES = ("barco, durable", "nginx, return 204")


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """Both servers under one load, interleaved."""
    with LAB.question("nginx"), nginx() as peer:
        done = interleave({CASES[0]: lambda: single(broker), CASES[1]: lambda: single(peer)})
        ours, theirs = ([1 / run.cpu_per_request for run in done[name]] for name in CASES)
        walls = [done[name][-1].wall() for name in CASES]
        LAB.record("nginx", ratios(ours, theirs), note=f"{walls[0]} against {walls[1]}")
    return done


@pytest.mark.benchmark(group="against nginx, server CPU a request", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_vs_nginx(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each server in its CPU a request."""
    report(benchmark, runs[case])
