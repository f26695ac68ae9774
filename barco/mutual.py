"""TLS between brokers, upon a connection that was greeted in plain: what this broker shows to the
others, and of whom it believes them (docs/tls.md, "Between brokers").

Who was called begins it, in the role of TLS's client. Both call the session by the name that the
greetings give it (`barco.protocol.door.name`), so that it is of no other connection.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from barco import limits
from barco._native import Seal, Seals
from barco.errors import ProtocolError
from barco.protocol import door

SCHEME = "barco:"
"""Of the URI in a broker's certificate."""

_HEAD_BYTES = 5
_KINDS = range(20, 24)
"""Of records: everything that TLS says, and no first byte of a frame of ours."""

_RECORD_BYTES_MAX = 16_640


Heir = TypeVar("Heir", bound=asyncio.BaseProtocol)


class Session(NamedTuple):
    """What both greetings have settled about the TLS that follows."""

    called: bool
    """Whether this end was called: it begins."""
    name: str
    ordinal: int
    """Of the broker at the other end, as it says."""


class Mutual:
    """What this broker shows, and whom it believes; another certificate counts for sessions that
    begin after `take`."""

    def __init__(self, cluster_uuid: str, told: Mapping[str, Any]) -> None:
        """told: texts in PEM (certificate, key, ca), `until`, seconds since 1970, and whether it is
        `required`; empty: brokers speak plain to one another. ValueError: what is wrong with
        them."""
        self._cluster_uuid = cluster_uuid
        self._told: Mapping[str, Any] = {}
        self._seals: Seals | None = None
        if told:
            self.take(told)

    def take(self, told: Mapping[str, Any]) -> None:
        """From now on this one is shown."""
        seals = Seals(told["certificate"].encode(), told["key"].encode(), told["ca"].encode())
        self._told, self._seals = told, seals

    @property
    def is_on(self) -> bool:
        """Whether there is a certificate to show."""
        return self._seals is not None

    @property
    def tls(self) -> door.Tls:
        """What the greetings of this broker say of it."""
        return bool(self._told.get("required", True)) if self.is_on else None

    @property
    def until_s(self) -> int:
        """When the certificate ends, in seconds since 1970; 0: there is none."""
        return int(self._told.get("until", 0))

    def believe(self, found: str, ordinal: int) -> None:
        """ProtocolError unless that is what the certificate of this broker says."""
        wanted = f"{SCHEME}{self._cluster_uuid}/{ordinal}"
        if found != wanted:
            raise ProtocolError(
                f"it says that it is broker {ordinal}, and its certificate is that of"
                f" {found[:200]!r}: it has to have the URI {wanted} (barco certs issue {ordinal})"
            )

    async def shake(self, end: socket.socket, session: Session) -> Seal:
        """On a socket, of which not a byte is read that is not of the handshake. ProtocolError: it
        has not come to a good end, and nothing the other end has said is believed."""
        assert self._seals is not None, "only where it is on"
        loop = asyncio.get_running_loop()
        seal = self._seals.begin(session.called, session.name.encode())
        heard = 0
        try:
            unsent = seal.shake(b"")
            while not seal.done:
                await loop.sock_sendall(end, unsent)
                record = await _record(end)
                heard += len(record)
                if heard > limits.MUTUAL_HANDSHAKE_BYTES_MAX:
                    raise ProtocolError("its handshake has no end")
                unsent = seal.shake(record)
        except ValueError as error:
            with contextlib.suppress(OSError):
                await loop.sock_sendall(end, seal.unsent())
            raise ProtocolError(str(error)) from None
        # Before its last word: who was called and does not believe lets the caller know.
        self.believe(seal.identity, session.ordinal)
        await loop.sock_sendall(end, unsent)
        return seal

    async def transport(self, end: socket.socket, session: Session) -> asyncio.Transport:
        """A session by asyncio, which has the socket from now on; nothing is read until `give`.
        ProtocolError as of `shake`."""
        loop = asyncio.get_running_loop()
        context = self._context(session)
        own = socket.socket(fileno=end.detach())
        own.setblocking(False)
        seconds = limits.TLS_HANDSHAKE_SECONDS
        try:
            if session.called:
                transport, _ = await loop.create_connection(
                    _Gate, sock=own, ssl=context, server_hostname="", ssl_handshake_timeout=seconds
                )
            else:  # asyncio's word for the server's role: it takes any socket.
                transport, _ = await loop.connect_accepted_socket(
                    _Gate, own, ssl=context, ssl_handshake_timeout=seconds
                )
        except ssl.SSLError as error:
            raise ProtocolError(_words(error)) from None
        self._look(transport, session)
        return transport

    async def streams(
        self, writer: asyncio.StreamWriter, session: Session, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A session for streams; those that there were are not used any more. ProtocolError as of
        `shake`."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        protocol = _Streams(reader, writer)
        try:
            transport = await loop.start_tls(
                writer.transport,
                protocol,
                self._context(session),
                server_side=not session.called,
                ssl_handshake_timeout=limits.TLS_HANDSHAKE_SECONDS,
            )
        except ssl.SSLError as error:
            raise ProtocolError(_words(error)) from None
        if transport is None:
            raise ConnectionResetError("it went during the handshake")
        self._look(transport, session)
        protocol.connection_made(transport)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _look(self, transport: asyncio.BaseTransport, session: Session) -> None:
        shown = transport.get_extra_info("ssl_object")
        try:
            if shown.selected_alpn_protocol() != session.name:
                raise ProtocolError("the other end was greeted otherwise")
            self.believe(_identity(shown.getpeercert() or {}), session.ordinal)
        except ProtocolError:
            transport.abort()  # type: ignore[attr-defined]
            raise

    def _context(self, session: Session) -> ssl.SSLContext:
        """Of one session: its name stands there."""
        role = ssl.PROTOCOL_TLS_CLIENT if session.called else ssl.PROTOCOL_TLS_SERVER
        context = ssl.SSLContext(role)
        context.check_hostname = False  # Who it is says another name: `believe`.
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self._told["ca"])
        context.set_alpn_protocols([session.name])
        if not session.called:
            context.num_tickets = 0
        with _file(self._told["certificate"] + self._told["key"]) as path:
            context.load_cert_chain(path)
        return context


def give(transport: asyncio.Transport, make: Callable[[], Heir]) -> Heir:
    """Whose transport it is from now on. ConnectionError: it has ended meanwhile."""
    if transport.is_closing():
        raise ConnectionResetError("it went after the handshake")
    transport.set_write_buffer_limits(limits.MUTUAL_WRITE_BYTES_MAX)
    heir = make()
    transport.set_protocol(heir)
    heir.connection_made(transport)
    transport.resume_reading()
    return heir


def tried(certificate: str, key: str, ca: str) -> str:
    """The URI of a broker's certificate, after a handshake with oneself in both roles.

    ValueError: why other brokers would not believe it.
    """
    seals = Seals(certificate.encode(), key.encode(), ca.encode())
    server, client = seals.begin(False, b"oneself"), seals.begin(True, b"oneself")
    said = client.shake(b"")
    for end in (server, client, server):
        said = b"".join([end.shake(record) for record in _records(said)])
    assert server.done and client.done, "it failed, or it is done"
    return client.identity


class _Gate(asyncio.Protocol):
    """Lets nothing in before it is known who it is: none of ours says anything before it has heard
    the last word of the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # That word goes out with the read that follows, which a pause would keep from happening.
        asyncio.get_running_loop().call_soon(transport.pause_reading)

    def data_received(self, data: bytes) -> None:
        self._transport.abort()


class _Streams(asyncio.StreamReaderProtocol):
    """Keeps the writer that there was: with its end it would end the connection."""

    def __init__(self, reader: asyncio.StreamReader, before: asyncio.StreamWriter) -> None:
        super().__init__(reader)
        self._before = before


def _identity(shown: Mapping[str, Any]) -> str:
    """The one URI of ours in a certificate as Python has it; "": there is none, or more."""
    names = [text for kind, text in shown.get("subjectAltName", ()) if kind == "URI"]
    ours = [text for text in names if text.startswith(SCHEME)]
    return str(ours[0]) if len(ours) == 1 else ""


def _words(error: ssl.SSLError) -> str:
    verdict = getattr(error, "verify_message", "") or (error.reason or "no reason").lower()
    return f"the other end and this one do not come to terms on TLS: {verdict.replace('_', ' ')}"


async def _record(end: socket.socket) -> bytes:
    """The next one, and not a byte beyond it."""
    head = await _exactly(end, _HEAD_BYTES)
    size = int.from_bytes(head[3:])
    if head[0] not in _KINDS or size > _RECORD_BYTES_MAX:
        raise ProtocolError("it does not speak TLS, and brokers of this cluster do")
    return head + await _exactly(end, size)


async def _exactly(end: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    got = b""
    while len(got) < size:
        piece = await loop.sock_recv(end, size - len(got))
        if not piece:
            raise ProtocolError("the connection ended within a handshake")
        got += piece
    return got


def _records(said: bytes) -> Iterator[bytes]:
    """What one end has said, as the other would hear it."""
    while said:
        size = _HEAD_BYTES + int.from_bytes(said[3:_HEAD_BYTES])
        yield said[:size]
        said = said[size:]


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """A path for who reads nothing but files; nobody else sees what is there."""
    fd = os.memfd_create("barco", os.MFD_CLOEXEC)
    try:
        with open(fd, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
