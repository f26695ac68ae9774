"""Columns of chunks and batches, as the core writes them: to be held against it."""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import replace

import lz4.block
from crc32c import crc32c

from barco.protocol.batch import TIMESTAMP_US_MIN
from reference.sections import KEY_NULL, SECTION_RAW_MAX, Columns, Headers, Section, pack_headers

SECTION_COMPRESS_MIN = 256

_ENTRY = struct.Struct("<BBHIII")
_LZ4 = 1


def make_columns(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
) -> tuple[Columns, int]:
    """Columns of events, and the time that their deltas count from (0 without timestamps).

    ValueError: no event, columns of different lengths, sizes over the limits, timestamps that are
    before the year 1 or do not fit 63 bits.
    """
    count = len(values)
    if not count:
        raise ValueError("there must be at least one event")
    if keys is not None and len(keys) != count:
        raise ValueError(f"{count} values but {len(keys)} keys")
    key_len = None
    if keys is not None and any(key is not None for key in keys):
        if any(key is not None and len(key) > 65_535 for key in keys):
            raise ValueError("a key has more than 65,535 bytes")
        key_len = array("I", [KEY_NULL if key is None else len(key) for key in keys])
    lows, highs, base_us = _deltas(count, timestamps_us)
    joined_keys = b"".join(key for key in keys or () if key is not None)
    val_len, joined = _lengths(values)
    columns = Columns(lows, highs, key_len, val_len, joined_keys, joined)
    if any(headers or ()):
        packed = [pack_headers(each) if each else None for each in headers or ()]
        columns = replace(columns, **dict(zip(("hdr_len", "hdrs"), _lengths(packed), strict=True)))
    if max(len(columns.keys), len(columns.values), 4 * count) > SECTION_RAW_MAX:
        raise ValueError(f"a column is over its {SECTION_RAW_MAX} bytes")
    return columns, base_us


def _lengths(given: Sequence[bytes | None]) -> "tuple[array[int], bytes]":
    lengths = array("I", [KEY_NULL if each is None else len(each) for each in given])
    return lengths, b"".join(each for each in given if each is not None)


def _deltas(
    count: int, timestamps_us: Sequence[int] | None
) -> "tuple[array[int] | None, array[int] | None, int]":
    if timestamps_us is None:
        return None, None, 0
    if len(timestamps_us) != count:
        raise ValueError(f"{count} values but {len(timestamps_us)} timestamps")
    base_us = min(timestamps_us)
    if base_us < TIMESTAMP_US_MIN:
        raise ValueError(f"timestamp {base_us} is before the year 1")
    latest = max(timestamps_us)
    if latest >= 2**63:
        raise ValueError(f"timestamp {latest} does not fit 63 bits")
    base_us = base_us or -1  # 0 says that there are none.
    if latest == base_us:
        return None, None, base_us
    lows = array("I", [each - base_us & 0xFFFFFFFF for each in timestamps_us])
    if latest - base_us < 2**32:
        return lows, None, base_us
    return lows, array("I", [each - base_us >> 32 for each in timestamps_us]), base_us


def encode_sections(
    columns: Columns, *, producers: bytes = b"", compress: bool = True
) -> tuple[int, bytes, bytes]:
    """The number of sections, their directory, and their padded bytes."""
    parts: list[tuple[Section, bytes]] = []
    if columns.ts_delta is not None:
        parts.append((Section.TS_DELTA, columns.ts_delta.tobytes()))
    if columns.key_len is not None:
        parts.append((Section.KEY_LEN, columns.key_len.tobytes()))
    parts.append((Section.VAL_LEN, columns.val_len.tobytes()))
    if columns.keys:
        parts.append((Section.KEYS, columns.keys))
    parts.append((Section.VALUES, columns.values))
    if columns.ts_high is not None:
        parts.append((Section.TS_HIGH, columns.ts_high.tobytes()))
    if columns.hdr_len is not None:
        parts.append((Section.HDR_LEN, columns.hdr_len.tobytes()))
        parts.append((Section.HDRS, columns.hdrs))
    if producers:
        parts.append((Section.PRODUCERS, producers))
    directory, body = [], []
    for section, raw in parts:
        stored, codec = raw, 0
        if compress and section is not Section.PRODUCERS:
            stored, codec = _compressed(raw)
        directory.append(_ENTRY.pack(section, codec, 0, len(raw), len(stored), crc32c(stored)))
        body += [stored, bytes(-len(stored) % 8)]
    return len(parts), b"".join(directory), b"".join(body)


def _compressed(raw: bytes) -> tuple[bytes, int]:
    """The bytes to store and their codec: raw where LZ4 does not save a sixteenth."""
    if len(raw) >= SECTION_COMPRESS_MIN:
        block = lz4.block.compress(raw, store_size=False)
        if len(block) <= len(raw) - (len(raw) >> 4):
            return block, _LZ4
    return raw, 0
