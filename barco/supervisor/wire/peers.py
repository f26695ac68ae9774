"""The other brokers of a gossip and the connections to them: what the node keeps in mind."""

from __future__ import annotations

import asyncio
import socket

from msgspec import Struct, field

from barco import limits
from barco.protocol import frame
from barco.protocol.gossip import Hello


class Traffic(Struct):
    """Traffic since the start."""

    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    messages_dropped: int = 0
    connections: int = 0
    refusals: int = 0


class NotTriedError(ConnectionError):
    """The last attempt is too short a time ago for another."""


class Counted:
    """A stream whose bytes are counted. TimeoutError: a frame that has begun takes too long."""

    def __init__(self, reader: asyncio.StreamReader, counters: Traffic) -> None:
        self._reader = reader
        self._counters = counters

    async def readexactly(self, n: int, /) -> bytes:
        """As `asyncio.StreamReader`."""
        begun = n != frame.LENGTH.size
        async with asyncio.timeout(limits.FRAME_SECONDS_MAX if begun else None):
            data = await self._reader.readexactly(n)
        self._counters.bytes_received += len(data)
        return data


class GossipPeer(Struct):
    """One other broker."""

    ordinal: int
    host: str
    port: int
    listed: bool = True
    """Whether the configuration has its address; else it came later, and says itself."""
    links: list[GossipLink] = field(default_factory=list)
    queue: list[bytes] = field(default_factory=list)
    connecting: asyncio.Task[None] | None = None
    failures: int = 0
    retry_at: float = 0.0
    refused: bool = False
    """Why the last attempt failed: nothing listens there."""
    used_at: float = 0.0


class GossipLink(Struct, eq=False):
    """One greeted connection."""

    reader: Counted
    writer: asyncio.StreamWriter
    hello: Hello

    def close(self) -> None:
        """At once; what is unsent is lost."""
        self.writer.transport.abort()


def host_of(writer: asyncio.StreamWriter) -> str:
    """The address at the other end."""
    name = writer.get_extra_info("peername")
    return str(name[0]) if name else "unknown"


def same_host(configured: str, actual: str) -> bool:
    """Names are not looked up for every connection: only literal addresses are compared."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in configured else socket.AF_INET, configured)
    except OSError:
        return True
    return configured == actual


def set_no_delay(writer: asyncio.StreamWriter) -> None:
    """Small messages go at once."""
    end = writer.get_extra_info("socket")
    if end is not None and end.family in (socket.AF_INET, socket.AF_INET6):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
