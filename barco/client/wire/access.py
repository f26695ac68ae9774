"""How a client reaches brokers: the one place of the library that opens a connection.

Whoever makes connections is given an `Access`, and hands it on to what it asks on the way: a
setting of all connections of a program (TLS, one day) is a field here and nothing elsewhere.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from barco.client.base.names import as_endpoints
from barco.client.wire.http1 import split_endpoint

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,128}", re.ASCII)

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True)
class Access:
    """Some endpoints, and how connections to them and to all that they name are made. A value:
    Spark sends it to its tasks."""

    endpoints: tuple[str, ...]
    token: str = field(default="", repr=False)
    """Shown with each request; empty: none is."""

    def __str__(self) -> str:
        return ",".join(self.endpoints)

    @classmethod
    def of(cls, given: "Endpoints", token: str = "") -> "Access":
        """What a user gives: one endpoint, several, several in one string with commas; or an
        access as it is. ValueError without any, for one that is none, or for what is no token."""
        if token and not _TOKEN.fullmatch(token):
            raise ValueError("a token is 1 to 128 letters, digits and any of - . _ ~ + / =")
        if isinstance(given, Access):
            return replace(given, token=token) if token else given
        found = as_endpoints(given)
        if not found:
            raise ValueError("give at least one endpoint, as 127.0.0.1:9250")
        for each in found:
            split_endpoint(each)
        return cls(tuple(found), token)

    def to(self, *endpoints: str) -> "Access":
        """An access with these settings to other endpoints."""
        return replace(self, endpoints=endpoints)

    async def connect(self, endpoint: str, protocol: Callable[[], ProtocolT]) -> ProtocolT:
        """A connection in this asyncio loop; OSError: there is none."""
        host, port = split_endpoint(endpoint)
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(protocol, host, port))[1]

    def connect_blocking(self, endpoint: str, timeout_s: float) -> socket.socket:
        """A connection for who waits, at most so long each time; OSError: there is none."""
        found = socket.create_connection(split_endpoint(endpoint), timeout=timeout_s)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found


Endpoints = str | Sequence[str] | Access
"""What users may give: one endpoint, several, several in one string with commas, or an access."""
