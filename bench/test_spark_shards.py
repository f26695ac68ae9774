"""Would two shards serve Spark faster than one, where the cores are there?

Here they are not: two cores cannot show it, so this is a plan on paper, from costs that are
measured. The same events are in a broker of one shard and in one of two, and Spark reads both in
turn. What a shard's worker spends on a row bounds the rows a shard can serve (it has one core);
what Spark spends on a row bounds what so many of its cores can take. Shards share nothing, so two
serve twice as much if a row costs each of them what it costs one alone: that is what is measured.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bench import sparking
from bench.harness import LAB, METER, SETTINGS
from bench.load import median
from bench.servers import broker

ROW = "spark-shards"
COUNT, EVENT_BYTES = 400_000, 100
SHARDS = (1, 2)
CORES = (2, 4, 8, 16, 32, 64)
"""Of Spark, in the plan."""

Costs = dict[int, list[sparking.Cost]]
"""By the number of shards."""


@pytest.fixture(scope="module")
def costs() -> Iterator[Costs]:
    """The same query against one shard and two, in turn."""
    found: Costs = {shards: [] for shards in SHARDS}
    with LAB.question(ROW), ExitStack() as stack:
        count = int(COUNT * sparking.SCALE)
        spark = sparking.session()
        queries = {}
        for shards in SHARDS:
            server = stack.enter_context(broker(workers=shards))
            sparking.produce(server, "events", count, EVENT_BYTES)
            reader = spark.read.format("barco").option("subscribe", "events")
            frame = reader.option("endpoints", sparking.endpoint_of(server)).load()
            queries[shards] = (sparking.Clock(spark, server), frame)
        for number in range(SETTINGS.rounds + 2):
            for shards in SHARDS if number % 2 else SHARDS[::-1]:
                clock, frame = queries[shards]
                cost = clock.run(lambda: sparking.noop(frame))  # noqa: B023
                if number > 1:  # The first two are for the JVM to warm up.
                    found[shards].append(cost)
        spark.stop()
        judge(found, count)
    yield found


def judge(costs: Costs, count: int) -> None:
    """How much more two shards serve than one; beside it, the plan."""
    served = {
        shards: [shards * count / cost.broker_cpu for cost in costs[shards]] for shards in SHARDS
    }
    taken = {shards: [count / cost.spark_cpu for cost in costs[shards]] for shards in SHARDS}
    rates = {n: (median(served[n]), median(taken[n])) for n in SHARDS}
    LAB.record(
        ROW,
        [two / one for one, two in zip(served[1], served[2], strict=True)],
        note="on paper: " + plan(rates),
        plan={str(n): [planned(rates, shards, n) for shards in SHARDS] for n in CORES},
    )


def planned(rates: dict[int, tuple[float, float]], shards: int, cores: int) -> float:
    """Rows a second: what the shards can serve, or what Spark's cores can take."""
    served, taken = rates[shards]
    return min(served, cores * taken)


def plan(rates: dict[int, tuple[float, float]]) -> str:
    """The same in words."""
    parts = []
    for cores in CORES:
        one, two = (planned(rates, shards, cores) / 1e6 for shards in SHARDS)
        parts.append(f"{cores} Spark cores {one:.1f} and {two:.1f}")
    full = rates[1][0] / rates[1][1]
    return f"{', '.join(parts)} M rows/s; {full:.0f} Spark cores keep one shard busy"


@pytest.mark.benchmark(group="shards of a bulk load, broker CPU a row", timer=METER.read)
@pytest.mark.parametrize("shards", SHARDS)
def test_spark_shards(benchmark: Any, costs: Costs, shards: int) -> None:
    """CPU a row, of all workers together."""
    benchmark.extra_info["spark_cpu_s"] = median([cost.spark_cpu for cost in costs[shards]])
    count = int(COUNT * sparking.SCALE)
    METER.replay(benchmark, [cost.broker_cpu / count for cost in costs[shards]])
