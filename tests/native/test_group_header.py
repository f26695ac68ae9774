"""The header of a group: written by the core, read by the core and by storage, alike."""

import random
import struct

import barco_faces
import pytest
from crc32c import crc32c

from barco.limits import GROUP_BYTES_MAX, GROUP_HEADER_BYTES, PAGE_BYTES
from barco.workers.storage.index.scan import MAGIC, VERSION, GroupHeader, parse_header

CRC_AT = GROUP_HEADER_BYTES - 4


def padded(body_bytes: int) -> int:
    return -(-(GROUP_HEADER_BYTES + body_bytes) // PAGE_BYTES) * PAGE_BYTES


def number(chance: random.Random, bits: int) -> int:
    """Any, the first and the last ones more often than others."""
    ends = (0, 1, 2**bits - 1, 2 ** (bits - 1))
    return chance.choice(ends) if chance.random() < 0.3 else chance.randrange(2**bits)


def some_header(chance: random.Random) -> GroupHeader:
    """With anything in every field; only the sizes belong together."""
    body = chance.choice((0, 1, 3968, 3969, chance.randrange(GROUP_BYTES_MAX - 2 * PAGE_BYTES)))
    longs = [number(chance, 64) for _ in range(7)]
    words = [number(chance, 32) for _ in range(5)]
    return GroupHeader(
        magic=MAGIC,
        version=VERSION,
        flags=number(chance, 16),
        cluster_uuid=chance.randbytes(16),
        token=number(chance, 64) - 2**63,
        epoch=longs[0],
        session=longs[1],
        gseq=longs[2],
        prev_crc=words[0],
        body_crc=words[1],
        durable_upto=longs[3],
        committed=longs[4],
        wall_us=longs[5],
        body_bytes=body,
        chunk_count=words[2],
        group_bytes=padded(body),
        segment_index=words[3],
        blank_sectors=words[4],
        log_us=longs[6],
        header_crc=0,
    )


def by_both(data: bytes) -> GroupHeader | None:
    """What the core reads, and storage: the same."""
    ours, theirs = parse_header(data), barco_faces.group_header_parse(data)
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert (ours.magic, ours.version) == (MAGIC, VERSION) and ours[2:] == theirs
    return ours


def sealed(data: bytearray) -> bytes:
    """With the checksum that its first bytes have."""
    struct.pack_into("<I", data, CRC_AT, crc32c(data[:CRC_AT]))
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_both_read_what_the_core_writes(seed: int) -> None:
    """Field by field, whatever is in them; behind it may lie anything."""
    chance = random.Random(seed)
    for _ in range(500):
        header = some_header(chance)
        data = barco_faces.group_header_pack(*header[2:-1])
        assert len(data) == GROUP_HEADER_BYTES
        read = by_both(data + chance.randbytes(chance.choice((0, 7, 4000))))
        assert read == header._replace(header_crc=crc32c(data[:CRC_AT]))


@pytest.mark.parametrize("seed", range(8))
def test_both_refuse_the_same(seed: int) -> None:
    """Cut, changed, and changed under a good checksum: what a wrong writer may have written."""
    chance = random.Random(seed)
    refused = accepted = 0
    for _ in range(500):
        whole = barco_faces.group_header_pack(*some_header(chance)[2:-1])
        assert by_both(whole[: chance.randrange(GROUP_HEADER_BYTES)]) is None
        changed = bytearray(whole)
        at = chance.randrange(GROUP_HEADER_BYTES)
        changed[at] ^= 1 << chance.randrange(8)
        assert by_both(changed) is None
        found = by_both(sealed(changed))
        refused, accepted = refused + (found is None), accepted + (found is not None)
    assert refused > 20 and accepted > 200


@pytest.mark.parametrize(
    "body_bytes",
    [
        GROUP_BYTES_MAX - GROUP_HEADER_BYTES,
        GROUP_BYTES_MAX - GROUP_HEADER_BYTES + 1,
        2**31,
        2**32 - PAGE_BYTES - GROUP_HEADER_BYTES,
        2**32 - 1,
    ],
)
def test_no_group_is_larger_than_groups_are(body_bytes: int) -> None:
    """A reader gets memory for as much as the header says: never for more than a group has."""
    group_bytes = padded(body_bytes) % 2**32
    header = some_header(random.Random(1))._replace(body_bytes=body_bytes, group_bytes=group_bytes)
    found = by_both(barco_faces.group_header_pack(*header[2:-1]))
    assert (found is not None) == (padded(body_bytes) <= GROUP_BYTES_MAX)
