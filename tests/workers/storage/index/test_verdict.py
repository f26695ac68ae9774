"""What follows from what a start has seen of its logs (rules S3, S5, A4)."""

import pytest

from barco.workers.storage.index.verdict import (
    CORRUPT,
    END,
    SEALED,
    TORN,
    Found,
    Recorded,
    Seen,
    Start,
    judge,
    stable_upto,
)

OPEN, ENDED, GONE = Recorded(5, None, False), Recorded(5, 7, False), Recorded(5, 7, True)


@pytest.mark.parametrize(
    ("seen", "wanted", "ends"),
    [
        (Seen(), None, END),
        (Seen(7, 1, durable=6), None, END),
        (Seen(7, 1, durable=7, remains=True), None, TORN),
        (Seen(7, 1, durable=8, remains=True), None, CORRUPT),
        (Seen(7, 1, durable=8), None, CORRUPT),
        (Seen(7, 1, durable=6, rotten=True, remains=True), None, CORRUPT),
        (Seen(0, rotten=True, remains=True), None, CORRUPT),
        (Seen(7, 1, missing=True), None, CORRUPT),
        (Seen(7, 1, durable=9, rotten=True, remains=True), 7, SEALED),
        (Seen(6, 1, durable=5), 7, CORRUPT),
        (Seen(6, 1, durable=5, remains=True), 7, CORRUPT),
        (Seen(), 7, CORRUPT),
    ],
)
def test_how_a_log_ends(seen: Seen, wanted: int | None, ends: str) -> None:
    assert judge(seen, wanted) == ends


def test_what_was_stable_at_least() -> None:
    assert stable_upto(Seen(4, 1, durable=3), None) == 3
    assert stable_upto(Seen(4, 1, durable=3, rotten=True), None) == 5
    assert stable_upto(Seen(4, 1, durable=9, rotten=True), 7) == 9


def test_an_open_log_goes_on_where_it_ends() -> None:
    start = Start()
    assert start.looks(OPEN)
    judged = start.saw(OPEN, Seen(6, 9, 4, durable=5, remains=True), TORN)
    assert judged.found == Found(6, 9, suspect=False, sealed=False, committed=4)
    assert (judged.told, judged.loads, judged.clears, judged.mends) == (True, True, True, False)
    assert start.current == 5 and start.hurt == []


def test_a_corrupt_one_is_suspect_and_its_remains_stay() -> None:
    start = Start()
    assert start.looks(OPEN)
    judged = start.saw(OPEN, Seen(6, 9, 4, durable=8), CORRUPT)
    assert judged.found == Found(6, 9, suspect=True, sealed=False, committed=4)
    assert judged.told and judged.loads and not judged.clears and not judged.mends


def test_of_nothing_nothing_is_told_but_that_it_is_corrupt() -> None:
    for ends, told in ((END, False), (CORRUPT, True)):
        start = Start()
        assert start.looks(OPEN)
        judged = start.saw(OPEN, Seen(), ends)
        assert (judged.told, judged.loads, judged.found.suspect) == (told, False, told)
        assert start.current == 0


def test_what_has_ended_is_loaded_whole_or_not_at_all() -> None:
    start = Start()
    assert start.looks(ENDED)
    judged = start.saw(ENDED, Seen(7, 9, 7), SEALED)
    assert judged.found == Found(7, 9, suspect=False, sealed=True)
    assert judged.loads and not judged.clears and start.current == 5
    start = Start()
    assert start.looks(ENDED)
    judged = start.saw(ENDED, Seen(4, 9, 4), CORRUPT)
    assert judged.found == Found(7, 0, suspect=False, sealed=True), "it votes on, and is mended"
    assert judged.mends and not judged.loads and not judged.clears
    assert (start.current, start.hurt) == (0, [5])
    with pytest.raises(AssertionError, match="whole, or it is damaged"):
        Start().saw(ENDED, Seen(4, 9, 4), TORN)


def test_what_has_ended_is_looked_at_for_the_core_alone() -> None:
    older = Recorded(4, 3, False)
    for first, ends in ((OPEN, END), (ENDED, SEALED), (ENDED, CORRUPT)):
        start = Start()
        assert start.looks(first)
        start.saw(first, Seen(7, 9, 7), ends)
        assert not start.looks(older)
        assert start.unseen(older) == Found(3, 0, suspect=False, sealed=True)
        assert start.looks(Recorded(3, None, False)), "of what is open all is looked at"
    assert not Start().looks(GONE)
    assert not Start().looks(Recorded(5, 0, False)), "it ended without a group"


def test_the_core_has_the_newest_that_holds_anything() -> None:
    start = Start()
    assert start.looks(OPEN)
    start.saw(OPEN, Seen(), END)
    older = Recorded(4, 3, False)
    assert start.looks(older) and start.saw(older, Seen(3, 8, 3), SEALED).loads
    assert start.current == 4
    with pytest.raises(AssertionError, match="newest first"):
        start.looks(OPEN)
