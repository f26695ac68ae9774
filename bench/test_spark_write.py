"""What does a durable write through Spark cost, against Parquet files of the same rows?

Both write the same cached rows: key and value. Parquet is Spark's own writer with its default
(snappy), and leaves its files in the page cache; barco answers when every event is on stable
storage, in the log, past staging.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import machine, sparking
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.load import median
from bench.servers import Broker

CASES = {"spark-write-100": (1_000_000, 100), "spark-write-1k": (200_000, 1024)}
"""Rows and bytes of value, by row of the table."""
WARM_RUNS = 3
"""Of each, before the clock: the JVM compiles for as long."""


def rows_of(spark: Any, count: int, event_bytes: int) -> Any:
    """Distinct rows that compress to about two fifths, kept in memory."""
    words = " ".join(f"substr(sha2(cast(id * {n} as string), 256), 1, 12)" for n in (3, 5, 7, 11))
    parts = ", ".join(words.replace(") substr", ")|substr").split("|"))
    text = f"repeat(concat_ws(' ', id, {parts}), {event_bytes // 60 + 1})"
    frame = spark.range(0, count, 1, 2).selectExpr(
        "cast(concat('user-', id * 7919 % 100000) as binary) as key",
        f"cast(substr({text}, 1, {event_bytes}) as binary) as value",
    )
    frame = frame.cache()
    sparking.noop(frame)
    return frame


def to_barco(frame: Any, server: Broker, topic: str) -> None:
    """Returns when every row is durable and visible."""
    write = frame.write.format("barco").mode("append").option("topic", topic)
    write.option("endpoints", f"127.0.0.1:{server.port}").save()


def to_parquet(frame: Any, directory: Path) -> None:
    """The same rows into files."""
    frame.write.mode("overwrite").parquet(str(directory))


@pytest.fixture(scope="module")
def costs(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """For each case, both writers in turn."""
    found: dict[str, Any] = {}
    scratch = tmp_path_factory.mktemp("parquet")
    with LAB.question(*CASES):
        spark = sparking.session()
        clock = sparking.Clock(spark, broker)
        for row, (full, event_bytes) in CASES.items():
            count = int(full * sparking.SCALE)
            frame = rows_of(spark, count, event_bytes)
            runs: dict[str, list[sparking.Cost]] = {"barco": [], "parquet": []}
            for number in range(SETTINGS.rounds + WARM_RUNS):
                barco = clock.run(lambda: to_barco(frame, broker, f"{row}-{number}"))  # noqa: B023
                parquet = clock.run(lambda: to_parquet(frame, scratch / "rows"))  # noqa: B023
                if number >= WARM_RUNS:
                    runs["barco"].append(barco)
                    runs["parquet"].append(parquet)
            frame.unpersist()
            found[row] = runs
            ours = [count / run.seconds for run in runs["barco"]]
            theirs = [count / run.seconds for run in runs["parquet"]]
            cpu = median([run.broker_cpu for run in runs["barco"]])
            note = (
                f"{median(ours):,.0f} against {median(theirs):,.0f} rows/s; broker {cpu:.2f} s CPU"
            )
            LAB.record(row, ratios(ours, theirs), note=note)
        spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)
    if not found:
        raise machine.Missing("Spark did not run")
    return found


@pytest.mark.benchmark(group="writing through Spark, wall time a row", timer=METER.read)
@pytest.mark.parametrize("row", CASES)
@pytest.mark.parametrize("writer", ("barco", "parquet"))
def test_spark_write(benchmark: Any, costs: dict[str, Any], row: str, writer: str) -> None:
    """Wall time a row."""
    count = int(CASES[row][0] * sparking.SCALE)
    METER.replay(benchmark, [run.seconds / count for run in costs[row][writer]])
