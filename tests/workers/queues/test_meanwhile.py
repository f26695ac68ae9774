"""Queues while something else happens: a client goes, settings change, retention is at work."""

import asyncio
import contextlib
import os
from typing import Any

import pytest
from queue_calls import LEASE, direct, lease, made, tell
from twin import Broker, run

from barco.errors import BarcoError
from barco.workers.queues.desk import SCAN_BYTES

DISK = 2**40
"""Below this offset nothing is in memory."""


async def put(broker: Broker, **settings: Any) -> None:
    query = {"type": "queue", "topic": "t", **settings}
    assert (await broker.request("PUT", "/v1/groups/q", query)).status == 200


@run
async def test_a_lease_that_is_cancelled_gives_back_all_that_it_took() -> None:
    broker = await made()
    for number in range(3):  # A chunk each: what is left of them is read one by one.
        broker.produce("t", 0, b"%d" % number)
    one, two, three = await lease(broker)
    assert (await tell(broker, "ack", two["id"])).status == 204
    assert (await tell(broker, "nack", one["id"], three["id"])).status == 204
    broker.reactors[0].memory_floor["t", 0] = DISK
    log, stuck = broker.logs[0], asyncio.Event()
    read, log.reads = log.read, 0

    async def second_hangs(*args: Any, **more: Any) -> Any:
        if log.reads:
            stuck.set()
            await asyncio.Event().wait()
        return await read(*args, **more)

    log.read = second_hangs  # type: ignore[method-assign]
    waiting = asyncio.create_task(lease(broker))
    await stuck.wait()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    log.read = read  # type: ignore[method-assign]
    assert [(each["value"], each["deliveries"]) for each in await lease(broker)] == [(0, 2), (2, 2)]


@pytest.mark.parametrize("deliveries", [0, 5])
def test_what_would_not_die_any_more_is_given_again(deliveries: int) -> None:
    run(lambda: reprieve(deliveries))()


async def reprieve(deliveries: int) -> None:
    broker = await made(maxDeliveries=1)
    broker.produce("t", 0, b"1", b"2")
    one, two = await lease(broker)
    broker.reactors[0].refuse = 10  # No room for dead letters, for a minute.
    assert (await tell(broker, "nack", one["id"], two["id"])).status == 204
    assert await lease(broker) == []
    await put(broker, maxDeliveries=deliveries)
    again = await lease(broker)
    assert [(each["value"], each["deliveries"]) for each in again] == [(1, 2), (2, 2)]
    assert ("t.dead", 0) not in broker.reactors[0].ends


@run
async def test_a_queue_is_forgotten_while_acks_come_all_the_time() -> None:
    broker = await made()
    broker.produce("t", 0, *(b"%d" % number for number in range(1000)))
    left: list[str] = []
    while some := await lease(broker, max=1000):
        left += [each["id"] for each in some]
    assert len(left) == 1000
    gone = False

    async def acks() -> None:
        while left and not gone:
            try:
                await direct(broker, "queue_ack", left.pop())
            except BarcoError:
                return

    workers = []
    for _ in range(4):  # One comes while an append of another is under way.
        workers.append(asyncio.create_task(acks()))
        await asyncio.sleep(0)
    assert (await broker.request("DELETE", "/v1/groups/q")).status == 204
    gone = True
    assert len(left) > 500, "it did not wait for the end of them"
    await asyncio.gather(*workers)
    answer = await broker.request("POST", "/v1/queue/q/lease", {"topic": "t"})
    assert answer.status == 404
    broker.kill(0)
    broker.start(0)
    answer = await broker.request("POST", "/v1/queue/q/lease", {"topic": "t"})
    assert answer.status == 404, "and nothing has written it anew"


@pytest.mark.parametrize("ordered", ["no", "key"])
def test_what_retention_has_removed_is_passed_over_at_once(ordered: str) -> None:
    run(lambda: gap(ordered))()


async def gap(ordered: str) -> None:
    """The disk has lost it before anybody was told."""
    broker = await made(ordered=ordered)
    broker.produce("t", 0, *(b"%d" % number for number in range(5000)))
    broker.produce("t", 0, b'"left"')
    broker.reactors[0].memory_floor["t", 0] = DISK
    broker.logs[0].kept["t", 0] = 5000
    found = [await lease(broker) for _ in range(3)]
    assert [each["value"] for some in found for each in some] == ["left"]


@run
async def test_an_order_that_changes_while_keys_are_looked_for_gives_nothing_twice() -> None:
    broker = await made(ordered="key")
    long = b'"%s"' % os.urandom(SCAN_BYTES).hex().encode()
    broker.produce("t", 0, long)
    broker.produce("t", 0, b"2")  # So there are two looks for keys.
    broker.reactors[0].memory_floor["t", 0] = DISK
    log, stuck, goes_on = broker.logs[0], asyncio.Event(), asyncio.Event()
    read, log.reads = log.read, 0

    async def second_waits(*args: Any, **more: Any) -> Any:
        if log.reads == 1:
            stuck.set()
            await goes_on.wait()
        return await read(*args, **more)

    log.read = second_waits  # type: ignore[method-assign]
    waiting = asyncio.create_task(lease(broker, maxBytes=2**23))
    await stuck.wait()
    await put(broker)
    goes_on.set()
    found = await waiting
    for _ in range(3):
        found += await lease(broker, maxBytes=2**23)
    ids = [each["id"] for each in found]
    assert len(ids) == len(set(ids)), "what is out is out, whatever the order was"


@pytest.mark.parametrize("before", ["no", "key"])
def test_an_order_that_changes_leaves_events_with_who_has_them(before: str) -> None:
    run(lambda: switched(before))()


async def switched(before: str) -> None:
    broker = await made(ordered=before, leaseMs=3000)
    keys: list[bytes | None] = [b"a", b"b", b"a", b"b"]
    broker.reactors[0].produce("t", 0, [b"1", b"2", b"3", b"4"], keys)
    first = await lease(broker, max=2)
    assert [each["value"] for each in first] == [1, 2]
    await put(broker, ordered="key" if before == "no" else "no", leaseMs=3000)
    assert await lease(broker) == [], "all that was looked at is left alone for the time of a lease"
    assert (await tell(broker, "ack", first[0]["id"])).status == 204
    seen: list[int] = []
    for _ in range(3000):
        got = await lease(broker)
        seen += [each["value"] for each in got]
        if got:
            assert (await tell(broker, "ack", *(each["id"] for each in got))).status == 204
        if len(seen) == 3:
            break
        await asyncio.sleep(0.01)
    assert sorted(seen) == [2, 3, 4], "what was not done, once"
    if before == "no":
        assert seen.index(2) < seen.index(4), "of one key"
    assert (await broker.request("GET", "/v1/groups/q")).json["lag"] == 0


@run
async def test_an_answer_names_no_more_runs_than_its_header_holds() -> None:
    broker = await made()
    for slice_ in range(2):
        broker.produce("t", slice_, *(b"%d" % number for number in range(200)))
    got: list[dict[str, Any]] = []
    while some := await lease(broker, max=1000):
        got += some
    odd = {each["id"] for each in got if int(each["offset"]) % 2}
    assert (await tell(broker, "ack", *({each["id"] for each in got} - odd))).status == 204
    assert (await tell(broker, "nack", *odd)).status == 204
    answer = await broker.request("POST", LEASE, {"topic": "t", "max": 1000})
    assert answer.headers["barco-lease"].count(",") + 1 == 128


@run
async def test_what_comes_too_late_from_a_leader_is_given_to_the_next_one() -> None:
    broker = await made()
    broker.produce("t", 0, b"1", b"2")
    broker.siblings.dropped.add((0, "queue_lease"))
    answer = await broker.request("POST", "/v1/queue/q/lease", {"topic": "t"})
    assert answer.status == 503
    broker.siblings.dropped.clear()
    await broker.settle()
    again = await lease(broker)
    assert [(each["value"], each["deliveries"]) for each in again] == [(1, 1), (2, 1)]


@run
async def test_a_queue_is_made_where_all_have_room_for_it_or_nowhere() -> None:
    broker = Broker(workers=2)
    reactor = broker.reactors[1]
    reactor.stats = lambda: {"state_full": 1}  # type: ignore[method-assign, assignment]
    query = {"type": "queue", "topic": "t"}
    assert (await broker.request("PUT", "/v1/groups/q", query)).status == 429
    assert (await broker.request("GET", "/v1/groups/q")).status == 404
    del reactor.stats
    assert (await broker.request("PUT", "/v1/groups/q", query)).status == 200
    reactor.stats = lambda: {"state_full": 1}  # type: ignore[method-assign, assignment]
    await put(broker, leaseMs=1000)  # It needs no more room than it has.
    more = {"type": "queue", "topic": ["t", "u"], "leaseMs": 5000}
    assert (await broker.request("PUT", "/v1/groups/q", more)).status == 429
    assert await settings_of(broker) == {1000}


async def settings_of(broker: Broker) -> set[int]:
    positions = (await broker.request("GET", "/v1/groups/q")).json["positions"]
    return {each["queue"]["leaseMs"] for each in positions}


@run
async def test_settings_that_were_refused_are_not_in_force() -> None:
    broker = await made(leaseMs=1000)
    broker.reactors[0].fail_status = 503
    for order in ("no", "key"):
        query = {"type": "queue", "topic": "t", "leaseMs": 5000, "ordered": order}
        assert (await broker.request("PUT", "/v1/groups/q", query)).status == 503
        await broker.settle()
        assert await settings_of(broker) == {1000}
    broker.reactors[0].fail_status = 0
    await put(broker, leaseMs=5000)
    broker.kill(0)
    broker.start(0)
    assert await settings_of(broker) == {5000}
