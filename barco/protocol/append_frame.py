"""APPEND and APPENDED, the two messages of a group's usual way: values, and bytes of one layout.

Little-endian. The other hand that knows it is the core's (`native/core/append_frame.h`), which
takes and acknowledges groups without Python; docs/protocol.md has the layout, with bytes on which
both must agree. All other messages are maps (`barco.protocol.replication_codec`).
"""

import struct

from crc32c import crc32c
from msgspec import Struct

from barco.errors import ProtocolError
from barco.model.generation import Gid, GroupHead
from barco.types import Epoch, Token


class Append(Struct, frozen=True):
    """Leader to followers: one group, in order. Its bytes travel beside."""

    gid: Gid
    session: int
    head: GroupHead
    committed: int
    """gseq up to which the leader knows its generation committed."""


class Appended(Struct, frozen=True):
    """Follower to leader: all groups up to `gseq` are stable here, and I was not fenced then."""

    gid: Gid
    gseq: int
    session: int = 0
    """Of the leader's process whose groups these are."""


MARK = b"\xc1"
"""The first byte of either; no msgpack begins with it."""

_APPEND_KIND, _APPENDED_KIND = b"\x01", b"\x02"

_APPEND = struct.Struct("<2sHIqQQQQIII")
"""Mark and kind, 0, bytes of the group, token, epoch, session, gseq, committed, prev_crc,
header_crc, 0."""

_APPENDED = struct.Struct("<2sHIqQQQI")
"""Mark and kind, 0, 0, token, epoch, session, gseq, 0."""

_CRC = struct.Struct("<I")
"""Behind each of these: the crc32c of all before."""

_U63_MAX = 2**63 - 1


def pack(message: Append | Appended) -> bytes:
    """Its bytes: 64 of an APPEND, 48 of an APPENDED."""
    token, epoch = message.gid
    if isinstance(message, Append):
        gseq, prev_crc, header_crc, size = message.head
        body = _APPEND.pack(
            *(MARK + _APPEND_KIND, 0, size, token, epoch, message.session, gseq),
            *(message.committed, prev_crc, header_crc, 0),
        )
    else:
        body = _APPENDED.pack(
            MARK + _APPENDED_KIND, 0, 0, token, epoch, message.session, message.gseq, 0
        )
    return body + _CRC.pack(crc32c(body))


def unpack(body: bytes) -> Append | Appended:
    """What `pack` was given. ProtocolError where it is damaged, or holds what it can not."""
    kind = body[1:2]
    if body[:1] != MARK or kind not in (_APPEND_KIND, _APPENDED_KIND):
        raise ProtocolError(f"no message of fixed size begins with {body[:2].hex()}")
    name, layout = ("APPEND", _APPEND) if kind == _APPEND_KIND else ("APPENDED", _APPENDED)
    if len(body) != layout.size + _CRC.size:
        raise ProtocolError(f"an {name} has {len(body)} bytes")
    if (crc32c(body[: layout.size]),) != _CRC.unpack_from(body, layout.size):
        raise ProtocolError(f"an {name} is damaged: its checksum is wrong")
    message = _append(body) if kind == _APPEND_KIND else _appended(body)
    if message is None:
        raise ProtocolError(f"an {name} holds what it can not")
    return message


def _append(body: bytes) -> Append | None:
    values = _APPEND.unpack_from(body)
    _, zero, size, token, epoch, session, gseq, committed, prev_crc, header_crc, zero_1 = values
    if zero or zero_1 or not (0 < epoch <= _U63_MAX and 0 < gseq <= _U63_MAX >= committed):
        return None
    head = GroupHead(gseq, prev_crc, header_crc, size)
    return Append(Gid(Token(token), Epoch(epoch)), session, head, committed)


def _appended(body: bytes) -> Appended | None:
    _, zero, zero_1, token, epoch, session, gseq, zero_2 = _APPENDED.unpack_from(body)
    if zero or zero_1 or zero_2 or not (0 < epoch <= _U63_MAX >= gseq):
        return None
    return Appended(Gid(Token(token), Epoch(epoch)), gseq, session)
