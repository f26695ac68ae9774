"""Whom a poll asks: who had nothing a moment ago waits while others have something, who has much
fills answers alone, and nothing that was given is forgotten or given twice for that."""

from typing import Any

import pytest
from twin import Broker, run

from barco.errors import NotReadyError
from barco.workers.groups.views import Member
from barco.workers.http.consuming import reach

IDLE, BUSY = 0, 1
"""Workers: slices 0 to 3 are of the one, 4 to 7 of the other."""


@pytest.fixture(autouse=True)
def a_long_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "QUIET_SECONDS", 1e9)
    monkeypatch.setattr(reach, "FILLING_SECONDS", 1e9)


class Asked:
    """One consumer of both, and which of them its polls ask."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.of: list[int] = []
        self.to_hear: list[int] = []
        """Who was asked for nothing, to hear that its last answer has arrived."""
        self.name = ""
        honest = self.broker.siblings.call

        async def call(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
            if op == "poll":
                (self.of if args["budget"] else self.to_hear).append(worker)
            return await honest(worker, op, args, timeout)

        self.broker.siblings.call = call  # type: ignore[method-assign]

    async def start(self, events: int, of_both: int = 0) -> None:
        for number in range(events):
            self.broker.produce("t", 5, b'"%03d%s"' % (number, b"x" * 1000))
        for number in range(of_both):
            self.broker.produce("t", 1, b'"1%02d%s"' % (number, b"x" * 1000))
        await self.broker.register("c", "t")

    async def committed(self, worker: int, index: int) -> int:
        await self.broker.settle()
        service = self.broker.services[worker]
        assert service is not None
        return service.consumption.committed("g", "t", index)

    @property
    def member(self) -> Member:
        """The consumer, as the worker that is polled knows it."""
        service = self.broker.services[BUSY]
        assert service is not None
        member = service.membership.get("c")
        assert member is not None
        return member

    def time_is_over(self) -> None:
        """Of who fills answers alone."""
        assert self.member.filling.until
        self.member.filling.until = 0.0

    async def poll(self, worker: int = BUSY, **query: Any) -> list[Any]:
        """What comes first in each value, and in `of` who was asked."""
        self.of.clear()
        self.to_hear.clear()
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
    asked.time_is_over()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reach, "QUIET_SECONDS", 0.0)
        assert "one" in await asked.poll(), "the moment is over"
    got = []
    while len(got) < 30:
        got += await asked.poll()
    assert "one" not in got
    assert await asked.committed(IDLE, 1) == 1


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


@run
async def test_one_that_has_much_fills_answers_alone() -> None:
    """The other one only hears that what it gave has arrived, and that once."""
    asked = Asked()
    await asked.start(40, of_both=40)
    got = await asked.poll()
    assert set(asked.of) == {IDLE, BUSY} and {each[0] for each in got} == {"0", "1"}
    first = await asked.poll()
    (alone,), (other,) = asked.of, asked.to_hear
    assert {alone, other} == {IDLE, BUSY} and len(first) == 4
    given = sum(each[0] == ("1" if other == IDLE else "0") for each in got)
    assert await asked.committed(other, 1 if other == IDLE else 5) == given > 0
    got += first
    for _ in range(3):
        got += await asked.poll()
        assert asked.of == [alone] and not asked.to_hear
    while more := await asked.poll(maxBytes=20_000):
        got += more
    assert not asked.member.filling.until, "nobody does who has no more than fits"
    wanted = [f"{number:03}" for kind in (0, 100) for number in range(kind, kind + 40)]
    assert sorted(got) == wanted
    for first_of in "01":
        of_one = [each for each in got if each[0] == first_of]
        assert of_one == sorted(of_one), "in the order written"


@run
async def test_who_did_not_hear_that_it_arrived_is_told_until_it_has() -> None:
    asked = Asked()
    await asked.start(60, of_both=60)
    got = await asked.poll()
    await asked.poll()
    (alone,) = asked.of
    asked.time_is_over()
    got = await asked.poll()
    (filler,) = {IDLE, BUSY} - {alone}
    honest = asked.broker.siblings.call

    async def deaf(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
        answer = await honest(worker, "written" if worker == alone else op, args, timeout)
        if worker == alone and op == "poll":
            raise NotReadyError("not now")
        return answer

    index = 5 if alone == BUSY else 1
    given = await asked.committed(alone, index) + sum(
        each[0] == ("0" if alone == BUSY else "1") for each in got
    )
    asked.broker.siblings.call = deaf  # type: ignore[method-assign]
    for _ in range(3):
        await asked.poll()
        assert asked.of == [filler] and await asked.committed(alone, index) < given
    asked.broker.siblings.call = honest  # type: ignore[method-assign]
    await asked.poll()
    assert (asked.of, asked.to_hear) == ([filler], [alone])
    assert await asked.committed(alone, index) == given
    await asked.poll()
    assert not asked.to_hear, "it has heard"


@run
async def test_who_fills_answers_alone_and_has_no_more_leaves_room_for_others_at_once() -> None:
    asked = Asked()
    await asked.start(40, of_both=12)
    got = await asked.poll()
    while len([each for each in got if each[0] == "1"]) < 12:
        some = await asked.poll()
        got += some
    assert asked.of == [IDLE, BUSY] and {each[0] for each in some} == {"0", "1"}
    assert len(some) == 4, "it is full"
    await asked.poll()
    assert asked.of == [BUSY], "the other one fills now"


@run
async def test_when_its_time_is_over_all_are_asked_and_the_next_one_fills() -> None:
    asked = Asked()
    await asked.start(60, of_both=60)
    await asked.poll()
    alone = []
    for _ in range(4):
        await asked.poll()
        alone += asked.of
        asked.time_is_over()
        assert len(await asked.poll()) > 1 and set(asked.of) == {IDLE, BUSY}
    assert alone in ([IDLE, BUSY] * 2, [BUSY, IDLE] * 2)


@run
async def test_a_commit_is_of_what_those_gave_that_are_not_asked_now() -> None:
    asked = Asked()
    await asked.start(40, of_both=40)
    got = await asked.poll()
    got += await asked.poll()
    query = {"consumerId": "c", "delivery": asked.name}
    answer = await asked.broker.request("POST", "/v1/consumer/commit", query, worker=BUSY)
    assert answer.status == 204
    done = await asked.committed(IDLE, 1) + await asked.committed(BUSY, 5)
    assert done == len(got)


@run
async def test_all_hear_at_once_that_the_consumer_knows_what_it_is_to_part_with() -> None:
    asked = Asked()
    await asked.start(40, of_both=40)

    async def placement() -> str:
        answer = await asked.broker.request("GET", "/v1/consumer/assignment", "consumerId=c")
        return str(answer.json["placement"])

    known = await placement()
    for _ in range(3):
        await asked.poll(placement=known)
    assert len(asked.of) == 1
    await asked.broker.register("d", "t")
    await asked.poll(placement=known)
    await asked.poll(placement=known)
    assert set(asked.of) == {IDLE, BUSY}, "it has not heard yet"
    await asked.poll(placement=await placement())
    assert set(asked.of) == {IDLE, BUSY}
