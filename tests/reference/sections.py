"""The columns inside a batch, as they are read: a directory, then sections, each its own LZ4 block.

The formats are those of native/format/format.h; everything is little-endian. Lengths are columns of
their own, so that a column is found without walking the events, and can be unpacked alone.
"""

import re
import struct
import sys
from array import array
from dataclasses import dataclass
from enum import IntEnum

import lz4.block
from crc32c import crc32c

from barco.errors import ProtocolError
from barco.types import MiB

SECTION_RAW_MAX = 64 * MiB
SECTION_RATIO_MAX = 256
"""An LZ4 block cannot expand further: what claims to is refused before memory is allocated."""
KEY_NULL = 0xFFFFFFFF
"""In a column of lengths: this event has no key, no value, no headers."""
PLAIN, WITH_HEADERS = 1, 2
"""Versions of chunks and batches: the second one's events may lack values and have headers."""
Headers = tuple[tuple[str, bytes], ...]
PRODUCER = struct.Struct("<16sIIQII")

_NAME = rb"[a-z0-9!#$%&'*+.^_`|~-]{1,128}"
_ENTRY = struct.Struct("<BBHIII")
_LZ4 = 1

assert array("I").itemsize == 4 and sys.byteorder == "little"


class Section(IntEnum):
    """What a section holds."""

    TS_DELTA = 1
    KEY_LEN = 2
    VAL_LEN = 3
    KEYS = 4
    VALUES = 5
    TS_HIGH = 6
    HDR_LEN = 7
    HDRS = 8
    PRODUCERS = 16


_WORDS = (Section.TS_DELTA, Section.TS_HIGH, Section.KEY_LEN, Section.VAL_LEN, Section.HDR_LEN)


@dataclass(frozen=True, slots=True)
class Columns:
    """Events by column. `ts_delta` None: all 0; `key_len` None: no event has a key.

    `ts_high` are bits 32 to 62 of the deltas, None if all are 0: they span less than 71 minutes.
    """

    ts_delta: "array[int] | None"
    ts_high: "array[int] | None"
    key_len: "array[int] | None"
    val_len: "array[int]"
    keys: bytes
    values: bytes
    hdr_len: "array[int] | None" = None
    hdrs: bytes = b""

    @property
    def version(self) -> int:
        """The first that has all there is."""
        plain = self.hdr_len is None and KEY_NULL not in self.val_len
        return PLAIN if plain else WITH_HEADERS

    @property
    def count(self) -> int:
        """How many events."""
        return len(self.val_len)

    def value_list(self) -> list[bytes | None]:
        """Each event's value."""
        return _cut(self.val_len, self.values)

    def headers_list(self) -> list[Headers]:
        """Each event's headers."""
        if self.hdr_len is None:
            return [()] * self.count
        return [unpack_headers(each) for each in _cut(self.hdr_len, self.hdrs)]

    def key_list(self) -> list[bytes | None]:
        """Each event's key."""
        if self.key_len is None:
            return [None] * self.count
        return _cut(self.key_len, self.keys)

    def timestamps(self, base_us: int) -> list[int]:
        """Each event's time in microseconds since 1970."""
        if self.ts_delta is None:
            return [base_us] * self.count
        if self.ts_high is None:
            return [base_us + delta for delta in self.ts_delta]
        pairs = zip(self.ts_delta, self.ts_high, strict=True)
        return [base_us + (high << 32) + low for low, high in pairs]

    def check_times(self, base_us: int) -> None:
        """ProtocolError if one of them does not fit 63 bits."""
        if self.ts_high is not None and max(self.timestamps(base_us)) >= 2**63:
            raise ProtocolError("a timestamp does not fit 63 bits")


def _cut(lengths: "array[int]", joined: bytes) -> list[bytes | None]:
    pieces: list[bytes | None] = []
    at = 0
    for length in lengths:
        if length == KEY_NULL:
            pieces.append(None)
            continue
        pieces.append(joined[at : at + length])
        at += length
    return pieces


@dataclass(frozen=True, slots=True)
class StoredSection:
    """One section as it is stored."""

    id: Section
    codec: int
    raw_len: int
    crc: int
    stored: memoryview

    def verify(self) -> None:
        """ProtocolError unless the checksum matches."""
        if crc32c(self.stored) != self.crc:
            raise ProtocolError(f"section {self.id.name} fails its checksum")

    def unpack(self) -> bytes:
        """The raw bytes."""
        if self.codec != _LZ4:
            return bytes(self.stored)
        try:
            raw: bytes = lz4.block.decompress(self.stored, uncompressed_size=self.raw_len)
        except lz4.block.LZ4BlockError as error:
            raise ProtocolError(f"section {self.id.name} is not an LZ4 block") from error
        if len(raw) != self.raw_len:
            raise ProtocolError(f"section {self.id.name} has another length than it says")
        return raw


def read_sections(
    directory: memoryview, body: memoryview, *, count: int, version: int, producers_allowed: bool
) -> dict[Section, StoredSection]:
    """The sections, every length checked against the number of events and the limits."""
    sections: dict[Section, StoredSection] = {}
    at = last = 0
    for number, codec, reserved, raw_len, stored_len, crc in _ENTRY.iter_unpack(directory):
        if number <= last or number not in Section.__members__.values() or reserved:
            raise ProtocolError(f"section {number} has no place in the directory")
        section, last = Section(number), number
        if not _entry_valid(section, codec, raw_len, stored_len, count):
            raise ProtocolError(f"section {section.name} has impossible lengths")
        if version == PLAIN and section in (Section.HDR_LEN, Section.HDRS):
            raise ProtocolError("the first version has no headers")
        if section is Section.PRODUCERS and not producers_allowed:
            raise ProtocolError("a batch cannot name producers")
        padded = stored_len + -stored_len % 8
        if padded > len(body) - at or any(body[at + stored_len : at + padded]):
            raise ProtocolError(f"section {section.name} is cut off or badly padded")
        sections[section] = StoredSection(section, codec, raw_len, crc, body[at : at + stored_len])
        at += padded
    if at != len(body) or not {Section.VAL_LEN, Section.VALUES} <= sections.keys():
        raise ProtocolError("the sections are not complete")
    if Section.KEYS in sections and Section.KEY_LEN not in sections:
        raise ProtocolError("there are keys without lengths")
    if Section.HDRS in sections and Section.HDR_LEN not in sections:
        raise ProtocolError("there are headers without lengths")
    if Section.TS_HIGH in sections and Section.TS_DELTA not in sections:
        raise ProtocolError("there are halves of times without the others")
    return sections


def _entry_valid(section: Section, codec: int, raw_len: int, stored_len: int, count: int) -> bool:
    if raw_len > SECTION_RAW_MAX or codec not in (0, _LZ4):
        return False
    if codec == 0 and raw_len != stored_len:
        return False
    if codec == _LZ4 and not 0 < raw_len <= stored_len * SECTION_RATIO_MAX + 64:
        return False
    if section in _WORDS:
        return raw_len == 4 * count
    if section is Section.PRODUCERS:
        records, rest = divmod(raw_len, PRODUCER.size)
        return codec == 0 and rest == 0 and 0 < records <= count
    return raw_len > 0 or section is Section.VALUES


def unpack_columns(sections: dict[Section, StoredSection], version: int) -> Columns:
    """All columns; ProtocolError if their lengths do not add up."""

    def lengths(section: Section) -> "array[int] | None":
        found = sections.get(section)
        return None if found is None else array("I", found.unpack())

    val_len = lengths(Section.VAL_LEN)
    assert val_len is not None, "read_sections() saw it"
    key_len = lengths(Section.KEY_LEN)
    keys = sections[Section.KEYS].unpack() if Section.KEYS in sections else b""
    values = sections[Section.VALUES].unpack()
    hdr_len = lengths(Section.HDR_LEN)
    hdrs = sections[Section.HDRS].unpack() if Section.HDRS in sections else b""
    if version == PLAIN and KEY_NULL in val_len:
        raise ProtocolError("the first version has a value for each event")
    for each, joined in ((key_len, keys), (val_len, values), (hdr_len, hdrs)):
        if sum(length for length in each or () if length != KEY_NULL) != len(joined):
            raise ProtocolError("the lengths do not add up")
    ts_delta, ts_high = lengths(Section.TS_DELTA), lengths(Section.TS_HIGH)
    columns = Columns(ts_delta, ts_high, key_len, val_len, keys, values, hdr_len, hdrs)
    columns.headers_list()
    return columns


def pack_headers(headers: Headers) -> bytes:
    """An event's headers as they are stored."""
    parts = [_number(len(headers))]
    for name, value in headers:
        parts += [_number(len(name)), _number(len(value)), name.encode(), value]
    return b"".join(parts)


def unpack_headers(stored: bytes | None) -> Headers:
    """The opposite; ProtocolError if they are none."""
    if stored is None:
        return ()
    try:
        count, at = _read_number(stored, 0)
        found = []
        for _ in range(count):
            name_len, at = _read_number(stored, at)
            value_len, at = _read_number(stored, at)
            end = at + name_len + value_len
            name, value = stored[at : at + name_len], stored[at + name_len : end]
            if len(value) != value_len or not re.fullmatch(_NAME, name):
                raise ProtocolError("a header is cut off, or has no name")
            found.append((name.decode(), value))
            at = end
    except IndexError:
        raise ProtocolError("the headers are cut off") from None
    if not 0 < count <= 64 or sum(len(n) + len(v) for n, v in found) > 16384 or at != len(stored):
        raise ProtocolError("there are more headers than an event has, or bytes behind them")
    return tuple(found)


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_number(stored: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(3):
        byte = stored[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if place and not byte:
                break
            return value, at + place + 1
    raise ProtocolError("a number is longer than it has to be")
