"""Links between workers: who is let in, who is not, and that nothing is read beyond the hello."""

import asyncio
import contextlib
import dataclasses
import socket
import struct

import pytest

from barco.errors import NotReadyError, ProtocolError
from barco.protocol import frame
from barco.protocol.link import HAND_OFF, RPC, Hello, hello_from, refusal
from barco.workers import links

from .twin import Broker

MINE = Hello(
    kind="",
    cluster_uuid="c" * 32,
    ordinal=1,
    disk_uuid="d" * 32,
    worker=0,
    session=7,
    ring_size=3,
    workers=2,
    slices_per_range=8,
)
THEIRS = dataclasses.replace(MINE, ordinal=0, worker=3, kind=HAND_OFF)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"link_version": 2}, "links of version 2"),
        ({"cluster_uuid": "e" * 32}, "this is cluster cccc"),
        ({"kind": "telnet"}, "no link of kind"),
        ({"workers": 3}, "workers is 2 here and 3 there"),
        ({"ring_size": 6}, "ring_size is 3 here and 6 there"),
        ({"ordinal": 3}, "there is no broker 3"),
        ({"ordinal": 1}, "two brokers have the same ordinal"),
    ],
)
def test_who_is_let_in(change, words):
    why = refusal(MINE, dataclasses.replace(THEIRS, **change))
    assert (why is None) if words is None else words in why


@pytest.mark.parametrize(
    "message",
    [
        {},
        THEIRS.to_message() | {"more": 1},
        THEIRS.to_message() | {"ordinal": "0"},
        THEIRS.to_message() | {"ordinal": True},
        THEIRS.to_message() | {"kind": "x" * 65},
    ],
)
def test_what_is_no_hello(message):
    with pytest.raises(ProtocolError):
        hello_from(message)


async def served(taken):
    listener = socket.create_server(("127.0.0.1", 0))
    server = links.LinkServer(MINE)
    server.handle(HAND_OFF, lambda hello, end: taken.append((hello, end)))
    server.start(listener.fileno())
    return server, listener


def options_for(port):
    return dataclasses.replace(
        Broker().options(0),
        ring_size=3,
        worker=3,
        brokers=["127.0.0.1"] * 3,
        shard_endpoints=[""] * 6,
        replication_port=port,
        shard_port=9300,
    )


def test_a_link_is_handed_over_whole():
    async def main():
        taken = []
        server, listener = await served(taken)
        options = options_for(listener.getsockname()[1])
        hello = dataclasses.replace(links.own_hello(options, 9), cluster_uuid="c" * 32)
        with listener:
            theirs, end = await links.open_link(options, (1, 0), hello, HAND_OFF)
            assert (theirs.ordinal, theirs.worker, theirs.session) == (1, 0, 7)
            end.setblocking(True)
            end.sendall(b"behind the hello")
            end.close()
            hello_there, other = taken[0]
            other.setblocking(True)
            assert (hello_there.worker, hello_there.session) == (3, 9)
            assert other.recv(100) == b"behind the hello"
            other.close()
            with pytest.raises(ProtocolError, match="takes no rpc yet"):
                await links.open_link(options, (1, 0), hello, RPC)
            stranger = dataclasses.replace(hello, cluster_uuid="e" * 32)
            with pytest.raises(ProtocolError, match="refused: this is cluster"):
                await links.open_link(options, (1, 0), stranger, HAND_OFF)
        await server.close()
        with pytest.raises(NotReadyError):
            await links.open_link(options, (1, 0), hello, HAND_OFF)

    asyncio.run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack("<I", 0),
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 1025),
        frame.encode({"hello": 1}),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<I", 3) + b"\xdf\xff\xff",
    ],
)
def test_garbage_is_closed(garbage):
    async def main():
        taken = []
        server, listener = await served(taken)
        with listener:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(garbage)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        await server.close()
        assert not taken

    asyncio.run(main())
