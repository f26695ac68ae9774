"""Room for answers: in turn, and half of it at most for one broker."""

import asyncio

import pytest
from twin import run

from barco.types import KiB, MiB
from barco.workers.peers.answers import ANSWER_BYTES, Room, weight


def test_what_one_holds_leaves_room_for_another() -> None:
    @run
    async def scenario() -> None:
        room = Room(200)
        await room.take(1, 60)
        waits = asyncio.create_task(room.take(1, 60))
        await asyncio.sleep(0)
        assert not waits.done(), "its half is 100"
        async with asyncio.timeout(5):
            await room.take(2, 100)  # Goes first.
        room.give_back(1, 60)
        async with asyncio.timeout(5):
            await waits
        assert room.held == 160


def test_a_large_one_is_not_passed_by_others_for_ever() -> None:
    @run
    async def scenario() -> None:
        room = Room(200)
        await room.take(1, 100)
        await room.take(2, 50)
        large = asyncio.create_task(room.take(3, 100))
        await asyncio.sleep(0)
        small = asyncio.create_task(room.take(4, 10))
        await asyncio.sleep(0)
        assert not large.done() and not small.done(), "in turn"
        room.give_back(2, 50)
        async with asyncio.timeout(5):
            await large
        assert not small.done()
        room.give_back(1, 100)
        async with asyncio.timeout(5):
            await small
        assert room.held == 110


def test_who_gives_up_has_taken_nothing() -> None:
    @run
    async def scenario() -> None:
        room = Room(200)
        await room.take(1, 100)
        given_up = asyncio.create_task(room.take(1, 50))
        behind = asyncio.create_task(room.take(1, 20))
        await asyncio.sleep(0)
        given_up.cancel()
        granted = asyncio.create_task(room.take(2, 50))
        await asyncio.sleep(0)
        await asyncio.gather(given_up, return_exceptions=True)
        room.give_back(1, 100)
        async with asyncio.timeout(5):
            await asyncio.gather(behind, granted)
        late = asyncio.create_task(room.take(1, 100))
        await asyncio.sleep(0)
        room.give_back(1, 20)  # Granted, and cancelled before it is told.
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert room.held == 50


@pytest.mark.parametrize("asked", [None, "x", -1, True, 2**80, [], {}])
def test_what_is_asked_may_be_anything(asked: object) -> None:
    """It came from another broker."""
    for op in ("read", "history", "state", "none"):
        for args in ({"budget": asked, "bytes": asked}, asked):
            assert 0 < weight(op, args, 25 * MiB) <= 25 * MiB
    for op in ("read", "poll", "queue_lease"):
        assert weight(op, {"budget": 4 * KiB}, MiB) == ANSWER_BYTES + 4 * KiB
