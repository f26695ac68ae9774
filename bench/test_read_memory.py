"""How fast does one core give back what is still in memory, stored chunks as they are?"""

from typing import Any

import pytest

from bench.cases import fill
from bench.harness import LAB, METER, interleave
from bench.load import Load, median
from bench.machine import MiB
from bench.reading import read_looping
from bench.servers import TOPIC, Broker

PAYLOAD_BYTES = 96 * MiB  # About 40 MiB stored: well inside the default budget.


@pytest.fixture(scope="module")
def runs(broker: Broker) -> list[Load]:
    """The same chunks, over and over."""
    with LAB.question("read-memory"):
        fill(broker, PAYLOAD_BYTES)
        topic = TOPIC.format(topic="0000")
        done = interleave({"memory": lambda: read_looping(broker, topic)})["memory"]
        rate = done[-1].received_per_second / 1e9
        values = [run.received_per_core / 1e9 for run in done]
        LAB.record("read-memory", values, note=f"{rate:.2f} GB/s wall, {done[-1].wall()}")
        return done


@pytest.mark.benchmark(group="reading from memory, server CPU a stored MB", timer=METER.read)
def test_read_memory(benchmark: Any, runs: list[Load]) -> None:
    """Server CPU a megabyte of stored chunks."""
    benchmark.extra_info["gb_per_core_second"] = round(
        median([run.received_per_core for run in runs]) / 1e9, 3
    )
    METER.replay(benchmark, [1e6 / run.received_per_core for run in runs])
