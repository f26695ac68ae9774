"""Extents of stored chunks as bodies of answers, in the four formats that consumers may accept."""

import struct
from collections.abc import Iterator, Sequence

import zstandard

from barco import _native
from barco.errors import CorruptDataError
from barco.model.token import TOKEN_MIN
from barco.workers.http.messages import JSON, NDJSON, Part
from barco.workers.reads import Chunk, Extent, chunk_head, split_chunks
from barco.workers.waiting import breathe

POLAR = "application/vnd.polar.consumermessage"
CHUNKS = "application/vnd.barco.chunks"

CONSUME_FORMATS = (JSON, NDJSON, POLAR, CHUNKS)

_STEP_BYTES = 256 * 1024
"""About a millisecond of rendering; then other requests have their turn."""

_POLAR_ITEM = struct.Struct(">qBIB")
_POLAR_RECORD = struct.Struct(">qI")
_ZSTD_LEVEL = 1


class Run:
    """The part of an extent that lies in one generation."""

    def __init__(self, extent: Extent, epoch: int, start: int) -> None:
        self.topic = extent.topic
        self.slice = extent.slice
        self.epoch = epoch
        self.start = start
        self.end = extent.end
        self.chunks: list[Chunk] = []


def runs(extents: Sequence[Extent]) -> list[Run]:
    """The extents, cut where a generation ends."""
    found: list[Run] = []
    for extent in extents:
        run: Run | None = None
        for chunk in extent.chunks:
            for piece, head in split_chunks(chunk):
                if run is None or run.epoch != head["epoch"]:
                    start = extent.start if run is None else head["base_offset"]
                    run = Run(extent, head["epoch"], start)
                    found.append(run)
                run.chunks.append(piece)
    return found


def _steps(run: Run) -> Iterator[list[Chunk]]:
    step: list[Chunk] = []
    size = 0
    for chunk in run.chunks:
        step.append(chunk)
        size += len(chunk)
        if size >= _STEP_BYTES:
            yield step
            step, size = [], 0
    if step:
        yield step


async def render(kind: str, extents: Sequence[Extent]) -> list[Part]:
    """The body, in parts."""
    try:
        if kind == JSON:
            return await _render_json(extents)
        if kind == NDJSON:
            return await _render_ndjson(extents)
        if kind == POLAR:
            return await _render_polar(extents)
    except ValueError as error:
        raise CorruptDataError(f"Stored events cannot be read: {error}.") from None
    assert kind == CHUNKS
    return [chunk for extent in extents for chunk in extent.chunks]


async def _render_json(extents: Sequence[Extent]) -> list[Part]:
    parts: list[Part] = []
    for run in runs(extents):
        # A topic's name needs no escapes; int64 values are strings, as JavaScript has no such.
        parts.append(
            f'{"," if parts else "["}{{"topic":"{run.topic}","token":"{TOKEN_MIN}",'
            f'"rangeIndex":{run.slice},"version":{run.epoch},'
            f'"startOffset":"{run.start}","values":['.encode()
        )
        first = True
        for step in _steps(run):
            values = _native.render_json(step, run.start, run.end)
            if len(values) > 2:
                if not first:
                    parts.append(b",")
                parts.append(memoryview(values)[1:-1])
                first = False
            await breathe()
        parts.append(b"]}")
    parts.append(b"]\n" if parts else b"[]\n")
    return parts


async def _render_ndjson(extents: Sequence[Extent]) -> list[Part]:
    parts: list[Part] = []
    for run in runs(extents):
        for step in _steps(run):
            parts.append(_native.render_ndjson(step, run.start, run.end, TOKEN_MIN))
            await breathe()
    return parts


async def _render_polar(extents: Sequence[Extent]) -> list[Part]:
    items = runs(extents)[:0xFFFF]
    parts: list[Part] = [struct.pack(">H", len(items))]
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    for run in items:
        records: list[bytes] = []
        for chunk in run.chunks:  # Single ones: runs() has split them.
            for offset, timestamp, _, value in _native.chunk_events(chunk):
                if run.start <= offset < run.end:
                    records += (_POLAR_RECORD.pack(timestamp, len(value)), value)
            await breathe()
        payload = compressor.compress(b"".join(records))
        topic = run.topic.encode()
        parts.append(_POLAR_ITEM.pack(TOKEN_MIN, run.slice & 0xFF, run.epoch, len(topic)))
        parts += (topic, struct.pack(">qi", run.start, len(payload)), payload)
    return parts


def skips(extents: Sequence[Extent]) -> str:
    """For stored chunks: "topic/slice@offset" where the first chunk begins before what is meant."""
    found = []
    for extent in extents:
        if extent.chunks:
            head = chunk_head(extent.chunks[0])
            if head["base_offset"] < extent.start:
                found.append(f"{extent.topic}/{extent.slice}@{extent.start}")
    return ", ".join(found)
