"""Waiting for events to become stable."""

import asyncio

import pytest
from twin import MemoryReactor, run

from barco.workers.shard.waiting import Waiters


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
    task = asyncio.create_task(waiters.wait(ready, 0.2))
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
