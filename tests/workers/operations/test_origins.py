"""Who has no generation learns from two members of the parent, over real sockets."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from barco.cluster.state.kin import KnownLineage, Share, far, nearest, origin, shares
from barco.errors import BarcoError, ProtocolError, RequestError
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations import origins
from barco.workers.operations.origins import Origins, unpack
from barco.workers.peers.rpc import RpcServer, Siblings

OLD, NEW, END = 0, 2**40, 2**41
DISKS = [Identity(Ordinal(at), bytes([at + 1]) * 16) for at in range(4)]


def generation(token: int, end: int, epoch: int, at: tuple[int, ...], *parents: Parent) -> Any:
    members = tuple(DISKS[each] for each in at)
    return Generation(
        Gid(Token(token), Epoch(epoch)), end, members[0], 70 + epoch, members, parents
    )


BEFORE = generation(OLD, END, 4, (0, 1, 2))
PARENT = generation(OLD, END, 5, (0, 1, 2), Parent(BEFORE.gid, 9))
LEFT = generation(OLD, NEW, 6, (0, 3, 1), Parent(PARENT.gid, 40))
RIGHT = generation(NEW, END, 6, (3, 1, 2), Parent(PARENT.gid, 40))
SPLIT = Successor(40, Kind.SPLIT, (LEFT, RIGHT))
LIE = Successor(39, Kind.RELEAD, (generation(NEW, END, 6, (3, 1, 2), Parent(PARENT.gid, 39)),))
RECORDS = {each.gid: each for each in (BEFORE, PARENT, LEFT, RIGHT)}
KNOWN = KnownLineage(RECORDS, {BEFORE.gid: Successor(9, Kind.RELEAD, (PARENT,)), PARENT.gid: SPLIT})


def test_an_origin_is_the_last_step_that_made_a_broker_a_member() -> None:
    assert origin(KNOWN, NEW, 3) == (PARENT, SPLIT)
    assert origin(KNOWN, OLD, 3) == (PARENT, SPLIT), "of the parent's own token it is new"
    assert origin(KNOWN, OLD, 0) == (PARENT, SPLIT), "of those that are none the last"
    assert origin(KNOWN, NEW, 0) is None and origin(KNOWN, 7, 3) is None
    later = generation(NEW, END, 7, (3, 1, 2), Parent(RIGHT.gid, 0))
    records, decided = {**RECORDS, later.gid: later}, {**KNOWN.decided}
    decided[RIGHT.gid] = Successor(0, Kind.RELEAD, (later,))
    assert origin(KnownLineage(records, decided), NEW, 3) == (PARENT, SPLIT), (
        "not a change of leaders"
    )


def test_what_is_far_is_what_the_process_never_held() -> None:
    ((gid, tail, end, members),) = far(KNOWN, NEW, 3)
    assert (gid, tail, end, members) == (PARENT.gid, 40, END, (0, 1, 2))
    assert far(KNOWN, OLD, 0) == [] and far(KNOWN, OLD, 2) == []
    assert [each.gid for each in far(KNOWN, OLD, 3)] == [PARENT.gid]
    # What it is to have and lacks is as good as never held, until it has it.
    lacking = frozenset({BEFORE.gid})
    assert [(each.gid, each.tail) for each in far(KNOWN, OLD, 0, lacking)] == [(BEFORE.gid, 9)]
    unknown = KnownLineage({gid: RECORDS[gid] for gid in RECORDS if gid != BEFORE.gid}, {})
    assert far(unknown, OLD, 0) == []
    assert [each.members for each in far(unknown, OLD, 0, lacking)] == [()]
    # One that ended without a group hands on its parents.
    empty = generation(NEW, END, 7, (3, 1, 2), Parent(RIGHT.gid, 0))
    known = KnownLineage({**RECORDS, empty.gid: empty}, KNOWN.decided)
    assert nearest(known, empty) == [Parent(PARENT.gid, 40)]


def test_each_parent_of_a_join_gives_its_own_part() -> None:
    """Also one that ended without a group: what it was split off gives that part."""
    joined = generation(OLD, END, 8, (0, 3, 1), Parent(LEFT.gid, 50), Parent(RIGHT.gid, 60))
    parts = [(LEFT.gid, OLD, NEW), (RIGHT.gid, NEW, END)]
    assert [(each.parent.gid, *each[1:]) for each in shares(KNOWN, joined)] == parts
    again = generation(OLD, END, 9, (0, 3, 1), Parent(joined.gid, 0))
    known = KnownLineage({**RECORDS, joined.gid: joined, again.gid: again}, KNOWN.decided)
    assert [(each.parent.gid, *each[1:]) for each in shares(known, again)] == parts
    half = generation(NEW, END, 9, (3, 1, 2), Parent(joined.gid, 0))
    assert shares(known, half) == [Share(Parent(RIGHT.gid, 60), NEW, END)]
    empty = generation(OLD, END, 8, (0, 3, 1), Parent(LEFT.gid, 50), Parent(RIGHT.gid, 0))
    parent = Parent(PARENT.gid, 40)
    assert shares(KNOWN, empty) == [
        Share(Parent(LEFT.gid, 50), OLD, NEW),
        Share(parent, NEW, END),
    ]
    assert nearest(KNOWN, empty) == [Parent(LEFT.gid, 50), parent]


class Member:
    """A process whose journal says what a test says."""

    def __init__(self, path: Path, ordinal: int) -> None:
        self.peer, self.path = peer_of((Ordinal(ordinal), 0)), str(path / f"{ordinal}.rpc")
        self.journal: KnownLineage | None = KNOWN
        self.raw: Any = None
        self.origins = Origins(
            OLD,
            ordinal,
            0,
            ranges=Ranges(),  # type: ignore[arg-type]
            siblings=Siblings(worker=self.peer, paths={}, operation=_nothing, bytes_max=1 << 20),
            peer=self.peer,
            journal=lambda: self.journal,
            wants=lambda: False,
            taught=lambda *told: None,
        )
        self.server = RpcServer(self._operation, bytes_max=1 << 20)

    async def _operation(self, op: str, args: Mapping[str, Any]) -> Any:
        if op not in self.origins.operations:
            raise RequestError(f"There is no operation {op!r}.")
        return self.raw if self.raw is not None else await self.origins.operations[op](args)

    def holds_nothing(self) -> None:
        """As a version from before questions were held."""
        del self.origins.operations["origin_wait"]


async def _nothing(op: str, args: Mapping[str, Any]) -> Any:
    raise RequestError("nobody asks itself")


def test_hints_without_end_are_few_rounds(tmp_path: Path) -> None:
    """Anybody may give them, and each round asks all who may know."""

    async def main() -> None:
        asked, rounds = Member(tmp_path, 0).origins, 0
        loop = asyncio.get_running_loop()
        until = loop.time() + 5 * origins.HINT_SECONDS
        while loop.time() < until:
            await asked.operations["begun_by"]({})
            await asyncio.sleep(0)
            rounds += asked._kick.is_set()
            asked._kick.clear()
        assert 1 <= rounds <= 6
        await asked.close()

    asyncio.run(main())


class Ranges:
    """Of which three brokers have a process, each."""

    all = ()

    def of_slice(self, number: int) -> int:
        return OLD

    def processes_of_token(self, token: int) -> list[tuple[int, int]]:
        return [(at, 0) for at in range(3)] if token == OLD else [(3, 0)]

    def process_at(self, ordinal: int, token: int) -> tuple[int, int] | None:
        return (ordinal, 0)


class Joiner:
    """Broker 3, which has nothing."""

    def __init__(self, members: list[Member]) -> None:
        self.told: list[tuple[Generation, Successor, frozenset[int]]] = []
        self.hinted: list[tuple[Generation, Successor]] = []
        self.news = asyncio.Event()
        self.peer = peer_of((Ordinal(3), 0))
        paths = {member.peer: member.path for member in members}
        self.siblings = Siblings(
            worker=self.peer, paths=paths, operation=_nothing, bytes_max=1 << 20
        )
        self.origins = Origins(
            NEW,
            3,
            4,
            ranges=Ranges(),  # type: ignore[arg-type]
            siblings=self.siblings,
            peer=self.peer,
            journal=lambda: KnownLineage({}, {}),
            wants=lambda: not self.told,
            taught=self._taught,
            hinted=lambda *told: self.hinted.append(told),
        )

    def _taught(self, *told: Any) -> None:
        self.told.append(told)
        self.news.set()


Test = Callable[[list[Member], Joiner], Any]


def joining(tmp_path: Path, test: Test, *, held: bool = False) -> None:
    """held: by members that hold questions."""

    async def scenario() -> None:
        members = [Member(tmp_path, at) for at in range(3)]
        for member in members:
            if not held:
                member.holds_nothing()
            await member.server.start(member.path)
        joiner = Joiner(members)
        try:
            await test(members, joiner)
        finally:
            await joiner.origins.close()
            await joiner.siblings.close()
            for member in members:
                await member.server.close()

    asyncio.run(scenario())


def test_two_that_say_the_same_are_believed(tmp_path: Path) -> None:
    async def test(members: list[Member], joiner: Joiner) -> None:
        members[0].journal = None
        await joiner.origins._ask()
        assert joiner.told == [(PARENT, SPLIT, frozenset({1, 2}))]

    joining(tmp_path, test)


def test_old_news_end_no_round(tmp_path: Path) -> None:
    """A range that was taken in and split off once more: who is late tells of the first time."""

    async def test(members: list[Member], joiner: Joiner) -> None:
        joined = generation(OLD, END, 8, (0, 3, 1), Parent(LEFT.gid, 5), Parent(RIGHT.gid, 6))
        halves = generation(OLD, NEW, 9, (0, 3, 1)), generation(NEW, END, 9, (3, 1, 2))
        again = Successor(7, Kind.SPLIT, halves)
        joiner.origins._journal = lambda: KNOWN
        said: list[Any] = [((PARENT, SPLIT), {0, 1, 2})]
        assert not joiner.origins._learn(said) and joiner.told == []
        said.append(((joined, again), {0, 1}))
        assert joiner.origins._learn(said)
        assert joiner.told == [(joined, again, frozenset({0, 1}))]

    joining(tmp_path, test)


def test_who_speaks_twice_is_one(tmp_path: Path) -> None:
    """A member that lies comes again as broker 2, of whom nothing else is known."""

    async def test(members: list[Member], joiner: Joiner) -> None:
        members[0].journal = KnownLineage({}, {})
        joiner.origins._voices = frozenset({0, 1}).intersection  # type: ignore[assignment]
        await joiner.origins._ask()
        assert joiner.told == []
        members[0].journal = KNOWN
        await joiner.origins._ask()
        assert joiner.told == [(PARENT, SPLIT, frozenset({0, 1}))]

    joining(tmp_path, test)


@pytest.mark.parametrize("case", ["one", "two words", "strangers", "not mine", "junk"])
def test_less_than_that_is_not(tmp_path: Path, case: str) -> None:
    async def test(members: list[Member], joiner: Joiner) -> None:
        liar = KnownLineage(RECORDS, {PARENT.gid: LIE})
        if case == "one":
            members[0].journal = members[1].journal = KnownLineage({}, {})
        elif case == "two words":
            members[0].journal, members[1].journal = liar, KnownLineage({}, {})
        elif case == "strangers":  # Two of them are no members of the parent that they speak of.
            other = generation(OLD, END, 5, (0, 3, 1))
            value = Successor(40, Kind.SPLIT, (LEFT, RIGHT))
            for member in members[1:]:
                member.journal = KnownLineage({other.gid: other}, {other.gid: value})
            members[0].journal = KnownLineage({}, {})
        elif case == "not mine":
            for member in members:
                others = Successor(40, Kind.RELEAD, (generation(OLD, END, 6, (0, 1, 2)),))
                told = await members[0].origins.operations["origin"]({"token": NEW, "ordinal": 3})
                told[1]["value"] = [40, "relead", [_plain(others.children[0])]]
                member.raw = told
        else:
            for member, raw in zip(members, ([], [1, 2], [{"t": "opened"}] * 2), strict=True):
                member.raw = raw
        await joiner.origins._ask()
        assert joiner.told == []

    joining(tmp_path, test)


def _plain(each: Generation) -> list[Any]:
    members = [list(member) for member in each.members]
    return [list(each.gid), each.end, members[0], each.session, members, []]


def test_a_hint_is_worth_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next one would be due; what it says itself is nothing."""
    monkeypatch.setattr(origins, "ASK_SECONDS", 300.0)
    monkeypatch.setattr(origins, "ASK_SECONDS_MAX", 300.0)

    async def test(members: list[Member], joiner: Joiner) -> None:
        for member in members:
            member.journal = None
        task = asyncio.create_task(joiner.origins.run())
        await asyncio.sleep(0.1)
        for member in members:
            member.journal = KNOWN
        server = RpcServer(lambda op, args: joiner.origins.operations[op](args), bytes_max=1 << 20)
        path = str(tmp_path / "3.rpc")
        await server.start(path)
        caller = Siblings(
            worker=members[0].peer, paths={joiner.peer: path}, operation=_nothing, bytes_max=1 << 20
        )
        members[0].origins._siblings = caller
        assert joiner.told == []
        members[0].origins.decided(PARENT, SPLIT)
        async with asyncio.timeout(10):
            await joiner.news.wait()
        assert joiner.told[0][:2] == (PARENT, SPLIT)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await members[0].origins.close()
        await caller.close()
        await server.close()

    joining(tmp_path, test)


def test_a_hint_counts_although_somebody_has_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is just being started takes the question, and is silent for seconds."""
    monkeypatch.setattr(origins, "ANSWER_SECONDS", 20.0)

    async def test(members: list[Member], joiner: Joiner) -> None:
        stopped = str(tmp_path / "stopped")
        members[1].journal = None
        asked: list[str] = []
        members[1].server._operation = _listed(members[1], asked)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(stopped)
            silent.listen()
            joiner.siblings._paths = {**joiner.siblings._paths, members[0].peer: stopped}
            task = asyncio.create_task(joiner.origins.run())
            async with asyncio.timeout(10):
                while not asked:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.05)
                assert not joiner.told and asked == ["origin_wait", "origin"]
                members[1].journal = KNOWN
                await joiner.origins.operations["begun_by"]({})
                await joiner.news.wait()
            assert joiner.told == [(PARENT, SPLIT, frozenset({1, 2}))]
            assert asked[2:] == ["origin_wait", "origin"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    joining(tmp_path, test)


def test_a_hint_says_whom_to_ask_and_a_wrong_one_keeps_nobody_from_asking_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(members: list[Member], joiner: Joiner) -> None:
        hint = joiner.origins.operations["begun_by"]
        for wrong in ({"of": "0"}, {"of": 2**63}, {"of": True}):
            with pytest.raises(RequestError):
                await hint(wrong)
        everybody = joiner.origins._asked()
        await hint({"of": OLD})
        assert joiner.origins._asked() == [member.peer for member in members] == everybody
        await hint({"of": NEW})  # Of which there is only this process.
        assert joiner.origins._asked() == []
        await hint({})
        assert joiner.origins._asked() == everybody
        monkeypatch.setattr(origins, "ASK_SECONDS_MAX", 0.2)
        monkeypatch.setattr(origins, "ASK_SECONDS", 300.0)
        for member in members:
            member.journal = None
        await hint({"of": NEW})
        task = asyncio.create_task(joiner.origins.run())
        await asyncio.sleep(0.05)
        for member in members:
            member.journal = KNOWN
        async with asyncio.timeout(10):
            while not joiner.told:
                await hint({"of": NEW})
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    joining(tmp_path, test)


def test_a_question_is_held_until_it_can_be_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients wait for the answer: nobody connects, hints and is asked again before it comes."""
    monkeypatch.setattr(origins, "HELD_SECONDS", 300.0)

    async def test(members: list[Member], joiner: Joiner) -> None:
        asked: list[str] = []
        for member in members:
            member.journal = KnownLineage({}, {})
            member.server._operation = _listed(member, asked)
        task = asyncio.create_task(joiner.origins.run())
        async with asyncio.timeout(10):
            while not all(member.origins._held for member in members):
                await asyncio.sleep(0.001)
            for member in members[1:]:
                member.origins.learned(BEFORE, Successor(9, Kind.RELEAD, (PARENT,)))
                assert not any(each.done() for each in member.origins._held), "nothing for it"
                member.journal = KNOWN
                member.origins.learned(PARENT, SPLIT)
                member.origins.decided(PARENT, SPLIT)
                # Others who are new, two of them in other processes, have asked nobody here.
                assert len(member.origins._telling) == 2
            await joiner.news.wait()
        assert joiner.told == [(PARENT, SPLIT, frozenset({1, 2}))]
        assert asked == ["origin_wait"] * 3
        joiner.origins.decided(PARENT, SPLIT)
        assert not joiner.origins._telling, "who was told so hints nobody: its word counts little"
        await _ended(task)
        while members[0].origins._held:  # Who asked has gone on.
            await asyncio.sleep(0.001)

    joining(tmp_path, test, held=True)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_what_is_known_already_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one broker's questions are few; others are answered at once."""
    monkeypatch.setattr(origins, "HELD_SECONDS", 300.0)
    monkeypatch.setattr(origins, "HELD_MAX", 2)

    async def test(members: list[Member], joiner: Joiner) -> None:
        held, ask = members[0].origins._held, members[0].origins.operations["origin_wait"]
        for has in (-1, 2**63, None, "1"):
            with pytest.raises(RequestError, match="has is no number"):
                await ask({"token": NEW, "ordinal": 3, "has": has})
        mine = {"token": NEW, "ordinal": 3}
        assert unpack(await ask({**mine, "has": 5})) == (PARENT, SPLIT)
        tasks = [asyncio.create_task(ask({**mine, "has": 6})) for _ in range(2)]
        await asyncio.sleep(0)
        assert len(held) == 2 and not any(task.done() for task in tasks)
        async with asyncio.timeout(10):
            assert unpack(await ask({**mine, "has": 6})) == (PARENT, SPLIT), "one too many"
        members[0].origins.learned(PARENT, SPLIT)
        assert [unpack(await task) for task in tasks] == [(PARENT, SPLIT)] * 2 and not held

    joining(tmp_path, test, held=True)


def test_who_is_held_asks_again_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two questions it would have to be hinted."""
    monkeypatch.setattr(origins, "ASK_SECONDS", 300.0)
    monkeypatch.setattr(origins, "ASK_SECONDS_MAX", 300.0)
    monkeypatch.setattr(origins, "HELD_SECONDS", 0.01)

    async def test(members: list[Member], joiner: Joiner) -> None:
        asked: list[str] = []
        for member in members:
            member.journal = None
            member.server._operation = _listed(member, asked)
        task = asyncio.create_task(joiner.origins.run())
        async with asyncio.timeout(10):
            while len(asked) < 9:
                await asyncio.sleep(0.001)
        assert set(asked) == {"origin_wait"} and not joiner.told
        await _ended(task)

    joining(tmp_path, test, held=True)


def _listed(member: Member, asked: list[str]) -> Any:
    async def operation(op: str, args: Mapping[str, Any]) -> Any:
        asked.append(op)
        return await member._operation(op, args)

    return operation


def test_what_is_asked_and_told_is_looked_at(tmp_path: Path) -> None:
    async def test(members: list[Member], joiner: Joiner) -> None:
        for args in ({}, {"token": 2**63, "ordinal": 1}, {"token": "0", "ordinal": 1}):
            with pytest.raises(BarcoError, match="is no number"):
                await joiner.siblings.call(members[0].peer, "origin", args)
        good = await joiner.siblings.call(members[0].peer, "origin", {"token": NEW, "ordinal": 3})
        assert unpack(good) == (PARENT, SPLIT) and unpack(None) is None
        twice = [good[0], {**good[1], "gid": [OLD, 4]}]
        for wrong in ([], good[:1], [good[1], good[0]], [good[0], good[0]], twice, "x", 7):
            with pytest.raises(ProtocolError):
                unpack(wrong)

    joining(tmp_path, test)
