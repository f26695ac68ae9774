"""How fast is a topic in Spark, against JSON and Parquet of the same rows, and against tuples?

Every reader runs to the noop sink, in turn, on two cores that the broker shares. Ratios are of wall
time within a round; the CPU seconds beside them are steadier where a machine has other work.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import machine
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.load import median
from bench.servers import Broker, broker, scratch_dir
from bench.sparking import (
    SCALE,
    Clock,
    Cost,
    bytes_sent,
    endpoint_of,
    noop,
    produce,
    row_source,
    session,
)

SIZES = {"100": (100, 2_000_000), "1k": (1024, 300_000)}
"""Bytes and number of the events: three minutes for all of it, on two cores."""
THREE = "key binary, value binary, offset bigint"
READERS = ("all", "parquet", "json", "three", "parquet-three", "value", "rows")
SLOW = ("json", "rows")
"""Several times slower than the others: warm after one run, and five rounds tell enough."""
SLOW_ROUNDS = 5
WARM_RUNS = 6
"""Of the others: the JVM compiles for as long."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for both sizes."""
    try:
        found = session()
    except machine.Missing as error:
        pytest.skip(str(error))
    found.dataSource.register(row_source())
    yield found
    found.stop()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Broker]:
    """A broker of a worker for each core, with a topic of each size."""
    with broker(workers=len(machine.CORES)) as server:
        for size, (event_bytes, count) in SIZES.items():
            produce(server, f"events-{size}", int(count * SCALE), event_bytes)
        yield server


def queries(
    spark: Any, server: Broker, topic: str, directory: Path
) -> dict[str, Callable[[], None]]:
    """Every reader of the same rows; the files are written here."""

    def read(schema: str = "", source: str = "barco") -> Any:
        reader = spark.read.format(source).option("endpoints", endpoint_of(server))
        reader = reader.schema(schema) if schema else reader
        return reader.option("subscribe", topic).load()

    everything = read()
    everything.write.parquet(str(directory / "all.parquet"))
    everything.write.json(str(directory / "all.json"))
    read(THREE).write.parquet(str(directory / "three.parquet"))

    def parquet(name: str) -> Callable[[], None]:
        return lambda: noop(spark.read.parquet(str(directory / name)))

    schema = everything.schema
    return {
        "all": lambda: noop(read()),
        "parquet": parquet("all.parquet"),
        "json": lambda: noop(spark.read.schema(schema).json(str(directory / "all.json"))),
        "three": lambda: noop(read(THREE)),
        "parquet-three": parquet("three.parquet"),
        "value": lambda: noop(read("value binary")),
        "rows": lambda: noop(read(source="barco_rows")),
    }


def measure(spark: Any, server: Broker, size: str) -> dict[str, list[Cost]]:
    """Rounds of every reader, in turning order, after some that warm the JVM."""
    found: dict[str, list[Cost]] = {name: [] for name in READERS}
    with scratch_dir("spark") as directory:
        cases = queries(spark, server, f"events-{size}", directory)
        clock = Clock(spark, server)
        for number in range(WARM_RUNS):
            for name, query in cases.items():
                if number == 0 or name not in SLOW:
                    query()
        for number in range(SETTINGS.rounds):
            at = number % len(READERS)
            for name in READERS[at:] + READERS[:at]:
                if number < SLOW_ROUNDS or name not in SLOW:
                    found[name].append(clock.run(cases[name]))
    return found


def judge(server: Broker, size: str, costs: dict[str, list[Cost]]) -> None:
    """The rows of the table."""
    events = int(SIZES[size][1] * SCALE)

    def faster(row: str, ours: str, theirs: str) -> None:
        rounds = min(len(costs[ours]), len(costs[theirs]))
        times = [[cost.seconds for cost in costs[name][:rounds]] for name in (theirs, ours)]
        cpu = [median([cost.spark_cpu for cost in costs[name]]) for name in (ours, theirs)]
        rate = events / median(times[1]) / 1e6
        note = f"{rate:.2f} M rows/s; CPU {cpu[0]:.2f} against {cpu[1]:.2f} s"
        LAB.record(f"spark-{row}-{size}", ratios(*times), note=note)

    faster("json", "all", "json")
    faster("parquet", "all", "parquet")
    faster("rows", "all", "rows")
    faster("three", "three", "parquet-three")
    broker_share(f"spark-broker-{size}", costs["all"])
    broker_share(f"spark-broker-value-{size}", costs["value"])
    if size == "100":
        faster("value", "value", "all")
        topic = f"events-{size}"
        whole = bytes_sent(server, topic, ("key", "value", "timestamp"))
        LAB.record("spark-keys-100", [100 * bytes_sent(server, topic, ("key",)) / whole])


def broker_share(row: str, costs: list[Cost]) -> None:
    """What serving took of CPU, in percent of what Spark took."""
    broker, spark = (
        median([getattr(c, name) for c in costs]) for name in ("broker_cpu", "spark_cpu")
    )
    note = f"CPU {broker:.3f} against {spark:.2f} s"
    LAB.record(row, [100 * cost.broker_cpu / cost.spark_cpu for cost in costs], note=note)


@pytest.fixture(scope="module")
def measured(spark: Any, loaded: Broker) -> dict[str, dict[str, list[Cost]]]:
    """Both sizes."""
    found = {}
    for size in SIZES:
        names = ["json", "parquet", "rows", "three", "broker", "broker-value"]
        names += ["value", "keys"] if size == "100" else []
        with LAB.question(*(f"spark-{name}-{size}" for name in names)):
            found[size] = measure(spark, loaded, size)
            judge(loaded, size, found[size])
    return found


@pytest.mark.benchmark(group="Spark, wall time of a query", timer=METER.read)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("size", SIZES)
def test_spark_read(
    benchmark: Any, measured: dict[str, dict[str, list[Cost]]], size: str, reader: str
) -> None:
    """Wall time, CPU beside it."""
    costs = measured[size][reader]
    benchmark.extra_info["spark_cpu_s"] = round(median([cost.spark_cpu for cost in costs]), 3)
    benchmark.extra_info["broker_cpu_s"] = round(median([cost.broker_cpu for cost in costs]), 3)
    METER.replay(benchmark, [cost.seconds for cost in costs])
