"""Queues at their leader: what is gathered, what fails, what the next one has. Logs in memory."""

import asyncio
import json
from typing import Any

import msgpack
import pytest
from queue_calls import LEASE, direct, lease, made, tell
from twin import Broker, run

from barco.errors import BarcoError, BusyError, ConflictError, NotReadyError
from barco.workers.groups.cursor import OFFSETS
from barco.workers.http.base.messages import JSON, Call
from barco.workers.http.base.render import CHUNKS
from barco.workers.queues import saver


def offsets_written(broker: Broker) -> int:
    return sum(
        len(found) for (topic, _), found in broker.reactors[0].chunks.items() if topic == OFFSETS
    )


@run
async def test_an_ack_is_answered_when_it_is_stable_and_what_comes_meanwhile_is_gathered() -> None:
    broker = await made()
    broker.produce("t", 0, *(b"%d" % n for n in range(50)))
    got = await lease(broker)
    assert len(got) == 50
    before = offsets_written(broker)
    broker.reactors[0].hold = True
    acks = [asyncio.create_task(tell(broker, "ack", each["id"])) for each in got]
    await broker.settle()
    assert not any(ack.done() for ack in acks)
    broker.reactors[0].release()
    assert {(await ack).status for ack in acks} == {204}
    assert before < offsets_written(broker) <= before + 2, "the first, and all others in one"
    broker.kill(0)
    broker.start(0)
    assert await lease(broker) == []


@run
async def test_an_ack_that_had_no_room_is_not_taken_for_done_when_it_is_repeated() -> None:
    broker = await made(leaseMs=1000)
    broker.produce("t", 0, b"1")
    (event,) = await lease(broker)
    broker.reactors[0].fail_status = 503
    for _ in range(2):
        with pytest.raises(BusyError):
            await direct(broker, "queue_ack", event["id"])
    broker.reactors[0].fail_status = 0
    broker.reactors[0].hold = True
    again = asyncio.create_task(direct(broker, "queue_ack", event["id"]))
    await broker.settle()
    assert not again.done(), "nothing of it is stable yet"
    broker.kill(0)
    broker.start(0)
    again.cancel()
    for _ in range(200):
        if got := await lease(broker):
            break
        await asyncio.sleep(0.01)
    assert [each["value"] for each in got] == [1], "the log has never heard of it"


@run
async def test_what_may_be_stable_or_not_is_left_to_the_next_leader() -> None:
    broker = await made(leaseMs=1000)
    broker.produce("t", 0, b"1", b"2")
    one, _ = await lease(broker)
    broker.reactors[0].fail_status = 500
    with pytest.raises(BarcoError):
        await direct(broker, "queue_ack", one["id"])
    broker.reactors[0].fail_status = 0
    with pytest.raises(NotReadyError):
        await direct(broker, "queue_ack", one["id"])
    broker.kill(0)
    broker.start(0)
    assert (await tell(broker, "ack", one["id"])).status == 204
    assert (await direct(broker, "queue_nack", one["id"], reason="")) == [one["id"]]


@run
async def test_nothing_is_handed_out_beyond_what_the_log_has_reserved() -> None:
    broker = await made(maxInFlight=5000)
    broker.produce("t", 0, *(b"%d" % n for n in range(3000)))
    seen = 0
    while got := await lease(broker, max=400):
        seen += len(got)
        kept = broker.reactors[0].kept
        told = [value for (topic, key), value in kept.items() if topic == OFFSETS and b"\0" in key]
        ahead = max(unpacked(each)["queue"]["reserved"] for each in told)
        assert seen <= ahead
    assert seen == 3000


def unpacked(value: bytes) -> Any:
    return msgpack.unpackb(value)


def test_dead_letters_that_have_no_room_wait_and_hold_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saver, "BURY_AGAIN_MS", 50)
    run(no_room_for_letters)()


async def no_room_for_letters() -> None:
    broker = await made(maxDeliveries=1)
    broker.produce("t", 0, b"1", b"2")
    one, two = await lease(broker)
    broker.reactors[0].refuse = 1
    assert (await tell(broker, "nack", one["id"])).status == 204
    assert (await tell(broker, "ack", two["id"])).status == 204
    assert ("t.dead", 0) not in broker.reactors[0].ends
    for _ in range(500):
        if ("t.dead", 0) in broker.reactors[0].ends:
            break
        await asyncio.sleep(0.01)
    assert broker.reactors[0].ends["t.dead", 0] == 1, "tried again, and once"
    broker.kill(0)
    broker.start(0)
    assert await lease(broker) == []


@run
async def test_an_event_whose_time_is_over_dies_though_nobody_asks() -> None:
    broker = await made(maxDeliveries=1, leaseMs=1000)
    broker.produce("t", 0, b"1")
    assert len(await lease(broker)) == 1
    for _ in range(1000):
        if ("t.dead", 0) in broker.reactors[0].ends:
            break
        await asyncio.sleep(0.01)
    assert broker.reactors[0].ends["t.dead", 0] == 1
    broker.kill(0)
    broker.start(0)
    group = (await broker.request("GET", "/v1/groups/q")).json
    assert group["lag"] == 0


@run
async def test_an_answer_that_never_left_counts_for_nothing() -> None:
    broker = await made()
    broker.produce("t", 0, b"1", b"2")
    app = broker.apps[0]
    assert app is not None
    response = await app.handle(Call(0, "POST", LEASE, "topic=t", [], b""))
    assert response.status == 200 and response.undo is not None
    assert await lease(broker) == []
    await response.undo()
    assert [each["deliveries"] for each in await lease(broker)] == [1, 1]


@run
async def test_what_has_no_room_in_an_answer_is_given_to_the_next_one() -> None:
    broker = await made()
    broker.produce("t", 0, *(b'"' + b"\x01" * 40_000 + b"%d" % n + b'"' for n in range(40)))
    seen: list[str] = []
    while got := await lease(broker, maxBytes=100_000):
        seen += [each["id"] for each in got]
        assert {each["deliveries"] for each in got} == {1}
    assert len(seen) == len(set(seen)) == 40


@run
async def test_in_every_form() -> None:
    broker = await made()
    broker.produce("t", 0, b"1", b"2", b"3")
    answer = await broker.request("POST", LEASE, {"topic": "t"}, headers={"Accept": JSON})
    assert answer.headers["barco-lease"] == "0.1.0.1.3"
    (block,) = answer.json
    assert (block["lease"], block["deliveries"]) == ("0.1.0.1.3", 1)
    assert block["values"] == [1, 2, 3]
    body = json.dumps({"lease": block["lease"], "delayMs": 0}).encode()
    back = await broker.request("POST", "/v1/queue/q/nack", {"topic": "t"}, body=body)
    assert back.status == 204
    answer = await broker.request("POST", LEASE, {"topic": "t"}, headers={"Accept": CHUNKS})
    assert answer.headers["barco-lease"] == "0.1.0.2.3"
    assert answer.body == b"".join(broker.reactors[0].chunks["t", 0])
    other = {"Accept": "text/event-stream"}
    assert (await broker.request("POST", LEASE, {"topic": "t"}, headers=other)).status == 406


@run
async def test_a_position_never_takes_the_place_of_a_queue() -> None:
    broker = await made()
    service = broker.services[0]
    assert service is not None
    with pytest.raises(ConflictError):  # As a poll does it, whose member was heard of late.
        await service.consumption.start_group("q", [("t", 0)], "startFromEarliest")
    assert service.consumption.groups() == []
    broker.kill(0)
    broker.start(0)
    broker.produce("t", 0, b"1")
    assert len(await lease(broker)) == 1, "the log has the queue's value"


@run
async def test_lag() -> None:
    broker = await made()
    broker.produce("t", 3, b"1", b"2", b"3")
    service = broker.services[0]
    assert service is not None
    first, *_ = await lease(broker)
    assert (await tell(broker, "ack", first["id"])).status == 204
    most = await service.operation("lags", {"most": 1})
    assert most == [[2, "q", "t", 3]]
    broker.reactors[0].starts["t", 3] = 2
    most = await service.operation("lags", {"most": 1})
    assert most == [[1, "q", "t", 3]], "what retention has removed is waited for by nobody"


@run
async def test_where_dead_letters_go_is_answered() -> None:
    broker = await made()

    async def put(*topics: str, **more: Any) -> Any:
        query = {"type": "queue", "topic": [*topics]} | more
        answer = await broker.request("PUT", "/v1/groups/dq", query)
        assert answer.status == 200, answer
        return answer.json["dead"]

    assert await put("a") is None
    assert await put("a", maxDeliveries=1) == "a.dead"
    assert await put("a", "b", maxDeliveries=1, dead="grave") == "grave"
    assert await put("a", "b", maxDeliveries=1) is None, "each has its own"
