"""Slices that are paused, and places to go to, as requests have them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from barco import TopicSlice
from barco.client.consuming.paused import PAUSED_MAX, Paused, number_of, place_of, places
from barco.model.placement import Placement
from barco.model.token import TOKEN_MIN

RING = Placement(3, 8)


def ring_slice(index: int, slice_: int, topic: str = "t") -> TopicSlice:
    return TopicSlice(topic, slice_, int(RING.token(index)))


def test_slices_are_named_by_topic() -> None:
    paused = Paused()
    paused.add([TopicSlice("b", 5), TopicSlice("a", 7), TopicSlice("b", 2)])
    assert paused.told(None) == [("paused", "a/7"), ("paused", "b/2,5")]
    paused.remove([TopicSlice("b", 5), TopicSlice("c", 5)])
    assert paused.told(None) == [("paused", "a/7"), ("paused", "b/2")]
    paused.remove([])
    assert paused.told(None) == [] and not paused.slices


def test_slices_are_numbered_in_the_ring() -> None:
    paused = Paused()
    paused.add([ring_slice(2, 1)])
    assert paused.told(RING) == [("paused", "t/17")]
    assert number_of(TopicSlice("t", 1, TOKEN_MIN), RING) == 1


def test_a_poll_can_name_so_many() -> None:
    paused = Paused()
    paused.add(TopicSlice("t", number) for number in range(PAUSED_MAX))
    with pytest.raises(ValueError, match="1,000"):
        paused.add([TopicSlice("t", PAUSED_MAX)])
    assert len(paused.slices) == PAUSED_MAX


def test_only_slices_of_its_own_are_sought() -> None:
    mine = [ring_slice(0, 3), ring_slice(1, 3), ring_slice(1, 4, "other")]
    assert places("t", "latest", mine, RING) == {"3": "latest", "11": "latest"}
    assert places("t", {mine[1]: "1.7"}, mine, RING) == {"11": "1.7"}
    for wrong in (ring_slice(2, 3), mine[2]):
        with pytest.raises(ValueError, match="does not read"):
            places("t", {wrong: "1.7"}, mine, RING)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("earliest", "earliest"),
        (1_700_000_000_000_000, "timestamp:1700000000000000"),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "timestamp:1000000"),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "timestamp:0"),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "timestamp:-1000000"),
        (-1, "timestamp:-1"),
    ],
)
def test_places(given: Any, told: str) -> None:
    assert place_of(given) == told


@pytest.mark.parametrize("given", ["ealiest", "", -(2**63), 2**63, datetime(2026, 1, 1)])
def test_no_places(given: Any) -> None:
    with pytest.raises(ValueError, match="place|time"):
        place_of(given)
