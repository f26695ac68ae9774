"""A link to a peer, on real sockets: when there is room for more."""

import asyncio
import socket
from typing import Any

import ends

from barco.limits import REPLICATION_QUEUE_BYTES_MAX
from barco.model.generation import Gid, GroupHead
from barco.protocol.replication import Fetched
from barco.types import Epoch, MiB, Token
from barco.workers.replication.link import Link

MESSAGE = Fetched(Gid(Token(0), Epoch(1)), GroupHead(1, 0, 0, MiB))
SECONDS = 30.0
"""Generous: it only ends what has failed."""


def fatal(reason: str) -> None:
    raise AssertionError(reason)


async def full_link() -> tuple[Link, socket.socket]:
    """One with more to send than it takes, and the peer's end."""
    mine, theirs = ends.pair()
    for end in (mine, theirs):
        end.setblocking(False)

    async def dial() -> tuple[Any, socket.socket]:
        return None, mine

    link = Link(None, 1, dial, lambda: None, lambda: None, fatal)  # type: ignore[arg-type]
    link.start()
    await asyncio.sleep(0)
    for _ in range(REPLICATION_QUEUE_BYTES_MAX // MiB + 8):
        if not link.full:
            assert link.send(MESSAGE, data=bytes(MiB))
    assert link.full
    return link, theirs


def test_room_when_the_peer_has_read() -> None:
    async def main() -> None:
        link, theirs = await full_link()
        room = asyncio.ensure_future(link.room())
        await asyncio.sleep(0)
        assert not room.done()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            while not room.done():
                await loop.sock_recv(theirs, MiB)
        assert not link.full
        await link.close()
        theirs.close()

    asyncio.run(main())


def test_nobody_waits_for_a_link_that_is_down() -> None:
    async def main() -> None:
        link, theirs = await full_link()
        room = asyncio.ensure_future(link.room())
        await asyncio.sleep(0)
        theirs.close()
        await asyncio.wait_for(room, SECONDS)
        assert not link.full
        await link.close()

    asyncio.run(main())
