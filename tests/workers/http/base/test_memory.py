"""The memory of answers is bounded, and given back."""

import asyncio
from pickle import PickleBuffer
from typing import Any

import pytest
from twin import Broker, answer_of, run

from barco.errors import BusyError
from barco.limits import CHUNK_RAW_BYTES_MAX
from barco.workers.http.base.memory import AnswerMemory
from barco.workers.http.base.messages import Call


@run
async def test_answers_become_smaller_and_then_none() -> None:
    memory = AnswerMemory(1 << 20)
    memory.wait_seconds = 0.02
    assert await memory.take(1000) == 1000
    assert await memory.take(1 << 30) == (1 << 20) // 4 - 250
    while memory.used < memory.bytes_max:
        last = await memory.take(1 << 30)
        assert last >= CHUNK_RAW_BYTES_MAX
    with pytest.raises(BusyError):
        await memory.take(1)
    memory.wait_seconds = 60
    asyncio.get_running_loop().call_later(0.02, memory.give_back, last)
    async with asyncio.timeout(20):
        assert await memory.take(1) == 1


@run
async def test_who_waits_for_memory_is_served_in_order_and_once() -> None:
    memory = AnswerMemory(1 << 20)
    memory.wait_seconds = 60
    held = []
    while memory.used < memory.bytes_max:
        held.append(await memory.take(1 << 30))
    served: list[int] = []

    async def wait(number: int) -> None:
        await memory.take(CHUNK_RAW_BYTES_MAX)
        served.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(20)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    memory.give_back(held.pop())
    tasks[2].cancel()
    tasks[0].cancel()  # It was the one to be woken up: the next one is, instead.
    async with asyncio.timeout(20):
        while not served:
            await asyncio.sleep(0)
        for granted in held:
            memory.give_back(granted)
        while len(served) < 17:
            memory.give_back(CHUNK_RAW_BYTES_MAX)
            await asyncio.sleep(0)
    assert served == list(range(3, 20))


def test_a_body_counts_until_it_is_let_go_of() -> None:
    memory = AnswerMemory(1 << 20)
    body: list[Any] = memory.counted([b"abc", memoryview(b"de")])
    assert b"".join(body) == b"abcde" and memory.used == 5
    sending = PickleBuffer(body[-1])  # It takes the buffer as the reactor does.
    del body
    assert bytes(sending) == b"de" and memory.used == 5
    sending.release()
    assert memory.used == 0
    assert memory.counted([]) == []


@run
async def test_everything_is_given_back() -> None:
    broker = Broker(workers=1)
    app = broker.apps[0]
    assert app is not None
    memory = app._context.memory
    broker.produce("t", 0, b"1" * 1000)
    await broker.register("c", "t")
    kept = []
    path = "/v1/topic/t/slices/-9223372036854775808/0/events"
    for query in ("", "from=latest", "from=x", "to=earliest", "waitMs=20&from=latest"):
        kept.append(await app.handle(Call(0, "GET", path, query, [], b"")))
    for query in ("consumerId=c", "consumerId=c&waitMs=20", "consumerId=d"):
        kept.append(await app.handle(Call(0, "POST", "/v1/consumer/poll", query, [], b"")))
    assert memory.used == sum(len(answer_of(r).body) for r in kept if r.status == 200)
    task = asyncio.create_task(broker.poll("c", waitMs=10_000))
    await broker.settle()
    task.cancel()
    await asyncio.wait([task])
    kept.clear()
    del task
    assert memory.used == 0


@run
async def test_slow_readers_do_not_fill_the_memory() -> None:
    broker = Broker(workers=1)
    app = broker.apps[0]
    assert app is not None
    app._context.memory.bytes_max = 10_000
    app._context.memory.wait_seconds = 0.001
    broker.produce("t", 0, b"1" * 1000)
    path = "/v1/topic/t/slices/-9223372036854775808/0/events"
    kept = [await app.handle(Call(0, "GET", path, "", [], b"")) for _ in range(100)]
    statuses = [response.status for response in kept]
    assert statuses[0] == 200 and statuses[-1] == 503 and statuses.count(200) < 12
    kept.clear()
    assert (await app.handle(Call(0, "GET", path, "", [], b""))).status == 200
