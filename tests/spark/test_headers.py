"""Headers and events without a value, written and read by Spark."""

from typing import Any

from pyspark.sql import functions as f
from sparklab import endpoint_of
from test_write import _active, write

__all__ = ["_active"]

COUNT = 3000
KIND = "array<struct<key:string,value:binary>>"


def test_what_is_written_is_read(spark: Any, broker: Any) -> None:
    pair = "named_struct('key', 'n', 'value', cast(cast(id as string) as binary))"
    twice = f"array({pair}, named_struct('key', 'n', 'value', cast('last' as binary)))"
    rows = spark.range(0, COUNT, 1, 3).selectExpr(
        "concat('k', id) as key",
        "case when id % 7 = 0 then null else concat('v', id) end as value",
        f"case when id % 5 = 0 then {twice} when id % 5 = 1 then array() end as headers",
    )
    write(rows, broker, "h1")
    reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    frame = reader.option("subscribe", "h1").option("includeHeaders", "true").load()
    assert dict(frame.dtypes)["headers"] == KIND and frame.schema["value"].nullable
    found = {bytes(row["key"]).decode(): row for row in frame.collect()}
    assert len(found) == COUNT
    for n in range(COUNT):
        row = found[f"k{n}"]
        assert row["value"] == (None if n % 7 == 0 else b"v%d" % n)
        if n % 5:
            assert row["headers"] is None
        else:
            last = [(each["key"], bytes(each["value"])) for each in row["headers"]]
            assert [name for name, _ in last] == ["n", "n"] and last[1][1] == b"last"
            assert last[0][1] == b"%d" % n
    whole = f"key binary, value binary, headers {KIND}"
    again = reader.option("subscribe", "h1").schema(whole).load()
    write(again, broker, "h2")
    copied = reader.option("subscribe", "h2").schema(whole).load()
    assert copied.where(f.col("value").isNull()).count() == len(range(0, COUNT, 7))
    assert copied.where(f.size("headers") == 2).count() == COUNT // 5
    assert copied.exceptAll(again).count() == again.exceptAll(copied).count() == 0
