"""Rows to slices: every key of a record batch hashed in one call, rows gathered by slice in Arrow.

The token is the brokers' (Murmur3 with Cassandra's signed tail), from `barco._native`; the arcs of
the ring are searched by NumPy. There is no Python line that runs once for a row.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from barco import _native
from barco.client.batching import SliceKey
from barco.client.ring import Ring

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
Times: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class Columns(NamedTuple):
    """Rows of one slice: `key` and `time_us` may be absent."""

    key: pa.Array | None
    value: pa.Array
    time_us: Times | None

    def cut(self, start: int, stop: int) -> "Columns":
        """Some of the rows, not copied."""
        return Columns(
            None if self.key is None else self.key.slice(start, stop - start),
            self.value.slice(start, stop - start),
            None if self.time_us is None else self.time_us[start:stop],
        )


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

    def __init__(self, ring: Ring, turn: int = 0) -> None:
        """`turn`: which slice gets the first rows without a key; the next batch's get the next."""
        self._ring = ring
        self._turn = turn
        starts, owners = ring.arcs
        self._starts = np.array(starts, np.int64)
        numbers = {key: number for number, key in enumerate(ring.slices)}
        self._owners = np.array([numbers[owner] for owner in owners], np.int32)

    def numbers(self, keys: pa.Array | None, count: int) -> Numbers:
        """For each row, the number of its slice in the ring's order."""
        self._turn = (self._turn + 1) % len(self._ring.slices)
        if keys is None or keys.null_count == count:
            return np.full(count, self._turn, np.int32)
        tokens = np.frombuffer(_native.tokens(offsets_of(keys).data, data_of(keys)), np.int64)
        numbers = self._owners[np.searchsorted(self._starts, tokens, side="right") - 1]
        if keys.null_count:
            numbers[keys.is_null().to_numpy(zero_copy_only=False)] = self._turn
        return numbers

    def split(self, columns: Columns) -> Iterator[tuple[SliceKey, Columns]]:
        """The rows by slice; those of one slice stay in their order."""
        count = len(columns.value)
        numbers = self.numbers(columns.key, count)
        sizes = np.bincount(numbers, minlength=len(self._ring.slices))
        if sizes.max(initial=0) < count:
            few = np.uint16 if len(self._ring.slices) <= 65_536 else np.int32
            order = np.argsort(numbers.astype(few), kind="stable")  # By radix, if they are few.
            indices = pa.array(order)
            key, value, time_us = columns
            columns = Columns(
                None if key is None else key.take(indices),
                value.take(indices),
                None if time_us is None else time_us[order],
            )
        start = 0
        for number in np.flatnonzero(sizes):
            stop = start + int(sizes[number])
            yield self._ring.slices[number], columns.cut(start, stop)
            start = stop
