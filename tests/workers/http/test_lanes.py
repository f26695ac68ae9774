"""A leader that is asked by a consumer itself and through other brokers serves one of both, and
takes nothing as acknowledged that the consumer has not shown to have."""

import asyncio
from typing import Any

import pytest
from twin import Broker, run

from barco.errors import RequestError
from barco.model.ranges import peer_of
from barco.types import Ordinal
from barco.workers.groups import consumption
from barco.workers.http.consuming.reach import paused_of

ANN, BOB = peer_of((Ordinal(1), 0)), peer_of((Ordinal(2), 0))
"""Workers of two other brokers, which send on what they are asked."""


class Leader:
    """The one worker of a broker, of which a consumer has everything."""

    def __init__(self) -> None:
        self.broker = Broker(workers=1)
        self.deliveries = 0

    async def start(self, events: int = 1) -> None:
        for number in range(events):
            self.broker.produce("t", 0, b"%d" % number)
        await self.broker.register("c", "t")

    def args(self, asker: int, received: str | None, written: str | None) -> dict[str, Any]:
        member = self.broker.supervisor.groups.member("c")
        assert member is not None
        who = {"consumer": "c", "session": member.session, "version": 0, "group": "g"}
        return {**who, "said": [received, asker, written], "far": True, "ends": []}

    async def far(
        self, asker: int, *, received: str | None = None, written: str | None = None
    ) -> tuple[str, int]:
        """A poll that another broker sends on: its name, and how many events came."""
        self.deliveries += 1
        name = f"far-{self.deliveries}"
        args = self.args(asker, received, written) | {"delivery": name, "first": True}
        service = self.broker.services[0]
        assert service is not None
        found = await service.operation("poll", args | {"budget": 10_000, "stored": False})
        return name, sum(extent[3] - extent[2] for extent in found["extents"])

    async def commit(self, asker: int, **said: Any) -> Any:
        args = self.args(asker, said.get("received"), said.get("written"))
        service = self.broker.services[0]
        assert service is not None
        return await service.operation("commit", args)

    async def committed(self) -> int:
        await self.broker.settle()
        service = self.broker.services[0]
        assert service is not None
        return service.consumption.committed("g", "t", 0)


@run
async def test_who_asks_the_leader_itself_gets_nothing_of_it_through_others() -> None:
    leader = Leader()
    await leader.start()
    assert await leader.broker.values("c") == [0]
    assert (await leader.far(ANN))[1] == 0
    leader.broker.produce("t", 0, b"1")
    assert (await leader.far(ANN, received="far-1", written="far-1"))[1] == 0
    assert await leader.committed() == 0, "and it acknowledges nothing"
    assert await leader.broker.values("c") == [1]
    assert await leader.committed() == 1


@run
async def test_not_any_more_when_it_has_not_asked_for_a_while() -> None:
    leader = Leader()
    await leader.start()
    assert await leader.broker.values("c") == [0]
    assert await leader.broker.values("c") == []
    leader.broker.produce("t", 0, b"1")
    assert (await leader.far(ANN))[1] == 0
    pause, consumption.DIRECT_SECONDS = consumption.DIRECT_SECONDS, 0.0
    try:
        assert (await leader.far(ANN))[1] == 1
        assert await leader.broker.values("c") == [1], "unnamed: it may not have arrived"
        leader.broker.produce("t", 0, b"2")
        assert (await leader.far(ANN))[1] == 0, "something is with it, for its session time"
    finally:
        consumption.DIRECT_SECONDS = pause


@pytest.mark.parametrize("asker", [ANN, BOB])
@pytest.mark.parametrize("named", [False, True])
def test_what_one_broker_gave_is_acknowledged_there_or_by_its_name(asker: int, named: bool) -> None:
    @run
    async def check() -> None:
        leader = Leader()
        await leader.start()
        name, events = await leader.far(ANN)
        assert events == 1
        received = name if named else None
        again = (await leader.far(asker, received=received, written=name))[1]
        known = named or asker == ANN
        assert again == (not known)
        assert await leader.committed() == known

    check()


@pytest.mark.parametrize("named", [False, True])
def test_the_leaders_own_broker_takes_it_as_acknowledged_by_its_name_only(named: bool) -> None:
    @run
    async def check() -> None:
        leader = Leader()
        await leader.start()
        name, _ = await leader.far(ANN)
        query = {"delivery": name} if named else {}
        assert await leader.broker.values("c", **query) == ([] if named else [0])
        assert await leader.committed() == named

    check()


@run
async def test_a_commit_through_another_broker_is_of_what_that_one_gave() -> None:
    leader = Leader()
    await leader.start()
    assert await leader.broker.values("c") == [0]
    assert await leader.commit(ANN) == []
    assert await leader.committed() == 0, "with the consumer, from the leader itself"
    assert (await leader.broker.commit("c")).status == 204
    assert await leader.committed() == 1


@run
async def test_a_commit_of_what_was_sent_on() -> None:
    leader = Leader()
    await leader.start()
    name, _ = await leader.far(ANN)
    assert await leader.commit(BOB) == [["t", 0]], "nobody knows that it arrived"
    assert await leader.commit(ANN, written=name) == []
    assert await leader.committed() == 1


@run
async def test_a_poll_that_waits_elsewhere_is_not_woken_for_what_it_will_not_get() -> None:
    leader = Leader()
    await leader.start()
    assert await leader.broker.values("c") == [0]
    service = leader.broker.services[0]
    assert service is not None
    args = leader.args(ANN, None, None)
    waiting = asyncio.create_task(service.operation("wait", args | {"timeout": 0.3}))
    await leader.broker.settle()
    leader.broker.produce("t", 0, b"1")
    assert await waiting is False, "or it would look again and again"
    assert await leader.broker.values("c") == [1]


@run
async def test_what_is_paused_is_neither_given_nor_waited_for() -> None:
    leader = Leader()
    await leader.start()
    service = leader.broker.services[0]
    assert service is not None
    paused: dict[str, Any] = {"paused": {"t": [0], "other": [1]}}
    args = leader.args(ANN, None, None) | {"delivery": "far", "first": True}
    poll = args | {"budget": 10_000, "stored": False}
    assert (await service.operation("poll", poll | paused))["extents"] == []
    wait = leader.args(ANN, None, None) | {"timeout": 0.3}
    assert await service.operation("wait", wait | paused) is False, "or it would look all the time"
    assert await service.operation("wait", wait | {"paused": {"t": [1]}}) is True
    again = poll | {"delivery": "far-2"}
    assert len((await service.operation("poll", again))["extents"]) == 1


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), {}),
        (("t/3,5", "u/1"), {"t": [3, 5], "u": [1]}),
        (("t/3", "t/5"), {"t": [3, 5]}),
    ],
)
def test_what_a_poll_pauses(given: tuple[str, ...], found: dict[str, list[int]]) -> None:
    assert paused_of(given) == found


@pytest.mark.parametrize("given", ["t", "t/", "t/x", "t/-1", "/3", "t/3,", "a b/3", "__offsets/3"])
def test_what_no_poll_pauses(given: str) -> None:
    with pytest.raises(RequestError):
        paused_of([given])
