"""Client batches, `application/vnd.barco.batch`: many events in columns, compressed by the client.

What belongs to one slice is stored by the broker as it came, without being recompressed.
"""

import struct
from typing import NamedTuple

from barco.errors import ProtocolError
from barco.protocol.columns import KEY_NULL, read_sections, unpack_columns

CONTENT_TYPE = "application/vnd.barco.batch"

_HEADER = struct.Struct("<IBBHIIqQ")
_MAGIC = 0x54414242
_VERSION = 1
_ENTRY_BYTES = 16


class Batch(NamedTuple):
    """The events of a batch."""

    values: list[bytes]
    keys: list[bytes | None]
    timestamps_us: list[int] | None
    """None: the broker's clock."""


def split_batches(buf: bytes | bytearray | memoryview) -> list[memoryview]:
    """The batches that lie one behind the other, not copied; ProtocolError if anything else does.

    Only lengths are looked at: what is in a batch is for whoever opens it.
    """
    view = memoryview(buf)
    found: list[memoryview] = []
    while len(view):
        if len(view) < _HEADER.size:
            raise ProtocolError("a batch has at least 32 bytes")
        magic, _, _, _, _, total, _, _ = _HEADER.unpack_from(view)
        if magic != _MAGIC or not _HEADER.size <= total <= len(view):
            raise ProtocolError("not a batch, or not all of it")
        found.append(view[:total])
        view = view[total:]
    return found


def base_of(batch: memoryview) -> int:
    """The first timestamp of a batch that `split_batches` found, 0 for none."""
    base_us: int = _HEADER.unpack_from(batch)[6]
    return base_us


def decode_batch(buf: bytes | bytearray | memoryview) -> Batch:
    """The events of exactly one batch; ProtocolError if it is none."""
    view = memoryview(buf)
    if len(view) < _HEADER.size:
        raise ProtocolError("a batch has at least 32 bytes")
    magic, version, sections, flags, count, total, base_us, reserved = _HEADER.unpack_from(view)
    if (magic, version, flags, reserved) != (_MAGIC, _VERSION, 0, 0):
        raise ProtocolError("not a batch")
    head = _HEADER.size + sections * _ENTRY_BYTES
    if total != len(view) or total < head or total % 8 or not count or base_us < 0:
        raise ProtocolError("the batch's header has impossible lengths")
    found = read_sections(
        view[_HEADER.size : head], view[head:], count=count, producers_allowed=False
    )
    for section in found.values():
        section.verify()
    columns = unpack_columns(found)
    if base_us == 0 and columns.ts_delta is not None:
        raise ProtocolError("the batch has timestamps, but no time they count from")
    if any(65_535 < length != KEY_NULL for length in columns.key_len or ()):
        raise ProtocolError("a key has more than 65,535 bytes")
    columns.check_times(base_us)
    times = columns.timestamps(base_us) if base_us else None
    return Batch(columns.value_list(), columns.key_list(), times)
