"""Client batches, `application/vnd.barco.batch`: many events in columns, compressed by the client.

What belongs to one slice is stored by the broker as it came, without being recompressed.
"""

import struct

from barco.errors import ProtocolError

CONTENT_TYPE = "application/vnd.barco.batch"

TIMESTAMP_US_MIN = -62135596800000000
"""Of events, in microseconds since 1970: the year 1. Before it neither Python's datetime nor the
timestamps of SQL go, and who reads events makes these of their times."""

_HEADER = struct.Struct("<IBBHIIqQ")
_MAGIC = 0x54414242


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
    """Of a batch that `split_batches` found, what its times count from: its first one, or the
    microsecond before; 0 for none."""
    base_us: int = _HEADER.unpack_from(batch)[6]
    return base_us
