"""Groups: headers come back, the C core reads what Python writes, and damage is refused."""

from dataclasses import replace

import pytest

from barco import _native
from barco.errors import ProtocolError
from barco.protocol.group import GroupFlag, GroupHeader, decode_group, encode_group
from barco.types import Epoch, Token

BODY = b"chunks stand here back to back; " * 200
HEADER = GroupHeader(
    flags=GroupFlag.GEN_START | GroupFlag.SNAPSHOT,
    cluster_uuid=bytes(range(16)),
    token=Token(-(2**63)),
    epoch=Epoch(9),
    session=2**64 - 1,
    gseq=1,
    prev_crc=0,
    body_crc=_native.crc32c(BODY),
    durable_upto=5,
    committed=4,
    wall_us=10**15,
    body_bytes=len(BODY),
    chunk_count=3,
    segment_index=2,
)


def test_round_trip() -> None:
    """Header and body come back, and the size is a multiple of 4,096."""
    group = encode_group(HEADER, BODY)
    assert len(group) == HEADER.group_bytes == 8192
    header, body = decode_group(group)
    assert header == HEADER and body == BODY


def test_c_reads_it() -> None:
    """The C core's scan shows the same fields."""
    groups, reason, consumed = _native.groups_scan(encode_group(HEADER, BODY), 4096)
    assert (reason, consumed) == ("end", 8192)
    info = groups[0]
    assert info["offset"] == 4096 and info["group_bytes"] == 8192
    assert info["header_crc"] == HEADER.header_crc
    for name in HEADER.__slots__:
        assert info[name] == getattr(HEADER, name), name  # type: ignore[literal-required]


def test_empty_body() -> None:
    """A heartbeat is one block."""
    heartbeat = replace(HEADER, flags=GroupFlag.HEARTBEAT, body_bytes=0, body_crc=0, chunk_count=0)
    assert decode_group(encode_group(heartbeat, b"")) == (heartbeat, memoryview(b""))


def test_damage_is_refused() -> None:
    """No changed byte of header or body passes; a cut does not either."""
    group = encode_group(HEADER, BODY)
    for at in [*range(128), 128, 1000, 127 + len(BODY)]:
        damaged = bytearray(group)
        damaged[at] ^= 1
        with pytest.raises(ProtocolError):
            decode_group(damaged)
    for end in (0, 127, 128, 127 + len(BODY)):
        with pytest.raises(ProtocolError):
            decode_group(group[:end])
