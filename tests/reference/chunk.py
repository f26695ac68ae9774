"""Stored chunks, as readers get them: consecutive events of one (topic, slice).

The layout is native/format/format.h's. `decode_chunk` gives columns; `Chunk.events` walks them.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from barco.errors import ProtocolError
from barco.model.token import TOKEN_MAX, TOKEN_MIN, token_of
from barco.types import Epoch, Offset, SliceIndex, Token
from reference.columns import encode_sections, make_columns
from reference.sections import (
    PLAIN,
    PRODUCER,
    WITH_HEADERS,
    Columns,
    Headers,
    Section,
    read_sections,
    unpack_columns,
)

_HEADER = struct.Struct("<IHBBIIQQqqqqIIII")
_MAGIC = 0x4B484342
_ENTRY_BYTES = 16
_CRC = struct.Struct("<I")
_CRC_AT = 76

assert _HEADER.size == 80


class Event(NamedTuple):
    """One event as a reader sees it."""

    offset: Offset
    timestamp_us: int
    key: bytes | None
    value: bytes | None


class ProducerRun(NamedTuple):
    """Consecutive events of a chunk that one idempotent producer sent."""

    producer_id: bytes
    producer_epoch: int
    first_event: int
    """Index in the chunk."""
    seq: int
    """Of the first event."""
    event_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHeader:
    """What a chunk says before its columns are unpacked."""

    topic: str
    slice: SliceIndex
    epoch: Epoch
    base_offset: Offset
    count: int
    base_timestamp_us: int
    max_timestamp_us: int
    token_min: Token
    token_max: Token
    stored_bytes: int
    raw_bytes: int

    @property
    def end_offset(self) -> Offset:
        """The offset after its last event."""
        return Offset(self.base_offset + self.count)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk, unpacked."""

    header: ChunkHeader
    columns: Columns
    producers: tuple[ProducerRun, ...]

    def events(self) -> list[Event]:
        """Its events in order."""
        base = self.header.base_offset
        offsets = map(Offset, range(base, base + self.columns.count))
        timestamps = self.columns.timestamps(self.header.base_timestamp_us)
        keys, values = self.columns.key_list(), self.columns.value_list()
        return list(map(Event, offsets, timestamps, keys, values))

    def headers(self) -> list[Headers]:
        """Those of its events, in order."""
        return self.columns.headers_list()


def decode_chunk(buf: bytes | bytearray | memoryview, offset: int = 0) -> Chunk:
    """The chunk at an offset, every checksum verified; ProtocolError if it is none."""
    header, view, head, section_count = _read_head(memoryview(buf)[offset:])
    directory = view[head - section_count * _ENTRY_BYTES : head]
    version = view[4]
    sections = read_sections(
        directory, view[head:], count=header.count, version=version, producers_allowed=True
    )
    if sum(section.raw_len for section in sections.values()) != header.raw_bytes:
        raise ProtocolError("the chunk's sections have another size than it says")
    for section in sections.values():
        section.verify()
    producers: tuple[ProducerRun, ...] = ()
    if Section.PRODUCERS in sections:
        records = PRODUCER.iter_unpack(sections[Section.PRODUCERS].stored)
        producers = tuple(ProducerRun(*record[:5]) for record in records)
    for run in producers:
        if not 0 < run.event_count <= header.count - run.first_event:
            raise ProtocolError("a producer's events lie outside of the chunk")
    columns = unpack_columns(sections, version)
    columns.check_times(header.base_timestamp_us)
    return Chunk(header, columns, producers)


def read_header(buf: bytes | bytearray | memoryview, offset: int = 0) -> ChunkHeader:
    """The header alone, its checksum verified; the whole chunk must be there."""
    return _read_head(memoryview(buf)[offset:])[0]


def decode_chunks(buf: bytes | bytearray | memoryview) -> Iterator[Chunk]:
    """The chunks that stand back to back in a buffer."""
    view, at = memoryview(buf), 0
    while at < len(view):
        chunk = decode_chunk(view, at)
        at += chunk.header.stored_bytes
        yield chunk


def _read_head(view: memoryview) -> tuple[ChunkHeader, memoryview, int, int]:
    """The header, the chunk's bytes, the length of its head, the number of sections."""
    if len(view) < _HEADER.size:
        raise ProtocolError("the chunk is cut off")
    fields = _HEADER.unpack_from(view)
    magic, version, topic_len, section_count, stored, count, epoch, base = fields[:8]
    base_us, max_us, token_min, token_max, slice_, raw_bytes, flags, crc = fields[8:]
    if (magic, flags) != (_MAGIC, 0) or version not in (PLAIN, WITH_HEADERS):
        raise ProtocolError("not a chunk")
    topic_end = _HEADER.size + topic_len
    head = topic_end + -topic_len % 8 + section_count * _ENTRY_BYTES
    if len(view) < head or _head_crc(view[:head]) != crc:
        raise ProtocolError("the chunk's header is cut off or fails its checksum")
    if not topic_len or not count or not head <= stored <= len(view) or stored % 8:
        raise ProtocolError("the chunk is cut off, or its header has impossible lengths")
    header = ChunkHeader(
        topic=str(view[_HEADER.size : topic_end], "ascii", "replace"),
        slice=SliceIndex(slice_),
        epoch=Epoch(epoch),
        base_offset=Offset(base),
        count=count,
        base_timestamp_us=base_us,
        max_timestamp_us=max_us,
        token_min=Token(token_min),
        token_max=Token(token_max),
        stored_bytes=stored,
        raw_bytes=raw_bytes,
    )
    return header, view[:stored], head, section_count


def _head_crc(head: memoryview) -> int:
    """The checksum of header, topic and directory, with its own field at zero."""
    return crc32c(head[_CRC_AT + 4 :], crc32c(bytes(4), crc32c(head[:_CRC_AT])))


def encode_chunk(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
    *,
    topic: str,
    slice: SliceIndex,
    epoch: Epoch,
    base_offset: Offset,
    producers: Sequence[ProducerRun] = (),
    compress: bool = True,
) -> bytes:
    """A chunk's bytes, as the broker would store it."""
    name = topic.encode("ascii")
    columns, base_us = make_columns(values, keys, timestamps_us, headers)
    runs = b"".join(PRODUCER.pack(*run, 0) for run in producers)
    section_count, directory, body = encode_sections(columns, producers=runs, compress=compress)
    tokens = [token_of(key) for key in keys or () if key is not None]
    if len(tokens) < len(values):
        tokens = [TOKEN_MIN, TOKEN_MAX]
    lengths = 4 * columns.count
    raw_bytes = len(columns.keys) + len(columns.values) + len(runs) + lengths
    raw_bytes += lengths * (columns.ts_delta is not None)
    raw_bytes += lengths * (columns.ts_high is not None)
    raw_bytes += lengths * (columns.key_len is not None)
    raw_bytes += len(columns.hdrs) + lengths * (columns.hdr_len is not None)
    padded = name + bytes(-len(name) % 8)
    stored = _HEADER.size + len(padded) + len(directory) + len(body)
    head = bytearray(
        _HEADER.pack(
            *(_MAGIC, columns.version, len(name), section_count, stored, columns.count),
            *(epoch, base_offset, base_us, max(timestamps_us or (0,))),
            *(min(tokens), max(tokens), slice, raw_bytes, 0, 0),
        )
    )
    head += padded + directory
    _CRC.pack_into(head, _CRC_AT, _head_crc(memoryview(head)))
    return bytes(head) + body
