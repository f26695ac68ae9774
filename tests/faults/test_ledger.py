"""The checker of the storm sees what it is there for, and no more than that."""

from faultlab.ledger import Batch, Ledger


def ledger(*numbers: int) -> Ledger:
    """One group; events of one key are acknowledged."""
    made = Ledger(["g"])
    for number in numbers:
        made.was_acked(value(number))
    return made


def value(number: int) -> str:
    return f"key/writer {number}"


def give(to: Ledger, who: str, start: int, *numbers: int, place: int = 0) -> None:
    to.was_given("g", who, 0.0, [Batch(place, start, [value(number) for number in numbers])])


def test_again_is_no_wrong() -> None:
    seen = ledger(1, 2, 3, 4)
    give(seen, "a", 0, 1, 2)
    give(seen, "b", 2, 3, 4)
    give(seen, "b", 0, 1, 2)
    give(seen, "b", 2, 3, 4)
    seen.check_log()
    assert not seen.wrong and not seen.missing("g")
    assert seen.counts["delivered"] == 4 and seen.counts["again"] == 4


def test_an_answer_that_comes_before_what_it_follows() -> None:
    seen = ledger(1, 2, 3)
    give(seen, "a", 2, 3)
    give(seen, "b", 0, 1)
    assert not seen.wrong  # Another consumer, perhaps another time.
    give(seen, "a", 1, 2)
    assert seen.wrong == ["g/a: key/writer 2 is given for the first time after 3"]


def test_order_is_seen_without_places_too() -> None:
    seen = ledger(1, 2)
    give(seen, "own", 0, 2, place=-1)
    give(seen, "own", 0, 1, place=-1)
    assert seen.wrong == ["g/own: key/writer 1 is given for the first time after 2"]


def test_what_was_not_acknowledged_may_be_stored_at_any_time() -> None:
    seen = ledger(2)
    give(seen, "a", 0, 2)
    give(seen, "a", 1, 1)
    seen.check_log()
    assert not seen.wrong


def test_two_answers_that_differ_about_a_place() -> None:
    seen = ledger(1, 2)
    give(seen, "a", 0, 1)
    give(seen, "b", 0, 2)
    assert seen.wrong == ["slice 0: key/writer 1 and key/writer 2 are both at 0"]


def test_a_log_that_has_an_event_twice_or_out_of_order() -> None:
    for numbers in ((1, 2, 1), (2, 1)):
        seen = ledger(1, 2)
        for offset, number in enumerate(numbers):
            give(seen, f"consumer {offset}", offset, number)
        assert not seen.wrong
        seen.check_log()
        assert seen.wrong == [f"slice 0: key/writer 1 at {len(numbers) - 1} is behind 2"]
