"""The target where it is kept: one change at a time, what is stable, what a log may hold."""

import asyncio
from typing import Any

import msgpack
import pytest

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.target import Target, TargetBroker, first_target
from barco.errors import BarcoError, ConflictError
from barco.workers.shard.appends import Appends
from barco.workers.shard.target import KEY, TOPOLOGY, TargetKeeper

from ..twin import MemoryReactor

CUT = Cut(3, 8)
FIRST = first_target(CUT, 1)


def kept(reactor: MemoryReactor) -> TargetKeeper:
    appends = Appends(reactor)
    reactor.upcalls = lambda upcall: appends.appended(upcall[1], upcall[2], upcall[5])
    keeper = TargetKeeper(reactor, appends, CUT, FIRST)
    keeper.open()
    return keeper


def larger(current: Target) -> Target:
    new = TargetBroker(ordinal=len(current.brokers), workers=1)
    return Target(current.version + 1, CUT, (*current.brokers, new))


def test_a_change_counts_when_it_is_stable_and_is_there_again() -> None:
    reactor = MemoryReactor()

    async def main() -> None:
        keeper = kept(reactor)
        assert keeper.target == FIRST and await keeper.change(lambda now: now) is FIRST
        reactor.hold = True
        change = asyncio.create_task(keeper.change(larger))
        await asyncio.sleep(0)
        other = asyncio.create_task(keeper.change(larger))  # Waits, and sees the one before.
        for _ in range(5):
            await asyncio.sleep(0)
        assert keeper.target is FIRST and len(reactor.held) == 1
        reactor.release()
        assert [(await each).version for each in (change, other)] == [1, 2]
        assert len(keeper.target.brokers) == 5
        assert kept(reactor).target == keeper.target

    asyncio.run(main())


def test_what_is_refused_or_not_written_changes_nothing() -> None:
    def refuses(current: Target) -> Target:
        raise ConflictError("no")

    async def main() -> None:
        reactor = MemoryReactor()
        keeper = kept(reactor)
        with pytest.raises(ConflictError):
            await keeper.change(refuses)
        reactor.fail_status = 1
        with pytest.raises(BarcoError):
            await keeper.change(larger)
        assert keeper.target is FIRST
        reactor.fail_status = 0
        assert (await keeper.change(larger)).version == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "value",
    [b"", b"\xc1", msgpack.packb([1]), msgpack.packb({}), msgpack.packb({"target": b"x"})],
)
def test_what_is_none_is_passed_over(value: Any) -> None:
    reactor = MemoryReactor()
    reactor.kept[TOPOLOGY, KEY] = value
    assert kept(reactor).target is FIRST
