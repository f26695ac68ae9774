"""Leases and acknowledgements that are answered without a task: when they are, and when not."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from queue_calls import LEASE, direct, lease, made, tell
from twin import Broker, run

from barco.workers.http.base.messages import Call, Response, Soon
from barco.workers.http.base.render import CHUNKS

ACK = "/v1/queue/q/ack"
DISK = 2**40
"""Below this offset nothing is in memory."""


def at_once(broker: Broker, path: str, query: str = "topic=t", **body: Any) -> Any:
    app = broker.apps[0]
    assert app is not None
    headers = [(b"accept", CHUNKS.encode())]
    content = json.dumps(body).encode() if body else b""
    return app.at_once(Call(0, "POST", path, query, headers, content))


def named(response: Any) -> str:
    assert isinstance(response, Response) and response.status == 200
    return dict(response.headers)["Barco-Lease"]


async def filled(slices: int = 1) -> Broker:
    broker = await made()
    for index in range(slices):
        broker.produce("t", index, *(b"%d" % number for number in range(3)))
    await lease(broker, max=1)  # So that there is room in each slice, durably.
    await broker.settle()
    return broker


@run
async def test_what_is_in_memory_is_leased_at_once_and_nothing_else() -> None:
    broker = await filled()
    first = at_once(broker, LEASE, "topic=t&max=1")
    assert named(first) == "0.1.1.1"
    broker.reactors[0].memory_floor["t", 0] = DISK
    assert at_once(broker, LEASE, "topic=t&max=1") is None
    again = await lease(broker, max=1)
    assert [each["id"] for each in again] == ["0.1.2.1"], "what was looked for was given back"
    assert at_once(broker, LEASE) is None, "there is nothing: that may have to be waited for"
    assert first.undo is not None
    await first.undo()
    broker.reactors[0].memory_floor.clear()
    assert named(at_once(broker, LEASE)) == "0.1.1.1", "as if it had not been given"


@run
async def test_who_comes_first_is_not_passed_over_because_it_takes_longer() -> None:
    broker = await filled(slices=8)
    broker.reactors[0].memory_floor["t", 0] = DISK
    got: list[str] = []
    for _ in range(16):
        found = at_once(broker, LEASE, "topic=t&max=1")
        some = named(found) if found else ",".join(x["id"] for x in await lease(broker, max=1))
        got.append(some.partition(".")[0])
    assert sorted(got) == sorted("01234567" * 2), "each has its turn, on the disk or not"


@pytest.mark.parametrize("ordered", ["no", "key"])
def test_all_is_given_once(ordered: str) -> None:
    run(lambda: everything(ordered))()


async def everything(ordered: str) -> None:
    broker = await made(ordered=ordered)
    for index in range(3):
        broker.produce("t", index, *(b"%d" % number for number in range(40)))
    seen: list[tuple[str, int]] = []
    while True:
        found = at_once(broker, LEASE, "topic=t&max=7")
        if found is None:
            answer = await broker.request(
                "POST", LEASE, {"topic": "t", "max": 7}, headers={"accept": CHUNKS}
            )
            if answer.status == 204:
                break
            name = answer.headers["barco-lease"]
        else:
            name = named(found)
        for each in name.split(","):
            index, _, start, count, *more = each.split(".")
            assert count == "1"
            seen += [(index, int(start) + n) for n in range(int(more[0]) if more else 1)]
    assert sorted(seen) == [(str(index), at) for index in range(3) for at in range(40)]


@run
async def test_an_ack_is_answered_when_it_is_stable_and_not_before() -> None:
    broker = await filled()
    one, two = named(at_once(broker, LEASE, "topic=t&max=1")), (await lease(broker, max=1))[0]["id"]
    broker.reactors[0].hold = True
    soon = at_once(broker, ACK, events=[one])
    assert isinstance(soon, Soon)
    done: list[bool] = []
    soon.then(lambda: done.append(soon.good))
    await broker.settle()
    assert not done
    broker.reactors[0].release()
    await broker.settle()
    assert done == [True] and soon.response.status == 204
    repeated = at_once(broker, ACK, events=[one])
    assert isinstance(repeated, Response) and repeated.status == 204, "it is stable already"
    broker.kill(0)
    broker.start(0)
    left = await direct(broker, "queue_ack", two)
    assert left == []


@run
async def test_acks_that_come_in_one_turn_are_one_append() -> None:
    broker = await filled()
    names = [named(at_once(broker, LEASE, "topic=t&max=1")) for _ in range(2)]
    service, reactor = broker.services[0], broker.reactors[0]
    assert service is not None
    saver, before, done = service.queues.saver, reactor.appended_events, list[bool]()
    saver.gather()
    for name in names:
        soon = at_once(broker, ACK, events=[name])
        assert isinstance(soon, Soon)
        soon.then(partial(lambda one: done.append(one.good), soon))
    await broker.settle()
    assert not done and reactor.appended_events == before, "the turn is not over"
    saver.flush()
    await broker.settle()
    assert done == [True, True] and reactor.appended_events == before + 1


@run
async def test_a_slice_that_can_not_be_written_keeps_no_other_from_it() -> None:
    broker = await filled(slices=2)
    names = sorted(named(at_once(broker, LEASE, "topic=t&max=1")) for _ in range(2))
    assert [each.partition(".")[0] for each in names] == ["0", "1"]
    service, reactor, done = broker.services[0], broker.reactors[0], list[bool]()
    assert service is not None
    append = reactor.append

    def refuses(tag: int, topic: str, slice: int, *more: Any) -> None:
        if slice == 0:
            raise ValueError("slice 0 belongs to another worker")
        append(tag, topic, slice, *more)

    reactor.append = refuses  # type: ignore[method-assign]
    service.queues.saver.gather()
    for name in names:
        soon = at_once(broker, ACK, events=[name])
        assert isinstance(soon, Soon)
        soon.then(partial(lambda one: done.append(one.good), soon))
    service.queues.saver.flush()
    await broker.settle()
    assert done == [False, True]


@run
async def test_acks_under_way_are_told_once_that_another_worker_leads() -> None:
    broker = await filled()
    one, two = (named(at_once(broker, LEASE, "topic=t&max=1")) for _ in range(2))
    service, reactor = broker.services[0], broker.reactors[0]
    assert service is not None
    reactor.hold, done = True, list[bool]()
    for name in (one, two):  # The second one waits for the first one's append.
        soon = at_once(broker, ACK, events=[name])
        assert isinstance(soon, Soon)
        soon.then(partial(lambda one: done.append(one.good), soon))
        await broker.settle()
    service.queues.close()
    assert done == [False, False]
    reactor.release()
    await broker.settle()
    assert done == [False, False]


@run
async def test_an_ack_that_could_not_be_written_is_no_answer() -> None:
    broker = await filled()
    one = named(at_once(broker, LEASE, "topic=t&max=1"))
    broker.reactors[0].fail_status = 503
    soon = at_once(broker, ACK, events=[one])
    assert isinstance(soon, Soon)
    ended = asyncio.Event()
    soon.then(ended.set)
    await ended.wait()
    assert not soon.good
    broker.reactors[0].fail_status = 0
    assert (await tell(broker, "ack", one)).status == 204


@run
async def test_what_is_wrong_is_said_the_other_way() -> None:
    broker = await filled()
    assert at_once(broker, LEASE, "topic=t&most=1") is None
    assert at_once(broker, LEASE, "") is None
    assert at_once(broker, "/v1/queue/other/lease") is None
    assert at_once(broker, "/v1/queue/q/nack", events=["0.1.0.1"]) is None
    assert at_once(broker, ACK, events=["1"]) is None
    assert at_once(broker, ACK, events=["99.1.0.1"]) is None
    app = broker.apps[0]
    assert app is not None
    app.close("It stops.")
    assert at_once(broker, LEASE, "topic=t&max=1") is None
