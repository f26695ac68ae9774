"""Frames between workers: a u32 length (little-endian) and a msgpack map with an id.

Lengths are checked before anything is allocated, and what a frame unpacks to is bounded: empty
lists and maps take one byte here and sixty in memory.
"""

import asyncio
import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgpack

from barco import limits
from barco._native import Lent
from barco.errors import ProtocolError
from barco.log import Seldom

SMALL_BYTES = 64 * 1024
"""Requests and most answers fit; events come in larger ones."""

FRAME_BYTES_A_SECOND = 64 * 1024
"""A large frame that comes more slowly than this ends its connection."""

FRAMES_AT_ONCE = 4
"""Each is a request to answer, or an answer that somebody goes on with: a fifth of a millisecond or
two. Then the loop turns; a read brings hundreds, and produce would wait for all of them."""

OBJECTS_MAX = 2**22
"""In one frame: the settings of all topics that there may be are a third of it."""

OBJECT_BYTES = 64
"""What one takes, about."""

_LENGTH = struct.Struct("<I")
_seldom = Seldom(logging.getLogger("barco.rpc"))


def _refuse_ext(code: int, data: bytes) -> None:
    raise ProtocolError(f"frame holds extension type {code}")


def _as_bytes(value: object) -> memoryview:
    """What the packer does not know: chunks that the log has lent."""
    if isinstance(value, Lent):
        return memoryview(value)
    raise TypeError(f"{type(value).__name__} is no plain value")


class _Counting:
    """Counts what a frame unpacks to, while it does."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self._most = most

    def add(self, container: Any) -> Any:
        """A list or a map with all its elements."""
        self.count += 1 + len(container)
        if self.count > self._most:
            raise ProtocolError(f"a frame holds more than {self._most} things")
        return container


def unpack(body: memoryview, objects_max: int = OBJECTS_MAX) -> tuple[dict[str, Any], int]:
    """The message, and about how many bytes of memory it takes. ProtocolError if it is none."""
    counting = _Counting(objects_max)
    try:
        message = msgpack.unpackb(
            body,
            strict_map_key=False,
            ext_hook=_refuse_ext,
            list_hook=counting.add,
            object_hook=counting.add,
            max_array_len=objects_max,
            max_map_len=objects_max,
        )
    except ProtocolError:
        raise
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"frame is not msgpack: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int):
        raise ProtocolError("frame is not a map with an id")
    return message, len(body) + OBJECT_BYTES * counting.count


class Frames(asyncio.BufferedProtocol, ABC):
    """Frames of one connection. Not streams: those cost two more turns of the loop per frame.

    Small frames are taken from one buffer; a large one is received into memory of its own size.
    """

    def __init__(self, bytes_max: int, objects_max: int = OBJECTS_MAX) -> None:
        self._bytes_max = bytes_max
        self._objects_max = objects_max
        self._buffer = bytearray(SMALL_BYTES)
        self._filled = 0
        self._packer = msgpack.Packer(buf_size=SMALL_BYTES, default=_as_bytes)
        self._large: bytearray | None = None
        self._slow: asyncio.TimerHandle | None = None
        self._large_filled = 0
        self._paced = False
        self._transport: asyncio.Transport | None = None
        self._unwanted = False
        """Closed, perhaps before it was made."""
        self.closed = False

    @abstractmethod
    def received(self, message: dict[str, Any], size: int) -> None:
        """Take one message, and what it takes in memory; a ProtocolError closes the connection."""

    def may_begin(self, size: int) -> bool:
        """Whether a large frame may take its memory now; else nothing is read until `go_on`."""
        return True

    def hold_back(self) -> None:
        """Read nothing more for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again, and what has been read already."""
        if self._transport is not None and not self.closed and not self._paced:
            self._transport.resume_reading()
            self.buffer_updated(0)

    def _let_turn(self) -> None:
        """Goes on in the next turn of the loop."""
        self._paced = True
        self.hold_back()
        asyncio.get_running_loop().call_soon(self._turned)

    def _turned(self) -> None:
        self._paced = False
        self.go_on()

    @abstractmethod
    def lost(self) -> None:
        """The connection is gone."""

    def send(self, message: Mapping[str, Any]) -> int:
        """Queue one message; it goes nowhere if the connection is gone. Its size, in bytes."""
        if self._transport is None or self.closed:
            return 0
        body = self._packer.pack(message)
        if len(body) > 16 * SMALL_BYTES:
            self._packer = msgpack.Packer(
                buf_size=SMALL_BYTES, default=_as_bytes
            )  # It keeps what it grew to.
        if len(body) < SMALL_BYTES:
            self._transport.write(_LENGTH.pack(len(body)) + body)
        else:
            self._transport.write(_LENGTH.pack(len(body)))
            self._transport.write(body)
        return len(body)

    def close(self) -> None:
        """At once; what is queued is dropped."""
        self._unwanted = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._unwanted:
            self.close()

    def _on_time(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_time()
        if not self.closed:
            self.closed = True
            self.lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._large_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._large is None:
                self._filled += nbytes
                self._take_frames()
                return
            self._large_filled += nbytes
            if self._large_filled == len(self._large):
                body, self._large = self._large, None
                self._on_time()
                self.received(*unpack(memoryview(body), self._objects_max))
        except ProtocolError as error:
            _seldom.error("closing a sibling's connection: %s", error)
            self.close()

    def _take_frames(self) -> None:
        start = taken = 0
        while self._filled - start >= _LENGTH.size:
            if taken == FRAMES_AT_ONCE:
                self._let_turn()
                break
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if not 1 <= length <= self._bytes_max:
                raise ProtocolError(f"frame length {length} is not between 1 and {self._bytes_max}")
            body, end = start + _LENGTH.size, start + _LENGTH.size + length
            if self._filled < end:
                if _LENGTH.size + length > SMALL_BYTES:
                    if not self.may_begin(length):
                        self.hold_back()
                        break
                    self._large = bytearray(length)
                    seconds = limits.FRAME_SECONDS_MAX + length / FRAME_BYTES_A_SECOND
                    self._slow = asyncio.get_running_loop().call_later(seconds, self.close)
                    self._large_filled = self._filled - body
                    self._large[: self._large_filled] = self._buffer[body : self._filled]
                    start = self._filled
                break
            message, size = unpack(memoryview(self._buffer)[body:end], self._objects_max)
            start, taken = end, taken + 1
            self.received(message, size)
        self._buffer[: self._filled - start] = self._buffer[start : self._filled]
        self._filled -= start
