"""What a replica's host tells of what its machine has decided."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from barco.cluster.logs.driving import Role
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute
from barco.cluster.state.kin import KnownLineage
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations.kinship import Kinship
from barco.workers.process.turns import Turns
from barco.workers.replication.driver import Driver
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
    host.handovers = host._origins  # type: ignore[assignment]

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


@pytest.mark.parametrize(("leads", "opens"), [(True, True), (False, False)])
def test_a_leader_that_has_ended_when_its_first_group_is_committed_opens_nothing(
    leads: bool, opens: bool
) -> None:
    """Both may come in one turn: `follow` has been called by then."""
    led, told = generation(0, 8, 5, 0, 1, 2), []
    host, core = object.__new__(ReplicaHost), {"committed": 0}
    host._reactor = SimpleNamespace(log_state=lambda: core)  # type: ignore[assignment]
    host._turns = Turns()
    host.driver = SimpleNamespace(generation=led, leading=True)  # type: ignore[assignment]

    async def adopt(siblings: Any) -> int:
        return 0

    async def done() -> None:
        pass

    staging = SimpleNamespace(take_over=done)
    service = SimpleNamespace(open=told.append, adopt_topics=adopt, staging=staging)
    host._service = service  # type: ignore[assignment]
    host._opened = lambda: None
    host._network = SimpleNamespace(siblings=None)  # type: ignore[assignment]
    host._tell = lambda generation: None  # type: ignore[method-assign, assignment]
    host.history = SimpleNamespace(look=done)  # type: ignore[assignment]

    async def scenario() -> None:
        opening = asyncio.create_task(host._open_service(led))
        await asyncio.sleep(0)
        core["committed"], host.driver.leading = 1, leads  # type: ignore[misc]
        assert host._turns.look()
        await opening

    asyncio.run(scenario())
    assert told == ([5] if opens else [])


class Lately:
    """A member of epochs 5 to 7 of the range at slice 0, as its host sees it: the groups of 5 and 6
    are on their way, or here and not listed yet."""

    def __init__(self) -> None:
        first = generation(0, 8, 5, 0, 1, 2)
        self.first = first.gid
        second = replace(generation(0, 8, 6, 0, 1, 2), parents=(Parent(self.first, 4),))
        self.second = second.gid
        third = replace(generation(0, 8, 7, 0, 1, 2), parents=(Parent(self.second, 9),))
        records = {each.gid: each for each in (first, second, third)}
        self.lacks: set[Gid] = set()
        self.arrived: set[Gid] = set()
        machine = SimpleNamespace(
            lacking=lambda: frozenset(self.lacks),
            arrived=lambda: frozenset(self.arrived),
            decisions=lambda: 2,
            journal=lambda: KnownLineage(records, {}),
        )
        self.logs: Any = SimpleNamespace(current=third.gid, sealing=frozenset())
        self.logs.machine = self.logs
        held = SimpleNamespace(token=CUT.token(0))
        options: Any = SimpleNamespace(held=held, peer=0, process=(0, 0))
        store: Any = SimpleNamespace(lineage=SimpleNamespace(generations=list))
        driver: Any = SimpleNamespace(machine=machine, generation=third, logs=self.logs)
        driver._machine, driver._started, driver._role = machine, True, Role()
        driver.unread = lambda: Driver.unread(driver)
        ranges: Any = None
        self.kin = Kinship(options, ranges, store, driver)

    def far(self) -> list[Gid]:
        return [each.gid for each in self.kin.far()]


def test_what_has_arrived_is_read_elsewhere_until_it_is_listed() -> None:
    """Whole for the machine a moment before readers find it: they went past it."""
    seen = Lately()
    assert seen.far() == []
    seen.lacks = {seen.first}
    assert seen.far() == [seen.first]
    seen.lacks, seen.arrived = set(), {seen.first}
    assert seen.far() == [seen.first], "all of it is here, and not sealed yet"
    seen.arrived, seen.logs.sealing = set(), frozenset((seen.first,))
    assert seen.far() == [seen.first], "it is being sealed"
    seen.logs.sealing = frozenset()
    assert seen.far() == [], "and is listed now"


def test_what_the_core_has_is_read_here_as_it_grows() -> None:
    seen = Lately()
    seen.logs.current = seen.second
    seen.arrived = {seen.second, seen.first}
    assert seen.far() == [seen.first]
