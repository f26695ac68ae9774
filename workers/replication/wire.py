"""Frames between the processes of different brokers, and the first of them.

    u32 bytes of the message | u32 bytes of the group behind it | message (msgpack map) | group

Both lengths are checked before anything is allocated. The first frame of a connection says who
dials, for what; the answer is a welcome, or one line that says why not.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from barco.errors import ProtocolError
from barco.model.generation import Identity
from barco.types import KiB, Ordinal

VERSION = 1
"""Of everything that is said on these connections. Another one is refused."""

MESSAGE_BYTES_MAX = 64 * KiB
"""The largest is a decided successor with two children: about 1 KiB."""

HELLO_BYTES_MAX = 4 * KiB
REFUSAL_CHARACTERS_MAX = 300

HEAD = struct.Struct("<II")

_HELLO = {"kind": str, "cluster": bytes, "version": int, "ordinal": int, "disk": bytes}
_HELLO |= {"session": int, "token": int}


@dataclass(frozen=True, slots=True)
class Hello:
    """Who dials, and for what."""

    kind: str
    """replication, or what else comes in on this port."""
    cluster: bytes
    identity: Identity
    session: int
    token: int
    """Where the shard range of the dialling process starts."""

    def to_map(self) -> dict[str, Any]:
        """For the first frame."""
        return {
            "kind": self.kind,
            "cluster": self.cluster,
            "version": VERSION,
            "ordinal": int(self.identity.ordinal),
            "disk": self.identity.disk_uuid,
            "session": self.session,
            "token": self.token,
        }


def encode(message: Mapping[str, Any], group_bytes: int = 0) -> bytes:
    """The head of a frame and its message; the group, if any, is to follow at once."""
    body: bytes = msgpack.packb(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a message of {len(body)} bytes is too large")
    return HEAD.pack(len(body), group_bytes) + body


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
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise ProtocolError("frame is not a map with names")
    return message


def read_hello(message: Mapping[str, Any], cluster: bytes) -> Hello:
    """What a first frame says; ProtocolError, one clear line, for whoever does not belong here."""
    for name, kind in _HELLO.items():
        if type(message.get(name)) is not kind:
            raise ProtocolError(f"the first frame has no {name}: is this barco's replication port?")
    if message["cluster"] != cluster:
        raise ProtocolError(
            f"broker {message['ordinal']} belongs to another cluster "
            f"({message['cluster'][:16].hex()}, this one is {cluster.hex()})"
        )
    if message["version"] != VERSION:
        raise ProtocolError(
            f"broker {message['ordinal']} speaks version {message['version']} of the replication "
            f"protocol, this broker version {VERSION}"
        )
    if len(message["disk"]) != 16 or not 0 <= message["ordinal"] < 2**16:
        raise ProtocolError("the first frame holds no identity")
    identity = Identity(Ordinal(message["ordinal"]), message["disk"])
    return Hello(message["kind"], cluster, identity, message["session"], message["token"])


class Frames:
    """Frames out of a stream that arrives in pieces. Groups land in memory of their own size."""

    def __init__(
        self, received: Callable[[dict[str, Any], bytearray | None], None], group_bytes_max: int
    ) -> None:
        """`received`: takes each message with its group, if one came along; may raise."""
        self._received = received
        self._group_max = group_bytes_max
        self._buffer = bytearray(MESSAGE_BYTES_MAX + HEAD.size)
        self._filled = 0
        self._message: dict[str, Any] | None = None
        self._group = bytearray()
        self._group_filled = 0

    def room(self) -> memoryview:
        """Where the next bytes are to be put."""
        if self._message is not None:
            return memoryview(self._group)[self._group_filled :]
        return memoryview(self._buffer)[self._filled :]

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
        length, group = HEAD.unpack_from(self._buffer, start)
        if not 0 < length <= MESSAGE_BYTES_MAX or group > self._group_max:
            raise ProtocolError(f"a frame of {length} and {group} bytes is not ours")
        body, end = start + HEAD.size, start + HEAD.size + length
        if self._filled < end:
            return start
        message = decode(memoryview(self._buffer)[body:end])
        if not group:
            self._received(message, None)
            return end
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
