"""Which of several are asked, and how often. With real sockets: `test_history`."""

import asyncio
from typing import Any

import pytest

from barco.errors import BarcoError, NotReadyError
from barco.workers.peers import agreed
from barco.workers.peers.agreed import ASKED_MAX, BESIDE_MAX, Agreed


class Asked:
    """Peers that answer as they are made to, and how many questions each has at once."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {int(name[1:]): answer for name, answer in answers.items()}
        self.calls: list[int] = []
        self.now: dict[int, int] = {}
        self.most: dict[int, int] = {}

    async def __call__(self, peer: int) -> tuple[bytes] | None:
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


def test_after_a_failure_the_next_is_asked_at_once() -> None:
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
