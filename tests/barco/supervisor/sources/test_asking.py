"""What the supervisor asks of its processes: it ends, whoever answers, dies, or says nothing."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from barco.errors import ConflictError, NotReadyError, OutcomeUnknownError, pack_error
from barco.supervisor.sources import asking
from barco.supervisor.sources.asking import Asker


class Run:
    """Of a process, which is ready."""

    def __init__(self) -> None:
        self.ready = True
        self.asked: list[dict[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> None:
        self.asked.append(dict(message))

    async def next(self) -> int:
        """The number of its next question."""
        async with asyncio.timeout(10):
            while not self.asked:
                await asyncio.sleep(0)
        asked = self.asked.pop(0)
        assert (asked["type"], asked["op"], asked["args"]) == ("ask", "grow", {"to": 4})
        return int(asked["id"])


class Kept:
    """A process that has a run, or none just now."""

    def __init__(self, life: Run | None = None) -> None:
        self.life = life


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PAUSE_SECONDS", 0.0)


def told(number: int, **said: Any) -> dict[str, Any]:
    return {"type": "answer", "id": number, "ok": True} | said


def test_the_first_that_is_ready_answers() -> None:
    async def play() -> None:
        idle, busy, other = Run(), Run(), Run()
        idle.ready = False
        asker = Asker({0: Kept(), 1: Kept(idle), 2: Kept(busy), 3: Kept(other)})
        answer = asyncio.create_task(asker.ask("grow", {"to": 4}, 10.0))
        number = await busy.next()
        asker.answered(3, told(number, result="a lie"))  # Nobody asked this one.
        asker.answered(2, told(number + 1, result="too much"))
        asker.answered(2, told(number, result=b"done"))
        asker.answered(2, told(number, result=b"again"))
        asker.gone(2)
        assert await answer == b"done" and not idle.asked and not other.asked
        asker.answered(2, told(number, result=b"late"))

    asyncio.run(play())


def test_a_process_that_ends_is_asked_again_when_it_is_back() -> None:
    async def play() -> None:
        kept = Kept(Run())
        asker = Asker({0: kept})
        answer = asyncio.create_task(asker.ask("grow", {"to": 4}, 10.0))
        assert kept.life is not None
        await kept.life.next()
        kept.life = None
        asker.gone(1)  # Another one.
        asker.gone(0)
        await asyncio.sleep(0.01)
        assert not answer.done()
        kept.life = life = Run()
        asker.answered(0, told(await life.next(), result=b"done"))
        assert await answer == b"done"

    asyncio.run(play())


def test_a_refusal_is_told_and_what_may_pass_is_asked_again() -> None:
    async def play() -> None:
        life = Run()
        asker = Asker({0: Kept(life)})
        answer = asyncio.create_task(asker.ask("grow", {"to": 4}, 10.0))
        nobody = pack_error(NotReadyError("Nobody leads slice 0."))
        asker.answered(0, told(await life.next(), ok=False, error=nobody))
        asker.answered(0, told(await life.next(), ok=False))  # No error is named.
        refused = pack_error(ConflictError("3 steps are left."))
        asker.answered(0, told(await life.next(), ok=False, error=refused))
        with pytest.raises(ConflictError, match="3 steps are left"):
            await answer
        assert not life.asked

    asyncio.run(play())


def test_it_ends_with_the_last_reason() -> None:
    async def play() -> None:
        with pytest.raises(NotReadyError, match="No process of this broker is ready"):
            await Asker({}).ask("grow", {"to": 4}, 0.05)
        life = Run()
        asker = Asker({0: Kept(life)})
        with pytest.raises(OutcomeUnknownError, match="has not answered"):
            await asker.ask("grow", {"to": 4}, 0.05)
        life.asked.clear()
        silent = asyncio.create_task(asker.ask("grow", {"to": 4}, 0.2))
        nobody = pack_error(NotReadyError("Nobody leads slice 0."))
        asker.answered(0, told(await life.next(), ok=False, error=nobody))
        with pytest.raises(NotReadyError, match="Nobody leads slice 0"):
            await silent
        asker.answered(0, told(3, result=b"late"))

    asyncio.run(play())
