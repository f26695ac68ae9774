"""What brokers that leave still hold alone, as whoever keeps the target sees it."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from barco.cluster.ring.depots import Depots
from barco.cluster.ring.target import Known, Target, TargetBroker
from barco.errors import ConflictError, NotReadyError, PeerError
from barco.model.generation import Gid
from barco.model.ranges import process_of
from barco.types import Epoch, Token
from barco.workers.operations.leaving.drains import Drains
from barco.workers.peers.neighbours import Neighbour

from .test_growth import CUT, DISKS, FIRSTS, Lab

TOKEN = int(CUT.token(4))
MEMBERS = [3, 1, 4]
MIB = 1 << 20


def ended(epoch: int, *, whole: bool = True, size: int = MIB, begun: int = 0) -> list[Any]:
    return [epoch, 77, 9, 1234, MEMBERS, [[int(CUT.token(0)), 1, 5]], 1, 0, size, whole, begun]


class Ring:
    """Brokers 0, 1 and 2 stay; 3 and 4 have processes for slices 4 to 7, and so have others."""

    def __init__(self) -> None:
        self.lab = Lab(2)
        service = self.lab.service
        self.said: dict[int, Any] = {}
        self.expired: dict[int, list[int]] = {}
        self.down: set[int] = set()
        self.drains = Drains(service, self)  # type: ignore[arg-type]
        self.desk = service.target
        self.ranges, self.neighbours = service.ranges, service.neighbours
        self.ranges.heard.hear(FIRSTS)
        self.ranges.look()
        self.target = Target(
            7, CUT, tuple(TargetBroker(ordinal=each, workers=1) for each in range(3))
        )
        self.named: list[Depots] = []
        self.hear(0, [])
        self.desk.kept = lambda: self.target  # type: ignore[method-assign]
        self.desk.name_depots = self._name  # type: ignore[method-assign]

    async def _name(self, named: Depots) -> None:
        self.named.append(named)
        self.target = self.target.with_depots(named)

    def say(self, ordinal: int, *told: list[Any], up: bool = True) -> None:
        """A broker has a process for slices 4 to 7, which says this."""
        self.said[ordinal] = list(told)
        self.hear(ordinal, [(9, TOKEN, 1)], up=up)

    def hear(self, ordinal: int, processes: list[tuple[int, int, int]], *, up: bool = True) -> None:
        disk = (DISKS * 2)[ordinal].hex()
        self.ranges.tell(ordinal, processes, disk, up=up)
        self.neighbours.brokers[ordinal] = self._heard(ordinal, "alive" if up else "down")

    def _heard(self, ordinal: int, state: str) -> Any:
        return Neighbour(
            ordinal=ordinal, disk_uuid="", session=1, address="", host="", ports={}, workers=1,
            version="", incarnation=1, state=state,
        )  # fmt: skip

    async def call(self, peer: int, op: str, args: Mapping[str, Any], timeout: float = 5.0) -> Any:
        ordinal, _ = process_of(peer)
        assert op == "ended"
        if ordinal not in self.said:
            raise NotReadyError("it starts")
        if self.said[ordinal] is None:
            raise PeerError("it is gone")
        expired = [(each, 9) for each in self.expired.get(ordinal, ())]
        return {"ended": self.said[ordinal], "expired": expired, "more": None}

    def look(self) -> dict[int, dict[str, Any]]:
        return {each["ordinal"]: each for each in asyncio.run(self.drains.look())}


def test_of_a_range_that_loses_two_of_three_a_depot_is_named_and_waited_for() -> None:
    ring = Ring()
    for at in MEMBERS:
        ring.say(at, ended(2), ended(3))
    first = ring.look()
    assert ring.named == [((4, 0),)], "whoever leads these slices"
    assert first[3] == {
        "ordinal": 3, "up": True, "drained": False, "generations": 2, "copies": 2,
        "bytesLeft": 2 * MIB, "bytesAll": 2 * MIB, "waits": [],
    }  # fmt: skip
    # It copies: one is there and looked at, one is half there.
    ring.say(0, ended(2), ended(3, whole=False, begun=MIB // 2))
    second = ring.look()
    assert (second[3]["bytesLeft"], second[3]["drained"]) == (MIB // 2, False)
    ring.say(0, ended(2), ended(3, whole=False, begun=MIB))
    assert not ring.look()[3]["drained"], "whole, and not read again yet"
    ring.say(0, ended(2), ended(3))
    done = ring.look()
    assert [done[at]["drained"] for at in (3, 4)] == [True, True] and len(ring.named) == 1
    # Both have gone, and are not asked any more.
    for at in (3, 4):
        ring.hear(at, [(9, TOKEN, 0)], up=False)
        ring.said[at] = None
    gone = ring.look()
    assert (gone[3]["drained"], gone[3]["up"]) == (True, False)


def test_who_is_up_and_does_not_answer_is_waited_for() -> None:
    ring = Ring()
    for at in MEMBERS:
        ring.say(at, ended(2))
    ring.said[1] = None
    found = ring.look()
    assert found[3]["waits"] == ["brokers 1 do not answer yet"]
    assert not found[3]["drained"] and ring.named == []
    # It is down: its copy does not count, so two are named.
    ring.hear(1, [(9, TOKEN, 1)], up=False)
    ring.look()
    assert ring.named == [((4, 0), (4, 2))]


def test_while_one_alone_in_reach_has_it_it_waits_and_is_not_asked_for() -> None:
    ring = Ring()
    ring.say(3, ended(2))
    for at in (1, 4):
        ring.say(at, up=False)
        ring.said[at] = None
    found = ring.look()
    assert "fewer than two copies are in reach" in found[3]["waits"][0]
    assert f"{TOKEN}/2" in found[3]["waits"][0] and not found[3]["drained"]
    copies = asyncio.run(ring.drains.copies({3}))
    assert copies == {Gid(Token(TOKEN), Epoch(2)): frozenset({3})}


def test_what_two_say_is_expired_needs_no_copy_of_what_a_third_has_left() -> None:
    """Who left a range keeps its end for longer than those who went on with it."""
    ring = Ring()
    ring.say(4, ended(2), ended(3))
    for at in (3, 1):
        ring.say(at, ended(3))
    ring.expired[1] = [2]
    waits = ring.look()[3]["waits"]
    assert f"{TOKEN}/2" in waits[0] and "fewer than two copies" in waits[0], "one alone says so"
    ring.expired[3] = [2]
    found = ring.look()[3]
    assert (found["waits"], found["generations"], found["copies"]) == ([], 1, 1), "but the other"
    ring.say(0, ended(3))
    assert ring.look()[3]["drained"] and ring.look()[4]["drained"]


@pytest.mark.parametrize("expired", [[[2, 0]], [[2]], [2], {"2": 9}, [[0, 9]], [[2, 9]] * 129])
def test_an_answer_that_is_none_counts_for_nothing(expired: Any) -> None:
    """Then it has not answered, and is waited for."""
    ring = Ring()
    for at in MEMBERS:
        ring.say(at, ended(2))

    async def call(peer: int, op: str, args: Mapping[str, Any], timeout: float = 5.0) -> Any:
        answer = await Ring.call(ring, peer, op, args, timeout)
        return answer | ({"expired": expired} if process_of(peer)[0] == 1 else {})

    ring.call = call  # type: ignore[method-assign]
    assert ring.look()[3]["waits"] == ["brokers 1 do not answer yet"]


def test_who_is_a_member_of_an_open_range_is_not_drained() -> None:
    ring = Ring()
    ring.hear(3, [])
    assert ring.look()[3]["drained"], "it has joined, and holds nothing"
    four = (
        FIRSTS[0]._replace(slices=4, epoch=5),
        FIRSTS[0]._replace(first=4, slices=4, token=TOKEN, epoch=5, leader=3, members=(3, 1, 2)),
    )
    for each in four:
        ring.ranges.heard.learn(each)
    ring.ranges.look()
    found = ring.look()[3]
    assert found["waits"] == ["it is a member of 1 ranges of the ring"] and not found["drained"]


def test_without_one_more_nothing_is_changed() -> None:
    ring = Ring()
    for at in (3, 1, 0):
        ring.say(at, [2, 77, 9, 1234, [3, 1, 0], [], 1, 0, MIB, True, 0])
    stays = TargetBroker(ordinal=3, workers=1)
    ring.target = Target(7, CUT, (*ring.target.brokers, stays))
    assert ring.look() == {}
    told = asyncio.run(ring.drains._drains({"without": [3]}))
    assert told["version"] == 7 and ring.named == []
    assert [each["ordinal"] for each in told["brokers"]] == [3]
    assert told["brokers"][0]["generations"] == 1 and told["brokers"][0]["copies"] == 0


def test_a_target_that_takes_the_only_copy_away_is_refused() -> None:
    """As whoever keeps the target looks at it."""
    ring = Ring()
    assert ring.desk.copies == ring.drains.copies
    asked: list[set[int]] = []

    ring.desk._leads = True
    ring.desk._keeper.target = Target(
        1, CUT, tuple(TargetBroker(ordinal=each, workers=1) for each in range(4))
    )
    brokers = [[each, 1, "", ""] for each in range(3)]
    cluster = ring.desk._options.cluster_uuid
    args = {"cluster": cluster, "seen": 1, "brokers": brokers}
    ring.desk._known = lambda current: Known(cluster_uuid=cluster)  # type: ignore[method-assign]

    async def lone(leaving: set[int]) -> dict[Gid, frozenset[int]]:
        asked.append(set(leaving))
        return {Gid(Token(TOKEN), Epoch(2)): frozenset({3})}

    ring.desk.copies = lone
    change = ring.desk.operations()["target_change"]
    with pytest.raises(ConflictError, match="would have no copy without brokers 3"):
        asyncio.run(_soon(change(args)))
    assert asked == [{3}]


async def _soon(call: Awaitable[object]) -> object:
    """What is not refused would wait for its append."""
    return await asyncio.wait_for(call, 10)
