"""Which of several are asked, and how often. With real sockets: `test_history`."""

import asyncio
from typing import Any

import pytest

from barco.errors import BarcoError, NotReadyError
from barco.workers.operations import hedged
from barco.workers.operations.hedged import ASKED_MAX, BESIDE_MAX, Hedges


class Asked:
    """Peers that answer as they are made to, and how many questions each has at once."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {int(name[1:]): answer for name, answer in answers.items()}
        self.calls: list[int] = []
        self.now: dict[int, int] = {}
        self.most: dict[int, int] = {}

    async def __call__(self, peer: int) -> str:
        self.calls.append(peer)
        self.now[peer] = self.now.get(peer, 0) + 1
        self.most[peer] = max(self.most.get(peer, 0), self.now[peer])
        try:
            answer = self.answers[peer]
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                return f"late {peer}"
            await asyncio.sleep(0)
            if isinstance(answer, BarcoError):
                raise answer
            return str(answer)
        finally:
            self.now[peer] -= 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedged, "HEDGE_SECONDS", 0.01)


def test_who_answers_is_asked_alone() -> None:
    async def main() -> None:
        hedges, asked = Hedges(), Asked(p1="a", p2="b")
        failures: list[BarcoError] = []
        assert await hedges.first_good([1, 2], asked, failures) == (1, "a")
        assert asked.calls == [1] and not failures

    asyncio.run(main())


def test_after_a_failure_the_next_is_asked_at_once() -> None:
    async def main() -> None:
        away = NotReadyError("away")
        hedges, failures = Hedges(), list[BarcoError]()
        asked = Asked(p1=away, p2="b", p3="c")
        async with asyncio.timeout(hedged.HEDGE_SECONDS / 2):
            assert await hedges.first_good([1, 2, 3], asked, failures) == (2, "b")
        assert asked.calls == [1, 2] and failures == [away]
        assert hedges.order([1, 2]) == [1, 2], "it failed, and was not slow"
        assert await hedges.first_good([1, 1], asked, failures) is None
        assert failures == [away] * 3
        assert await hedges.first_good([], asked, failures) is None

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_slow_ones_come_last_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        never = asyncio.Event()
        hedges, failures = Hedges(), list[BarcoError]()
        asked = Asked(p1=never, p2=never, p3="c", p4="d")
        assert await hedges.first_good([1, 2, 3, 4], asked, failures) == (3, "c")
        assert asked.calls == [1, 2, 3] and set(asked.now.values()) == {0}, "the others are ended"
        assert hedges.order([1, 2, 3, 4]) == [3, 4, 1, 2] and not failures
        monkeypatch.setattr(hedged, "SLOW_SECONDS", 0.0)
        hedges, asked = Hedges(), Asked(p1=never, p2="b")
        assert await hedges.first_good([1, 2], asked, failures) == (2, "b")
        await asyncio.sleep(0.001)
        assert hedges.order([1, 2, 3]) == [1, 2, 3], "not for ever"

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_the_first_may_answer_although_another_was_asked() -> None:
    async def main() -> None:
        late, never = asyncio.Event(), asyncio.Event()
        hedges, failures = Hedges(), list[BarcoError]()
        asked = Asked(p1=late, p2=never, p3=never, p4="never asked")
        reading = asyncio.ensure_future(hedges.first_good([1, 2, 3, 4], asked, failures))
        while len(asked.calls) < ASKED_MAX:
            await asyncio.sleep(0.001)
        await asyncio.sleep(5 * hedged.HEDGE_SECONDS)
        late.set()
        assert await reading == (1, "late 1")
        assert asked.calls == [1, 2, 3], "no more than so many"
        # Who gives up leaves nothing behind.
        reading = asyncio.ensure_future(hedges.first_good([2, 3], asked, failures))
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
        hedges, failures = Hedges(), list[BarcoError]()
        asked = Asked(p1=slow, p2=slow, p3=slow)
        reads = [
            asyncio.ensure_future(hedges.first_good([1, 2, 3], asked, failures)) for _ in range(40)
        ]
        while asked.most.get(3, 0) < BESIDE_MAX:
            await asyncio.sleep(0.001)
        await asyncio.sleep(5 * hedged.HEDGE_SECONDS)
        assert asked.most == {1: 40, 2: BESIDE_MAX, 3: BESIDE_MAX}
        slow.set()
        found = await asyncio.gather(*reads)
        assert all(each is not None for each in found) and set(asked.now.values()) == {0}

    asyncio.run(main())
