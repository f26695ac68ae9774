"""Positions that a consumer commits itself: as far as it was given events, and never back."""

import asyncio
import json
from typing import Any

import pytest
from twin import Answer, Broker, run

from barco.model.token import TOKEN_MIN
from barco.protocol.cursor import Cursor

COMMIT = "/v1/consumer/commit"


async def commit(broker: Broker, *positions: Any, consumer: str = "c") -> Answer:
    body = json.dumps({"positions": positions}).encode()
    return await broker.request("POST", COMMIT, {"consumerId": consumer}, body=body)


def at(slice_: int, offset: int, topic: str = "t") -> dict[str, Any]:
    return {"topic": topic, "slice": slice_, "cursor": str(Cursor(1, offset))}


async def a_broker(*slices: int, events: int = 4) -> Broker:
    broker = Broker()
    for slice_ in slices:
        broker.produce("t", slice_, *(b"%d" % (10 * slice_ + n) for n in range(events)))
    await broker.register("c", "t")
    return broker


async def committed(broker: Broker, slice_: int) -> int:
    group = (await broker.request("GET", "/v1/groups/g")).json
    (place,) = [each for each in group["positions"] if each["rangeIndex"] == slice_]
    return int(place["offset"])


@run
async def test_the_middle_of_a_batch_is_committed_durably_and_the_rest_comes_again() -> None:
    broker = await a_broker(1, 5)
    assert len(await broker.values("c")) == 8
    assert (await commit(broker, at(1, 2), at(5, 3))).status == 204
    for worker in (0, 1):
        broker.kill(worker)
        broker.start(worker)
    assert sorted(await broker.values("c")) == [12, 13, 53]


@run
async def test_a_poll_after_it_commits_the_rest() -> None:
    broker = await a_broker(1)
    await broker.values("c")
    assert (await commit(broker, at(1, 2))).status == 204
    assert await committed(broker, 1) == 2
    assert await broker.values("c") == []
    await broker.settle()
    assert await committed(broker, 1) == 4


@run
async def test_it_is_answered_when_it_is_stable() -> None:
    broker = await a_broker(1)
    await broker.values("c")
    broker.reactors[0].hold = True
    task = asyncio.create_task(commit(broker, at(1, 2)))
    await broker.settle()
    again = asyncio.create_task(commit(broker, at(1, 2)))
    await broker.settle()
    assert not task.done() and not again.done(), "the second waits for the same event"
    broker.reactors[0].release()
    assert (await task).status == (await again).status == 204


@pytest.mark.parametrize("wrong", [at(1, 1), at(1, 5), at(0, 1), at(1, 2, "u")])
def test_what_is_behind_or_beyond_or_not_held_is_named_and_the_rest_is_committed(
    wrong: dict[str, Any],
) -> None:
    """Slice 1 is committed up to 2, and 4 were delivered; of slice 0 nothing was."""

    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        await broker.values("c")
        assert (await commit(broker, at(1, 2))).status == 204
        answer = await commit(broker, wrong, at(5, 3))
        assert answer.status == 409
        assert answer.json["slices"] == [f"{wrong['topic']}/{wrong['slice']}"]
        assert (await committed(broker, 1), await committed(broker, 5)) == (2, 3)

    check()


@run
async def test_the_same_position_may_be_committed_again() -> None:
    broker = await a_broker(1)
    await broker.values("c")
    for _ in range(2):
        assert (await commit(broker, at(1, 4))).status == 204
    broker.kill(0)
    broker.start(0)
    assert (await commit(broker, at(1, 4))).status == 204, "whoever leads knows it"
    assert (await commit(broker, at(1, 3))).status == 409


@run
async def test_a_consumer_that_was_registered_anew_can_not_commit_for_its_earlier_life() -> None:
    broker = await a_broker(1)
    await broker.values("c")
    await broker.register("c", "t")
    assert (await commit(broker, at(1, 2))).json["slices"] == ["t/1"]
    assert (await commit(broker, at(1, 2), consumer="d")).status == 409
    assert sorted(await broker.values("c")) == [10, 11, 12, 13]


@run
async def test_another_member_of_the_group_can_not_commit_what_is_with_this_one() -> None:
    broker = await a_broker(1)
    await broker.values("c")
    await broker.register("d", "t")
    assert (await commit(broker, at(1, 2), consumer="d")).json["slices"] == ["t/1"]
    assert await committed(broker, 1) == 0
    assert (await commit(broker, at(1, 2))).status == 204


@run
async def test_a_slice_is_named_by_its_token_as_well_and_a_place_by_its_offset() -> None:
    broker = await a_broker(1, 5)
    await broker.values("c")
    named = {"topic": "t", "token": str(TOKEN_MIN)}
    assert (await commit(broker, named | {"slice": 1, "offset": "2"})).status == 204
    assert (await commit(broker, named | {"slice": 5, "offset": 3})).status == 204
    assert (await committed(broker, 1), await committed(broker, 5)) == (2, 3)


@run
async def test_a_leader_that_restarts_is_waited_for() -> None:
    broker = await a_broker(1, 5)
    await broker.values("c")
    broker.kill(1)
    task = asyncio.create_task(commit(broker, at(1, 2), at(5, 4)))
    await broker.settle()
    assert not task.done()
    assert await committed_here(broker, 0, 1) == 2, "the others do not wait"
    broker.start(1)
    assert (await task).json["slices"] == ["t/5"], "who was given it before is not known any more"


async def committed_here(broker: Broker, worker: int, slice_: int) -> int:
    service = broker.services[worker]
    assert service is not None
    return service.consumption.committed("g", "t", slice_)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"positions": []}',
        b'{"positions": [1]}',
        b'{"positions": 1}',
        b'{"positions": [{"topic": "t", "slice": 1, "cursor": "x"}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "cursor": 1}]}',
        b'{"positions": [{"topic": "t", "slice": 1}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "offset": -1}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "offset": 1.0}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "offset": true}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "offset": 9223372036854775808}]}',
        b'{"positions": [{"topic": "t", "slice": 8, "offset": 1}]}',
        b'{"positions": [{"topic": "t", "slice": -1, "offset": 1}]}',
        b'{"positions": [{"topic": "t", "slice": "1", "offset": 1}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "token": "7", "offset": 1}]}',
        b'{"positions": [{"topic": "__offsets", "slice": 1, "offset": 1}]}',
        b'{"positions": [{"topic": "t", "slice": 1, "offset": 1, "end": 1}]}',
        json.dumps({"positions": [at(1, 1) | {"offset": 1}]}).encode(),
        json.dumps({"positions": [at(1, 1), at(1, 1)]}).encode(),
        b'{"positions": [{"topic": "t", "slice": 1, "offset": 1}], "more": 1}',
        json.dumps({"positions": [at(1, 1)] * 10_001}).encode(),
    ],
)
def test_what_is_malformed_is_refused_whole(body: bytes) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(1)
        await broker.values("c")
        answer = await broker.request("POST", COMMIT, {"consumerId": "c"}, body=body)
        assert answer.status == 400, answer.body
        assert await committed(broker, 1) == 0

    check()
