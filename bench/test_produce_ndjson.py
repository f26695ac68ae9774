"""How many bytes a second can one core store when events come in large NDJSON bodies?"""

from functools import partial
from typing import Any

import pytest

from bench.cases import KiB, ndjson
from bench.harness import LAB, METER, interleave, report
from bench.load import Load
from bench.servers import Broker

SIZES = {"64k": 64 * KiB, "256k": 256 * KiB, "1m": 1024 * KiB}


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """All sizes, interleaved."""
    with LAB.question(*(f"ndjson-{name}" for name in SIZES)):
        done = interleave({name: partial(ndjson, broker, size) for name, size in SIZES.items()})
        for name, loads in done.items():
            rate = loads[-1].figures["bytes"] / loads[-1].seconds / 1e6
            values = [run.bytes_per_core / 1e6 for run in loads]
            LAB.record(f"ndjson-{name}", values, note=f"{rate:,.0f} MB/s wall, {loads[-1].wall()}")
        return done


@pytest.mark.benchmark(group="NDJSON bodies, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("size", list(SIZES))
def test_produce_ndjson(benchmark: Any, runs: dict[str, list[Load]], size: str) -> None:
    """Each size in server CPU an event of about 243 bytes."""
    report(benchmark, runs[size])
