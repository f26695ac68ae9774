"""Append groups: the unit of append, replication and fencing (native/format/group.h).

A group is a header of 128 bytes, a body, and zeros up to the next multiple of 4,096.
"""

import struct
from dataclasses import dataclass
from enum import IntFlag
from typing import Self

from crc32c import crc32c

from barco.errors import ProtocolError
from barco.limits import GROUP_HEADER_BYTES, PAGE_BYTES
from barco.types import Epoch, Token

_HEADER = struct.Struct("<IHH16sqQQQIIQQQIIIII4xQ4xI")
_MAGIC = 0x50524742
_VERSION = 1
_CRC_AT = 124

assert _HEADER.size == GROUP_HEADER_BYTES


class GroupFlag(IntFlag):
    """What a group is, besides a carrier of chunks."""

    GEN_START = 1
    SNAPSHOT = 2
    HEARTBEAT = 4
    SEAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeader:
    """The header of a group."""

    flags: GroupFlag
    cluster_uuid: bytes
    token: Token
    """Start of the shard's range."""
    epoch: Epoch
    session: int
    gseq: int
    prev_crc: int
    """header_crc of the generation's previous group; 0 for the first."""
    body_crc: int
    durable_upto: int
    committed: int
    wall_us: int
    """The leader's wall clock."""
    body_bytes: int
    chunk_count: int
    segment_index: int
    blank_sectors: int = 0
    """1 + how many of its sectors of 512 bytes are zeros; 0: not counted."""
    log_us: int = 0
    """The log's own clock; 0: written by an earlier version."""

    @property
    def group_bytes(self) -> int:
        """Header, body and padding."""
        return padded_bytes(self.body_bytes)

    def encode(self) -> bytes:
        """The 128 bytes, checksum included."""
        assert len(self.cluster_uuid) == 16
        head = _HEADER.pack(
            *(_MAGIC, _VERSION, self.flags, self.cluster_uuid, self.token, self.epoch),
            *(self.session, self.gseq, self.prev_crc, self.body_crc, self.durable_upto),
            *(self.committed, self.wall_us, self.body_bytes, self.chunk_count),
            *(self.group_bytes, self.segment_index, self.blank_sectors, self.log_us, 0),
        )[:_CRC_AT]
        return head + struct.pack("<I", crc32c(head))

    @property
    def header_crc(self) -> int:
        """What the next group carries as its prev_crc."""
        return int.from_bytes(self.encode()[_CRC_AT:], "little")

    @classmethod
    def decode(cls, buf: bytes | bytearray | memoryview) -> Self:
        """The header at the start of buf; ProtocolError if there is none."""
        view = memoryview(buf)[:GROUP_HEADER_BYTES]
        if len(view) < GROUP_HEADER_BYTES:
            raise ProtocolError("the group's header is cut off")
        magic, version, flags, *fields, crc = _HEADER.unpack(view)
        if (magic, version) != (_MAGIC, _VERSION) or crc != crc32c(view[:_CRC_AT]):
            raise ProtocolError("not a group's header, or its checksum fails")
        (uuid, token, epoch, session, gseq, prev_crc, body_crc, durable, committed) = fields[:9]
        (wall_us, body_bytes, chunk_count, group_bytes, segment_index) = fields[9:14]
        (blank, log_us) = fields[14:]
        if group_bytes != padded_bytes(body_bytes):
            raise ProtocolError("the group's header has impossible lengths")
        return cls(
            flags=GroupFlag(flags),
            cluster_uuid=uuid,
            token=Token(token),
            epoch=Epoch(epoch),
            session=session,
            gseq=gseq,
            prev_crc=prev_crc,
            body_crc=body_crc,
            durable_upto=durable,
            committed=committed,
            wall_us=wall_us,
            body_bytes=body_bytes,
            chunk_count=chunk_count,
            segment_index=segment_index,
            blank_sectors=blank,
            log_us=log_us,
        )


def padded_bytes(body_bytes: int) -> int:
    """The size of a group with such a body."""
    return -(-(GROUP_HEADER_BYTES + body_bytes) // PAGE_BYTES) * PAGE_BYTES


def encode_group(header: GroupHeader, body: bytes) -> bytes:
    """The whole group; the header's body_bytes and body_crc must be the body's."""
    assert header.body_bytes == len(body) and header.body_crc == crc32c(body)
    return (header.encode() + body).ljust(header.group_bytes, b"\0")


def decode_group(buf: bytes | bytearray | memoryview) -> tuple[GroupHeader, memoryview]:
    """Header and body of the group at the start of buf; ProtocolError unless both are whole."""
    header = GroupHeader.decode(buf)
    body = memoryview(buf)[GROUP_HEADER_BYTES : GROUP_HEADER_BYTES + header.body_bytes]
    if len(body) < header.body_bytes or crc32c(body) != header.body_crc:
        raise ProtocolError("the group's body is cut off or fails its checksum")
    return header, body
