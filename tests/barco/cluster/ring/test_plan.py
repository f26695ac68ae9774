"""One leader's next step, case by case; whole rings are played by tests/simulator/ring."""

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.plan import Planner, Ready, StepKind, carry_out, plan
from barco.cluster.ring.routes import RangeRoute, RouteTable

CUT = Cut(3, 8)


def ring(workers: dict[int, int], epoch: int = 2) -> RouteTable:
    found = (
        RangeRoute(
            each.first, each.slices, CUT.token(each.first), epoch, each.members[0], each.members
        )
        for each in Wanted(CUT, workers).ranges()
    )
    return RouteTable(CUT, found)


def ones(size: int) -> dict[int, int]:
    return dict.fromkeys(range(size), 1)


def everybody(ordinal: int, token: int) -> bool:
    return True


def without(*away: int) -> Ready:
    return lambda ordinal, token: ordinal not in away


def planner(table: RouteTable, workers: dict[int, int], ready: Ready = everybody) -> Planner:
    return Planner(table, Wanted(CUT, workers), ready)


def told(found: Planner, ordinal: int) -> list[str]:
    return [str(step) for step in found.due(ordinal)]


def test_the_picture_of_the_design() -> None:
    """docs/elastic.md: 3 → 4 → 6."""
    table = ring(ones(3))
    four = planner(table, ones(4))
    assert told(four, 0) == ["broker 0: slices 0-7 become 0-3 (0 3 1) and 4-7 (3 1 2)"]
    assert told(four, 1) == []
    assert told(four, 2) == ["broker 2: slices 16-23 get members 2 0 3 after 2 0 1"]
    for steps in plan(table, Wanted(CUT, ones(4))):
        for step in steps:
            carry_out(table, step)
    assert four.is_reached() and not planner(table, ones(6)).is_reached()
    assert [route.members for route in table] == [(0, 3, 1), (3, 1, 2), (1, 2, 0), (2, 0, 3)]
    six = planner(table, ones(6))
    assert told(six, 3) == ["broker 3: slices 4-7 get members 3 1 4 after 3 1 2"]


def test_children_are_led_by_the_next_in_line_while_the_owner_is_away() -> None:
    """The route's leader is a follower then: growth goes on, the owner leads when it is back."""
    table = ring(ones(3))
    first = table.at(0)
    assert first is not None
    table.merge(first._replace(epoch=3, leader=1))
    found = planner(table, ones(6), without(0)).due(1)
    assert [str(each) for each in found] == [
        "broker 1: slices 0-7 become 0-3 (0 3 1) and 4-7 (3 1 4)"
    ]
    assert [each.leader for each in found[0].opens] == [3, 3]
    assert {each.epoch for each in found[0].opens} == {4}


def test_nothing_begins_without_who_is_new() -> None:
    table = ring(ones(3))
    assert told(planner(table, ones(6), without(3)), 0) == []
    assert told(planner(table, ones(6), without(4)), 0) == []
    assert told(planner(table, ones(6), without(5)), 0) != []
    # One that stays may be away, two may not.
    assert told(planner(table, ones(4), without(1)), 0) != []
    assert told(planner(table, ones(4), without(1, 2)), 0) == []


def test_a_hand_over_waits_for_all_that_the_join_needs() -> None:
    table = ring(ones(6))
    assert told(planner(table, ones(3)), 3) == ["broker 3: slices 4-7 go to the left neighbour"]
    assert told(planner(table, ones(3), without(0)), 3) == []
    assert told(planner(table, ones(3), without(2)), 3) == []  # New in slices 0 to 7.
    handed = planner(table, ones(3)).due(3)[0]
    carry_out(table, handed)
    taken = planner(table, ones(3)).due(0)
    assert [str(each) for each in taken] == ["broker 0: slices 0-3 and 4-7 become 0-7 (0 1 2)"]
    assert taken[0].opens[0].epoch == 3


def test_what_was_handed_over_is_taken_in_whatever_is_wanted() -> None:
    table = ring(ones(6))
    right = table.at(4)
    assert right is not None
    table.merge(right._replace(handed=True))
    # The target is back at six, and the member that would be wanted is away.
    found = planner(table, ones(6), without(3)).due(0)
    assert [each.kind for each in found] == [StepKind.JOIN]
    assert found[0].opens[0].members == (0, 3, 1) and found[0].opens[0].leader == 0
    carry_out(table, found[0])
    assert told(planner(table, ones(6)), 0) == [
        "broker 0: slices 0-7 become 0-3 (0 3 1) and 4-7 (3 1 4)"
    ]


def test_what_an_ancestor_took_in_is_not_taken_in_again() -> None:
    """A leader that was no member while slices 4 to 7 came and went has heard that they were handed
    over, and not that they were taken in. Its journal has its ancestors; so must its table."""
    table = ring(ones(6))
    right = table.at(4)
    assert right is not None
    table.merge(right._replace(handed=True))
    joined = RangeRoute(0, 8, CUT.token(0), 3, 0, (0, 1, 2))
    again = RangeRoute(0, 4, CUT.token(0), 4, 0, (0, 3, 1))
    table.merge(again)
    assert [step.kind for step in planner(table, ones(6)).due(0)] == [StepKind.JOIN]
    table.merge(joined)
    assert planner(table, ones(6)).due(0) == []
    assert "a later route took a part of slices 0 to 7, epoch 3" in table.faults()[0]


def test_a_join_is_first_and_not_held_up_by_what_it_ends() -> None:
    """Two workers become one: both ranges are one broker's."""
    table = ring(dict.fromkeys(range(3), 2))
    handed = planner(table, ones(3)).due(0)
    assert [str(each) for each in handed] == ["broker 0: slices 4-7 go to the left neighbour"]
    carry_out(table, handed[0])
    assert told(planner(table, ones(3)), 0) == ["broker 0: slices 0-3 and 4-7 become 0-7 (0 1 2)"]


def test_a_quarter_of_a_brokers_slices_waits_at_a_time() -> None:
    table = ring(dict.fromkeys(range(3), 4))
    found = planner(table, dict.fromkeys(range(3), 8))
    assert len(found.due(0)) == 1
    assert found.due(0, under_way=[0]) == []
    cut = Cut(3, 32)
    ranges = Wanted(cut, dict.fromkeys(range(3), 8)).ranges()
    eight = RouteTable(
        cut,
        (
            RangeRoute(r.first, r.slices, cut.token(r.first), 2, r.members[0], r.members)
            for r in ranges
        ),
    )
    twice = Planner(eight, Wanted(cut, dict.fromkeys(range(3), 16)), everybody)
    assert len(twice.due(0)) == 2
    assert len(twice.due(0, under_way=[0])) == 1
    assert twice.due(0, under_way=[0, 4]) == []


def test_who_knows_a_part_of_the_ring_or_a_torn_route_begins_nothing() -> None:
    table = ring(ones(3))
    part = RouteTable(CUT, [route for route in table if route.first != 16])
    assert told(planner(part, ones(6)), 0) == []
    table.merge(RangeRoute(4, 4, CUT.token(4), 3, 3, (3, 1, 2)))
    assert told(planner(table, ones(6)), 0) == []


def test_a_range_between_borders_is_cut_first_and_gathered_then() -> None:
    """Five workers become three: no border but the first is the same."""
    cut = Cut(3, 16)
    ranges = Wanted(cut, dict.fromkeys(range(3), 5)).ranges()
    table = RouteTable(
        cut,
        (
            RangeRoute(r.first, r.slices, cut.token(r.first), 2, r.members[0], r.members)
            for r in ranges
        ),
    )
    wanted = Wanted(cut, dict.fromkeys(range(3), 3))
    rounds = plan(table, wanted)
    kinds = [step.kind for steps in rounds for step in steps if step.by == 0]
    assert kinds.count(StepKind.SPLIT) == 2 and kinds.count(StepKind.JOIN) == 4
    for steps in rounds:
        for step in steps:
            carry_out(table, step)
    assert [(r.first, r.slices) for r in table] == [(r.first, r.slices) for r in wanted.ranges()]
