"""The next step of a range, as its leader tells its machine: real routes, plan and target."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from memory_spool import MemorySpool

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import held_range
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.cluster.ring.target import Target, TargetBroker, first_target
from barco.cluster.state import events as ev
from barco.errors import ConflictError, NoLeaderError
from barco.model.generation import Generation, Gid, Identity
from barco.workers.operations import growth
from barco.workers.operations.growth import Growth
from barco.workers.operations.service import ShardService

from ..twin import Broker, MemoryReactor

CUT = Cut(3, 8)
DISKS = [bytes([65 + each]) * 16 for each in range(4)]
FIRSTS = [
    RangeRoute(8 * n, 8, CUT.token(8 * n), 2, n, ((n), (n + 1) % 3, (n + 2) % 3)) for n in range(3)
]


class Recorder:
    """In a driver's place: what it is told, and the generation that it leads."""

    def __init__(self, route: RangeRoute) -> None:
        end = CUT.token(route.end) if route.end < CUT.slices else 2**63
        members = tuple(Identity(each, DISKS[each]) for each in route.members)
        gid = Gid(route.token, route.epoch)
        self.generation = Generation(gid, end, members[0], 70, members, ())
        self.leading = True
        self.posted: list[ev.Event] = []
        self.synced = [True, True]

    def status(self) -> dict[str, Any]:
        followers = [
            {"ordinal": member.ordinal, "synced": synced}
            for member, synced in zip(self.generation.members[1:], self.synced, strict=True)
        ]
        return {"writable": True, "followers": followers}

    def post(self, event: ev.Event) -> None:
        self.posted.append(event)


class Lab:
    """Broker 0, 1 or 2, which leads one range, and what it has heard."""

    def __init__(self, ordinal: int = 0) -> None:
        self.options = dataclasses.replace(
            Broker().options(0),
            ring_size=3,
            slices_per_range=8,
            workers=1,
            worker=0,
            processes=None,
            ordinal=ordinal,
            disk_uuid=DISKS[ordinal].hex(),
            brokers=[f"127.0.0.{each + 1}" for each in range(3)],
            shard_endpoints=dict.fromkeys(range(3), ""),
            shard_port=9300,
        )
        self.service = ShardService(
            self.options,
            reactor=MemoryReactor(),
            reader=None,
            supervisor=None,
            spool=MemorySpool(),
            **dict.fromkeys(("now_us", "wall_us"), lambda: 0),
        )
        self.driver = Recorder(FIRSTS[ordinal])
        self.keeper: Target | None = None
        self.why = ""
        self.growth = Growth(self.options, self.service, self.driver, self, self.refusal)
        ranges = self.service.ranges
        ranges.tell_own(self.options.table, {each: 70 + each for each in range(3)})
        ranges.reached = lambda peer: True
        self.service.leaders.hear(FIRSTS)
        self.service.leaders.learn(FIRSTS[ordinal])

    def hear(self, ordinal: int, tokens: list[int], session: int, *, state: str = "alive") -> None:
        """A broker tells of its processes."""
        processes = [[number, token, session] for number, token in enumerate(tokens)]
        told = {
            "ordinal": ordinal, "disk_uuid": DISKS[ordinal].hex(), "session": 1,
            "address": f"127.0.0.{ordinal + 1}", "host": f"127.0.0.{ordinal + 1}",
            "ports": {}, "workers": 1, "processes": processes, "version": "0", "incarnation": 1,
            "state": state,
        }  # fmt: skip
        news = {"brokers": [told], "routes": [], "hints": [], "version": 1}
        self.service.neighbours.apply(news)

    async def refusal(self, leader: int, token: int) -> str:
        self.asked = leader, token
        return self.why

    async def call(self, worker: int, op: str, args: Any, timeout: float = 5.0) -> bytes:
        """As siblings: who keeps the target."""
        assert op == "target"
        if self.keeper is None:
            raise NoLeaderError("Nobody.")
        return self.keeper.packed()

    def want(self, version: int, *ordinals: int) -> Target:
        brokers = tuple(TargetBroker(ordinal=each, workers=1) for each in ordinals)
        self.keeper = Target(version, CUT, brokers)
        self.service.target.hear(self.keeper.packed())
        return self.keeper

    def look(self) -> list[ev.Event]:
        """What the machine is told."""
        self.driver.posted.clear()
        asyncio.run(self.growth.look())
        return list(self.driver.posted)


def four(ordinal: int = 0) -> Lab:
    """All are there, and the fourth's processes are ready; the others' as well."""
    lab = Lab(ordinal)
    for other in range(3):
        if other != ordinal:
            lab.hear(
                other,
                [CUT.token(8 * ((other - seat) % 3)) for seat in range(3)] + [CUT.token(4)],
                71,
            )
    lab.hear(3, [CUT.token(4), CUT.token(0), CUT.token(16)], 73)
    return lab


def test_without_a_target_nothing_is_done() -> None:
    lab = four()
    assert lab.service.target.heard == first_target(CUT, 1)
    assert lab.look() == []


def test_a_range_is_split_at_the_border_that_is_wanted() -> None:
    lab = four()
    lab.want(1, 0, 1, 2, 3)
    (split,) = lab.look()
    assert isinstance(split, ev.Split) and split.gid == lab.driver.generation.gid
    left, right = split.children
    assert (left.gid.token, left.end) == (CUT.token(0), CUT.token(4))
    assert (right.gid.token, right.end) == (CUT.token(4), CUT.token(8))
    assert [member.ordinal for member in left.members] == [0, 3, 1]
    assert [member.ordinal for member in right.members] == [3, 1, 2]
    assert (left.leader, left.session) == (Identity(0, DISKS[0]), 70)
    assert (right.leader, right.session) == (Identity(3, DISKS[3]), 73)
    assert lab.look() == []  # It is under way.


def test_what_came_before_a_step_is_answered_before_it() -> None:
    """A step that is none any more by then is not taken."""
    lab, posted = four(), list[int]()
    lab.want(1, 0, 1, 2, 3)

    async def hush() -> None:
        posted.append(len(lab.driver.posted))
        if len(posted) == 1:
            lab.driver.leading = False

    lab.growth._hush = hush
    assert lab.look() == [] and posted == [0]
    lab.driver.leading = True
    assert len(lab.look()) == 1 and posted == [0, 0]


def test_other_members_are_a_move() -> None:
    lab = four(2)
    lab.want(1, 0, 1, 2, 3)
    (move,) = lab.look()
    assert isinstance(move, ev.Move)
    assert [member.ordinal for member in move.child.members] == [2, 0, 3]
    assert four(1).look() == []


def two_pieces() -> Lab:
    """Slices 0 to 7 are two ranges, both led by broker 0, and shall be one."""
    lab = four()
    table = lab.options.table.with_range(held_range(CUT, 4, 4, (0, 1, 2)))
    lab.service.ranges.tell_own(table, {each: 70 + each for each in table.numbers})
    left, right = (
        RangeRoute(at, 4, CUT.token(at), epoch, 0, (0, 1, 2)) for at, epoch in ((0, 3), (4, 4))
    )
    lab.service.leaders.learn_all([[each.packed(), False] for each in (left, right)])
    lab.driver.generation = Recorder(right).generation
    endpoints = dict.fromkeys(table.numbers, "")
    lab.growth._options = dataclasses.replace(
        lab.options, processes=table, worker=3, shard_endpoints=endpoints
    )
    lab.want(1, 0, 1, 2)
    return lab


def test_what_is_to_be_joined_is_handed_over_if_there_is_room_for_it() -> None:
    lab = two_pieces()
    lab.why = "both are too large"
    assert lab.look() == [] and lab.asked == (0, CUT.token(0))
    lab.why = ""
    assert lab.look() == [ev.HandOver(lab.driver.generation.gid)]


def test_a_join_is_the_machines_own() -> None:
    """As soon as it is taught what was handed over: where that ended the plan does not know."""
    lab = two_pieces()
    right = RangeRoute(4, 4, CUT.token(4), 4, 0, (0, 1, 2), handed=True)
    lab.service.leaders.learn_all([[right.packed(), False]])
    route = RangeRoute(0, 4, CUT.token(0), 3, 0, (0, 1, 2))
    lab.driver.generation = Recorder(route).generation
    lab.growth._options = lab.options
    assert lab.growth.step(lab.service.target.heard) is None and lab.look() == []


def test_no_range_goes_beyond_one_that_was_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both count their slices from 0: who took them in could not tell them apart."""
    cut, desk = Cut(6, 4), four().service.target
    members = [(n, (n + 1) % 6, (n + 2) % 6) for n in range(6)]
    six = [
        RangeRoute(4 * n, 4, cut.token(4 * n), 2, each[0], each) for n, each in enumerate(members)
    ]
    halves = [RangeRoute(at, 2, cut.token(at), 3, 0, (0, 1, 2)) for at in (0, 2)] + six[1:]
    monkeypatch.setattr(desk, "cut", cut)

    def asked(routes: list[RangeRoute], brokers: int) -> None:
        monkeypatch.setattr(desk, "routes", lambda: RouteTable(cut, routes))
        listed = tuple(TargetBroker(ordinal=each, workers=1) for each in range(brokers))
        desk._check_joins(Target(1, cut, listed))

    asked(halves, 6)
    with pytest.raises(ConflictError, match="slices 0 to 7 would have to be joined"):
        asked(six, 3)


def wait(lab: Lab) -> None:
    lab.hear(3, [CUT.token(4), CUT.token(0), CUT.token(16)], 0)


def behind(lab: Lab) -> None:
    lab.driver.synced = [False, False]


def fenced(lab: Lab) -> None:
    lab.driver.leading = False


def nobody(lab: Lab) -> None:
    lab.keeper = None


def made_up(lab: Lab) -> None:
    lab.keeper = first_target(CUT, 1)


@pytest.mark.parametrize("change", [wait, behind, fenced, made_up])
def test_a_step_waits(change: Callable[[Lab], None]) -> None:
    """For who is not ready, for copies, for who leads; what gossip makes up is none."""
    lab = four()
    lab.want(1, 0, 1, 2, 3)
    change(lab)
    assert lab.look() == []


def test_a_step_waits_a_while_for_who_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three are enough; who is about to be the third would take the processor from them."""
    lab = four()
    lab.want(1, 0, 1, 2, 3)
    everything = [CUT.token(8 * ((2 - seat) % 3)) for seat in range(3)]
    lab.hear(2, everything, 71)  # All but the one for the second child.
    assert lab.look() == []
    lab.hear(2, [*everything, CUT.token(4)], 71)
    assert [type(each) for each in lab.look()] == [ev.Split], "it has come"

    lab = four()
    lab.want(1, 0, 1, 2, 3)
    lab.hear(2, everything, 71)
    lab.hear(2, everything, 71, state="dead")
    assert [type(each) for each in lab.look()] == [ev.Split], "it is away"

    lab = four()
    lab.want(1, 0, 1, 2, 3)
    lab.hear(2, everything, 71)
    assert lab.look() == []
    monkeypatch.setattr(growth, "READY_SECONDS", 0.0)
    assert [type(each) for each in lab.look()] == [ev.Split], "it does not come"


def test_nothing_is_done_while_nobody_keeps_the_target() -> None:
    lab = four()
    lab.want(1, 0, 1, 2, 3)
    nobody(lab)
    with pytest.raises(NoLeaderError):
        lab.look()
    assert lab.driver.posted == []


def test_a_single_broker_that_was_split_guesses_nobody_at_a_start() -> None:
    """The first of its processes does not have everything any more."""
    cut = Cut(1, 8)
    first = Broker().options(0)
    first = dataclasses.replace(
        first, ring_size=1, slices_per_range=8, workers=1, worker=0, processes=None, brokers=[],
        shard_endpoints={0: ""},
    )  # fmt: skip
    whole, half = first.table, held_range(cut, 4, 4, (0,))
    both = dataclasses.replace(
        first, processes=whole.with_range(half), shard_endpoints={0: "", 1: ""}
    )
    for options, leader in ((first, (0, 0)), (both, None)):
        service = ShardService(
            options,
            reactor=MemoryReactor(),
            reader=None,
            supervisor=None,
            spool=MemorySpool(),
            **dict.fromkeys(("now_us", "wall_us"), lambda: 0),
        )
        assert options.never_split is (leader is not None)
        assert service.leaders.leader(cut.token(0)) == leader
