"""Frames between the processes of a broker: u32 little-endian length, then one msgpack map.

The length is checked before anything is allocated. The body is data only: maps with string keys,
lists, text, bytes, numbers; at most eight deep; no extension types. What breaks these rules is a
`ProtocolError`, and the connection that carried it is closed.
"""

import struct
from collections.abc import Mapping
from typing import Any, Protocol

import msgpack

from barco.errors import ProtocolError
from barco.limits import FRAME_BYTES_MAX, FRAME_DEPTH_MAX

Message = dict[str, Any]

LENGTH = struct.Struct("<I")


class Readable(Protocol):
    """A blocking binary stream: a file, or `socket.makefile("rb")`."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end."""


class AsyncReadable(Protocol):
    """What is used of `asyncio.StreamReader`."""

    async def readexactly(self, n: int, /) -> bytes:
        """Exactly `n` bytes, or an EOFError with what there was in `partial`."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame. A message that no decoder would take is refused here, at its author."""
    _check(dict(message))
    body: bytes = msgpack.packb(message, use_bin_type=True)
    if len(body) > FRAME_BYTES_MAX:
        raise ProtocolError(f"frame of {len(body)} bytes is over the limit of {FRAME_BYTES_MAX}")
    return LENGTH.pack(len(body)) + body


def decode(body: bytes | bytearray | memoryview) -> Message:
    """The message in one frame's body (without its length)."""
    try:
        message = msgpack.unpackb(body, raw=False, strict_map_key=True, ext_hook=_refuse_ext)
    except ProtocolError:
        raise
    except (ValueError, msgpack.UnpackException) as error:
        # ExtraData, StackError, FormatError and UnicodeDecodeError are all ValueErrors.
        raise ProtocolError(f"frame is not msgpack: {str(error) or type(error).__name__}") from None
    if not isinstance(message, dict):
        raise ProtocolError(f"frame holds a {type(message).__name__}, not a map")
    _check(message)
    return message


def read(stream: Readable) -> Message | None:
    """The next message of a blocking stream; None at its end."""
    head = stream.read(LENGTH.size)
    if not head:
        return None
    if len(head) < LENGTH.size:
        raise ProtocolError("stream ended within a frame's length")
    (length,) = LENGTH.unpack(head)
    _check_length(length)
    body = stream.read(length)
    if len(body) < length:
        raise ProtocolError(f"stream ended after {len(body)} of a frame's {length} bytes")
    return decode(body)


async def read_async(reader: AsyncReadable, bytes_max: int = FRAME_BYTES_MAX) -> Message | None:
    """The next message of an asyncio stream; None at its end."""
    return (await read_whole(reader, bytes_max))[0]


async def read_whole(
    reader: AsyncReadable, bytes_max: int = FRAME_BYTES_MAX
) -> tuple[Message | None, bytes]:
    """The next message of an asyncio stream, and the bytes of its body; (None, b"") at its end."""
    try:
        head = await reader.readexactly(LENGTH.size)
    except EOFError as error:
        if getattr(error, "partial", b""):
            raise ProtocolError("stream ended within a frame's length") from None
        return None, b""
    (length,) = LENGTH.unpack(head)
    _check_length(length, bytes_max)
    try:
        body = await reader.readexactly(length)
    except EOFError as error:
        got = len(getattr(error, "partial", b""))
        raise ProtocolError(f"stream ended after {got} of a frame's {length} bytes") from None
    return decode(body), body


def _check_length(length: int, bytes_max: int = FRAME_BYTES_MAX) -> None:
    if not 1 <= length <= bytes_max:
        raise ProtocolError(f"frame length {length} is not between 1 and {bytes_max}")


def _refuse_ext(code: int, data: bytes) -> None:
    raise ProtocolError(f"frame holds extension type {code}")


def _check(message: Message) -> None:
    """Depth and types. Level by level, without recursion: what is checked may be hostile."""
    level: list[Any] = [message]
    for _ in range(FRAME_DEPTH_MAX):
        below: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                if not all(isinstance(key, str) for key in container):
                    raise ProtocolError("frame holds a map key that is not text")
                values = container.values()
            else:
                values = container
            for value in values:
                if isinstance(value, (dict, list, tuple)):
                    below.append(value)
                elif not isinstance(value, (str, bytes, int, float, type(None))):
                    raise ProtocolError(f"frame holds a {type(value).__name__}")
        if not below:
            return
        level = below
    raise ProtocolError(f"frame is nested deeper than {FRAME_DEPTH_MAX}")
