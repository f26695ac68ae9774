"""Stored chunks as Arrow batches: exactly the schema that Spark asks for, exactly the events."""

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from reference.core import chunk_encode

from barco import _native
from barco.arrow.decode import Decoder, Origin
from barco.spark.base.schema import SchemaError, projection, source_schema

ORIGIN = Origin("t", -(2**63), 3, 11)


def decoder(schema: StructType, batch_bytes: int = 1 << 20) -> Decoder:
    arrow = to_arrow_schema(schema, timezone="UTC")
    return Decoder(projection(schema, arrow), ORIGIN, batch_bytes)


def chunks() -> tuple[bytes, list[tuple[int, int, int, bytes | None, bytes]]]:
    rng, found, events, offset = random.Random(3), [], [], 0
    for epoch in (4, 4, 5):
        count = rng.randrange(5, 50)
        values = [rng.randbytes(rng.randrange(40)) for _ in range(count)]
        keys = [rng.choice((None, b"k%d" % n)) for n in range(count)]
        chunk = chunk_encode("t", 3, epoch, offset, values, keys, [10**15 + offset] * count)
        events += [(epoch, *event) for event in _native.chunk_events(chunk)]
        found.append(chunk)
        offset += count
    return b"".join(found), events


def batches(schema: StructType, start: int, end: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    body, _ = chunks()
    reached = start
    for batch, after in decoder(schema, batch_bytes).batches(body, start, end, projected=False):
        batch.validate(full=True)
        assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)
        assert after == reached + batch.num_rows
        reached = after
        yield batch
    assert reached == end


@pytest.mark.parametrize("batch_bytes", (1, 500, 1 << 20))
def test_every_column_and_any_part(batch_bytes: int) -> None:
    _, events = chunks()
    names = ["key", "value", "topic", "partition", "epoch", "offset", "timestamp"]
    schema = source_schema([*names, "timestampType", "token", "slice", "headers"])
    rng = random.Random(batch_bytes)
    ranges = [sorted(rng.sample(range(len(events) + 1), 2)) for _ in range(20)]
    for start, end in [(0, len(events)), *ranges]:
        table = pa.Table.from_batches(list(batches(schema, start, end, batch_bytes)))
        table = table.set_column(6, "timestamp", table["timestamp"].cast(pa.int64()))
        wanted = [
            (key, value, "t", 11, epoch, offset, stamp, 0, -(2**63), 3, None)
            for epoch, offset, stamp, key, value in events[start:end]
        ]
        assert list(zip(*(table[name].to_pylist() for name in table.column_names),
                        strict=True)) == wanted  # fmt: skip


def test_what_was_good_comes_before_what_is_damaged() -> None:
    body, events = chunks()
    bad = bytearray(body)
    bad[-9] ^= 1
    schema = source_schema(["value"])
    found = []
    with pytest.raises(ValueError, match="fails its checksum"):
        for batch, _ in decoder(schema, 1).batches(bytes(bad), 0, len(events), projected=False):
            found += batch["value"].to_pylist()
    assert found == [event[4] for event in events[: len(found)]] and 0 < len(found) < len(events)


def test_only_what_a_schema_names_is_asked_for() -> None:
    def sent(*names: str) -> tuple[str, ...]:
        schema = source_schema(names)
        return projection(schema, to_arrow_schema(schema, timezone="UTC")).sent

    assert sent("offset", "topic", "epoch") == ("offset",)
    assert sent("key", "partition") == ("key",)
    assert sent() == ("key", "timestamp", "value")


def test_unknown_columns() -> None:
    with pytest.raises(SchemaError, match="no column 'valeu'"):
        source_schema(["valeu"])
    with pytest.raises(SchemaError, match="named twice"):
        source_schema(["key", "key"])
