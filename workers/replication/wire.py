"""Frames of a replication connection, after its hello.

    u32 bytes of the message | u32 bytes of the group behind it | message | group

The message is a msgpack map, but for the two of a fixed size (`barco.protocol.append_frame`). The
core cuts frames (`native/broker/intake.c`): lengths are checked before anything is allocated.
"""

import struct

import msgpack

from barco.errors import ProtocolError
from barco.model.generation import Identity
from barco.protocol import append_frame
from barco.protocol.append_frame import Append, Appended
from barco.protocol.replication import Message
from barco.protocol.replication_codec import from_map, to_map
from barco.types import KiB

MESSAGE_BYTES_MAX = 64 * KiB
"""The largest is a decided successor with two children: about 1 KiB."""

HEAD = struct.Struct("<II")


def encode(message: Message, group_bytes: int = 0) -> bytes:
    """The head of a frame and its message; the group, if any, is to follow at once."""
    assert group_bytes >= 0
    body: bytes
    if isinstance(message, (Append, Appended)):
        body = append_frame.pack(message)
    else:
        body = msgpack.packb(to_map(message))
    if len(body) > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a message of {len(body)} bytes is too large")
    return HEAD.pack(len(body), group_bytes) + body


def identity(ordinal: int, disk_uuid: str) -> Identity:
    """Of a broker, from the texts of its hello or of broker.json."""
    return Identity(ordinal, bytes.fromhex(disk_uuid))  # type: ignore[arg-type]


_TEXT = {str}


def _refuse_ext(code: int, data: bytes) -> None:
    raise ProtocolError(f"frame holds extension type {code}")


def decode(body: bytes) -> Message:
    """The message of a frame. ProtocolError if it is none."""
    if body[:1] == append_frame.MARK:
        return append_frame.unpack(body)
    try:
        message = msgpack.unpackb(body, ext_hook=_refuse_ext)
    except ProtocolError:
        raise
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"frame is not msgpack: {error}") from None
    if not isinstance(message, dict) or not {*map(type, message)} <= _TEXT:
        raise ProtocolError("frame is not a map with names")
    return from_map(message)
