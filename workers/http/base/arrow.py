"""Stored events as a stream of Arrow's record batches: one call of the C core for some chunks, and
no loop over events here."""

from array import array
from collections.abc import Sequence
from typing import Any

from barco import _native
from barco.protocol.arrow_ipc import CONTENT_TYPE, Column, batch, schema
from barco.types import KiB
from barco.workers.http.base.messages import Part

ARROW = CONTENT_TYPE

FRAME_BYTES = 48
"""Of an event, beside its key, its value and its topic."""

BATCH_BYTES = 512 * KiB
"""Unpacked keys and values of one record batch, about."""

START = schema(
    (
        ("topic", "utf8", False),
        ("token", "int64", False),
        ("slice", "int32", False),
        ("epoch", "int64", False),
        ("offset", "int64", False),
        ("timestamp", "timestamp", False),
        ("key", "binary", True),
        ("value", "binary", True),
    )
)

_STORED = ("timestamp", "key", "value")
_COLUMNS = sum(_native.COLUMNS[name] for name in _STORED)


def record_batch(
    chunks: bytes, position: int, where: tuple[str, int, int], start: int, stop: int
) -> tuple[list[Part], int, int]:
    """The events of some chunks, back to back, from `position` on: those from offset `start` up to
    `stop` at most; where the next ones begin, in `chunks` and as an offset. `where`: topic, token
    and slice. ValueError: they are damaged."""
    topic, token, index = where
    position, first, rows, epochs, stored = _native.chunks_columns(
        chunks, position, topic, index, start, stop, BATCH_BYTES, _COLUMNS, False
    )
    low, high = max(0, start - first), max(0, min(rows, stop - first))
    count = high - low
    if count <= 0:
        return [], position, start
    numbers = array("q")
    for epoch, some in epochs:
        numbers.extend(array("q", [epoch]) * some)
    name = topic.encode()
    columns = [
        Column(0, (b"", array("i", range(0, len(name) * count + 1, len(name))), name * count)),
        Column(0, (b"", array("q", [token]) * count)),
        Column(0, (b"", array("i", [index]) * count)),
        Column(0, (b"", memoryview(numbers)[low:high])),
        Column(0, (b"", array("q", range(first + low, first + high)))),
        *(_cut(stored[each], low, high, rows) for each in _STORED),
    ]
    parts: Sequence[Any] = batch(count, columns)
    return [memoryview(each).cast("B") for each in parts], position, first + high


def _cut(
    found: tuple[int, bytes | None, bytes | None, bytes], low: int, high: int, rows: int
) -> Column:
    """Some rows of a column: offsets need not begin at 0, so its data stays as it is."""
    nulls, validity, offsets, data = found
    bits = b""
    if nulls and validity is not None:
        wanted = int.from_bytes(validity, "little") >> low & (1 << high - low) - 1
        bits = wanted.to_bytes((high - low + 7) // 8, "little")
        nulls = high - low - wanted.bit_count()
    if offsets is None:
        return Column(nulls, (bits, memoryview(data)[8 * low : 8 * high]))
    end = int.from_bytes(offsets[4 * rows : 4 * rows + 4], "little")
    assert end <= len(data), "the core has looked"
    return Column(nulls, (bits, memoryview(offsets)[4 * low : 4 * high + 4], data))
