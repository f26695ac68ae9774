"""Frames of a replication connection, after its hello.

    u32 bytes of the message | u32 bytes of the group behind it | message (msgpack map) | group

Both lengths are checked before anything is allocated.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from barco.errors import ProtocolError
from barco.types import KiB

MESSAGE_BYTES_MAX = 64 * KiB
"""The largest is a decided successor with two children: about 1 KiB."""

HEAD = struct.Struct("<II")


def encode(message: Mapping[str, Any], group_bytes: int = 0) -> bytes:
    """The head of a frame and its message; the group, if any, is to follow at once."""
    body: bytes = msgpack.packb(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a message of {len(body)} bytes is too large")
    return HEAD.pack(len(body), group_bytes) + body


_TEXT = {str}


def _refuse_ext(code: int, data: bytes) -> None:
    raise ProtocolError(f"frame holds extension type {code}")


def decode(body: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The message of a frame."""
    try:
        message = msgpack.unpackb(body, ext_hook=_refuse_ext)
    except ProtocolError:
        raise
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"frame is not msgpack: {error}") from None
    if not isinstance(message, dict) or not {*map(type, message)} <= _TEXT:
        raise ProtocolError("frame is not a map with names")
    return message


class Frames:
    """Frames out of a stream that arrives in pieces. Groups land in memory of their own size."""

    def __init__(
        self, received: Callable[[dict[str, Any], bytearray | None], None], group_bytes_max: int
    ) -> None:
        """`received`: takes each message with its group, if one came along; may raise."""
        self._received = received
        self._group_max = group_bytes_max
        self._buffer = bytearray(MESSAGE_BYTES_MAX + HEAD.size)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._message: dict[str, Any] | None = None
        self._group = bytearray()
        self._group_filled = 0

    def room(self) -> memoryview:
        """Where the next bytes are to be put."""
        if self._message is not None:
            return memoryview(self._group)[self._group_filled :]
        return self._view[self._filled :]

    def filled(self, count: int) -> None:
        """So many bytes were put there."""
        if self._message is not None:
            self._group_filled += count
            self._finish_group()
            return
        self._filled += count
        start = 0
        while (end := self._take(start)) > start:
            start = end
        if start:
            rest = self._filled - start
            self._buffer[:rest] = self._buffer[start : self._filled]
            self._filled = rest

    def _take(self, start: int) -> int:
        """Where the frame that begins at `start` ends, if it is complete; else `start`."""
        if self._filled - start < HEAD.size:
            return start
        length: int
        group: int
        length, group = HEAD.unpack_from(self._buffer, start)
        if not 0 < length <= MESSAGE_BYTES_MAX or group > self._group_max:
            raise ProtocolError(f"a frame of {length} and {group} bytes is not ours")
        body, end = start + HEAD.size, start + HEAD.size + length
        if self._filled < end:
            return start
        message = decode(self._view[body:end])
        if not group:
            self._received(message, None)
            return end
        if end + group <= self._filled:
            self._received(message, self._buffer[end : end + group])
            return end + group
        self._message, self._group = message, bytearray(group)
        self._group_filled = min(group, self._filled - end)
        self._group[: self._group_filled] = self._buffer[end : end + self._group_filled]
        end += self._group_filled
        self._finish_group()
        return end

    def _finish_group(self) -> None:
        if self._group_filled == len(self._group) and self._message is not None:
            message, group = self._message, self._group
            self._message, self._group, self._group_filled = None, bytearray(), 0
            self._received(message, group)
