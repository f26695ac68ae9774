"""Routing of record batches: the same slices as the client's ring gives each key."""

import random

import numpy as np
import pyarrow as pa
import pytest
from reference.batch import decode_batch

from barco import _native
from barco.client.wire.ring import single_endpoint_ring
from barco.protocol.batch import TIMESTAMP_US_MIN
from barco.spark.base.options import OptionError
from barco.spark.write.commit import WriteOptions
from barco.spark.write.rows import columns_of, encode
from barco.spark.write.tokens import Columns, Router

RING = single_endpoint_ring("127.0.0.1:1")


def some_keys(count: int, seed: int = 1) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(source.randrange(60)) for _ in range(count)]


def test_every_row_goes_where_its_key_belongs() -> None:
    keys: list[bytes | None] = list(some_keys(5000))
    keys[7] = keys[4999] = None
    values = [b"%d" % n for n in range(5000)]
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values)}).slice(3, 4990)
    seen: dict[bytes, bytes | None] = {}
    for _, slice_key, columns, _ in Router(RING).split(columns_of(batch)):
        assert columns.key is not None
        of_slice = columns.value.to_pylist()
        numbers = [int(value) for value in of_slice]
        assert numbers == sorted(numbers), "rows of a slice keep their order"
        for key, value in zip(columns.key.to_pylist(), of_slice, strict=True):
            assert key is None or RING.slice_of_key(key) == slice_key
            seen[value] = key
    assert seen == dict(zip(values[3:4993], keys[3:4993], strict=True))


def test_rows_without_keys_go_by_their_values() -> None:
    """However they are shared out and ordered, with a column for keys or without."""
    values = [b"%d" % (n % 4000) for n in range(5000)]
    whole = Columns(None, pa.array(values), {})
    slices = {value: key for _, key, part, _ in Router(RING).split(whole) for value in part.value}
    assert len(set(slices.values())) == 8
    keys = pa.array([None if n % 3 else b"k" for n in range(5000)], pa.binary())
    router = Router(RING)
    for start in range(0, 5000, 700):
        for columns in (whole, Columns(keys, whole.value, {})):
            for _, slice_key, part, _ in router.split(columns.cut(start, min(start + 700, 5000))):
                there = [None] * len(part.value) if part.key is None else part.key.to_pylist()
                for key, value in zip(there, part.value, strict=True):
                    assert slice_key == (slices[value] if key is None else RING.slice_of_key(b"k"))


@pytest.mark.parametrize("acceleration", [0, 1, 4])
def test_encoding_gives_the_rows_back(acceleration: int) -> None:
    keys = [b"k", None, b"", b"\xff" * 70_00]
    values = [b"", b"v" * 3000, b"x", b"y"]
    times = np.array([9, 5, 7, 5], np.int64)
    columns = Columns(pa.array(keys), pa.array(values), {"timestamp": times})
    read = decode_batch(encode(columns, acceleration))
    assert (read.values, read.keys, read.timestamps_us) == (values, keys, times.tolist())
    part = decode_batch(encode(columns.cut(1, 3), acceleration))
    assert (part.values, part.keys) == (values[1:3], keys[1:3])
    assert part.timestamps_us == [5, 7]
    assert decode_batch(encode(Columns(None, columns.value, {}), acceleration)).keys == [None] * 4


def test_text_is_bytes_and_times_are_microseconds() -> None:
    times = pa.array([1, None, 3], pa.timestamp("us", "UTC"))
    columns = columns_of(
        pa.record_batch({"key": ["ä", "b", None], "value": ["1", "", "é"], "timestamp": times})
    )
    assert columns.key is not None
    times = columns.numbers["timestamp"]
    assert columns.key.to_pylist() == ["ä".encode(), b"b", None]
    assert columns.value.to_pylist() == [b"1", b"", "é".encode()]
    assert times[0] == 1 and times[1] > 1e15 and times[2] == 3
    columns = columns_of(pa.record_batch({"value": pa.array([None, b"x"])}))
    assert columns.value.to_pylist() == [None, b"x"] and columns.headers is None


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        ([0, 5], b"abc"), ([3, 1], b"abc"), ([-1, 2], b"abc"), ([0, 2, 1, 3], b"abc"),
        ([0, 2**31 - 1], b""),
    ],
)  # fmt: skip
def test_buffers_that_lie_are_refused(offsets: list[int], data: bytes) -> None:
    at = np.array(offsets, np.int32)
    with pytest.raises(ValueError):
        _native.tokens(at.data, data)
    with pytest.raises(ValueError):
        _native.batch_columns(at.data, data)
    good = np.arange(len(offsets), dtype=np.int32)
    with pytest.raises(ValueError):
        _native.batch_columns(good.data, b"x" * len(offsets), at.data, data)


def test_buffers_of_other_lengths_are_refused() -> None:
    at = np.array([0, 1, 2], np.int32).data
    for more in (
        {"key_offsets": at[:2], "keys": b"a"},
        {"key_offsets": at, "keys": b"ab", "key_valid": b"\1"},
        {"numbers": {"timestamp": np.array([1], np.int64).data}},
        {"numbers": {"timestamp": np.array([TIMESTAMP_US_MIN - 1, 1], np.int64).data}},
        {"numbers": {"timestamp": np.array([1, -(2**63)], np.int64).data}},
        {"numbers": {"key": np.array([1, 2], np.int64).data}},
        {"numbers": {7: np.array([1, 2], np.int64).data}},
    ):
        with pytest.raises(ValueError):
            _native.batch_columns(at, b"ab", **more)
    for odd in (b"", b"abc", b"abcde"):
        with pytest.raises(ValueError):
            _native.batch_columns(odd, b"ab")


@pytest.mark.parametrize(
    "given",
    [
        {"topic": "__x"}, {"topic": ".."}, {"topic": "a/b"}, {"writerid": "a b"},
        {"writerid": "x" * 129}, {"batchid": "1"}, {"writerid": "x", "batchid": "-1"},
        {"tpoic": "t"}, {"endpoints": "nowhere"}, {"lz4acceleration": "65"},
    ],
)  # fmt: skip
def test_options_that_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        WriteOptions.parse(given)


def test_options() -> None:
    options = WriteOptions.parse({"path": "t", "writerId": "job", "batchId": "3", "mode": "append"})
    assert (options.topic, options.writer, options.batch) == ("t", "job", 3)
    assert WriteOptions.parse({"path": "t", "topic": "u"}).topic == "u"
