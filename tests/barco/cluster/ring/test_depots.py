"""Which generations get a copy elsewhere when brokers leave, and where."""

from collections.abc import Collection

import pytest

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.depots import COPIES_MIN, Depots, Draining, EndedLog, copied_by, draining
from barco.model.generation import Gid
from barco.types import Epoch, Token

CUT = Cut(3, 8)
THREE = Wanted(CUT, dict.fromkeys(range(3), 1))
SIX = Wanted(CUT, dict.fromkeys(range(6), 1))
STAY = range(3)


def log(
    first: int, members: Collection[int], holders: Collection[int] | None = None, epoch: int = 2
) -> tuple[int, EndedLog]:
    gid = Gid(Token(int(CUT.token(first))), Epoch(epoch))
    held = members if holders is None else holders
    return first, EndedLog(gid, 100, frozenset(members), frozenset(held))


def due(
    *logs: tuple[int, EndedLog], up: Collection[int] = range(6), depots: Depots = ()
) -> Draining:
    return draining(logs, STAY, up, depots, THREE)


def test_of_six_that_become_three_each_new_range_gets_one_copy_more() -> None:
    """And nothing else is copied: the old ranges have two copies as it is."""
    logs = [log(each.first, each.members) for each in SIX.ranges()]
    found = draining(logs, STAY, range(6), (), THREE)
    # (3 1 4), (4 2 5) and (5 0 3) lose two of their three, to whoever leads their slices then.
    assert found.named == ((4, 0), (12, 1), (20, 2))
    assert sorted(gid.token for gid in found.copies) == [CUT.token(at) for at in (4, 12, 20)]
    assert (found.bytes_left, found.bytes_all, found.done) == (300, 300, False)
    again = draining(logs, STAY, range(6), found.named, THREE)
    assert (again.named, again.bytes_left) == ((), 300)


def test_it_is_done_when_the_depots_say_that_they_have_it() -> None:
    ready = due(log(4, (3, 1, 4), (3, 1, 4, 0)), depots=((4, 0),))
    assert (ready.done, ready.bytes_left, ready.bytes_all) == (True, 0, 100)
    gone = due(log(4, (3, 1, 4), (1, 0)), up=STAY, depots=((4, 0),))
    assert gone.done, "whoever left is not needed any more"
    # A copy at a broker that leaves itself counts for nothing.
    moved = due(log(4, (3, 1, 4), (3, 1, 4, 5)), depots=((4, 5),))
    assert moved.named == ((4, 0),) and not moved.done


def test_one_generation_with_one_copy_is_not_done() -> None:
    have = log(4, (3, 1, 4), (3, 1, 4, 0), epoch=2)
    lacks = log(4, (3, 1, 4), (3, 1, 4), epoch=3)
    found = due(have, lacks, depots=((4, 0),))
    assert not found.done and (found.bytes_left, found.bytes_all) == (100, 200)


def test_an_empty_copy_is_waited_for_as_well() -> None:
    first, known = log(4, (3, 1, 4))
    empty = EndedLog(known.gid, 0, known.members, known.holders)
    found = draining([(first, empty)], STAY, range(6), ((4, 0),), THREE)
    assert not found.done and found.named == () and not found.helpless


def test_what_a_depot_has_by_now_is_not_left_and_does_not_count() -> None:
    first, known = log(4, (3, 1, 4))
    for begun, left in ((40, 60), (100, 1), (200, 1)):
        part = EndedLog(known.gid, 100, known.members, known.holders, {0: begun, 3: 7})
        found = draining([(first, part)], STAY, range(6), ((4, 0),), THREE)
        assert (found.bytes_left, found.bytes_all, found.done) == (left, 100, False)


def test_while_another_is_down_both_copies_are_made_elsewhere() -> None:
    found = due(log(4, (3, 1, 4), (3, 4)), up=(0, 2, 3, 4))
    assert found.named == ((4, 0), (4, 2)) and not found.helpless
    # When it is back its copy counts, and the second depot is not waited for.
    back = due(log(4, (3, 1, 4)), depots=found.named)
    assert list(back.copies.values()) == [[0]]
    # The members of a range that loses one of three have two as it is.
    assert due(log(0, (0, 3, 1))).done
    assert due(log(0, (0, 3, 1), (0, 3)), up=(0, 2, 3, 4)).named == ((0, 2),)


def test_where_one_copy_alone_is_in_reach_nobody_is_helped() -> None:
    found = due(log(4, (3, 1, 4), (3,)), up=(0, 2, 3))
    assert found.helpless and not found.done, "nobody says whether it is true"
    # Nor where there is no broker to take it: a ring of three whose third one is down.
    alone = due(log(4, (3, 1, 4)), up=(1, 3, 4))
    assert alone.helpless and not alone.named


def test_a_depot_for_one_generation_is_a_member_of_another() -> None:
    """Of a range of a ring of twelve that is one of six, and of three: one copies what it had no
    seat in, and what it had one in is its own."""
    logs = [log(0, (0, 3, 1), epoch=3), log(0, (0, 6, 3), epoch=4), log(0, (0, 3, 1), epoch=6)]
    named = due(*logs, up=range(12)).named
    assert named == ((0, 1),)
    assert due(*logs, up=range(12), depots=named).named == ()
    logs[1] = log(0, (0, 6, 3), (0, 6, 3, 1), epoch=4)
    assert due(*logs, up=range(12), depots=named).done


TWELVE = Wanted(CUT, dict.fromkeys(range(12), 1))


def test_of_twelve_that_become_six_and_three_all_is_kept_twice() -> None:
    """Each generation of each size, as the ring went up and down: the depots that are named suffice
    for all, whoever has a seat in which."""
    logs = [
        log(each.first, each.members, epoch=epoch)
        for epoch, ring in enumerate((THREE, SIX, TWELVE, SIX, THREE), 2)
        for each in ring.ranges()
    ]
    named = due(*logs, up=range(12)).named
    again = due(*logs, up=range(12), depots=named)
    assert not again.named and not again.helpless
    kept = [
        (first, EndedLog(each.gid, each.bytes, each.members, each.holders | set(copies)))
        for first, each in logs
        for copies in [again.copies.get(each.gid, ())]
    ]
    assert due(*kept, up=range(12), depots=named).done
    # Those that leave are not needed any more.
    gone = [
        (first, EndedLog(each.gid, each.bytes, each.members, each.holders & frozenset(STAY)))
        for first, each in kept
    ]
    assert due(*gone, up=STAY, depots=named).done
    assert all(len(each.holders) >= COPIES_MIN for _, each in gone)


@pytest.mark.parametrize("have", [(), (1,), (1, 2)])
def test_a_range_s_depots_copy_in_their_order(have: tuple[int, ...]) -> None:
    staying = range(6)
    _, kept = log(4, (8, 1, 2), (8, *have))
    found = copied_by(kept, staying, [5, 4, 5, 2, 7])
    assert found == [5, 4][: COPIES_MIN - len(have)], "not twice, no member, none that leaves"
    assert copied_by(kept, [], [5, 4]) == []
