"""Who leads the range on the left learns what was handed to it, over real sockets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.cluster.state.kin import KnownLineage
from barco.errors import NotReadyError
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal
from barco.workers.operations.handovers import HandOvers, who_took
from barco.workers.peers.rpc import RpcServer, Siblings

CUT = Cut(3, 8)
LEFT_TOKEN, TOKEN, END = CUT.token(0), CUT.token(4), CUT.token(8)
DISKS = [Identity(Ordinal(at), bytes([at + 1]) * 16) for at in range(4)]


def generation(
    token: int, end: int, epoch: int, at: tuple[int, ...], *parents: Parent
) -> Generation:
    members = tuple(DISKS[each] for each in at)
    return Generation(Gid(token, Epoch(epoch)), end, members[0], 70, members, parents)


LEFT = generation(LEFT_TOKEN, TOKEN, 5, (0, 3, 1))
RIGHT = generation(TOKEN, END, 6, (3, 1, 2))
GONE = Successor(40, Kind.HANDOFF, ())
JOINED = generation(LEFT_TOKEN, END, 7, (0, 3, 1), Parent(LEFT.gid, 9), Parent(RIGHT.gid, 40))
OPEN = KnownLineage({RIGHT.gid: RIGHT}, {})
HANDED = KnownLineage({RIGHT.gid: RIGHT}, {RIGHT.gid: GONE})
LATER = KnownLineage({RIGHT.gid: RIGHT}, {RIGHT.gid: Successor(41, Kind.HANDOFF, ())})
TAKEN = KnownLineage({LEFT.gid: LEFT, JOINED.gid: JOINED}, {})
SIZES = {"topics": 10, "producers": 70_000, "state_bytes": 3 << 20}


class Ring:
    """Each range has three processes: the right one of brokers 3, 1, 2, the left one of 0, 3, 1."""

    def __init__(self) -> None:
        self.routes = RouteTable(CUT)

    def hear(self, made: Generation, first: int, *, handed: bool) -> None:
        members = tuple(int(each.ordinal) for each in made.members)
        route = (first, 4, made.gid.token, made.gid.epoch, members[0], members, handed)
        self.routes.merge(RangeRoute(*route))

    def processes_of_token(self, token: int) -> list[tuple[int, int]]:
        return [(3, 0), (1, 0), (2, 0)] if token == TOKEN else [(0, 1), (3, 1), (1, 1)]

    def holders(self, token: int) -> list[tuple[int, int]]:
        return self.processes_of_token(token)

    def process_at(self, ordinal: int, token: int) -> tuple[int, int] | None:
        return next((each for each in self.processes_of_token(token) if each[0] == ordinal), None)

    def slice_at(self, token: int) -> int:
        return {LEFT_TOKEN: 0, TOKEN: 4, END: 8}[token]

    def of_slice(self, number: int) -> int:
        return LEFT_TOKEN

    def left_of(self, token: int, count: int) -> list[int]:
        return [LEFT_TOKEN] if token > LEFT_TOKEN else []


class Member:
    """One process, with what its journal says."""

    def __init__(self, lab: "Lab", process: tuple[int, int], token: int) -> None:
        self.process, self.path = process, str(lab.root / f"{process[0]}-{process[1]}.rpc")
        self.journal: KnownLineage | None = OPEN
        self.leads: Generation | None = None
        self.told: list[Any] = []
        self.hushed: list[int] = []
        self.sizes = dict(SIZES)
        self.committed, self.has_begun = 3, True
        self.siblings = Siblings(
            worker=peer_of(process), paths=lab.paths, operation=self._operation, bytes_max=1 << 20
        )
        self.handovers = HandOvers(
            token,
            store=self,  # type: ignore[arg-type]
            reactor=self,  # type: ignore[arg-type]
            committed=lambda: self.committed,
            ranges=lab.ring,  # type: ignore[arg-type]
            siblings=self.siblings,
            peer=peer_of(process),
            journal=lambda: self.journal,
            leads=lambda: self.leads,
            taught=lambda *told: self.told.append(told),
            hush=self._hush,
            state_bytes_max=8 << 20,
        )
        self.server = RpcServer(self._operation, bytes_max=1 << 20)
        lab.paths[peer_of(process)] = self.path

    async def _hush(self) -> None:
        self.hushed.append(len(self.told))

    async def _operation(self, op: str, args: Any) -> Any:
        return await self.handovers.operations[op](args)

    def stats(self) -> dict[str, int]:
        return self.sizes

    def has_begun(self, epoch: int) -> bool:
        raise AssertionError("set for each")


class Lab:
    def __init__(self, root: Path) -> None:
        self.root, self.ring, self.paths = root, Ring(), dict[int, str]()
        self.right = [Member(self, each, TOKEN) for each in self.ring.processes_of_token(TOKEN)]
        others = self.ring.processes_of_token(LEFT_TOKEN)
        self.left = [Member(self, each, LEFT_TOKEN) for each in others]
        self.taker = self.left[0]
        self.taker.leads, self.taker.journal = LEFT, KnownLineage({LEFT.gid: LEFT}, {})
        self.ring.hear(LEFT, 0, handed=False)
        self.ring.hear(RIGHT, 4, handed=False)


def handing(root: Path, test: Callable[[Lab], Any]) -> None:
    async def main() -> None:
        lab = Lab(root)
        for each in (*lab.right, *lab.left):
            await each.server.start(each.path)
        try:
            await test(lab)
        finally:
            for each in (*lab.right, *lab.left):
                await each.handovers.close()
                await each.siblings.close()
                await each.server.close()

    asyncio.run(main())


def test_two_members_word_is_taken(tmp_path: Path) -> None:
    async def test(lab: Lab) -> None:
        assert not await lab.taker.handovers.look(), "nothing was handed over"
        lab.right[0].journal = lab.right[2].journal = HANDED
        lab.ring.hear(RIGHT, 4, handed=True)
        assert await lab.taker.handovers.look()
        assert lab.taker.told == [(RIGHT, GONE, frozenset({3, 2}))]
        assert lab.taker.hushed == [0], "the machine proposes at once"
        # What is known is not asked again; nor by who does not lead what is before it.
        lab.taker.journal = HANDED
        assert not await lab.taker.handovers.look()
        other = lab.left[1]
        other.journal = KnownLineage({}, {})
        assert not await other.handovers.look()
        other.leads = generation(CUT.token(8), CUT.token(16), 5, (3, 1, 2))
        lab.ring.slice_at = lambda token: token and 16  # type: ignore[method-assign,assignment]
        assert not await other.handovers.look()

    handing(tmp_path, test)


@pytest.mark.parametrize("words", [[HANDED, OPEN, OPEN], [HANDED, LATER, None], [None] * 3])
def test_less_than_that_is_not(tmp_path: Path, words: list[KnownLineage | None]) -> None:
    async def test(lab: Lab) -> None:
        lab.ring.hear(RIGHT, 4, handed=True)
        for member, journal in zip(lab.right, words, strict=True):
            member.journal = journal
        assert not await lab.taker.handovers.look() and lab.taker.told == []

    handing(tmp_path, test)


def test_a_hint_comes_before_the_routes(tmp_path: Path) -> None:
    """Each member of what was handed over gives one to the range on the left."""

    async def test(lab: Lab) -> None:
        task = asyncio.create_task(lab.taker.handovers.run())
        for member in lab.right:
            member.journal = HANDED
            member.handovers.decided(RIGHT, GONE)
        async with asyncio.timeout(10):
            while not lab.taker.told:
                await asyncio.sleep(0.01)
        task.cancel()
        assert lab.taker.told[0][:2] == (RIGHT, GONE)

    handing(tmp_path, test)


def test_who_hands_over_asks_for_room_before(tmp_path: Path) -> None:
    """What nobody can take in would have no leader for good."""

    async def test(lab: Lab) -> None:
        member = lab.right[0]
        assert "producers" in await member.handovers.refusal(0, LEFT_TOKEN)
        member.sizes["producers"] = 131_072 - 70_000
        assert await member.handovers.refusal(0, LEFT_TOKEN) == ""
        member.sizes["state_bytes"] = 6 << 20
        assert "bytes" in await member.handovers.refusal(0, LEFT_TOKEN)
        member.sizes |= {"state_bytes": 0, "topics": 99_995}
        assert "topics" in await member.handovers.refusal(0, LEFT_TOKEN)
        member.sizes["topics"], member.committed = 0, 0
        assert "begun" in await member.handovers.refusal(0, LEFT_TOKEN)
        member.committed, lab.taker.leads = 1, None
        with pytest.raises(NotReadyError):
            await member.handovers.refusal(0, LEFT_TOKEN)

    handing(tmp_path, test)


def test_who_took_something_in_says_so_when_that_has_begun(tmp_path: Path) -> None:
    async def test(lab: Lab) -> None:
        asking = lab.right[2].siblings
        for each in lab.left:
            each.has_begun = lambda epoch: epoch <= 7  # type: ignore[method-assign,assignment]

        async def taken() -> set[int]:
            parent, ring = tuple(RIGHT.gid), lab.ring
            return await who_took(parent, ring, asking, 5.0)  # type: ignore[arg-type]

        assert await taken() == set()
        lab.left[0].journal = TAKEN
        assert await taken() == {0}
        lab.left[1].journal = TAKEN
        assert await taken() == {0, 3}
        lab.left[1].has_begun = lambda epoch: False  # type: ignore[method-assign,assignment]
        assert await taken() == {0}

    handing(tmp_path, test)
