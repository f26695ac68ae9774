"""Stored chunks as Arrow batches: one call of the C core for each batch, no loop over events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from barco import _native
from barco.types import KiB

CREATE_TIME = 0
"""Kafka's timestampType: the time that the producer gave, or the broker's when it came."""

_BITS = {**_native.COLUMNS, "offset": 0}
_CONSTANT_ROWS = 16 * KiB


_SENT = frozenset(_native.COLUMNS)
"""Columns that are stored as such; all others follow from a chunk's header."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What of an event is wanted, in the order of the schema."""

    names: tuple[str, ...]
    arrow: pa.Schema

    @property
    def sent(self) -> tuple[str, ...]:
        """The names of the columns that a broker has to send; `offset` alone if none is."""
        return tuple(sorted(_SENT.intersection(self.names))) or ("offset",)

    def type_of(self, name: str) -> pa.DataType:
        """The Arrow type of a column."""
        return self.arrow.field(name).type


@dataclass(frozen=True, slots=True)
class Origin:
    """The slice that events come from."""

    topic: str
    token: int
    slice: int
    partition: int


class _Columns:
    """What the C core made of some chunks: buffers, whole chunks."""

    def __init__(self, found: tuple, origin: Origin) -> None:  # type: ignore[type-arg]
        self.position, self.first, self.rows, self.epochs, self.stored = found
        self.origin = origin


class Decoder:
    """Makes batches of one slice's chunks, in the shape of a projection."""

    def __init__(self, projection: Projection, origin: Origin, batch_bytes: int) -> None:
        self._projection = projection
        self._origin = origin
        self._batch_bytes = batch_bytes
        self._columns = sum(_BITS[name] for name in projection.sent)
        self._constants: dict[tuple[str, int], pa.Array] = {}
        self._makers = [(name, _MAKERS[name]) for name in projection.names]

    def batches(
        self, body: bytes, start: int, end: int, *, projected: bool
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Batches of the events from `start` up to `end` that chunks back to back hold, each with
        the offset after its last event. ValueError: the chunks are damaged, or not those of this
        slice and place; what was yielded before is good."""
        position = 0
        while position < len(body) and start < end:
            columns = _Columns(
                _native.chunks_columns(
                    body,
                    position,
                    self._origin.topic,
                    self._origin.slice,
                    start,
                    end,
                    self._batch_bytes,
                    self._columns,
                    projected,
                ),
                self._origin,
            )
            position = columns.position
            if not columns.rows:
                continue
            after = min(columns.first + columns.rows, end)
            yield self._batch(columns).slice(start - columns.first, after - start), after
            start = after

    def _batch(self, columns: _Columns) -> pa.RecordBatch:
        arrays = [make(self, name, columns) for name, make in self._makers]
        if not arrays:  # A schema without columns: there are rows nevertheless, to be counted.
            return pa.RecordBatch.from_arrays([pa.nulls(columns.rows)], ["none"]).select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self._projection.arrow)

    def constant(self, name: str, value: object, rows: int) -> pa.Array:
        """The same value in every row: one array for all batches, cut to length."""
        key = (name, hash(value))
        found = self._constants.get(key)
        if found is None or len(found) < rows:
            kind = self._projection.type_of(name)
            size = max(rows, _CONSTANT_ROWS)
            found = self._constants[key] = pa.repeat(pa.scalar(value, kind), size)
        return found.slice(0, rows)

    def stored(self, name: str, columns: _Columns) -> pa.Array:
        """A column as the C core unpacked it: bytes, null where an event has none, or numbers."""
        nulls, validity, *held = columns.stored[name]
        buffers = [pa.py_buffer(validity) if nulls else None]
        buffers += [pa.py_buffer(each) for each in held if each is not None]
        return pa.Array.from_buffers(self._projection.type_of(name), columns.rows, buffers, nulls)

    def offset(self, name: str, columns: _Columns) -> pa.Array:
        """Offsets go on without gaps."""
        numbers = np.arange(columns.first, columns.first + columns.rows, dtype=np.int64)
        return pa.Array.from_buffers(pa.int64(), columns.rows, [None, pa.py_buffer(numbers)], 0)

    def epoch(self, name: str, columns: _Columns) -> pa.Array:
        """The generation of each chunk."""
        if len(columns.epochs) == 1:
            return self.constant(name, columns.epochs[0][0], columns.rows)
        return pa.concat_arrays(
            [pa.repeat(pa.scalar(epoch, pa.int64()), rows) for epoch, rows in columns.epochs]
        )

    def topic(self, name: str, columns: _Columns) -> pa.Array:
        """The slice's topic, in every row."""
        return self.constant(name, columns.origin.topic, columns.rows)

    def partition(self, name: str, columns: _Columns) -> pa.Array:
        """The number of the slice among all of the topic."""
        return self.constant(name, columns.origin.partition, columns.rows)

    def token(self, name: str, columns: _Columns) -> pa.Array:
        """Where the slice's token range starts."""
        return self.constant(name, columns.origin.token, columns.rows)

    def slice(self, name: str, columns: _Columns) -> pa.Array:
        """The slice's index in its token range."""
        return self.constant(name, columns.origin.slice, columns.rows)

    def timestamp_type(self, name: str, columns: _Columns) -> pa.Array:
        """As Kafka counts them."""
        return self.constant(name, CREATE_TIME, columns.rows)

    def headers(self, name: str, columns: _Columns) -> pa.Array:
        """Lists of names and values, null where an event has none."""
        kind = self._projection.type_of(name)
        nulls, validity, offsets, data = columns.stored[name]
        if nulls == columns.rows:
            return pa.nulls(columns.rows, kind)
        lists, *held = (pa.py_buffer(each) for each in _native.headers_lists(offsets, data))
        pairs = [kind.value_type.field(number) for number in range(2)]
        count = len(held[0]) // 4 - 1
        arrays = [
            pa.Array.from_buffers(pair.type, count, [None, *held[2 * number : 2 * number + 2]], 0)
            for number, pair in enumerate(pairs)
        ]
        struct = pa.StructArray.from_arrays(arrays, fields=pairs)
        valid = pa.py_buffer(validity) if nulls else None
        return pa.Array.from_buffers(kind, columns.rows, [valid, lists], nulls, children=[struct])


_MAKERS: dict[str, Callable[[Decoder, str, _Columns], pa.Array]] = {
    **dict.fromkeys(_native.COLUMNS, Decoder.stored),
    "topic": Decoder.topic,
    "partition": Decoder.partition,
    "epoch": Decoder.epoch,
    "offset": Decoder.offset,
    "timestampType": Decoder.timestamp_type,
    "token": Decoder.token,
    "slice": Decoder.slice,
    "headers": Decoder.headers,
}
