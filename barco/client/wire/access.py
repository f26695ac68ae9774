"""How a client reaches brokers: the one place of the library that opens a connection.

Whoever makes connections is given an `Access`, and hands it on to what it asks on the way: a
setting of all connections of a program, such as TLS, is a field here and nothing elsewhere.
"""

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from barco.client.base.names import as_endpoints
from barco.client.wire.http1 import split_endpoint

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,128}", re.ASCII)

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

HTTPS, HTTP = "https://", "http://"

TOKEN_FILE_BYTES_MAX = 4096


def read_token(path: str) -> str:
    """The token that a file has. ValueError: it has none; OSError: it can not be read."""
    with open(path, encoding="latin-1") as file:
        return checked_token(file.read(TOKEN_FILE_BYTES_MAX).strip())


def checked_token(text: str) -> str:
    """The token that a text is; ValueError, which does not repeat it: it is none."""
    if not _TOKEN.fullmatch(text):
        raise ValueError("a token is 1 to 128 letters, digits and any of - . _ ~ + / =")
    return text


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are sealed, and whom they trust. A value."""

    ca: str = ""
    """Certificates in PEM; empty: those that the system trusts."""
    certificate: str = ""
    """Path of a file with the client's own certificate, and its chain; and of its key."""
    key: str = ""
    checked: bool = True
    """False: whoever answers is taken for whom was meant. For a question that shows nothing, and
    whose answer is only a reason to stop."""

    def context(self) -> ssl.SSLContext:
        """As Python's ssl takes it; OSError: a file can not be used."""
        return _context(self)


@functools.lru_cache(maxsize=16)
def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=tls.ca or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.checked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key or None)
    return context


@dataclass(frozen=True, slots=True)
class Access:
    """Some endpoints, and how connections to them and to all that they name are made. A value:
    Spark sends it to its tasks."""

    endpoints: tuple[str, ...]
    token: str = field(default="", repr=False)
    """Shown with each request; empty: none is."""
    tls: Tls | None = None
    """None: connections are not sealed."""

    @classmethod
    def of(
        cls,
        given: "Endpoints",
        token: str = "",
        *,
        ca: str | Path = "",
        certificate: str = "",
        key: str = "",
    ) -> "Access":
        """What a user gives: one endpoint, several, several in one string with commas; or an
        access as it is. ValueError without any, for one that is none, or for what is no token.

        With TLS endpoints are https://HOST:PORT. ca: path of a file in PEM of whom to trust; else
        whom the system trusts. certificate, key: paths, where brokers ask for one.
        """
        token = token and checked_token(token)
        if isinstance(given, Access):
            return replace(given, token=token) if token else given
        found = as_endpoints(given)
        if not found:
            raise ValueError("give at least one endpoint, as 127.0.0.1:9250")
        sealed = {each.startswith(HTTPS) for each in found}
        names = [each.removeprefix(HTTPS).removeprefix(HTTP).rstrip("/") for each in found]
        for each in names:
            split_endpoint(each)
        if len(sealed) > 1:
            raise ValueError("endpoints are all https://HOST:PORT, or none is")
        if not sealed.pop():
            if ca or certificate or key:
                raise ValueError("a CA or a certificate is for https://HOST:PORT")
            return cls(tuple(names), token)
        trusted = Path(ca).read_text("ascii") if ca else ""
        return cls(tuple(names), token, Tls(trusted, certificate=certificate, key=key))

    def __str__(self) -> str:
        """As a user gives them."""
        return ",".join((HTTPS if self.tls else "") + each for each in self.endpoints)

    def to(self, *endpoints: str) -> "Access":
        """An access with these settings to other endpoints."""
        return replace(self, endpoints=endpoints)

    async def connect(self, endpoint: str, protocol: Callable[[], ProtocolT]) -> ProtocolT:
        """A connection in this asyncio loop; OSError: there is none."""
        host, port = split_endpoint(endpoint)
        loop = asyncio.get_running_loop()
        if self.tls is None:
            return (await loop.create_connection(protocol, host, port))[1]
        context = self.tls.context()
        return (await loop.create_connection(protocol, host, port, ssl=context))[1]

    def connect_blocking(self, endpoint: str, timeout_s: float) -> socket.socket:
        """A connection for who waits, at most so long each time; OSError: there is none."""
        host, port = split_endpoint(endpoint)
        found = socket.create_connection((host, port), timeout=timeout_s)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return found
        try:
            return self.tls.context().wrap_socket(found, server_hostname=host)
        except BaseException:
            found.close()
            raise


Endpoints = str | Sequence[str] | Access
"""What users may give: one endpoint, several, several in one string with commas, or an access."""
