"""Which processes a broker needs."""

from msgspec.structs import replace

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import (
    HEARSAY_MAX,
    IDLE_SECONDS,
    STARTS_MAX,
    Idle,
    Needs,
    needed_ranges,
    next_starts,
    spare_ranges,
)
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.cluster.ring.target import Target, TargetBroker
from barco.model.ranges import HeldRange
from barco.types import Ordinal

CUT = Cut(3, 8)
FIRST = [
    RangeRoute(8 * n, 8, CUT.token(8 * n), 2, n, (n, (n + 1) % 3, (n + 2) % 3)) for n in range(3)
]
SIX = Target(1, CUT, tuple(TargetBroker(ordinal=each, workers=1) for each in range(6)))


def spans(found: list[HeldRange]) -> list[tuple[int, int, tuple[int, ...]]]:
    assert not any(each.genesis for each in found)
    return [(each.first, each.slices, each.members) for each in found]


def test_without_a_target_what_the_routes_say() -> None:
    table = RouteTable(CUT, FIRST)
    found = spans(needed_ranges(None, table, ((), ()), Ordinal(1)))
    assert found == [(0, 8, (0, 1, 2)), (8, 8, (1, 2, 0)), (16, 8, (2, 0, 1))]
    assert needed_ranges(None, table, ((), ()), Ordinal(3)) == []


def test_of_the_target_who_was_heard_of_counts() -> None:
    table = RouteTable(CUT, FIRST)
    found = spans(needed_ranges(SIX, table, ([3], [3]), Ordinal(1)))
    # The range of 2 is still its own by the routes, until it has moved.
    assert found == [(0, 4, (0, 3, 1)), (4, 4, (3, 1, 2)), (8, 8, (1, 2, 0)), (16, 8, (2, 0, 1))]
    all_of_them = spans(needed_ranges(SIX, table, (range(6), range(6)), Ordinal(5)))
    assert all_of_them == [(12, 4, (4, 2, 5)), (16, 4, (2, 5, 0)), (20, 4, (5, 0, 3))]
    assert needed_ranges(SIX, table, (range(9), range(9)), Ordinal(7)) == []


def test_who_came_and_is_away_holds_nothing_up() -> None:
    """Leaders plan the ring of those that are up; processes were made for another one only."""
    table = RouteTable(CUT, FIRST)
    four = spans(needed_ranges(SIX, table, ([0, 2, 4], [0, 2, 4]), Ordinal(1)))
    found = spans(needed_ranges(SIX, table, ([0, 2, 4], [0, 2, 3, 4]), Ordinal(1)))
    assert set(four) <= set(found), "what leaders wait for is there"
    assert (4, 4, (3, 1, 4)) in found, "and what they wait for when it is back"


def test_a_depot_needs_a_process_for_a_range_that_is_none_any_more() -> None:
    three = tuple(TargetBroker(ordinal=each, workers=1) for each in range(3))
    target = Target(4, CUT, three, depots=((4, 2), (20, 1), (8, 2)))
    table = RouteTable(CUT, FIRST)
    found = needed_ranges(target, table, (range(3), range(3)), Ordinal(2))
    assert [each.token for each in found] == [CUT.token(at) for at in (0, 4, 8, 16)]
    # Of slices 4 to 7, whose process has no vote: who has them now stands before it.
    assert spans(found)[1] == (4, 4, (0, 1, 2))
    # What it is a member of it has a process for already.
    assert spans(found)[2] == (8, 8, (1, 2, 0))
    assert spans(needed_ranges(target, table, (range(3), range(3)), Ordinal(0)))[1][0] == 8
    # Who is in the target no more takes no copies.
    gone = Target(5, CUT, three, depots=((4, 4),))
    assert needed_ranges(gone, table, (range(6), range(6)), Ordinal(4)) == []


def test_routes_that_others_tell_start_few_processes_and_the_target_all() -> None:
    """What a liar makes up is bounded, also one after the other; what ended makes room again."""
    lies = [RangeRoute(n, 1, CUT.token(n), 9, 2, (2, 1, 0)) for n in range(24)]
    needs, mine = Needs(Ordinal(1)), {CUT.token(8 * n) for n in range(3)}
    found = needs.look(None, RouteTable(CUT, lies), ((), ()), lambda _: False, mine)
    assert len(found) == len(mine) + HEARSAY_MAX, "what there is, and so many more"
    made = {each.token for each in found}
    later = RouteTable(CUT, [each._replace(epoch=10) for each in lies[12:]])
    assert len(needs.look(None, later, ((), ()), lambda _: False, mine | made)) == 1, "of slice 16"
    assert len(needs.look(None, later, ((), ()), lambda _: False, mine)) == 1 + HEARSAY_MAX
    own = needs.look(None, later, ((), ()), lambda first: first >= 12, mine)
    assert len(own) == 12, "this broker's own processes say so"
    wanted = Target(1, CUT, tuple(TargetBroker(ordinal=n, workers=8) for n in range(3)))
    assert len(needs.look(wanted, RouteTable(CUT, lies), ((), ()), lambda _: False, mine)) == 24


def test_a_few_processes_are_started_at_once() -> None:
    found = needed_ranges(SIX, RouteTable(CUT, FIRST), (range(6), range(6)), Ordinal(0))
    tokens = [each.token for each in found]
    assert len(found) > STARTS_MAX
    assert next_starts(found, ()) == found[:STARTS_MAX]
    assert next_starts(found, tokens[1:]) == found[:1]


def test_what_nobody_needs_is_spare_but_not_at_a_broker_that_waits() -> None:
    table = needed_ranges(SIX, RouteTable(CUT, FIRST), (range(6), range(6)), Ordinal(0))
    table = [replace(each, number=number) for number, each in enumerate(table)]
    tokens = [each.token for each in table]
    blank = [(number, True, False) for number in range(len(table))]
    some = [(number, number in (0, 2), False) for number in range(len(table))]
    assert spare_ranges(table, table[:1], blank) == tokens[1:]
    assert spare_ranges(table, table[:1], some) == [tokens[2]], "the others hold something"
    assert spare_ranges(table, table[:1], blank[:2]) == [tokens[1]], "the others do not run"
    first = [table[0], replace(table[1], genesis=True)]
    assert spare_ranges(first, table[2:], blank) == tokens[:1], "it may just not have begun"
    assert spare_ranges(table, [], blank) == [], "it waits until the ring is to have it"
    spent = [(number, False, number == 1) for number in range(len(table))]
    assert spare_ranges(first, table[2:], spent) == [tokens[1]], "it has been, and is no more"
    assert spare_ranges(first, table[1:], spent) == [], "it is wanted"
    assert spare_ranges(first, [], spent) == []


def test_what_holds_nothing_ends_when_nobody_has_needed_it_for_a_while() -> None:
    idle = Idle()
    assert idle.look([5, 7], 100.0) == []
    assert idle.look([5, 7], 100.0 + IDLE_SECONDS - 1) == []
    assert idle.look([7, 9], 100.0 + IDLE_SECONDS) == [7], "5 is needed, or holds something"
    assert idle.look([5, 7], 101.0 + IDLE_SECONDS) == [7], "from now on"
    assert idle.look([], 102.0 + IDLE_SECONDS) == []
    assert idle.look([7], 103.0 + 2 * IDLE_SECONDS) == []
