"""Headers and missing values between Arrow's columns and batches or chunks, both ways."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from reference.core import chunk_encode

from barco import _native
from barco.arrow.decode import Decoder, Origin
from barco.spark.base.schema import projection, source_schema
from barco.spark.write.rows import StageError, columns_of, encode

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(PAIR)


def events(seed: int) -> tuple[list[bytes | None], list[Any]]:
    """Values and headers; of some seeds each has a value, or none has headers."""
    chance = random.Random(seed)
    values = [None if seed % 3 and chance.random() < 0.3 else b"%d" % n for n in range(200)]
    headers = [
        tuple((f"n{m}", chance.randbytes(m)) for m in range(chance.randrange(4) if seed % 4 else 0))
        for _ in values
    ]
    return values, headers


@pytest.mark.parametrize("seed", range(12))
def test_what_is_written(seed: int) -> None:
    """Of slices of arrays, too, and with rows taken in another order."""
    values, headers = events(seed)
    lists = [None if not each else [{"key": n, "value": v} for n, v in each] for each in headers]
    batch = pa.record_batch(
        {"value": pa.array(values, pa.binary()), "headers": pa.array(lists, HEADERS)}
    )
    columns = columns_of(batch.slice(3, 190)).cut(2, 185)
    found = _native.batch_events(encode(columns, 1))
    assert [event[3] for event in found] == values[5:188]
    rows = [event[4] if len(event) > 4 else () for event in found]
    assert rows == headers[5:188]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read(seed: int) -> None:
    """Null where an event has none."""
    values, headers = events(seed)
    chunks = [
        chunk_encode("t", 0, 1, at, values[at : at + 50], headers=headers[at : at + 50])
        for at in range(0, 200, 50)
    ]
    wanted = source_schema(("headers", "value"))
    arrow = pa.schema([("headers", HEADERS), ("value", pa.binary())])
    decoder = Decoder(projection(wanted, arrow), Origin("t", 0, 0, 0), 1 << 20)
    [(batch, after)] = decoder.batches(b"".join(chunks), 7, 200, projected=False)
    batch.validate(full=True)
    assert after == 200 and batch.column("value").to_pylist() == values[7:]
    found = [
        () if each is None else tuple((pair["key"], pair["value"]) for pair in each)
        for each in batch.column("headers").to_pylist()
    ]
    assert found == headers[7:]
    assert isinstance(wanted, StructType) and wanted["value"].nullable


@pytest.mark.parametrize(
    "wrong",
    [
        [{"key": "A", "value": b""}],
        [{"key": "", "value": b""}],
        [{"key": "a", "value": b""}] * 65,
        [{"key": "a", "value": b"x" * 16384}],
        [{"key": None, "value": b"x"}],
        [{"key": "a", "value": None}],
    ],
)
def test_rows_that_cannot_be_events(wrong: Any) -> None:
    good = [{"key": "a", "value": b"x"}]
    lists = pa.array([good, None, wrong, good], HEADERS)
    batch = pa.record_batch({"value": pa.array([b"1", b"2", b"3", b"4"]), "headers": lists})
    with pytest.raises(StageError, match="value b'3'"):
        columns_of(batch)


def test_buffers_that_do_not_fit() -> None:
    one = np.array([0, 1], np.int32)
    two = np.array([0, 1, 2], np.int32)
    good = _native.headers_pack(one.data, one.data, b"a", one.data, b"b")
    assert good[0] == -1 and good[2] == b"\1\1\1ab"
    assert _native.headers_lists(good[1], good[2])[2::2] == (b"a", b"b")
    for given in (
        (two.data, one.data, b"a", one.data, b"b"),
        (one.data, two.data, b"aa", one.data, b"b"),
        (one.data, one.data, b"", one.data, b"b"),
        (one.data, one.data, b"a", one[::-1].copy().data, b"b"),
        (b"abc", one.data, b"a", one.data, b"b"),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            _native.headers_pack(*given)
    for offsets, data in ((good[1], b"\1\1\1aB"[:4]), (good[1], b"\1\1\1Ab"), (b"abc", b"")):
        with pytest.raises(ValueError, match="damaged"):
            _native.headers_lists(offsets, data)
