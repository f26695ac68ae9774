"""Rows of a write as events: which columns there may be, what is in them, which row is wrong."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from barco import _native
from barco.client.wire.http1 import Response
from barco.errors import BarcoError
from barco.limits import KEY_BYTES_MAX
from barco.protocol.batch import TIMESTAMP_US_MIN, split_batches
from barco.spark.base.options import OptionError
from barco.spark.base.schema import TYPES
from barco.spark.write.commit import WriteOptions
from barco.spark.write.tokens import Columns, Numbers, data_of, offsets_of

TOLD_BYTES = 48
"""Of a key or value, in a message."""

TIMESTAMP_US_MAX = 2**63 - 2**32
"""Of an event: that of a batch's first one (native/format/batch.c)."""

_BYTES = ("key", "value")
_NUMBERS = tuple(name for name in _native.COLUMNS if name not in (*_BYTES, "headers"))
_COLUMNS = {name: TYPES[name] for name in (*_BYTES, "topic", *_NUMBERS, "partition", "headers")}
_PASSED_OVER = ("offset", "epoch", "timestampType", "token", "slice")
"""What a read of barco or Kafka has as well: it is given anew."""


class StageError(BarcoError):
    """A task could not stage its rows; Spark runs it again."""

    slug = "stage"
    title = "The rows could not be staged"


class RefusedError(StageError):
    """A shard will not have them, whoever asks it again."""


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """OptionError unless the rows can be events."""
    known = {field.name: field for field in schema.fields}
    if "value" not in known:
        raise OptionError(f"the rows have no column 'value', but: {', '.join(known) or 'none'}")
    for name, column in known.items():
        if name in _PASSED_OVER:
            continue
        if name not in _COLUMNS:
            raise OptionError(
                f"column {name!r} cannot be written: there are {', '.join(_COLUMNS)}; "
                "put the rest into the value, with to_json(struct(*)) or the like"
            )
        # By its name: whether parts of headers may be null differs with how they were made.
        if column.dataType.simpleString() not in [each.simpleString() for each in _COLUMNS[name]]:
            may = " or ".join(each.simpleString() for each in _COLUMNS[name])
            raise OptionError(f"column {name} is {may}, not {column.dataType.simpleString()}")
    if options.topic is None and "topic" not in known:
        raise OptionError("say where to with option topic, or with a column of that name")


def refuse(columns: Columns, wrong: Any, why: str) -> None:
    """StageError that names the first row that is wrong, if one is."""
    found = np.flatnonzero(np.asarray(wrong))
    if len(found):
        key, value, *_ = columns.cut(int(found[0]), int(found[0]) + 1)
        told = row_words(None if key is None else key[0].as_py(), value[0].as_py())
        raise StageError(f"{told}: {why}")


def row_words(key: bytes | None, value: bytes | None) -> str:
    """A row in words."""
    said = "the row without a key" if key is None else f"the row with key {_start(key)}"
    return said if value is None else f"{said} and value {_start(value)}"


def _start(text: bytes) -> str:
    more = f"... ({len(text)} bytes)" if len(text) > TOLD_BYTES else ""
    return f"{text[:TOLD_BYTES]!r}{more}"


def which_row(answer: Response, body: bytes) -> str:
    """Which of the rows in some batches was refused, in words; nothing if it was not for a row."""
    stamp = answer.problem.get("timestampUs")
    if answer.status != 413 and stamp is None:
        return ""
    rows = [
        (len(value or b"") + len(key or b""), key, value, time_us)
        for batch in split_batches(body)
        for _, time_us, key, value, *_ in _native.batch_events(batch)
    ]
    if answer.status == 413:
        size, key, value, _ = max(rows, key=lambda row: row[0])
        return f" The largest of {len(rows)} has {size} bytes: {row_words(key, value)}."
    # What times of 0 count from is the microsecond before.
    stamps = (stamp, "0") if stamp == "-1" else (stamp,)
    found = [row for row in rows if str(row[3]) in stamps]
    return f" It is in column timestamp of {row_words(*found[0][1:3])}." if found else ""


def placed(column: pa.Array, columns: Columns, numbers: Numbers, slices: int) -> Numbers:
    """The slices of rows that say their partition: a row without a key goes there, one with a key
    goes where its key belongs, so it has to be the same. A null says nothing."""
    given = column.fill_null(0).to_numpy()
    said = column.is_valid().to_numpy(zero_copy_only=False)
    refuse(columns, said & ((given < 0) | (given >= slices)), f"partitions are 0 to {slices - 1}")
    if columns.key is not None:
        keyed = columns.key.is_valid().to_numpy(zero_copy_only=False)
        refuse(
            columns,
            said & keyed & (given != numbers),
            "its partition is not that of its key: leave the column partition out",
        )
    return np.where(said, given, numbers).astype(np.int32)


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Key, value and time of a batch's rows, as bytes and microseconds."""
    values = batch.column("value").cast(pa.binary())
    key = None
    if batch.schema.get_field_index("key") >= 0:
        key = batch.column("key").cast(pa.binary())
    numbers = {name: _numbers(batch, name) for name in _NUMBERS if name in batch.schema.names}
    columns = Columns(key, values, numbers)
    if batch.schema.get_field_index("headers") >= 0:
        columns = columns._replace(headers=_headers(batch.column("headers"), columns))
    times = numbers.get("timestamp")
    if times is not None:
        wrong = (times < TIMESTAMP_US_MIN) | (times > TIMESTAMP_US_MAX)
        refuse(
            columns,
            wrong,
            f"its timestamp, {times[np.argmax(wrong)]}, is none: column timestamp counts "
            "microseconds since 1970, from the year 1 on, and a null is now",
        )
    return columns


def _headers(lists: pa.Array, columns: Columns) -> pa.Array | None:
    """As they are stored; None: no row has any."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    if not lengths.any():
        return None
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    names, texts = (part.cast(pa.binary()) for part in lists.flatten().flatten())
    if names.null_count or texts.null_count:
        null = pc.or_(names.is_null(), texts.is_null()).to_numpy(zero_copy_only=False)
        rows = np.searchsorted(offsets, np.flatnonzero(null), side="right") - 1
        refuse(columns, np.isin(np.arange(len(lists)), rows), "a header's key or value is null")
    bad, at, data = _native.headers_pack(
        offsets.data,
        *(offsets_of(names).data, data_of(names)),
        *(offsets_of(texts).data, data_of(texts)),
    )
    refuse(
        columns,
        np.arange(len(lists)) == bad,
        "an event has at most 64 headers and 16 KiB of them, with keys of a-z 0-9 and "
        "!#$%&'*+.^_`|~-",
    )
    buffers = [None, pa.py_buffer(at), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lists), buffers, 0)


def _numbers(batch: pa.RecordBatch, name: str) -> Any:
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    numbers = column.cast(pa.int64())
    if numbers.null_count:
        numbers = numbers.fill_null(time.time_ns() // 1000 if name == "timestamp" else 0)
    return numbers.to_numpy(zero_copy_only=False)


def _valid(column: pa.Array | None) -> Any:
    """A byte for each row: whether it has one; None: each has."""
    if column is None or not column.null_count:
        return None
    return column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)


def encode(columns: Columns, acceleration: int) -> bytes:
    """The rows as application/vnd.barco.batch, compressed."""
    key, value, numbers, headers = columns
    headed = None if headers is None else (np.diff(offsets_of(headers)) > 0).view(np.uint8).data
    try:
        return _native.batch_columns(
            offsets_of(value).data,
            data_of(value),
            None if key is None else offsets_of(key).data,
            None if key is None else data_of(key),
            _valid(key),
            {name: np.ascontiguousarray(each).data for name, each in numbers.items()},
            acceleration,
            _valid(value),
            None if headers is None else offsets_of(headers).data,
            None if headers is None else data_of(headers),
            headed,
        )
    except ValueError as error:
        if key is not None:
            long = np.diff(offsets_of(key)) > KEY_BYTES_MAX
            refuse(columns, long, f"its key has more than {KEY_BYTES_MAX} bytes")
        raise StageError(f"the rows cannot be events: {error}") from None
