"""What does one durable 1 KiB event cost, one a request, on 64 connections?"""

from typing import Any

import pytest

from bench.cases import microseconds, single
from bench.harness import LAB, METER, interleave, report
from bench.load import Load
from bench.servers import JSON, Broker

CASES = ("204, minimal answer", "200, JSON answer", "256 connections")


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """All cases, interleaved."""
    with LAB.question("single"):
        done = interleave(
            {
                CASES[0]: lambda: single(broker),
                CASES[1]: lambda: single(broker, header=[JSON]),
                CASES[2]: lambda: single(broker, connections=256),
            }
        )
        first = done[CASES[0]]
        LAB.record("single", microseconds(first), note=first[-1].wall())
        return done


@pytest.mark.benchmark(group="single 1 KiB events, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_produce_single(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event."""
    report(benchmark, runs[case])
