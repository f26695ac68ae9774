"""Frames between workers: a u32 length (little-endian) and a msgpack map with an id.

Lengths are checked before anything is allocated, and what a frame unpacks to is bounded: empty
lists and maps take one byte here and sixty in memory.

Chunks that the log has lent stand behind the map where the other end says that it takes them so:
then the length has its highest bit set, and what it counts begins with the length of the map. In
the map is the size of each, in their order. So nobody copies them but the kernel.
"""

import asyncio
import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from barco import limits
from barco._native import Lent, send_parts
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

_BESIDE = 1 << 31
"""Of a length: there are chunks behind the map."""

_PART = 1
"""The type of what stands for them in it: their size."""

_PART_OBJECTS = 4
"""As much memory as so many others, beside the bytes."""

_seldom = Seldom(logging.getLogger("barco.rpc"))


class _Counting:
    """Counts what a frame unpacks to, while it does, and gives out what stands behind the map."""

    def __init__(self, most: int, beside: memoryview, *, own: bool) -> None:
        """own: the frame has memory of its own, of which others may have parts."""
        self.count = 0
        self._most = most
        self.beside = beside
        self._own = own

    def add(self, container: Any) -> Any:
        """A list or a map with all its elements."""
        self._count(1 + len(container))
        return container

    def part(self, code: int, data: bytes) -> bytes | memoryview:
        """The next chunks behind the map."""
        if code != _PART or len(data) != _LENGTH.size:
            raise ProtocolError(f"frame holds extension type {code}")
        (size,) = _LENGTH.unpack(data)
        if not 1 <= size <= len(self.beside):
            raise ProtocolError(f"a frame says {size} bytes more, and has {len(self.beside)}")
        self._count(_PART_OBJECTS)
        found, self.beside = self.beside[:size], self.beside[size:]
        return found if self._own else bytes(found)

    def _count(self, things: int) -> None:
        self.count += things
        if self.count > self._most:
            raise ProtocolError(f"a frame holds more than {self._most} things")


def unpack(
    body: memoryview, objects_max: int = OBJECTS_MAX, *, beside: bool = False, own: bool = False
) -> tuple[dict[str, Any], int]:
    """The message, and about how many bytes of memory it takes. ProtocolError if it is none.

    beside: there are chunks behind the map. own: its memory is no other frame's later on.
    """
    packed, rest = _split(body) if beside else (body, body[:0])
    counting = _Counting(objects_max, rest, own=own)
    try:
        message = msgpack.unpackb(
            packed,
            strict_map_key=False,
            ext_hook=counting.part,
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
    if len(counting.beside):
        raise ProtocolError("a frame has bytes of which its map says nothing")
    return message, len(body) + OBJECT_BYTES * counting.count


def _split(body: memoryview) -> tuple[memoryview, memoryview]:
    """The map, and what stands behind it."""
    size = _LENGTH.unpack_from(body)[0] if len(body) > _LENGTH.size else 0
    end = _LENGTH.size + size
    if not _LENGTH.size < end <= len(body):
        raise ProtocolError("a frame has no map")
    return body[_LENGTH.size : end], body[end:]


def _unsent(parts: Sequence[bytes | Lent], sent: int) -> bytes:
    """What is left of these after so many bytes."""
    left = []
    for part in parts:
        left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return b"".join(left)


class _Lending:
    """What the packer does not know: chunks that the log has lent. No part of the connection: as
    the packer has it, that would live, with a large frame, until somebody looks for cycles."""

    def __init__(self) -> None:
        self.beside: list[Lent] | None = None
        """Chunks of the message that is being packed, where they stand behind it."""

    def pack(self, value: object) -> memoryview | msgpack.ExtType:
        """In place of what is no plain value."""
        if not isinstance(value, Lent):
            raise TypeError(f"{type(value).__name__} is no plain value")
        if self.beside is None:
            return memoryview(value)
        self.beside.append(value)
        return msgpack.ExtType(_PART, _LENGTH.pack(len(value)))


class Frames(asyncio.BufferedProtocol, ABC):
    """Frames of one connection. Not streams: those cost two more turns of the loop per frame.

    Small frames are taken from one buffer; a large one is received into memory of its own size.
    """

    def __init__(self, bytes_max: int, objects_max: int = OBJECTS_MAX) -> None:
        self._bytes_max = bytes_max
        self._objects_max = objects_max
        self._buffer = bytearray(SMALL_BYTES)
        self._filled = 0
        self._lending = _Lending()
        self._packer = self._new_packer()
        self._large: bytearray | None = None
        self._large_beside = False
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

    def _new_packer(self) -> msgpack.Packer:
        return msgpack.Packer(buf_size=SMALL_BYTES, default=self._lending.pack)

    def send(self, message: Mapping[str, Any], *, beside: bool = False) -> int:
        """Queue one message; it goes nowhere if the connection is gone. Its size, in bytes.

        beside: the other end takes chunks behind the map.
        """
        if self._transport is None or self.closed:
            return 0
        self._lending.beside = [] if beside else None
        body = self._packer.pack(message)
        chunks, self._lending.beside = self._lending.beside, None
        if len(body) > 16 * SMALL_BYTES:
            self._packer = self._new_packer()  # It keeps what it grew to.
        if chunks:
            return self._send_beside(body, chunks)
        if len(body) < SMALL_BYTES:
            self._transport.write(_LENGTH.pack(len(body)) + body)
        else:
            self._transport.write(_LENGTH.pack(len(body)))
            self._transport.write(body)
        return len(body)

    def _send_beside(self, body: bytes, chunks: Sequence[Lent]) -> int:
        transport = self._transport
        assert transport is not None, "it was looked at"
        size = _LENGTH.size + len(body) + sum(map(len, chunks))
        head = _LENGTH.pack(_BESIDE | size) + _LENGTH.pack(len(body)) + body
        parts: list[bytes | Lent] = [head, *chunks]
        sent = 0
        plain = transport.get_extra_info("sslcontext") is None
        if plain and not transport.is_closing() and not transport.get_write_buffer_size():
            try:
                sent = send_parts(transport.get_extra_info("socket").fileno(), parts)
            except OSError:
                pass  # The transport meets it as well.
        if sent < _LENGTH.size + size:
            transport.write(_unsent(parts, sent))
        return size

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
                self._take(memoryview(body), self._large_beside, own=True)
        except ProtocolError as error:
            _seldom.error("closing a sibling's connection: %s", error)
            self.close()

    def _take(self, body: memoryview, beside: bool, *, own: bool) -> None:
        self.received(*unpack(body, self._objects_max, beside=beside, own=own))

    def _take_frames(self) -> None:
        start = taken = 0
        while self._filled - start >= _LENGTH.size:
            if taken == FRAMES_AT_ONCE:
                self._let_turn()
                break
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            beside, length = bool(length & _BESIDE), length & ~_BESIDE
            if not 1 <= length <= self._bytes_max:
                raise ProtocolError(f"frame length {length} is not between 1 and {self._bytes_max}")
            body, end = start + _LENGTH.size, start + _LENGTH.size + length
            if self._filled < end:
                if _LENGTH.size + length > SMALL_BYTES:
                    if not self.may_begin(length):
                        self.hold_back()
                        break
                    self._large, self._large_beside = bytearray(length), beside
                    seconds = limits.FRAME_SECONDS_MAX + length / FRAME_BYTES_A_SECOND
                    self._slow = asyncio.get_running_loop().call_later(seconds, self.close)
                    self._large_filled = self._filled - body
                    self._large[: self._large_filled] = self._buffer[body : self._filled]
                    start = self._filled
                break
            frame = memoryview(self._buffer)[body:end]
            start, taken = end, taken + 1
            self._take(frame, beside, own=False)
        self._buffer[: self._filled - start] = self._buffer[start : self._filled]
        self._filled -= start
