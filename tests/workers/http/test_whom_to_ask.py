"""Whom a poll asks: who had nothing a moment ago waits while others have something, and nothing
that was given is forgotten or given twice for that."""

from typing import Any

import pytest
from twin import Broker, run

from barco.workers.http.consuming import reach

IDLE, BUSY = 0, 1
"""Workers: slices 0 to 3 are of the one, 4 to 7 of the other."""


@pytest.fixture(autouse=True)
def a_long_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "QUIET_SECONDS", 1e9)


class Asked:
    """One consumer of both, and which of them its polls ask."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.of: list[int] = []
        self.name = ""
        honest = self.broker.siblings.call

        async def call(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
            if op == "poll":
                self.of.append(worker)
            return await honest(worker, op, args, timeout)

        self.broker.siblings.call = call  # type: ignore[method-assign]

    async def start(self, events: int) -> None:
        for number in range(events):
            self.broker.produce("t", 5, b'"%03d%s"' % (number, b"x" * 1000))
        await self.broker.register("c", "t")

    async def poll(self, worker: int = BUSY, **query: Any) -> list[Any]:
        """What comes first in each value, and in `of` who was asked."""
        self.of.clear()
        given = {"maxBytes": 5_000, "worker": worker, "delivery": self.name} | query
        answer = await self.broker.poll("c", **given)
        if answer.status == 204:
            return []
        self.name = answer.headers["barco-delivery"]
        return [str(value)[:3] for item in answer.json for value in item["values"]]


@run
async def test_who_had_nothing_waits_while_others_fill_the_answer() -> None:
    asked = Asked()
    await asked.start(40)
    got = await asked.poll()
    assert set(asked.of) == {IDLE, BUSY}
    while len(got) < 39:
        got += await asked.poll()
        assert asked.of == [BUSY] or len(got) > 35, "it is full"
    got += await asked.poll()
    assert got == [f"{number:03}" for number in range(40)]
    assert set(asked.of) == {IDLE, BUSY}, "there was room left"


@run
async def test_what_it_gave_last_is_acknowledged_by_the_next_poll() -> None:
    """It has no more then, but is to hear that it arrived."""
    asked = Asked()
    await asked.start(40)
    await asked.poll()
    asked.broker.produce("t", 1, b'"one"')
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reach, "QUIET_SECONDS", 0.0)
        assert "one" in await asked.poll(), "the moment is over"
    got = []
    while len(got) < 30:
        got += await asked.poll()
    assert "one" not in got
    await asked.broker.settle()
    service = asked.broker.services[IDLE]
    assert service is not None and service.consumption.committed("g", "t", 1) == 1


@run
async def test_it_is_asked_where_others_leave_room() -> None:
    asked = Asked()
    await asked.start(40)
    await asked.poll()
    asked.broker.produce("t", 1, b'"one"')
    assert "one" not in await asked.poll() and asked.of == [BUSY]
    assert "one" in await asked.poll(maxBytes=1_000_000)
    assert asked.of == [BUSY, IDLE]


@run
async def test_a_client_that_has_its_last_answer_of_another_worker_asks_all() -> None:
    """This one does not know who gave something there, and is to hear that it arrived."""
    asked = Asked()
    await asked.start(40)
    await asked.poll()
    asked.broker.produce("t", 1, b'"one"')
    assert "one" in await asked.poll(IDLE, maxBytes=20_000)
    got = [*await asked.poll(BUSY), *await asked.poll(BUSY)]
    got += await asked.poll(BUSY, maxBytes=1_000_000)
    assert got and "one" not in got
