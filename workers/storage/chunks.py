"""Checks of stored chunks that are made where they are read."""

import struct

from crc32c import crc32c

_HEADER_BYTES = 80
_TOPIC_LENGTH_AT, _SECTION_COUNT_AT = 6, 7
_SECTION = struct.Struct("<BBHIII")  # id, codec, 0, raw length, stored length, crc: format.h


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
