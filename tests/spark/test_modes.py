"""Output modes: what each batch of an aggregation stores, and that it is stored once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sparklab import endpoint_of, produce

from barco.spark import each_batch, register


def counts(spark: Any, broker: Any, topic: str) -> Any:
    stream = spark.readStream.schema("partition int").format("barco")
    stream = stream.option("endpoints", endpoint_of(broker)).option("subscribe", topic)
    frame = stream.option("startingOffsets", "earliest").load().groupBy("partition").count()
    return frame.selectExpr("cast(partition as string) as key", "cast(count as string) as value")


def stored(spark: Any, broker: Any, topic: str) -> Counter[tuple[str, str]]:
    reader = spark.read.schema("key string, value string").format("barco")
    reader = reader.option("endpoints", endpoint_of(broker)).option("subscribe", topic)
    return Counter((row.key, row.value) for row in reader.load().collect())


def now(spark: Any, broker: Any, topic: str) -> dict[str, str]:
    """The result as it is to be."""
    reader = spark.read.schema("partition int").format("barco").option("subscribe", topic)
    rows = reader.option("endpoints", endpoint_of(broker)).load().groupBy("partition").count()
    return {str(row["partition"]): str(row["count"]) for row in rows.collect()}


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_aggregations(spark: Any, broker: Any, tmp_path: Path, mode: str) -> None:
    """Update: what has changed. Complete: all of it, each time. A batch of the former that is run
    again, as after a crash between the sink's commit and the checkpoint's, is stored once."""
    source, sink = f"{mode}-in", f"{mode}-out"
    where = {"endpoints": endpoint_of(broker), "topic": sink}
    wanted: Counter[tuple[str, str]] = Counter()
    before: dict[str, str] = {}
    first = 0
    for count in (400, 3, 0) if mode == "update" else (400, 3):
        produce(broker, source, range(first, first + count))
        first += count
        if not count:
            forget_last_batch(tmp_path / "checkpoint" / "commits")
        register(spark)  # See `_active` in test_write.
        writer = counts(spark, broker, source).writeStream.outputMode(mode)
        if mode == "complete":
            writer = writer.format("barco").options(**where)
        else:
            writer = writer.foreachBatch(each_batch(**where))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300) and query.exception() is None
        after = now(spark, broker, source)
        if count:
            changed = {key for key, value in after.items() if before.get(key) != value}
            shown = changed if mode == "update" else set(after)
            wanted.update((key, after[key]) for key in shown)
        before = after
        assert stored(spark, broker, sink) == wanted


def forget_last_batch(commits: Path) -> None:
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
