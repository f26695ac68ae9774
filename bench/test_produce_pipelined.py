"""How many single events a second can one core take when clients pipeline?"""

from functools import partial
from typing import Any

import pytest

from bench.cases import single
from bench.harness import LAB, METER, interleave, report
from bench.load import Load
from bench.servers import Broker

DEPTHS = (4, 16, 64)


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """All depths, interleaved."""
    with LAB.question("pipelined"):
        done = interleave({str(depth): partial(single, broker, depth=depth) for depth in DEPTHS})
        sixteen = done["16"]
        LAB.record("pipelined", [run.events_per_core for run in sixteen], note=sixteen[-1].wall())
        return done


@pytest.mark.benchmark(group="pipelined 1 KiB events, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("depth", DEPTHS)
def test_produce_pipelined(benchmark: Any, runs: dict[str, list[Load]], depth: int) -> None:
    """Each depth in server CPU an event."""
    report(benchmark, runs[str(depth)])
