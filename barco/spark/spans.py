"""Rows whose times are further apart than one stored batch spans: which go together."""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from barco.spark.tokens import Columns, Numbers, Times

SPAN_US_MAX = 2**32 - 1
"""Between the timestamps of one batch: 71 minutes."""


def spans(columns: Columns) -> list[Columns]:
    """The rows in parts that each fit into a batch, as few as can be found quickly.

    Rows of one key stay in their order: those that go back in time begin another round. Without
    gain by that, all of them stay where they are.
    """
    times = columns.time_us
    if times is None or int(times.max()) - int(times.min()) <= SPAN_US_MAX:
        return [columns]
    given = _halves(times, 0, len(times))
    windows = (times - times.min()) // (SPAN_US_MAX + 1)
    rounds = _rounds(columns.key, windows)
    order = np.lexsort((windows, rounds))
    changes = np.diff(windows[order]).astype(bool) | np.diff(rounds[order]).astype(bool)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(times)]
    if len(bounds) > len(given):
        return [columns.cut(start, stop) for start, stop in given]
    indices = pa.array(order)
    moved = Columns(
        None if columns.key is None else columns.key.take(indices),
        columns.value.take(indices),
        times[order],
    )
    return [moved.cut(start, stop) for start, stop in pairwise(bounds)]


def _halves(times: Times, start: int, stop: int) -> list[tuple[int, int]]:
    some = times[start:stop]
    if int(some.max()) - int(some.min()) <= SPAN_US_MAX:
        return [(start, stop)]
    middle = (start + stop) // 2
    return _halves(times, start, middle) + _halves(times, middle, stop)


def _rounds(key: pa.Array | None, windows: Times) -> Times:
    """For each row, how often its key has gone back to an earlier window; rows without a key may
    go anywhere."""
    if key is None:
        return np.zeros(len(windows), np.int64)
    encoded = key.dictionary_encode().indices
    keys: Numbers = encoded.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(keys, kind="stable")
    sorted_keys, sorted_windows = keys[order], windows[order]
    first = np.concatenate(([True], np.diff(sorted_keys).astype(bool)))
    back = np.concatenate(([False], np.diff(sorted_windows) < 0)) & ~first & (sorted_keys >= 0)
    total = np.cumsum(back)
    starts = np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))
    rounds = np.empty(len(keys), np.int64)
    rounds[order] = total - total[starts]
    return rounds
