"""The frames of PolarStreams' binary port as bytes: heads, and what a produce says. Big-endian."""

import struct
import zlib
from dataclasses import dataclass

from barco.types import MiB

VERSION = 1
WITH_TIMESTAMP = 1

STARTUP, READY, ERROR, PRODUCE, PRODUCED, HEARTBEAT = range(1, 7)
"""What a frame is."""

SERVER, ROUTING, NO_LEADER = range(3)
"""Kinds of errors."""

BODY_BYTES_MAX = 16 * MiB
"""As much as a broker takes at once, unless it was told otherwise."""

_HEAD = struct.Struct(">BBHBI")
"""Version, flags, stream, what it is, bytes of the body."""
_WORD = struct.Struct(">I")
"""A length; behind a head the CRC-32 of it."""
_TIME = struct.Struct(">q")

HEAD_BYTES = _HEAD.size + _WORD.size


class FrameError(ValueError):
    """What came is no frame: nothing behind it can be understood."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before a body."""

    flags: int
    stream: int
    what: int
    body_bytes: int

    @classmethod
    def read(cls, head: bytes) -> "Head":
        """Of HEAD_BYTES; FrameError: it is none, or its body is too long."""
        version, flags, stream, what, body_bytes = _HEAD.unpack_from(head)
        if version != VERSION:
            raise FrameError(f"version {version} of the frames is not known")
        if _WORD.unpack_from(head, _HEAD.size)[0] != zlib.crc32(head[: _HEAD.size]):
            raise FrameError("the checksum of a head is wrong")
        if body_bytes > BODY_BYTES_MAX:
            raise FrameError(f"a body of {body_bytes} bytes is over {BODY_BYTES_MAX}")
        return cls(flags, stream, what, body_bytes)


def frame(what: int, stream: int, body: bytes = b"", flags: int = 0) -> bytes:
    """A whole one."""
    head = _HEAD.pack(VERSION, flags, stream, what, len(body))
    return head + _WORD.pack(zlib.crc32(head)) + body


def failure(stream: int, kind: int, words: str) -> bytes:
    """An ERROR."""
    return frame(ERROR, stream, bytes([kind]) + words.encode())


@dataclass(frozen=True, slots=True)
class Produced:
    """What is to be stored: events of one topic and key."""

    topic: str
    key: bytes
    """Empty: they have none."""
    values: list[bytes]
    timestamp_us: int | None = None

    @classmethod
    def read(cls, flags: int, body: bytes) -> "Produced":
        """FrameError: a length leads out of the body, or there is no event."""
        timestamp_us, at = None, 0
        if flags & WITH_TIMESTAMP:
            if len(body) < _TIME.size:
                raise FrameError("a body ends in its timestamp")
            (timestamp_us,) = _TIME.unpack_from(body)
            at = _TIME.size
        key, at = _short(body, at)
        topic, at = _short(body, at)
        values = []
        while at < len(body):
            if at + _WORD.size > len(body):
                raise FrameError("a body ends in the length of an event")
            end = at + _WORD.size + _WORD.unpack_from(body, at)[0]
            if end > len(body):
                raise FrameError("an event is longer than its frame")
            values.append(body[at + _WORD.size : end])
            at = end
        if not values:
            raise FrameError("there is no event in a frame")
        return cls(topic.decode("ascii", "replace"), key, values, timestamp_us)

    def body(self) -> tuple[int, bytes]:
        """Flags and bytes: the opposite of `read`."""
        parts = [] if self.timestamp_us is None else [_TIME.pack(self.timestamp_us)]
        for text in (self.key, self.topic.encode()):
            parts += [bytes([len(text)]), text]
        for value in self.values:
            parts += [_WORD.pack(len(value)), value]
        return (0 if self.timestamp_us is None else WITH_TIMESTAMP), b"".join(parts)


def _short(body: bytes, at: int) -> tuple[bytes, int]:
    """A text with its length in one byte, and where it ends."""
    if at >= len(body) or at + 1 + body[at] > len(body):
        raise FrameError("a key or a topic is longer than its frame")
    end = at + 1 + body[at]
    return body[at + 1 : end], end
