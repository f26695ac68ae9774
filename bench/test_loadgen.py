"""Can the load generator load? Its own ceiling, against a server that does next to nothing."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from bench.cases import EVENT_BYTES, single
from bench.harness import METER, interleave
from bench.load import Load, median
from bench.servers import sink

CASES = {"unpipelined": 1, "16 pipelined": 16}


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, list[Load]]]:
    """Both depths, interleaved; small events when pipelined, or memory is what is measured."""
    sizes = {1: EVENT_BYTES, 16: 200}
    with sink() as server:
        yield interleave(
            {
                name: partial(single, server, depth=depth, event_bytes=sizes[depth])
                for name, depth in CASES.items()
            }
        )


@pytest.mark.benchmark(group="the load generator, its own CPU a request", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_loadgen(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Requests a second that one core of generator can send and check."""
    per_request = [run.figures["client_cpu_seconds"] / run.requests for run in runs[case]]
    benchmark.extra_info["requests_per_client_core"] = round(1 / median(per_request))
    benchmark.extra_info["wall"] = runs[case][-1].wall()
    METER.replay(benchmark, per_request)
