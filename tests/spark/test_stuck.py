"""Writes that cannot go on as they are say which row, task or batch it is, and what to do."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from sparklab import endpoint_of, produce
from test_modes import forget_last_batch
from test_write import _active, topic_of, write

__all__ = ["_active"]


class Changing:
    """A stream whose plan gives other rows each time."""

    def __init__(self, spark: Any, broker: Any, directory: Path) -> None:
        self.spark, self.broker = spark, broker
        self.checkpoint = directory / "checkpoint"

    def run(self, keep: float, **options: str) -> Any:
        """Until all that is there is written; the error, if there is one."""
        stream = self.spark.readStream.schema("key binary, value binary").format("barco")
        stream = stream.option("endpoints", endpoint_of(self.broker)).option("subscribe", "ch-in")
        frame = stream.option("startingOffsets", "earliest").load().where(f.rand() < keep)
        writer = frame.writeStream.format("barco").option("endpoints", endpoint_of(self.broker))
        writer = writer.option("topic", "ch-out").options(**options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(300)
        except PySparkException as error:
            return str(error)
        return None

    def count(self) -> int:
        return topic_of(self.spark, self.broker, "ch-out").count()


def test_a_batch_whose_rows_have_changed_can_be_skipped(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    produce(broker, "ch-in", range(3000))
    copy = Changing(spark, broker, tmp_path)
    assert copy.run(0.5) is None
    there = copy.count()
    assert 1000 < there < 2000
    forget_last_batch(copy.checkpoint / "commits")
    for _ in range(2):  # As often as it is tried.
        said = copy.run(0.1)
        found = re.search(
            rf"other rows: {there} events .* option skipBatch=(\d+), for one run", said
        )
        assert found and "writerId" in said and "another checkpoint" in said, said
    assert copy.count() == there
    assert copy.run(0.1, skipBatch=found[1]) is None
    assert copy.count() == there, "what was stored stays, and the other rows are dropped"
    produce(broker, "ch-in", range(3000, 3500))
    assert copy.run(1.1) is None
    assert copy.count() == there + 500, "it goes on"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("'v' as value; 0L as timestamp", "10 years.*timestamp"),
        (
            "'v' as value; timestamp_micros(-62135596800000001) as timestamp",
            "timestamp, -62135596800000001,",
        ),
        ("'v' as value; timestamp'2001-01-01 00:00:00' as timestamp", "10 years.*timestamp"),
        ("if(id = 700, repeat('x', 3 << 20), 'v') as value", "3145728 bytes"),
    ],
)
def test_rows_that_cannot_be_events(spark: Any, broker: Any, row: str, said: str) -> None:
    before = time.monotonic()
    frame = spark.range(0, 1000, 1, 2).selectExpr("concat('k', id) as key", *row.split("; "))
    with pytest.raises(
        PySparkException, match=rf"(?s)the row with key b'k\d+'.*{said}|{said}.*key"
    ):
        write(frame, broker, "odd")
    assert time.monotonic() - before < 60
    assert broker.request("GET", "/v1/topics/odd").status == 404


def test_three_years_in_no_order(spark: Any, broker: Any) -> None:
    """200,000 rows: a stored batch spans any time."""
    frame = spark.range(0, 200_000, 1, 4).selectExpr(
        "concat('k', id % 997) as key",
        "cast(id as string) as value",
        "timestamp_seconds(unix_timestamp() - pmod(id * 7919 * 7919, 94608000)) as timestamp",
    )
    frame = frame.cache()
    before = time.monotonic()
    write(frame, broker, "years")
    took = time.monotonic() - before
    reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    back = reader.option("subscribe", "years").load()
    back = back.selectExpr("cast(key as string)", "cast(value as string)", "timestamp")
    assert back.count() == 200_000
    assert back.exceptAll(frame).count() == 0
    print(f"written in {took:.1f} s")


@pytest.mark.chaos
def test_more_tasks_than_a_job_may_have(spark: Any, broker: Any) -> None:
    """Minutes: Spark runs the first 10,000 before it comes to the one that says it."""
    frame = spark.range(0, 10_050, 1, 10_050).selectExpr("cast(id as string) as value")
    with pytest.raises(PySparkException, match=r"10,000.*coalesce\(1000\)"):
        write(frame, broker, "many")
    metrics = broker.request("GET", "/metrics", listener="metrics").body.decode()
    assert "\nbarco_staged_bytes 0\n" in metrics
