"""A link to a peer, on real sockets: when there is room for more."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import ends
from reference.certificates import authority, broker

from barco.limits import REPLICATION_QUEUE_BYTES_MAX
from barco.model.generation import Gid, GroupHead
from barco.mutual import Mutual, Session, give
from barco.protocol.replication import Fetched
from barco.types import Epoch, MiB, Token
from barco.workers.replication import wire
from barco.workers.replication.link import Link

MESSAGE = Fetched(Gid(Token(0), Epoch(1)), GroupHead(1, 0, 0, MiB))
SECONDS = 30.0
"""Generous: it only ends what has failed."""


def fatal(reason: str) -> None:
    raise AssertionError(reason)


class Heard(asyncio.Protocol):
    """How much has come."""

    def __init__(self) -> None:
        self.size = 0

    def data_received(self, data: bytes) -> None:
        self.size += len(data)


def test_all_that_is_sealed_is_sent_without_another_word(tmp_path: Path) -> None:
    """The socket takes less than what was sealed: the rest goes when it has room again."""
    ca, uuid = authority(tmp_path), "c" * 32
    mutual = []
    for each in range(2):
        files = broker(tmp_path, ca, f"b{each}", f"barco:{uuid}/{each}")
        texts = {"certificate": files.certificate, "key": files.key, "ca": ca.certificate}
        mutual.append(Mutual(uuid, {name: path.read_text() for name, path in texts.items()}))

    async def main() -> None:
        mine, theirs = ends.pair()
        for end in (mine, theirs):
            end.setblocking(False)
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        mine.seal, transport = await asyncio.gather(
            mutual[0].shake(mine, Session(False, "a name", 1)),
            mutual[1].transport(theirs, Session(True, "a name", 0)),
        )

        async def dial() -> tuple[Any, ends.End]:
            return None, mine

        link = Link(None, 1, dial, lambda: None, lambda: None, fatal)  # type: ignore[arg-type]
        link.start()
        await asyncio.sleep(0)
        sent = 0
        for size in (0, 1, 300_000, 20_000, 0):
            data = bytes(size) or None
            assert link.send(MESSAGE, data=data)
            sent += len(wire.encode(MESSAGE, size)) + size
        assert link.idle_fd == -1, "nobody else may write in between"
        heard = give(transport, Heard)
        async with asyncio.timeout(SECONDS):
            while heard.size < sent:
                await asyncio.sleep(0.001)
        assert heard.size == sent == link.sent_bytes and link.idle_fd >= 0
        await link.close()
        transport.abort()

    asyncio.run(main())


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
