"""A write whose slices move between stage and commit."""

import pytest

pytest.importorskip("pyspark")

from barco.client.wire.batching import SliceKey
from barco.client.wire.ring import Ring
from barco.model.token import TOKEN_MIN
from barco.spark.write.shares import Shares, Staged, WriteShare, cut_anew, is_parted

SECOND = -3074457345618259968


def ring(*holders: tuple[str, ...]) -> Ring:
    """Of two ranges of two slices at first: who holds each slice."""
    keys = [SliceKey(token, index) for token in (TOKEN_MIN, SECOND) for index in (0, 1)]
    of = dict(zip(keys, holders, strict=True))
    return Ring.build({TOKEN_MIN: 2, SECOND: 2}, {key: of[key][0] for key in keys}, of)


def share(token: int, holders: tuple[str, ...], *missed: str) -> WriteShare:
    """Of a task for each of its holders, and one event in slice 0, two in slice 1."""
    found = WriteShare(holders[0], token, holders)
    for number, home in enumerate(holders):
        task = Staged("job", number, f"a{number}")
        task.held(holders[0], holders, missed if home == holders[0] else ())
        task.add(holders[0], "t", SliceKey(token, 0), 1)
        task.add(holders[0], "t", SliceKey(token, 1), 2)
        found.add(task)
    return found


def by_key(*shares: WriteShare) -> Shares:
    return {(each.home, each.token): each for each in shares}


def test_a_range_that_was_split() -> None:
    shares = by_key(share(TOKEN_MIN, ("a", "b", "c"), "b"), share(SECOND, ("b", "c", "a")))
    cut_anew(shares, ring(("a", "d", "b"), ("d", "b", "c"), ("b", "c", "a"), ("b", "c", "a")))
    left, right = shares["a", TOKEN_MIN], shares["d", TOKEN_MIN]
    assert (left.rows, right.rows) == ({"t": {0: 3}}, {"t": {1: 6}})
    assert left.attempts == right.attempts == ["a0", "a1", "a2"]
    assert left.missed == right.missed == {"b"}, "whoever is new asks the others"
    assert left.ready == ["a", "d"] and right.ready == ["d", "c"]
    assert shares["b", SECOND] == share(SECOND, ("b", "c", "a")) and len(shares) == 3


def test_a_range_that_took_another_in() -> None:
    """One plan of a write is all that a process has, so its parts are one share again."""
    left, right = share(TOKEN_MIN, ("a", "d", "b")), share(TOKEN_MIN, ("d", "b", "c"), "c")
    del left.rows["t"][1], right.rows["t"][0]
    right.attempts.append("a9")
    shares = by_key(left, right)
    assert not is_parted(shares)
    one = ("a", "b", "c")
    cut_anew(shares, ring(one, one, one, one))
    (found,) = shares.values()
    assert (found.home, found.holders, found.rows) == ("a", one, {"t": {0: 3, 1: 6}})
    assert found.attempts == ["a0", "a1", "a2", "a9"] and found.missed == {"c"}


def test_a_slice_that_two_tasks_staged_with_different_holders_is_in_one_share() -> None:
    """Else it would store what one of them had, as all that there is."""
    left, right = share(TOKEN_MIN, ("a", "b", "c")), share(TOKEN_MIN, ("d", "b", "c"))
    del right.rows["t"][0]
    shares = by_key(left, right)
    assert is_parted(shares)
    one = ("a", "b", "c")
    cut_anew(shares, ring(one, one, one, one))
    (found,) = shares.values()
    assert found.rows == {"t": {0: 3, 1: 12}} and not is_parted(shares)


def test_two_first_ranges_of_one_process_stay_two() -> None:
    """Their slices are counted anew in each."""
    shares = by_key(share(TOKEN_MIN, ("a", "b", "c")), share(SECOND, ("b", "c", "a")))
    one = ("a", "b", "c")
    cut_anew(shares, ring(one, one, one, one))
    assert sorted(token for _, token in shares) == [TOKEN_MIN, SECOND]
    assert all(each.rows == {"t": {0: 3, 1: 6}} for each in shares.values())
