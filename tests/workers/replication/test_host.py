"""What a replica's host tells of what its machine has decided."""

from types import SimpleNamespace
from typing import Any

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.types import Epoch, Ordinal, Token
from barco.workers.replication.host import ReplicaHost

CUT = Cut(3, 8)


def generation(first: int, end: int, epoch: int, *members: int) -> Generation:
    listed = tuple(Identity(Ordinal(each), bytes(16)) for each in members)
    after = CUT.token(end) if end < CUT.slices else 2**63
    gid = Gid(Token(CUT.token(first)), Epoch(epoch))
    return Generation(gid, after, listed[0], 7, listed, (Parent(gid, 1),))


def told_by(me: int, gid: Gid, value: Successor, ended: Generation) -> list[Any]:
    """Of a broker whose process holds the range at slice 0."""
    told: list[Any] = []
    host = object.__new__(ReplicaHost)
    held = SimpleNamespace(token=CUT.token(0))
    host._options = SimpleNamespace(held=held)  # type: ignore[assignment]
    host._me = Identity(Ordinal(me), bytes(16))
    host._service = SimpleNamespace(ranges=SimpleNamespace(cut=CUT))  # type: ignore[assignment]
    journal = {gid: ended}
    links = SimpleNamespace(meet=lambda ordinal, dial: False)
    host.driver = SimpleNamespace(record=journal.get, links=links)  # type: ignore[assignment]
    host._origins = SimpleNamespace(decided=lambda parent, value: None)  # type: ignore[assignment]

    def tell(route: RangeRoute, *, stopped: bool) -> None:
        told.append((route.first, route.slices, route.members, route.handed, stopped))

    host._network = SimpleNamespace(told=tell)  # type: ignore[assignment]
    host._decided(gid, value)
    return told


def test_a_member_tells_of_a_split_what_its_own_process_will_not() -> None:
    parent = generation(0, 8, 5, 0, 1, 2)
    left, right = generation(0, 4, 6, 0, 3, 1), generation(4, 8, 6, 3, 1, 2)
    split = Successor(9, Kind.SPLIT, (left, right))
    # It leads or follows the left one, and says so when it does.
    assert told_by(0, parent.gid, split, parent) == [(4, 4, (3, 1, 2), False, False)]
    # It is no member of the left one any more; that of the right one is another process.
    assert told_by(2, parent.gid, split, parent) == [
        (0, 4, (0, 3, 1), False, False),
        (4, 4, (3, 1, 2), False, False),
    ]


def test_a_member_tells_who_follows_when_it_is_none_any_more() -> None:
    parent = generation(0, 8, 5, 0, 1, 2)
    moved = Successor(9, Kind.RELEAD, (generation(0, 8, 6, 0, 1, 3),))
    assert told_by(2, parent.gid, moved, parent) == [(0, 8, (0, 1, 3), False, False)]
    assert told_by(1, parent.gid, moved, parent) == []


def test_what_was_handed_over_is_told() -> None:
    own = generation(8, 16, 5, 1, 2, 0)
    assert told_by(0, own.gid, Successor(9, Kind.HANDOFF, ()), own) == [
        (8, 8, (1, 2, 0), True, False)
    ]
