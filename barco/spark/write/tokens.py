"""Rows to slices: every key of a record batch hashed in one call, rows gathered by slice in Arrow.
Rows without a key go by their values.

The token is the brokers' (Murmur3 with Cassandra's signed tail), from `barco._native`; the arcs of
the ring are searched by NumPy. There is no Python line that runs once for a row.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from barco import _native
from barco.client.wire.batching import SliceKey
from barco.client.wire.ring import Ring

ROW_BYTES = 8
"""What a row counts at least: a piece has at most 65,536."""

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
Integers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class Columns(NamedTuple):
    """Rows of one slice: `key` may be absent, and of the columns of numbers any."""

    key: pa.Array | None
    value: pa.Array
    numbers: dict[str, Integers]
    """By name, "timestamp" in microseconds since 1970."""
    headers: pa.Array | None = None
    """As they are stored, no bytes where a row has none."""

    def cut(self, start: int, stop: int) -> "Columns":
        """Some of the rows, not copied."""
        return Columns(
            None if self.key is None else self.key.slice(start, stop - start),
            self.value.slice(start, stop - start),
            {name: each[start:stop] for name, each in self.numbers.items()},
            None if self.headers is None else self.headers.slice(start, stop - start),
        )

    @property
    def bytes(self) -> list[pa.Array]:
        """The columns of bytes that there are."""
        return [each for each in (self.value, self.key, self.headers) if each is not None]


def offsets_of(array: pa.Array) -> Numbers:
    """Where each value of a binary array begins in its data, and where the last ends."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, np.int32)
    whole = np.frombuffer(buffer, np.int32, array.offset + len(array) + 1)
    return whole[array.offset :]


def data_of(array: pa.Array) -> pa.Buffer | bytes:
    """The bytes of a binary array."""
    return array.buffers()[2] or b""


class Router:
    """Where the rows of a batch belong."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        starts, owners = ring.arcs
        self._starts = np.array(starts, np.int64)
        numbers = {key: number for number, key in enumerate(ring.slices)}
        self._owners = np.array([numbers[owner] for owner in owners], np.int32)

    def numbers(self, columns: Columns) -> Numbers:
        """For each row, the number of its slice in the ring's order: by its key, or by its value
        where it has none. Nothing else counts, so that rows which are written again, in any order
        and by any number of tasks, go where they went: that is how a shard knows them."""
        key, value, *_ = columns
        if key is None or key.null_count == len(value):
            return self._by_token(value)
        numbers = self._by_token(key)
        if key.null_count:
            without = np.flatnonzero(key.is_null().to_numpy(zero_copy_only=False))
            numbers[without] = self._by_token(value.take(pa.array(without)))
        return numbers

    def _by_token(self, array: pa.Array) -> Numbers:
        tokens = np.frombuffer(_native.tokens(offsets_of(array).data, data_of(array)), np.int64)
        return self._owners[np.searchsorted(self._starts, tokens, side="right") - 1]

    def split(
        self,
        columns: Columns,
        numbers: Numbers | None = None,
        topics: Numbers | None = None,
        topics_count: int = 1,
    ) -> Iterator[tuple[int, SliceKey, Columns, int]]:
        """The rows by topic and slice, in one pass, and their size; those of one place stay in
        their order.

        `numbers`: of their slices, if they are known; `topics`: numbers too, else all are of 0.
        """
        count, slices = len(columns.value), len(self._ring.slices)
        places = self.numbers(columns) if numbers is None else numbers
        if topics is not None:
            places = topics * np.int32(slices) + places
        sizes = np.bincount(places, minlength=topics_count * slices)
        if sizes.max(initial=0) < count:
            few = np.uint16 if len(sizes) <= 65_536 else np.int32
            order = np.argsort(places.astype(few), kind="stable")  # By radix, if they are few.
            indices = pa.array(order)
            key, value, integers, headers = columns
            columns = Columns(
                None if key is None else key.take(indices),
                value.take(indices),
                {name: each[order] for name, each in integers.items()},
                None if headers is None else headers.take(indices),
            )
        found = np.flatnonzero(sizes)
        bounds = np.concatenate(([0], np.cumsum(sizes[found])))
        bytes_ = sizes_between(columns, bounds).tolist()
        cuts = bounds.tolist()
        for turn, place in enumerate(found.tolist()):
            topic, number = divmod(place, slices)
            part = columns.cut(cuts[turn], cuts[turn + 1])
            yield topic, self._ring.slices[number], part, bytes_[turn]


def sizes_between(columns: Columns, bounds: Numbers) -> Numbers:
    """What the rows between two bounds each come to: by values, by keys, or by number."""
    measures = [np.diff(offsets_of(array)[bounds]) for array in columns.bytes]
    sizes: Numbers = np.maximum.reduce([ROW_BYTES * np.diff(bounds), *measures])
    return sizes
