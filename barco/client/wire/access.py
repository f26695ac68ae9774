"""How a client reaches brokers: the one place of the library that opens a connection.

Whoever makes connections is given an `Access`, and hands it on to what it asks on the way: a
setting of all connections of a program, such as TLS, is a field here and nothing elsewhere.
"""

import asyncio
import functools
import re
import socket
import ssl
import tempfile
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
    own: str = field(default="", repr=False)
    """The client's own certificate in PEM, its chain and its key, where brokers ask for one."""
    checked: bool = True
    """False: whoever answers is taken for whom was meant. For a question that shows nothing, and
    whose answer is only a reason to stop."""

    def context(self) -> ssl.SSLContext:
        """As Python's ssl takes it. OSError, ValueError: what is in the files can not be used."""
        return _context(self)


@functools.lru_cache(maxsize=16)
def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=tls.ca or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.checked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if tls.own:
        _show(context, tls.own)
    return context


def _show(context: ssl.SSLContext, own: str) -> None:
    # Python's ssl reads files alone. This one is nobody else's, and goes at once.
    with tempfile.NamedTemporaryFile("w", encoding="latin-1") as file:
        file.write(own)
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key has a passphrase: nobody is there to type it")


def own_in(certificate: str | Path, key: str | Path = "") -> str:
    """A client's own certificate with its key. Without `key` that is in the same file, or in one
    beside it with .key at the end. OSError: one can not be read."""
    if not certificate:
        return ""
    path = Path(certificate)
    text = path.read_text("latin-1")
    if not key and "PRIVATE KEY-----" not in text:
        key = path.with_suffix(".key")
    return text + ("\n" + Path(key).read_text("latin-1") if key else "")


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
        certificate: str | Path = "",
        key: str | Path = "",
    ) -> "Access":
        """What a user gives: one endpoint, several, several in one string with commas; or an
        access as it is. ValueError without any, for one that is none, or for what is no token.

        With TLS endpoints are https://HOST:PORT. ca: path of a file in PEM of whom to trust; else
        whom the system trusts. certificate, key: paths, where brokers ask for one; without a key
        it is in the same file, or beside it with .key at the end. OSError: one can not be read.
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
        return cls(tuple(names), token, Tls(trusted, own_in(certificate, key)))

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
