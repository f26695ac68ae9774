"""The table of routes: merging, what does not fit, bytes."""

import random

import msgpack
import pytest

from barco import limits
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import (
    FORMAT,
    RangeRoute,
    RouteTable,
    bytes_max,
    unpack_route,
    unpack_routes,
)
from barco.errors import ProtocolError
from barco.model.placement import Placement
from barco.types import SliceIndex

CUT = Cut(3, 8)


def route(
    first: int, slices: int, epoch: int, *members: int, handed: bool = False, cut: Cut = CUT
) -> RangeRoute:
    members = members or (0, 1, 2)
    return RangeRoute(first, slices, cut.token(first), epoch, members[0], members, handed)


WHOLE = [route(0, 8, 2), route(8, 8, 2, 1, 2, 0), route(16, 8, 2, 2, 0, 1)]
GROWN = [route(0, 4, 3, 0, 3, 1), route(4, 4, 3, 3, 1, 2), route(16, 8, 4, 2, 0, 3)]


def test_slices_have_the_bounds_of_the_first_cut() -> None:
    placement = Placement(3, 8)
    for number in range(24):
        token = placement.slice_bounds(number // 8, SliceIndex(number % 8))[0]
        assert CUT.token(number) == token
        assert CUT.slice_at(token) == number
    assert CUT.slice_at(CUT.token(3) + 1) is None


@pytest.mark.parametrize("size", [3, 6, 12, 24])
def test_a_broker_stands_where_its_token_is(size: int) -> None:
    placement = Placement(size, 8)
    for ordinal in range(size):
        token = placement.token(placement.index_of(ordinal))  # type: ignore[arg-type]
        assert CUT.token(CUT.position(ordinal)) == token
    with pytest.raises(ValueError, match="no room for broker 24"):
        CUT.position(24)


def test_news_in_any_order_end_in_the_same_table() -> None:
    handed = route(4, 4, 3, 3, 1, 2, handed=True)
    news = [*WHOLE, *GROWN, handed, route(0, 8, 9, 0, 1, 2)]
    versions = set()
    for seed in range(50):
        table = RouteTable(CUT)
        for each in random.Random(seed).sample(news * 2, 2 * len(news)):
            table.merge(each)
        assert list(table) == [news[-1], WHOLE[1], GROWN[2]]
        assert not table.faults() and not table.handed()
        versions.add(table.version)
    assert len(versions) == 1


def test_what_is_late_changes_nothing() -> None:
    table = RouteTable(CUT, [*WHOLE, *GROWN])
    version = table.version
    assert not any(map(table.merge, WHOLE))
    assert table.version == version
    assert table.merge(route(8, 8, 3, 1, 2, 0)) and table.version != version


def test_a_hand_over_is_later_than_the_same_generation_open() -> None:
    table = RouteTable(CUT, [*WHOLE, *GROWN])
    gone = GROWN[1]._replace(handed=True)
    assert table.merge(gone) and not table.merge(GROWN[1])
    assert table.handed() == [gone] and table.led_by(3) == [gone]
    assert table.faults() == ["slices 4 to 7 were handed to the left: nobody leads them"]
    table.merge(route(0, 8, 4, 0, 1, 2))
    assert not table.handed() and table.holds(3) and not table.led_by(3)
    table.merge(route(16, 8, 5, 2, 0, 1))
    assert not table.holds(3) and table.members() == {0, 1, 2}


def test_what_is_missing_or_torn_is_said() -> None:
    table = RouteTable(CUT, [WHOLE[0], WHOLE[2]])
    assert table.gaps() == list(range(8, 16)) and not table.is_covering
    assert "nothing was heard of slices 8, 9" in table.faults()[0]
    table.merge(WHOLE[1])
    assert table.is_covering and not table.faults()
    table.merge(GROWN[1])
    assert table.torn() == [WHOLE[0]]
    assert "took a part of slices 0 to 7, epoch 2" in table.faults()[0]
    table.merge(GROWN[0])
    assert not table.faults()


def test_two_routes_of_one_epoch_are_a_dispute_that_all_settle_alike() -> None:
    one, other = route(0, 8, 5, 0, 1, 2), route(0, 8, 5, 1, 2, 0)
    tables = [RouteTable(CUT, [*WHOLE, *order]) for order in ((one, other), (other, one))]
    assert tables[0].version == tables[1].version
    for table in tables:
        assert table.at(0) == other and len(table.disputes()) == 8
        assert "slice 0 has two routes of epoch 5: led by broker 1, and by broker 0" in str(
            table.faults()
        )
        table.merge(route(0, 8, 6))
        assert not table.faults()


def test_bytes_come_back_as_the_same_table() -> None:
    table = RouteTable(CUT, [*WHOLE, *GROWN, GROWN[1]._replace(handed=True)])
    again = unpack_routes(CUT, table.packed())
    assert list(again) == list(table) and again.version == table.version
    for each in table:
        assert unpack_route(CUT, each.packed()) == each


def test_the_longest_route_fits() -> None:
    cut = Cut(3 * 2**12, 256)
    last = cut.slices - 1
    longest = RangeRoute(
        last, 1, cut.token(last), 2**63 - 1, 12_287, (12_287, 12_286, 12_285), True
    )
    assert unpack_route(cut, longest.packed()) == longest
    assert len(longest.packed()) <= limits.ROUTE_BYTES_MAX
    assert bytes_max(CUT) > 24 * limits.ROUTE_BYTES_MAX


GOOD = list(WHOLE[1])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        *((0, each) for each in (-1, 24, 9, True, "8", None, 2**70)),
        *((1, each) for each in (0, -1, 17, 2**40, 8.0)),
        *((2, each) for each in (0, CUT.token(9), None)),
        *((3, each) for each in (0, -1, 2**63, True, "2")),
        *((4, each) for each in (3, -1, True, None, [1])),
        *((5, each) for each in ([], [1, 2, 1], [1, 2, 0, 3], [1, 2, 12_288], 1, [1, [2], 0])),
        *((6, each) for each in (0, 1, None)),
    ],
)
def test_what_can_not_be_a_route_is_refused(at: int, value: object) -> None:
    given: list[object] = list(GOOD)
    assert unpack_route(CUT, msgpack.packb(given)) == WHOLE[1]
    given[at] = value
    try:
        data = msgpack.packb(given)
    except OverflowError:
        data = msgpack.packb([*given[:at], 2**64 - 1, *given[at + 1 :]])
    with pytest.raises(ProtocolError):
        unpack_route(CUT, data)


def test_the_first_slice_is_handed_to_nobody() -> None:
    with pytest.raises(ProtocolError, match="handed to nobody"):
        unpack_route(CUT, msgpack.packb([*WHOLE[0][:6], True]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb([FORMAT, 3, 8]),
        msgpack.packb({"a": 1}),
        msgpack.packb([FORMAT + 1, 3, 8, []]),
        msgpack.packb([FORMAT, 6, 4, []]),
        msgpack.packb([FORMAT, 3, 8, [GOOD] * 25]),
        msgpack.packb([FORMAT, 3, 8, [[]]]),
        msgpack.packb([FORMAT, 3, 8, 7]),
        msgpack.packb([FORMAT, 3, 8, [b"x" * 2000]]),
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 1500,
    ],
    ids=repr,
)
def test_what_can_not_be_a_table_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_routes(CUT, data)


def test_any_bytes_are_a_table_or_refused() -> None:
    rng = random.Random(1)
    whole = RouteTable(CUT, [*WHOLE, *GROWN]).packed()
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            unpack_routes(CUT, bytes(data))
        except ProtocolError:
            refused += 1
    assert refused > 1000
