"""Which of several are asked, and how often. With real sockets: `test_history`."""

import asyncio
from typing import Any

import pytest

from barco.cluster.state.kin import Ancestor
from barco.errors import BarcoError, CorruptDataError, NotReadyError, ProtocolError
from barco.model.generation import Gid
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal, Token
from barco.workers.peers import agreed
from barco.workers.peers.agreed import ASKED_MAX, BESIDE_MAX, Agreed, Line


class Asked:
    """Peers that answer as they are made to, and how many questions each has at once."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {int(name[1:]): answer for name, answer in answers.items()}
        self.calls: list[int] = []
        self.now: dict[int, int] = {}
        self.most: dict[int, int] = {}

    async def __call__(self, peer: int) -> tuple[Any] | None:
        self.calls.append(peer)
        self.now[peer] = self.now.get(peer, 0) + 1
        self.most[peer] = max(self.most.get(peer, 0), self.now[peer])
        try:
            answer = self.answers[peer]
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                return (b"late %d" % peer,)
            await asyncio.sleep(0)
            if isinstance(answer, BarcoError):
                raise answer
            return None if answer is None else (answer,)
        finally:
            self.now[peer] -= 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed, "HEDGE_SECONDS", 0.01)


def test_who_answers_is_asked_alone() -> None:
    async def main() -> None:
        found, asked = Agreed(9), Asked(p1=b"a", p2=b"b")
        failures: list[BarcoError] = []
        assert await found.first([1, 2], asked, failures) == (1, b"a")
        assert asked.calls == [1] and not failures
        assert await found.confirmed([1, 2], asked, b"a")
        assert asked.calls == [1, 1], "also for a sum: it is a read"
        assert await found.confirmed([1, 2], asked, b"b") and asked.calls[2:] == [1, 2]

    asyncio.run(main())


def test_after_a_failure_the_next_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed, "HEDGE_SECONDS", 60.0)

    async def main() -> None:
        away = NotReadyError("away")
        found, failures = Agreed(9), list[BarcoError]()
        asked = Asked(p1=away, p2=None, p3=b"c", p4=b"d")
        async with asyncio.timeout(agreed.HEDGE_SECONDS / 2):
            assert await found.first([1, 2, 3, 4], asked, failures) == (3, b"c")
        assert asked.calls == [1, 2, 3] and failures == [away]
        assert found.order([1, 2]) == [1, 2], "it failed, and was not slow"
        assert await found.first([1, 1], asked, failures) is None
        assert failures == [away] * 3
        assert await found.first([], asked, failures) is None

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_slow_ones_come_last_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        never = asyncio.Event()
        found, failures = Agreed(9), list[BarcoError]()
        asked = Asked(p1=never, p2=never, p3=b"c", p4=b"d")
        assert await found.first([1, 2, 3, 4], asked, failures) == (3, b"c")
        assert asked.calls == [1, 2, 3] and set(asked.now.values()) == {0}, "the others are ended"
        assert found.order([1, 2, 3, 4]) == [3, 4, 1, 2] and not failures
        monkeypatch.setattr(agreed, "SLOW_SECONDS", 0.0)
        found, asked = Agreed(9), Asked(p1=never, p2=b"b")
        assert await found.first([1, 2], asked, failures) == (2, b"b")
        await asyncio.sleep(0.001)
        assert found.order([1, 2, 3]) == [1, 2, 3], "not for ever"

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_the_first_may_answer_although_another_was_asked() -> None:
    async def main() -> None:
        late, never = asyncio.Event(), asyncio.Event()
        found, failures = Agreed(9), list[BarcoError]()
        asked = Asked(p1=late, p2=never, p3=never, p4=b"never asked")
        reading = asyncio.ensure_future(found.first([1, 2, 3, 4], asked, failures))
        while len(asked.calls) < ASKED_MAX:
            await asyncio.sleep(0.001)
        await asyncio.sleep(5 * agreed.HEDGE_SECONDS)
        late.set()
        assert await reading == (1, b"late 1")
        assert asked.calls == [1, 2, 3], "no more than so many"
        # Who gives up leaves nothing behind.
        reading = asyncio.ensure_future(found.first([2, 3], asked, failures))
        while sum(asked.now.values()) < 2:
            await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert set(asked.now.values()) == {0}

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_where_all_are_slow_their_load_is_not_doubled() -> None:
    async def main() -> None:
        slow = asyncio.Event()
        found, failures = Agreed(9), list[BarcoError]()
        asked = Asked(p1=slow, p2=slow, p3=slow)
        reads = [asyncio.ensure_future(found.first([1, 2, 3], asked, failures)) for _ in range(40)]
        while asked.most.get(3, 0) < BESIDE_MAX:
            await asyncio.sleep(0.001)
        await asyncio.sleep(5 * agreed.HEDGE_SECONDS)
        assert asked.most == {1: 40, 2: BESIDE_MAX, 3: BESIDE_MAX}
        slow.set()
        answers = await asyncio.gather(*reads)
        assert all(each is not None for each in answers) and set(asked.now.values()) == {0}

    asyncio.run(main())


def test_who_was_late_is_waited_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And has its word again as soon as it answers: until then one is believed alone."""
    monkeypatch.setattr(agreed, "CONFIRM_SECONDS", 0.1)
    monkeypatch.setattr(agreed, "LATE_EVERY", 0.5)

    async def main() -> None:
        stopped, found = asyncio.Event(), Agreed(9)
        asked = Asked(p1=stopped, p2=b"")
        asked.answers[2] = NotReadyError("away")
        assert await found.confirmed([1, 2], asked, b"x") and 1 in asked.calls
        asked.calls.clear()
        for _ in range(5):
            assert await found.confirmed([1, 2], asked, b"x")
        assert 1 not in asked.calls, "it does not even get the question"
        asked.answers[1] = b"another"
        await asyncio.sleep(0.5)
        assert not await found.confirmed([1, 2], asked, b"x")
        assert not await found.confirmed([1, 2], asked, b"x"), "it is waited for again"

    asyncio.run(main())


class Staged:
    """Peers that say a number, at once or when they are told to; for `latest`."""

    def __init__(self, **said: int) -> None:
        self.said = {int(name[1:]): number for name, number in said.items()}
        self.gates = {peer: asyncio.Event() for peer in self.said}

    def open(self, *peers: int) -> None:
        for peer in peers:
            self.gates[peer].set()

    async def __call__(self, peer: int) -> tuple[int] | None:
        await self.gates[peer].wait()
        return (self.said[peer],)


def latest(staged: Staged, *, alone: bool = True) -> asyncio.Future[tuple[int]]:
    asking = Agreed(9).latest(sorted(staged.said), staged, lambda said: said, alone=alone)
    return asyncio.ensure_future(asking)


@pytest.mark.parametrize(
    ("said", "first", "agreed_on"),
    [
        ({"p1": 5, "p2": 3, "p3": 3}, [1], 3),  # Nobody says or passes 5 with it.
        ({"p1": 9, "p2": 3, "p3": 9}, [1, 2], 9),  # Of two that differ the third is asked.
    ],
    ids=["one voice", "two that differ"],
)
def test_the_others_are_waited_for(said: dict[str, int], first: list[int], agreed_on: int) -> None:
    async def main() -> None:
        staged = Staged(**said)
        reading = latest(staged)
        staged.open(*first)
        await asyncio.sleep(0.05)
        assert not reading.done()
        staged.open(*staged.said)
        assert await reading == (agreed_on,)

    asyncio.run(main())


def test_two_that_say_the_same_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed, "MORE_SECONDS", 600.0)

    async def main() -> None:
        staged = Staged(p1=5, p2=5, p3=9)
        staged.open(1, 2)
        async with asyncio.timeout(60):
            assert await latest(staged) == (5,)

    asyncio.run(main())


def test_a_third_that_says_nothing_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two the safer word counts."""
    monkeypatch.setattr(agreed, "MORE_SECONDS", 0.05)
    monkeypatch.setattr(agreed, "CONFIRM_SECONDS", 600.0)

    async def main() -> None:
        staged = Staged(p1=9, p2=3, p3=9)
        staged.open(1, 2)
        async with asyncio.timeout(60):
            assert await latest(staged) == (3,)

    asyncio.run(main())


def test_one_alone_is_believed_by_readers_after_a_while_and_by_retention_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreed, "CONFIRM_SECONDS", 0.05)

    async def main() -> None:
        staged = Staged(p1=5, p2=3)
        staged.open(1)
        never = latest(staged, alone=False)
        async with asyncio.timeout(60):
            assert await latest(staged) == (5,)
        await asyncio.sleep(0.2)
        assert not never.done()
        staged.open(2)
        assert await never == (3,)

    asyncio.run(main())


GID = Gid(Token(7), Epoch(3))


def test_of_two_that_know_an_ancestor_the_later_end_counts_and_any_members() -> None:
    """So that more is asked, never less."""
    here, there = Ancestor(GID, 10, 50, ()), Ancestor(GID, 10, 90, (0, 1, 2))
    for lines in ([here, there], [there, here]):
        (found,) = agreed._known(*(Line((each,), frozenset()) for each in lines))
        assert found == Ancestor(GID, 10, 90, (0, 1, 2))
    has = Line((), frozenset({(GID, 10)}))
    assert agreed._known(Line((here,), frozenset()), has) == [here]
    assert agreed._known(Line((here,), frozenset()), Line((), frozenset())) == []
    assert agreed._known(Line((here,), frozenset())) == [here], "nobody else can be asked"


def mine(number: int = 0) -> int:
    """A process of broker 9, whose word `Agreed(9)` takes."""
    return peer_of((Ordinal(9), number))


def test_a_process_of_ones_own_broker_is_believed_alone() -> None:
    async def main() -> None:
        found, asked = Agreed(9), Asked()
        line = Line((), frozenset({(GID, 10)}))
        asked.answers = {1: line, 2: line, mine(): line}
        assert await found.line([1, 2, mine()], asked) == ([], True)
        assert await found.latest([1, mine()], asked, id) == (line,)
        assert asked.calls == [mine(), mine()]
        # Where it can not say, or never had it, all the others are asked.
        asked.answers = {1: 5, 2: 5, mine(0): NotReadyError("starting"), mine(1): None}
        assert await found.latest([1, mine(0), mine(1), 2], asked, int) == (5,)

    asyncio.run(main())


def test_what_is_gone_is_so_if_all_say_it_or_never_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed, "CONFIRM_SECONDS", 0.05)

    async def main() -> None:
        assert await Agreed(9).confirmed([1, 2], Asked(p1=b"", p2=None), b"x")
        assert not await Agreed(9).confirmed([1, 2], Asked(p1=b"", p2=b""), b"x")
        for other in (NotReadyError("away"), asyncio.Event()):
            with pytest.raises(NotReadyError, match="One holder has what another says is gone"):
                await Agreed(9).confirmed([1, 2], Asked(p1=b"", p2=other), b"x")

    asyncio.run(main())


def test_damage_is_told_before_absence() -> None:
    async def main() -> None:
        asked = Asked(p1=NotReadyError("away"), p2=CorruptDataError("rotten"))
        with pytest.raises(CorruptDataError, match="rotten"):
            await Agreed(9).latest([1, 2], asked, id)
        with pytest.raises(NotReadyError, match="Too few who hold it can be asked: away"):
            await Agreed(9).latest([1], asked, id)
        with pytest.raises(NotReadyError, match="no process has told of it"):
            await Agreed(9).latest([3], Asked(p3=None), id)
        # Retention believes one where nobody else can ever say anything.
        assert await Agreed(9).latest([1, 2], Asked(p1=7, p2=None), int, alone=False) == (7,)
        with pytest.raises(NotReadyError, match="away"):
            alone = Asked(p1=7, p2=NotReadyError("away"))
            await Agreed(9).latest([1, 2], alone, int, alone=False)

    asyncio.run(main())


def test_a_sum_is_of_the_chunks_and_of_where_they_end() -> None:
    whole = agreed.sum_of([b"ab", b"c"], 3)
    assert whole == agreed.sum_of([b"abc"], 3) and len(whole) == agreed.SUM_BYTES
    assert len({whole, agreed.sum_of([b"abc"], 4), agreed.sum_of([b"abd"], 3)}) == 3
    assert agreed.take_sum({"sum": whole}) == whole and agreed.take_sum({"sum": b""}) == b""
    for wrong in (whole[:-1], whole + b"x", whole.hex(), None, 7, b"x"):
        with pytest.raises(ProtocolError, match="a sum of history that is none"):
            agreed.take_sum({"sum": wrong})
