"""HTTP/2 without TLS, as PolarStreams' clients speak it: requests in, whole answers out.

By the library h2, of the extra `polar`. One asyncio.Protocol for each connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

STREAMS_MAX = 4
"""Requests of one connection at a time. Each may have an answer in memory."""
BODY_BYTES_MAX = 64 * 1024
HEAD_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class H2Request:
    """A request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class H2Answer:
    """An answer; its length is always said."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    sent: Callable[[], None] | None = None
    """Called when all of it is on its way."""


class Caller(Protocol):
    """Who is at the other end of a connection, as those see it who answer."""

    async def answer(self, asked: H2Request) -> H2Answer:
        """A request's answer."""

    async def gone(self) -> None:
        """The connection is closed."""

    @property
    def welcome(self) -> bool:
        """Whether there is room for it."""


@dataclass(slots=True)
class _Stream:
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    left: bytes = b""
    """Of the answer's body, not sent yet."""
    sent: Callable[[], None] | None = None
    task: asyncio.Task[None] | None = None


class H2Protocol(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, caller: Caller, spawn: Callable[[Awaitable[Any]], Any]) -> None:

        self._caller, self._spawn = caller, spawn
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._streams: dict[int, _Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._reads = asyncio.Event()
        """The client takes what it is sent: who does not is answered nothing more."""
        self._reads.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._caller.welcome:
            transport.abort()
            return
        self._h2.local_settings.update(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEAD_BYTES_MAX,
            }
        )
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        try:
            found = self._h2.receive_data(data)
            for event in found:
                self._take(event)
        except ProtocolError:
            self._flush()
            self._close()
            return
        self._flush()

    def pause_writing(self) -> None:
        """asyncio's."""
        self._reads.clear()
        if self._transport is not None:
            self._transport.pause_reading()  # Who does not read is not read.

    def resume_writing(self) -> None:
        """asyncio's."""
        self._reads.set()
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's."""
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()
        self._streams.clear()
        self._transport = None
        self._spawn(self._caller.gone())

    def abort(self) -> None:
        """Ends it: somebody else has come in its place."""
        self._close()

    def _take(self, event: Any) -> None:
        if isinstance(event, events.RequestReceived):
            self._streams[event.stream_id] = _Stream(_texts(event.headers))
        elif isinstance(event, events.DataReceived):
            self._take_body(event)
        elif isinstance(event, events.StreamEnded):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.task = asyncio.ensure_future(self._answer(event.stream_id, stream))
        elif isinstance(event, events.StreamReset):
            stream = self._streams.pop(event.stream_id, None)
            if stream is not None and stream.task is not None:
                stream.task.cancel()
        elif isinstance(event, events.WindowUpdated):
            for number in list(self._streams) if event.stream_id == 0 else [event.stream_id]:
                self._send_on(number)
        elif isinstance(event, events.ConnectionTerminated):
            self._close()

    def _take_body(self, event: Any) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        stream.body += event.data
        if len(stream.body) > BODY_BYTES_MAX:
            del self._streams[event.stream_id]
            self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)

    async def _answer(self, number: int, stream: _Stream) -> None:
        head = stream.headers
        asked = H2Request(head.get(":method", ""), head.get(":path", ""), head, bytes(stream.body))
        await self._reads.wait()
        told = await self._caller.answer(asked)
        if self._streams.get(number) is not stream:
            return
        headers = [(":status", str(told.status)), ("content-length", str(len(told.body)))]
        if told.status == 204:
            headers.pop()
        ends = not told.body
        self._h2.send_headers(number, [*headers, *told.headers], end_stream=ends)
        if ends:
            del self._streams[number]
        else:
            stream.left, stream.sent = told.body, told.sent
            self._send_on(number)
        self._flush()

    def _send_on(self, number: int) -> None:
        """As much of an answer as the client has room for."""
        stream = self._streams.get(number)
        while stream is not None and stream.left:
            room = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            piece, stream.left = stream.left[:room], stream.left[room:]
            self._h2.send_data(number, piece, end_stream=not stream.left)
            if not stream.left:
                del self._streams[number]
                if stream.sent is not None:
                    stream.sent()

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _texts(headers: Any) -> dict[str, str]:
    """Of a field that comes again the last one counts."""
    return {str(name): str(value) for name, value in headers}
