"""Long polls, clients that go away, answers that get lost, over the in-memory twin."""

import asyncio

import pytest
from twin import Broker, run


@run
async def test_a_long_poll_wakes_up_for_an_event_of_any_owner() -> None:
    for slice in (0, 7):
        broker = Broker()
        await broker.register("c", "t")
        task = asyncio.create_task(broker.values("c", waitMs=60_000))
        await broker.settle()
        assert not task.done() and any(reactor.notified for reactor in broker.reactors)
        broker.produce("t", slice, b"1")
        assert await asyncio.wait_for(task, 20) == [1]
        assert not any(reactor.notified for reactor in broker.reactors)


@run
async def test_a_long_poll_ends_in_time() -> None:
    broker = Broker()
    await broker.register("c", "t")
    answer = await asyncio.wait_for(broker.poll("c", waitMs=50), 20)
    assert answer.status == 204 and answer.headers["retry-after"] == "1"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("turns", range(20))
def test_a_client_that_goes_away_loses_nothing(turns: int) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        await broker.register("c", "t")
        task = asyncio.create_task(broker.poll("c", waitMs=60_000))
        await broker.settle()
        broker.produce("t", 7, b"1")
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()  # After the event has woken it up, wherever it stands now.
        try:
            assert (await task).status == 200
        except asyncio.CancelledError:
            await broker.settle()
            assert await broker.values("c") == [1]

    scenario()


@pytest.mark.parametrize("turns", range(24))
def test_a_cancel_at_any_moment_loses_nothing(turns: int) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        await broker.register("c", "t")
        broker.produce("t", 0, b"1")
        broker.produce("t", 7, b"2")
        broker.reactors[0].memory_floor["t", 0] = 9
        task = asyncio.create_task(broker.poll("c"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            answer = await task
        except asyncio.CancelledError:
            await broker.settle()
            assert sorted(await broker.values("c")) == [1, 2]
        else:
            assert answer.status == 200

    scenario()


@run
async def test_a_new_poll_ends_an_older_one_of_the_same_consumer() -> None:
    broker = Broker()
    await broker.register("c", "t")
    # Its connection is half-open: nobody knows yet that the client has given it up.
    older = asyncio.create_task(broker.poll("c", waitMs=60_000))
    await broker.settle()
    newer = asyncio.create_task(broker.values("c", waitMs=60_000))
    await broker.settle()
    broker.produce("t", 7, b"1")
    assert await asyncio.wait_for(newer, 20) == [1]
    assert (await asyncio.wait_for(older, 20)).status == 204


@run
async def test_a_rebalance_wakes_a_consumer_that_had_nothing() -> None:
    broker = Broker(workers=1, slices=1)
    broker.produce("t", 0, b"1")
    await broker.register("a", "t")
    await broker.register("b", "t")
    assert (await broker.poll("b")).headers["retry-after"] == "5"
    task = asyncio.create_task(broker.values("b", waitMs=60_000))
    await broker.settle()
    await broker.goodbye("a")
    assert await asyncio.wait_for(task, 20) == [1]


@run
async def test_an_expired_consumer_does_not_wait_on() -> None:
    broker = Broker()
    await broker.register("c", "t")
    task = asyncio.create_task(broker.poll("c", waitMs=60_000))
    await broker.settle()
    before = broker.supervisor.groups.version
    broker.supervisor.groups.tick(10_000.0)
    broker.supervisor.publish(before)
    assert (await asyncio.wait_for(task, 20)).status == 409


# --- Deliveries -----------------------------------------------------------------------------------


@run
async def test_an_answer_that_never_arrived_is_given_again() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    first = await broker.poll("c", delivery="")
    broker.produce("t", 0, b"2")
    # The client never saw the first answer: it says so by naming none.
    again = await broker.poll("c", delivery="")
    assert [item["values"] for item in again.json] == [[1, 2]]
    assert again.headers["barco-delivery"] != first.headers["barco-delivery"]
    last = await broker.poll("c", delivery=again.headers["barco-delivery"])
    assert last.status == 204


@run
async def test_a_commit_leaves_out_an_answer_that_never_arrived() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    first = await broker.poll("c")
    broker.produce("t", 7, b"2")
    await broker.poll("c")  # Lost on its way.
    query = {"consumerId": "c", "delivery": first.headers["barco-delivery"]}
    assert (await broker.request("POST", "/v1/consumer/commit", query)).status == 204
    assert (await broker.request("POST", "/v1/consumer/goodbye", query)).status == 200
    await broker.register("d", "t")
    assert await broker.values("d") == [2]
