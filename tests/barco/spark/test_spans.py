"""Rows in no order of time: few batches, and each key's rows in the order given."""

import random

import pytest

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[spark]'")
pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

import numpy as np

from barco.spark.spans import SPAN_US_MAX, spans
from barco.spark.tokens import Columns

HOUR_US = 3_600_000_000


def columns(rows: list[tuple[bytes | None, int]], *, keyed: bool = True) -> Columns:
    values = pa.array([b"%d" % n for n in range(len(rows))], pa.binary())
    keys = pa.array([key for key, _ in rows], pa.binary()) if keyed else None
    return Columns(keys, values, np.array([time for _, time in rows], np.int64))


def check(given: Columns, parts: list[Columns]) -> None:
    """All rows once, with their own keys and times, each key in order, each part within bounds."""
    keys = [None] * len(given.value) if given.key is None else given.key.to_pylist()
    times, last, seen = given.time_us, {}, []
    assert times is not None
    for part in parts:
        assert part.time_us is not None and len(part.value)
        assert int(part.time_us.max()) - int(part.time_us.min()) <= SPAN_US_MAX
        numbers = [int(value) for value in part.value.to_pylist()]
        assert part.time_us.tolist() == times[numbers].tolist()
        if part.key is not None:
            assert part.key.to_pylist() == [keys[number] for number in numbers]
        for number in numbers:
            assert keys[number] is None or last.get(keys[number], -1) < number
            last[keys[number]] = number
        seen += numbers
    assert sorted(seen) == list(range(len(keys)))


@pytest.mark.parametrize("keys", [0, 1, 3, 50, 5000])
@pytest.mark.parametrize("hours", [1, 30, 1000])
def test_every_key_keeps_its_order(keys: int, hours: int) -> None:
    chance = random.Random(keys * 7 + hours)
    rows: list[tuple[bytes | None, int]] = [
        (
            b"k%d" % chance.randrange(keys) if keys and chance.random() < 0.9 else None,
            1 + chance.randrange(hours * HOUR_US),
        )
        for _ in range(700)
    ]
    given = columns(rows, keyed=bool(keys))
    check(given, spans(given))


def test_a_day_in_no_order_is_a_batch_for_each_window() -> None:
    chance = random.Random(5)
    rows: list[tuple[bytes | None, int]] = [
        (b"k%d" % n, 1 + chance.randrange(24 * HOUR_US)) for n in range(5000)
    ]
    given = columns(rows)
    parts = spans(given)
    check(given, parts)
    assert len(parts) <= 21  # It was some four thousand.


def test_rows_that_are_in_order_stay_where_they_are() -> None:
    rows: list[tuple[bytes | None, int]] = [
        (b"k", 1 + n * 1_000_000 + (n % 2) * 5_000_000) for n in range(20_000)
    ]
    given = columns(rows)
    parts = spans(given)
    check(given, parts)
    assert len(parts) <= 8
    assert [int(v) for part in parts for v in part.value.to_pylist()] == list(range(20_000))
