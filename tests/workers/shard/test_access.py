"""Users where they are kept: one change at a time, what is stable, what a log may hold."""

import asyncio
from typing import Any

import msgpack
import pytest

from barco.errors import BarcoError, ConflictError
from barco.model.access import AccessTable, Grant, User, hash_of
from barco.workers.shard.access import ACCESS, KEY, AccessKeeper, packed, unpacked
from barco.workers.shard.appends import Appends

from ..twin import MemoryReactor

ROOT = User("root", (hash_of("root"),), (Grant("users"),))
FIRST = AccessTable.of([ROOT])


def kept(reactor: MemoryReactor) -> AccessKeeper:
    appends = Appends(reactor)
    reactor.upcalls = lambda upcall: appends.appended(upcall[1], upcall[2], upcall[5])
    keeper = AccessKeeper(reactor, appends, FIRST)
    keeper.open()
    return keeper


def one_more(current: AccessTable) -> AccessTable:
    name = f"u{current.version}"
    return current.with_user(User(name, (hash_of(name),)))


def test_a_change_counts_when_it_is_stable_and_is_there_again() -> None:
    reactor = MemoryReactor()

    async def main() -> None:
        keeper = kept(reactor)
        assert keeper.table == FIRST and await keeper.change(lambda now: now) is FIRST
        reactor.hold = True
        changes = [asyncio.create_task(keeper.change(one_more)) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert keeper.table is FIRST and len(reactor.held) == 1
        reactor.release()
        assert [(await each).version for each in changes] == [1, 2]
        again = kept(reactor)
        assert again.table == keeper.table and set(again.table.users) == {"root", "u0", "u1"}

    asyncio.run(main())


def test_what_is_refused_or_not_written_changes_nothing() -> None:
    async def main() -> None:
        reactor = MemoryReactor()
        keeper = kept(reactor)
        with pytest.raises(ConflictError):
            await keeper.change(lambda now: now.without("root"))
        reactor.fail_status = 1
        with pytest.raises(BarcoError):
            await keeper.change(one_more)
        assert keeper.table is FIRST

    asyncio.run(main())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({}),
        msgpack.packb({"access": {"version": 9}}),
    ],
)
def test_what_is_none_is_passed_over(value: Any) -> None:
    reactor = MemoryReactor()
    reactor.kept[ACCESS, KEY] = value
    assert kept(reactor).table == FIRST
    with pytest.raises(ValueError, match="table"):
        unpacked(value)


def test_packed_and_back() -> None:
    assert unpacked(packed(one_more(FIRST))) == one_more(FIRST)
