"""Events that a consumer of an ordinary group gives up: dead letters, in step with the position."""

import asyncio
import json
from typing import Any

import pytest
from twin import Answer, Broker, run

from barco.errors import BusyError
from barco.workers.shard.burial import LastPlace

REJECT = "/v1/consumer/reject"


async def reject(broker: Broker, consumer: str, *places: tuple[int, int], **more: Any) -> Answer:
    events = [{"topic": "t", "slice": index, "offset": str(at)} for index, at in places]
    body = json.dumps({"events": events, **more}).encode()
    return await broker.request("POST", REJECT, {"consumerId": consumer}, body=body)


async def begun() -> Broker:
    """One consumer, who has three events of slice 0."""
    broker = Broker(workers=1)
    assert (await broker.register("c", "t")).status == 200
    for value in (b"0", b"1", b"2"):
        broker.produce("t", 0, value)
    assert await broker.values("c") == [0, 1, 2]
    return broker


def graves(broker: Broker, topic: str = "t.dead") -> int:
    return broker.reactors[0].ends.get((topic, 0), 0)


@run
async def test_an_event_is_dead_and_all_up_to_it_is_committed() -> None:
    broker = await begun()
    for _ in range(2):  # The answer may have been lost.
        assert (await reject(broker, "c", (0, 1), reason="bad", count=3)).status == 204
    assert graves(broker) == 1, "once"
    broker.kill(0)
    broker.start(0)
    assert await broker.values("c") == [2], "and nothing before it comes again"
    assert graves(broker) == 1


@run
async def test_both_or_neither() -> None:
    broker = await begun()
    broker.reactors[0].refuse = 1
    service = broker.services[0]
    assert service is not None
    member = service.membership.get("c")
    assert member is not None
    last = LastPlace("g", "t", 0, 0)
    with pytest.raises(BusyError):  # At the leader itself: over HTTP it is tried again.
        await service.consumption.reject(member.key, last, (1, 1, ""), "t.dead")
    assert graves(broker) == 0 and service.consumption.committed("g", "t", 0) == 0
    assert (await reject(broker, "c", (0, 1))).status == 204
    assert graves(broker) == 1 and service.consumption.committed("g", "t", 0) == 2


@run
async def test_only_what_is_with_the_consumer() -> None:
    broker = await begun()
    assert (await broker.register("d", "u")).status == 200
    assert (await broker.register("e", "t")).status == 200
    assert (await reject(broker, "d", (0, 1))).status == 409
    assert (await broker.request("GET", "/v1/topics/t.dead")).status == 404, "and nothing is made"
    for consumer, at in (("c", 3), ("e", 1)):
        answer = await reject(broker, consumer, (0, at))
        assert answer.status == 409 and answer.json["slices"] == ["t/0"], consumer
    assert (await reject(broker, "c", (1, 0))).status == 409, "never delivered"
    assert graves(broker) == 0
    assert (await broker.goodbye("e")).status == 200
    broker.produce("t", 1, b"3")
    assert await broker.values("c") == [3]
    both = await reject(broker, "c", (0, 7), (1, 0))
    assert both.status == 409 and both.json["slices"] == ["t/0"]
    assert broker.reactors[0].ends["t.dead", 1] == 1, "the other one is done"


@run
async def test_it_is_looked_at_again_after_the_disk_was_read() -> None:
    broker = await begun()
    broker.reactors[0].memory_floor["t", 0] = 2**40
    log = broker.logs[0]
    log.pause, log.reads = asyncio.Event(), 0
    waiting = asyncio.create_task(reject(broker, "c", (0, 1)))
    while not log.reads:
        await asyncio.sleep(0)
    assert (await broker.goodbye("c", commit="false")).status == 200
    log.pause.set()
    log.pause = None
    answer = await waiting
    assert answer.status == 409, answer
    assert graves(broker) == 0


@run
async def test_what_retention_has_removed_is_passed_by() -> None:
    broker = await begun()
    broker.reactors[0].memory_floor["t", 0] = 2**40
    broker.logs[0].kept["t", 0] = 2
    assert (await reject(broker, "c", (0, 1))).status == 204
    service = broker.services[0]
    assert service is not None and service.consumption.committed("g", "t", 0) == 2
    assert graves(broker) == 0


@run
async def test_elsewhere() -> None:
    broker = await begun()
    assert (await reject(broker, "c", (0, 0), dead="graves")).status == 204
    assert graves(broker, "graves") == 1
    assert (await reject(broker, "c", (0, 1), dead="t")).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"events": []},
        {"events": [{"topic": "t", "slice": 0}]},
        {"events": [{"topic": "t", "slice": 9, "offset": "0"}]},
        {"events": [{"topic": "t", "slice": 0, "offset": "0"}] * 2},
        {"events": [{"topic": "t", "slice": 0, "offset": "0"}], "count": 0},
        {"events": [{"topic": "t", "slice": 0, "offset": "0"}], "reason": "x" * 257},
        {"events": [{"topic": "t", "slice": 0, "offset": "0"}], "dead": 1},
        {"events": [{"topic": "t", "slice": 0, "offset": "0"}], "more": 1},
    ],
)
def test_refused(body: dict[str, Any]) -> None:
    async def refused() -> None:
        broker = await begun()
        given = json.dumps(body).encode()
        answer = await broker.request("POST", REJECT, {"consumerId": "c"}, body=given)
        assert answer.status == 400, answer
        assert graves(broker) == 0

    run(refused)()
