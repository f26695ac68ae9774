"""The target: compare and set, and its refusals in words."""

import re
from collections.abc import Iterable, Sequence

import msgpack
import pytest

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.cluster.ring.target import (
    Known,
    Target,
    TargetBroker,
    check_shape,
    next_target,
    unpack_target,
)
from barco.errors import BarcoError, ConflictError, ForbiddenError, ProtocolError, RequestError
from barco.model.generation import Gid
from barco.types import Epoch, Token

CUT = Cut(3, 8)
UUID = "9d3c0a4b7e5f42d1a8c6b2e1f0394857"
KNOWN = Known(cluster_uuid=UUID)


def brokers(ordinals: Iterable[int], workers: int = 1) -> tuple[TargetBroker, ...]:
    return tuple(
        TargetBroker(ordinal=each, workers=workers, host=f"b{each}", ports=(("shard", 1),))
        for each in ordinals
    )


THREE = Target(4, CUT, brokers(range(3)))


def asked(listed: tuple[TargetBroker, ...], seen: int = 4, known: Known = KNOWN) -> Target:
    return next_target(THREE, seen, listed, cluster_uuid=UUID, known=known)


@pytest.mark.parametrize(
    "ordinals",
    [range(3), range(4), range(5), range(6), [0, 1, 2, 4], [0, 1, 2, 5, 3], range(12), range(24)],
    ids=str,
)
def test_rings_and_half_grown_ones_are_taken_in_any_order(ordinals: Sequence[int]) -> None:
    found = asked(brokers(ordinals))
    assert found.version == 4 + (ordinals != range(3))
    assert [each.ordinal for each in found.brokers] == sorted(ordinals)
    assert unpack_target(CUT, found.packed()) == found


def test_the_same_again_is_no_change_whatever_was_seen() -> None:
    busy = Known(cluster_uuid=UUID, steps_left=["something"])
    assert asked(brokers(range(3)), seen=1, known=busy) is THREE


def refused(kind: type[BarcoError], words: str, *args: object, **kwargs: object) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        asked(*args, **kwargs)  # type: ignore[arg-type]


def test_refusals_in_words() -> None:
    six = brokers(range(6))
    refused(ConflictError, "it is version 4, and not 3", six, seen=3)
    left = Known(cluster_uuid=UUID, steps_left=[f"broker {each}: …" for each in range(5)])
    refused(
        ConflictError, "5 steps are left: broker 0: …; broker 1: …; broker 2: …; and 2 more", six,
        known=left,
    )  # fmt: skip
    one = Known(cluster_uuid=UUID, steps_left=["broker 0: …"])
    refused(ConflictError, "1 step is left: broker 0: …. Wait until", six, known=one)
    with pytest.raises(ForbiddenError, match="this is cluster 9d3c.*belongs to ffff"):
        next_target(THREE, 4, six, cluster_uuid="ffff", known=KNOWN)


def test_an_ordinal_with_another_disk_is_refused() -> None:
    mine = [*brokers(range(3)), TargetBroker(ordinal=3, workers=1, disk_uuid="bb")]
    known = Known(cluster_uuid=UUID, disks={3: "aa"})
    refused(ConflictError, "broker 3 is known with disk aa", tuple(mine), known=known)
    assert asked(tuple(mine), known=Known(cluster_uuid=UUID, disks={3: "bb"})).version == 5
    assert asked(tuple(mine)).version == 5


def test_shapes_that_are_none_name_those_that_go() -> None:
    refused(RequestError, "without 3: brokers 0 to 5 are all there", brokers([0, 1, 2, 4, 5, 6]))
    refused(RequestError, "Sizes that go: 3, 6, 12, 24", brokers([0, 1, 2, 7]))
    refused(RequestError, "without 1", brokers([0, 2, 3]))
    refused(RequestError, "2 brokers: a ring has at least three", brokers([0, 1]))
    refused(RequestError, "a ring has at least three", brokers([0]))
    refused(RequestError, "no broker, or one of them twice", ())
    refused(RequestError, "no broker, or one of them twice", brokers([0, 1, 2, 2]))
    refused(RequestError, "24 is the largest number of brokers that goes", brokers(range(25)))
    with pytest.raises(RequestError, match="a single broker does not grow"):
        check_shape(Cut(1, 8), brokers(range(3)))
    check_shape(Cut(1, 8), brokers([0]))


def test_more_processes_than_slices_name_the_largest_number() -> None:
    refused(RequestError, "broker 0 would have 3 workers for 2 slices", brokers(range(12), 3))
    refused(RequestError, "or 6 that of brokers with 3 workers each", brokers(range(12), 3))
    refused(RequestError, "broker 0 would have 0 workers", brokers(range(3), 0))
    assert asked(brokers(range(3), 8)).workers == {0: 8, 1: 8, 2: 8}
    # Half-grown: broker 1 has all of its third, broker 0 half of it.
    refused(RequestError, "broker 0 would have 5 workers for 4 slices", brokers(range(4), 5))


def test_a_shrink_is_refused_while_one_that_leaves_has_the_only_copy_in_reach() -> None:
    six = Target(9, CUT, brokers(range(6)))
    gid = Gid(Token(CUT.token(4)), Epoch(3))
    few = Known(cluster_uuid=UUID, copies={gid: {3}, Gid(Token(0), Epoch(2)): {0, 3, 1}})
    with pytest.raises(ConflictError, match=r"1 generation would have no copy") as told:
        next_target(six, 9, brokers(range(3)), cluster_uuid=UUID, known=few)
    assert "without brokers 3, as long as those are away that have another one" in str(told.value)
    assert f"(generation {gid.token}/3): start them first" in told.value.detail
    # Two that both leave can be copied: one says of the other's that it is true.
    enough = Known(cluster_uuid=UUID, copies={gid: {3, 4}})
    assert next_target(six, 9, brokers(range(3)), cluster_uuid=UUID, known=enough).version == 10
    # One copy that stays as it is does not hold up what has nothing to do with it.
    lone = Known(cluster_uuid=UUID, copies={gid: {1}})
    assert next_target(six, 9, brokers(range(3)), cluster_uuid=UUID, known=lone).version == 10


def test_depots_are_kept_with_the_target_and_by_it() -> None:
    named = THREE.with_depots(((4, 0), (4, 2)))
    assert (named.version, named.brokers) == (5, THREE.brokers)
    assert unpack_target(CUT, named.packed()) == named
    assert (named.depots_of(4), named.depots_of(0)) == ([0, 2], [])
    # Other brokers are wanted: what was named stays. Who knows of none packs it as ever.
    more = next_target(named, 5, brokers(range(6)), cluster_uuid=UUID, known=KNOWN)
    assert (more.version, more.depots) == (6, named.depots)
    assert len(msgpack.unpackb(THREE.packed())) == 5


def test_who_was_wanted_once_is_known_to_who_hears_of_the_target_later() -> None:
    """A depot's process is made when those that leave have left the target."""
    six = asked(brokers(range(6)))
    three = next_target(six, 5, brokers(range(3)), cluster_uuid=UUID, known=KNOWN)
    assert (six.departed, three.departed) == ((), (3, 4, 5))
    assert unpack_target(CUT, three.packed()) == three
    four = next_target(three, 6, brokers(range(4)), cluster_uuid=UUID, known=KNOWN)
    assert four.departed == (4, 5) and unpack_target(CUT, four.packed()) == four
    assert four.with_depots(((4, 0),)).departed == (4, 5)


@pytest.mark.parametrize(
    "departed", [[4, 4], [5, 4], [2], [-1], [2**20], [True], 7, ["4"]], ids=repr
)
def test_who_can_not_have_left_is_refused(departed: object) -> None:
    given = [*msgpack.unpackb(THREE.packed()), [], departed]
    with pytest.raises(ProtocolError):
        unpack_target(CUT, msgpack.packb(given))


@pytest.mark.parametrize(
    "depots", [[[24, 0]], [[0, 2**20]], [[0, -1]], [[0]], [[4, 0], [4, 0]], 7, [[True, 0]]]
)
def test_depots_that_can_not_be_are_refused(depots: object) -> None:
    given = [*msgpack.unpackb(THREE.packed()), depots, []]
    with pytest.raises(ProtocolError):
        unpack_target(CUT, msgpack.packb(given))


def test_who_has_not_joined_has_no_range_yet() -> None:
    target = asked(brokers(range(6)))
    wanted = target.wanted({0, 1, 2, 5})
    assert wanted.brokers == (0, 1, 2, 5)
    assert [each.members for each in wanted.ranges()] == [
        (0, 1, 2), (1, 2, 5), (2, 5, 0), (5, 0, 1)
    ]  # fmt: skip
    assert target.wanted().brokers == (0, 3, 1, 4, 2, 5)


def test_who_is_away_keeps_its_part_of_the_ring() -> None:
    """A member of any route has joined, whether it is there or not; the first three always have."""
    target = asked(brokers(range(6)))
    ranges = target.wanted({0, 1, 2, 3}).ranges()
    routes = [
        RangeRoute(each.first, each.slices, CUT.token(each.first), 2, each.members[0], each.members)
        for each in ranges
    ]
    assert target.joined(RouteTable(CUT, routes), present=[0, 1, 2]) == {0, 1, 2, 3}
    assert target.joined(RouteTable(CUT, routes[:1]), present=[5, 9]) == {0, 1, 2, 3, 5}
    assert target.joined(RouteTable(CUT), present=[]) == {0, 1, 2}


@pytest.mark.parametrize(
    "given",
    [
        [],
        [1, 4, 3, 8],
        [2, 4, 3, 8, []],
        [1, 4, 6, 4, []],
        [1, -1, 3, 8, []],
        [1, 4, 3, 8, [[0, 1, "h", []]]],
        *(
            [1, 4, 3, 8, [[0, 1, "", [], ""], [1, 1, "", [], ""], each]]
            for each in (
                [3, 1, "", [], ""],
                [2, 0, "", [], ""],
                [2, 129, "", [], ""],
                [2, True, "", [], ""],
                [2, 1, "h" * 256, [], ""],
                [2, 1, "a\nb", [], ""],
                [2, 1, "", [["a", 65_536]], ""],
                [2, 1, "", [["a"]], ""],
                [2, 1, "", [7], ""],
                [2, 1, "", [], 7],
                [12_288, 1, "", [], ""],
                [1, 1, "", [], ""],
            )
        ),
    ],
    ids=repr,
)
def test_what_can_not_be_a_target_is_refused(given: object) -> None:
    with pytest.raises(ProtocolError):
        unpack_target(CUT, msgpack.packb(given))
    with pytest.raises(ProtocolError):
        unpack_target(CUT, b"\xc1")
