"""The sidecar of a sealed segment: which chunks of which (topic, slice) are where.

    header 128 bytes | u32 streams, u32 entries | stream table, 176 bytes each | entries, 32 each

The table is sorted by (topic, slice), the entries of a stream by offset, so both are searched in
place. Rule S4: a sidecar is a cache. It carries checksums, is rebuilt from its segment when it is
missing or wrong, and every chunk found through it is verified before it is believed.
"""

import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from barco import _native
from barco.limits import GROUP_HEADER_BYTES, TOPIC_NAME_BYTES_MAX
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import ENTRY_BYTES
from barco.workers.storage.index.scan import GroupHeader, SegmentSummary

MAGIC = b"BIDX"
VERSION = 1

# magic, version, flags, header crc, body crc, body bytes, epoch, segment index, first prev_crc,
# first gseq, last gseq, last header crc, pad, end bytes, first and last time by the log's clock
_HEADER = struct.Struct("<4sHHIIQQIIQQIIQqq40x")
HEADER_BYTES = 128
assert _HEADER.size == HEADER_BYTES
_COUNTS = struct.Struct("<II")
_STREAM = struct.Struct("<B127sIIIIQQqq")
_ENTRY = struct.Struct("<QIIIIq")
STREAM_BYTES = 176
assert (_STREAM.size, _ENTRY.size) == (STREAM_BYTES, ENTRY_BYTES)
_TOPIC_BYTES = TOPIC_NAME_BYTES_MAX
POSITION_UNIT = 8
"""Chunks start on multiples of 8, so positions are stored divided by it."""
ENTRIES_MAX = 1024
"""Chunks of one read."""


class Stream(NamedTuple):
    """What a segment holds of one (topic, slice)."""

    topic: str
    slice: int
    first_entry: int
    entry_count: int
    first_offset: int
    end_offset: int
    """The offset after the last event."""
    first_ts: int
    max_ts: int
    """Microseconds since 1970, of any event in it."""


class Location(NamedTuple):
    """One chunk in a segment."""

    file_offset: int
    stored_bytes: int
    base_offset: int
    event_count: int
    max_ts: int


def location_at(entries: bytes | mmap.mmap, at: int) -> Location:
    """The entry at a byte."""
    base, position, stored, count, _, max_ts = _ENTRY.unpack_from(entries, at)
    return Location(position * POSITION_UNIT, stored, base, count, max_ts)


def entry_of(location: Location) -> bytes:
    """The opposite."""
    position = location.file_offset // POSITION_UNIT
    return _ENTRY.pack(
        location.base_offset, position, location.stored_bytes, location.event_count, 0,
        location.max_ts,
    )  # fmt: skip


# --- Writing ------------------------------------------------------------------------------------


class IndexBuilder:
    """Collects the chunks of a segment's groups; `body` is what the core exports for its own."""

    def __init__(self) -> None:
        self._streams: dict[tuple[bytes, int], list[tuple[int, ...]]] = {}

    def add(self, header: GroupHeader, group: memoryview, file_offset: int) -> None:
        """Adds a group's chunks; ValueError when a chunk header is malformed."""
        if header.chunk_count == 0:
            return
        body = group[GROUP_HEADER_BYTES : GROUP_HEADER_BYTES + header.body_bytes]
        base = file_offset + GROUP_HEADER_BYTES
        seconds = header.time_us // 1_000_000
        for at, stored, topic, slice_, _, first, count, ts, max_ts in _native.chunks_scan(body):
            entry = (first, (base + at) // POSITION_UNIT, stored, count, ts, max_ts, seconds)
            self._streams.setdefault((topic.encode(), slice_), []).append(entry)

    def body(self) -> bytes:
        """Stream table and entries."""
        table: list[bytes] = []
        rows: list[bytes] = []
        at = 0
        for (topic, slice_), entries in sorted(self._streams.items()):
            entries.sort()
            first, last = entries[0], entries[-1]
            max_ts = max(entry[5] for entry in entries)
            table.append(
                _STREAM.pack(
                    len(topic), topic, slice_, at, len(entries), 0,
                    first[0], last[0] + last[3], first[4], max_ts,
                )
            )  # fmt: skip
            rows.extend(_ENTRY.pack(*e[:4], e[6], e[5]) for e in entries)
            at += len(entries)
        return _COUNTS.pack(len(table), at) + b"".join(table) + b"".join(rows)


def encode_sidecar(body: bytes, epoch: int, summary: SegmentSummary) -> bytes:
    """The whole file for an index body and what is known of the segment."""
    fields = [
        MAGIC, VERSION, 0, 0, _native.crc32c(body), len(body), epoch, summary.index,
        summary.first_prev_crc, summary.first_gseq, summary.last_gseq, summary.last_header_crc, 0,
        summary.end_bytes, summary.min_time_us, summary.max_time_us,
    ]  # fmt: skip
    fields[3] = _native.crc32c(_HEADER.pack(*fields))
    return _HEADER.pack(*fields) + body


def write_sidecar(segment: Path, body: bytes, epoch: int, summary: SegmentSummary) -> None:
    """Writes <segment>.idx in one step. Not synced: it can be rebuilt."""
    data = encode_sidecar(body, epoch, summary)
    layout.write_file(layout.sidecar_path(segment), data, durable=False)


# --- Reading ------------------------------------------------------------------------------------


def _decode_header(data: bytes, epoch: int, index: int) -> tuple[SegmentSummary, int, int] | None:
    """(summary, body crc, body bytes) of a valid header that belongs to this segment."""
    if len(data) < HEADER_BYTES:
        return None
    fields = list(_HEADER.unpack_from(data))
    crc, fields[3] = fields[3], 0
    if fields[:2] != [MAGIC, VERSION] or _native.crc32c(_HEADER.pack(*fields)) != crc:
        return None
    if (fields[6], fields[7]) != (epoch, index):
        return None
    summary = SegmentSummary(
        index, fields[9], fields[10], fields[8], fields[11], fields[13], fields[14], fields[15]
    )
    return summary, fields[4], fields[5]


def read_summary(path: Path, epoch: int, index: int) -> SegmentSummary | None:
    """What a sidecar says of its segment; None when there is none or its header is not valid."""
    try:
        with open(path, "rb") as file:
            decoded = _decode_header(file.read(HEADER_BYTES), epoch, index)
    except OSError:
        return None
    return decoded[0] if decoded else None


class Sidecar:
    """An open, mapped and checked sidecar."""

    def __init__(self, memory: mmap.mmap | bytes, summary: SegmentSummary) -> None:
        """Use `Sidecar.open`."""
        self.summary = summary
        self._memory = memory
        self.stream_count, self.entry_count = _COUNTS.unpack_from(memory, HEADER_BYTES)
        self._table = HEADER_BYTES + _COUNTS.size
        self._entries = self._table + self.stream_count * STREAM_BYTES

    @classmethod
    def open(cls, path: Path, epoch: int, index: int) -> "Sidecar | None":
        """None when it is missing or anything about it is wrong: rebuild it then."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            size = os.fstat(fd).st_size
            if size < HEADER_BYTES + _COUNTS.size:
                return None
            memory = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        sidecar = cls.check(memory, epoch, index)
        if sidecar is None:
            memory.close()
        return sidecar

    @classmethod
    def check(cls, memory: mmap.mmap | bytes, epoch: int, index: int) -> "Sidecar | None":
        """The sidecar in `memory`, or None when header, sizes or checksums are wrong."""
        decoded = _decode_header(memory[:HEADER_BYTES], epoch, index)
        if decoded is None:
            return None
        summary, crc, length = decoded
        if HEADER_BYTES + length != len(memory):
            return None
        with memoryview(memory) as view, view[HEADER_BYTES:] as body:
            if _native.crc32c(body) != crc:
                return None
        sidecar = cls(memory, summary)
        end = sidecar._entries + sidecar.entry_count * ENTRY_BYTES
        return sidecar if end == len(memory) else None

    def close(self) -> None:
        """Gives the mapping back."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()

    def streams(self) -> Iterator[Stream]:
        """All that the segment holds, in order of (topic, slice)."""
        for row in range(self.stream_count):
            yield self._stream(row)

    def _stream(self, row: int) -> Stream:
        fields = _STREAM.unpack_from(self._memory, self._table + row * STREAM_BYTES)
        length, topic, slice_, first, count, _, first_offset, end_offset, first_ts, max_ts = fields
        name = topic[:length].decode("ascii", "replace")
        return Stream(name, slice_, first, count, first_offset, end_offset, first_ts, max_ts)

    def _sort_key(self, row: int) -> tuple[bytes, int]:
        at = self._table + row * STREAM_BYTES
        length, topic, slice_ = struct.unpack_from("<B127sI", self._memory, at)
        return topic[:length], slice_

    def find(self, topic: str, slice_: int) -> Stream | None:
        """The stream, or None when the segment has nothing of it."""
        key = (topic.encode(), slice_)
        row = bisect_right(range(self.stream_count), key, key=self._sort_key) - 1
        if row < 0 or self._sort_key(row) != key:
            return None
        return self._stream(row)

    def entries(self, stream: Stream, from_offset: int) -> bytes:
        """As they stand, from the chunk that holds `from_offset` (or the next after it) on."""
        end = stream.first_entry + stream.entry_count
        rows = range(stream.first_entry, end)
        row = bisect_right(rows, from_offset, key=self._end_offset) + stream.first_entry
        start = self._entries + row * ENTRY_BYTES
        return self._memory[start : start + min(end - row, ENTRIES_MAX) * ENTRY_BYTES]

    def sizes(self, stream: Stream, first: int, count: int) -> list[tuple[int, int]]:
        """(base offset, stored bytes) of up to `count` chunks from the stream's `first`-th on."""
        start = self._entries + (stream.first_entry + first) * ENTRY_BYTES
        count = max(0, min(count, stream.entry_count - first))
        part = self._memory[start : start + count * ENTRY_BYTES]
        return [(fields[0], fields[2]) for fields in _ENTRY.iter_unpack(part)]

    def locate_timestamp(self, stream: Stream, timestamp_us: int) -> Location | None:
        """The first chunk with an event at or after `timestamp_us`.

        Clients give timestamps, so they need not grow: the entries are looked at one by one.
        """
        start = self._entries + stream.first_entry * ENTRY_BYTES
        part = self._memory[start : start + stream.entry_count * ENTRY_BYTES]
        for row, fields in enumerate(_ENTRY.iter_unpack(part)):
            if fields[5] >= timestamp_us:
                return self._location(stream.first_entry + row)
        return None

    def locate_appended(self, stream: Stream, time_us: int) -> int | None:
        """Base offset of the first chunk appended at or after `time_us` by the log's own clock.

        Indexes of earlier versions know the time of the whole segment only: all counts as late.
        """
        start = self._entries + stream.first_entry * ENTRY_BYTES
        part = self._memory[start : start + stream.entry_count * ENTRY_BYTES]
        second = time_us // 1_000_000
        for base, _, _, _, appended, _ in _ENTRY.iter_unpack(part):
            if appended >= second or appended == 0:
                return int(base)
        return None

    def _end_offset(self, row: int) -> int:
        at = self._entries + row * ENTRY_BYTES
        base, _, _, count, _, _ = _ENTRY.unpack_from(self._memory, at)
        return int(base + count)

    def _location(self, row: int) -> Location:
        return location_at(self._memory, self._entries + row * ENTRY_BYTES)
