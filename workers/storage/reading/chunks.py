"""Checks of stored chunks that are made where they are read."""

import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from barco import _native
from barco.workers.storage.files.bulk import ENTRY_BYTES
from barco.workers.storage.index.catalog import SegmentKey
from barco.workers.storage.index.sidecar import Location, location_at

_HEADER_BYTES = 80
_TOPIC_LENGTH_AT, _SECTION_COUNT_AT = 6, 7
_SECTION = struct.Struct("<BBHIII")  # id, codec, 0, raw length, stored length, crc: format.h


class Plan(NamedTuple):
    """Chunks of one segment that answer a read."""

    key: SegmentKey
    path: Path
    entries: bytes
    """Of an index, in the layout of sidecars; at least one."""

    def location(self, row: int) -> Location:
        """Of one of the chunks."""
        return location_at(self.entries, row * ENTRY_BYTES)


class WrongIndexError(Exception):
    """The index points to something that is not the chunk it describes."""

    def __init__(self, location: Location, why: str) -> None:
        super().__init__(why)
        self.location, self.why = location, why


def section_damage(chunk: memoryview) -> str:
    """Which section of a chunk fails its checksum, in words; empty when all hold.

    The chunk's header must have been verified (chunks_scan): its checksum covers the directory.
    """
    at = _HEADER_BYTES + (chunk[_TOPIC_LENGTH_AT] + 7 & ~7)
    end = at + chunk[_SECTION_COUNT_AT] * _SECTION.size
    data = end
    for section, _, _, _, length, crc in _SECTION.iter_unpack(chunk[at:end]):
        if crc32c(chunk[data : data + length]) != crc:
            return f"section {section} fails its checksum"
        data += length + 7 & ~7
    return ""


def chunk_damage(
    chunk: memoryview, topic: str, slice_: int, location: Location
) -> tuple[str, bool]:
    """(what is wrong with a chunk, whether the index may be to blame)."""
    if len(chunk) < location.stored_bytes:
        return "the file ends before the chunk does", True
    try:
        found = _native.chunks_scan(chunk)
    except ValueError as error:
        return str(error), True
    if len(found) != 1:
        return "another chunk is here", True
    _, stored, name, number, _, base, count, _, _ = found[0]
    if (stored, name, number, base, count) != (
        location.stored_bytes, topic, slice_, location.base_offset, location.event_count,
    ):  # fmt: skip
        return "another chunk is here", True
    return section_damage(chunk) or "its producers are malformed", False
