"""Who is let in."""

from typing import Any

import pytest
from msgspec.structs import replace

from barco.cluster.gossip.facts import DOWN, BrokerInfo
from barco.cluster.gossip.hello import refusal
from barco.protocol.gossip import GOSSIP_VERSION, Hello

MINE = Hello(
    protocol=GOSSIP_VERSION,
    version="0.1.0",
    cluster_uuid="c" * 32,
    ordinal=0,
    disk_uuid="a" * 32,
    session=1,
    brokers=3,
    slices_per_range=8,
    workers=2,
    format=1,
)
THEIRS = replace(MINE, ordinal=1, disk_uuid="b" * 32, session=2)
KNOWN = BrokerInfo(
    ordinal=1,
    disk_uuid="b" * 32,
    session=1,
    address="127.0.0.2",
    ports=(),
    workers=2,
    version="0.1.0",
    state=DOWN,
)


def test_the_right_one_is_let_in() -> None:
    assert refusal(MINE, THEIRS, None, ring=3, address_fits=True) == ""
    assert refusal(MINE, THEIRS, KNOWN, ring=3, address_fits=True) == ""


def test_lists_of_brokers_may_differ_while_a_ring_grows() -> None:
    """What was cut at format time may not."""
    fourth = replace(THEIRS, ordinal=3)
    assert refusal(MINE, fourth, None, ring=24, address_fits=True) == ""
    assert "no room for it" in refusal(MINE, fourth, None, ring=3, address_fits=True)


@pytest.mark.parametrize(
    ("changes", "address_fits", "words"),
    [
        ({"protocol": 99}, True, "wrong version"),
        ({"cluster_uuid": "d" * 32}, True, "wrong cluster"),
        ({"ordinal": 0}, True, "duplicate ordinal"),
        ({}, False, "duplicate ordinal"),
        ({"ordinal": 3}, True, "has no room for it"),
        ({"slices_per_range": 16}, True, "another shape"),
        ({"workers": 4}, True, "another shape"),
        ({"brokers": 6}, True, "another shape"),
        ({"format": 2}, True, "another shape"),
        ({"disk_uuid": "e" * 32}, True, "barco replace"),
    ],
)
def test_the_wrong_one_is_told_why(changes: dict[str, Any], address_fits: bool, words: str) -> None:
    reason = refusal(MINE, replace(THEIRS, **changes), KNOWN, ring=3, address_fits=address_fits)
    assert words in reason and "\n" not in reason


def test_a_disk_that_stands_in_for_the_old_one_is_let_in() -> None:
    replacing = replace(THEIRS, disk_uuid="e" * 32, replaces="b" * 32)
    assert refusal(MINE, replacing, KNOWN, ring=3, address_fits=True) == ""
