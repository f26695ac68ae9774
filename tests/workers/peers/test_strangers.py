"""Members of a new range dial each other before all have heard of it: real sockets."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import ends
import pytest
from msgspec.structs import replace

from barco.protocol.link import REPLICATION, Hello
from barco.workers.peers import strangers
from barco.workers.peers.strangers import WAITING_MAX, Strangers

TOKEN = 7
HELLO = Hello(
    kind=REPLICATION, ordinal=3, worker=1, token=TOKEN, session=9,
    cluster_uuid="c" * 32, disk_uuid="d" * 32, ring_size=3, workers=1, slices_per_range=8,
)  # fmt: skip


class Lab:
    """One process, whose links are a set."""

    def __init__(self) -> None:
        self.links: set[int] = set()
        self.taken: list[tuple[Hello, socket.socket]] = []
        self.strangers = Strangers(
            TOKEN, self.links.__contains__, lambda *each: self.taken.append(each)
        )
        self.ends: list[socket.socket] = []

    def dial(self, ordinal: int, *, token: int = TOKEN) -> socket.socket:
        """The other end of it."""
        theirs, ours = ends.pair()
        theirs.setblocking(False)
        self.ends += [theirs, ours]
        hello = replace(HELLO, ordinal=ordinal, token=token)
        self.strangers.dialled(hello, ours)
        return theirs

    def meet(self, ordinal: int) -> None:
        self.links.add(ordinal)
        self.strangers.met(ordinal)


def is_open(end: socket.socket) -> bool:
    try:
        return end.recv(1) != b""
    except BlockingIOError:
        return True


def lab(test: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        made = Lab()
        try:
            await test(made)
        finally:
            made.strangers.close()
            for end in made.ends:
                end.close()

    asyncio.run(main())


def test_who_dials_early_is_taken_when_it_is_known() -> None:
    """What it has sent meanwhile is there, and it has noticed nothing."""

    async def test(made: Lab) -> None:
        end = made.dial(3)
        end.send(b"x")
        assert is_open(end) and made.taken == []
        made.meet(3)
        ((hello, ours),) = made.taken
        assert hello.ordinal == 3 and ours.recv(9) == b"x" and is_open(end)
        made.dial(3)
        assert len(made.taken) == 2, "from now on at once"
        made.meet(4)
        assert len(made.taken) == 2, "nobody waits there"

    lab(test)


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "WAIT_SECONDS", 0.02)

    async def test(made: Lab) -> None:
        end = made.dial(3)
        async with asyncio.timeout(10):
            while is_open(end):
                await asyncio.sleep(0.001)
        made.meet(3)
        assert made.taken == []
        kept = made.dial(3)
        await asyncio.sleep(0.05)
        assert is_open(kept), "what was taken is not closed"

    lab(test)


def test_there_is_room_for_few_of_them() -> None:
    async def test(made: Lab) -> None:
        assert not is_open(made.dial(3, token=TOKEN + 1)), "another range's"
        first, again = made.dial(3), made.dial(3)
        assert not is_open(first) and is_open(again), "one of each, the last"
        others = [made.dial(10 + each) for each in range(WAITING_MAX)]
        assert not is_open(again) and all(map(is_open, others)), "the oldest goes"
        made.strangers.close()
        assert not any(map(is_open, others))

    lab(test)
