"""Waiting for events to become stable."""

import asyncio
from functools import partial

import pytest
from twin import MemoryReactor, run

from barco.workers.shard.waiting import LOOKED_AT_ONCE, WOKEN_AT_ONCE, Waiters


@run
async def test_reports_are_wanted_only_while_somebody_waits() -> None:
    reactor = MemoryReactor()
    waiters = Waiters(reactor)
    ready = False
    task = asyncio.create_task(waiters.wait(lambda: ready, 1))
    other = asyncio.create_task(waiters.wait(lambda: False, 0.01))
    await asyncio.sleep(0)
    assert reactor.notified and len(waiters) == 2
    assert await other is False and reactor.notified
    ready = True
    waiters.look()
    assert await task is True
    assert not reactor.notified and len(waiters) == 0


@run
async def test_what_is_ready_already_does_not_wait() -> None:
    reactor = MemoryReactor()
    assert await Waiters(reactor).wait(lambda: True, 10) is True
    assert not reactor.notified


@run
async def test_reports_that_come_fast_are_looked_at_together() -> None:
    looks = 0

    def ready() -> bool:
        nonlocal looks
        looks += 1
        return False

    waiters = Waiters(MemoryReactor())
    task = asyncio.create_task(waiters.wait(ready, 60))
    await asyncio.sleep(0.002)
    for _ in range(1000):
        waiters.look()
    await asyncio.sleep(0.01)
    assert looks == 3  # At the start, at the first report, and once for all others.
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waiters) == 0


@run
async def test_wake_lets_everyone_look_again() -> None:
    waiters = Waiters(MemoryReactor())
    task = asyncio.create_task(waiters.wait(lambda: False, 10))
    await asyncio.sleep(0)
    waiters.wake()
    assert await task is True


@run
async def test_thousands_are_looked_at_in_portions() -> None:
    """And nobody is forgotten who becomes ready behind the place where the look is."""
    looked, most, high = 0, 0, 0
    count = 5 * LOOKED_AT_ONCE

    def ready(number: int) -> bool:
        nonlocal looked
        looked += 1
        return number < high

    waiters = Waiters(MemoryReactor())
    tasks = [
        asyncio.create_task(waiters.wait(partial(ready, number), 60)) for number in range(count)
    ]
    await asyncio.sleep(0.002)
    looked = 0
    waiters.look()
    high = count
    for _ in range(100_000):
        before = looked
        await asyncio.sleep(0)
        most = max(most, looked - before)
        waiters.look()  # As for each event that becomes stable.
        if all(task.done() for task in tasks):
            break
    assert [task.result() for task in tasks] == [True] * count
    assert 0 < most <= LOOKED_AT_ONCE


@run
async def test_a_few_are_woken_at_once() -> None:
    waiters = Waiters(MemoryReactor())
    high = 0
    tasks = [
        asyncio.create_task(waiters.wait(lambda: high > 0, 60)) for _ in range(5 * WOKEN_AT_ONCE)
    ]
    await asyncio.sleep(0.002)
    high = 1
    waiters.look()
    most, before = 0, 0
    for _ in range(100_000):
        await asyncio.sleep(0)
        done = sum(task.done() for task in tasks)
        most, before = max(most, done - before), done
        if done == len(tasks):
            break
    assert before == len(tasks) and most <= WOKEN_AT_ONCE
