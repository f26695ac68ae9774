"""Extents of stored chunks as bodies of answers, in the four formats that consumers may accept."""

import struct
from collections.abc import Iterator, Sequence

import zstandard

from barco import _native
from barco.errors import CorruptDataError
from barco.model.placement import Placement
from barco.workers.http.messages import JSON, NDJSON, Part
from barco.workers.reads import Chunk, Extent, chunk_place, split_chunks
from barco.workers.waiting import breathe

POLAR = "application/vnd.polar.consumermessage"
CHUNKS = "application/vnd.barco.chunks"

CONSUME_FORMATS = (JSON, NDJSON, POLAR, CHUNKS)

_STEP_BYTES = 256 * 1024
"""About a millisecond of rendering; then other requests have their turn."""

_POLAR_ITEM = struct.Struct(">qBIB")
_ZSTD_LEVEL = 1


class Run:
    """The part of an extent that lies in one generation."""

    def __init__(self, extent: Extent, ring: Placement, epoch: int, start: int) -> None:
        self.topic = extent.topic
        range_index, self.slice = divmod(extent.slice, ring.slices_per_range)
        self.token = int(ring.token(range_index))
        self.epoch = epoch
        self.start = start
        self.end = extent.end
        self.chunks: list[Chunk] = []


def runs(extents: Sequence[Extent], ring: Placement) -> list[Run]:
    """The extents, cut where a generation ends. Their slices are numbered through the ring."""
    found: list[Run] = []
    for extent in extents:
        run: Run | None = None
        for chunk in extent.chunks:
            for piece, head in split_chunks(chunk):
                if run is None or run.epoch != head["epoch"]:
                    start = extent.start if run is None else head["base_offset"]
                    run = Run(extent, ring, head["epoch"], start)
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


class _Pace:
    """Lets others have their turn, but not before a short answer: it would wait for theirs."""

    def __init__(self) -> None:
        self._bytes = 0

    async def after(self, step: Sequence[Chunk]) -> None:
        """A step has been rendered."""
        self._bytes += sum(len(chunk) for chunk in step)
        if self._bytes >= _STEP_BYTES:
            self._bytes = 0
            await breathe()


async def render(kind: str, extents: Sequence[Extent], ring: Placement) -> list[Part]:
    """The body, in parts."""
    try:
        if kind == JSON:
            return await _render_json(runs(extents, ring))
        if kind == NDJSON:
            return await _render_ndjson(runs(extents, ring))
        if kind == POLAR:
            return await _render_polar(runs(extents, ring))
    except ValueError as error:
        raise CorruptDataError(f"Stored events cannot be read: {error}.") from None
    assert kind == CHUNKS
    return [chunk for extent in extents for chunk in extent.chunks]


async def _render_json(found: Sequence[Run]) -> list[Part]:
    parts: list[Part] = []
    pace = _Pace()
    for run in found:
        # A topic's name needs no escapes; int64 values are strings, as JavaScript has no such.
        parts.append(
            f'{"," if parts else "["}{{"topic":"{run.topic}","token":"{run.token}",'
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
            await pace.after(step)
        parts.append(b"]}")
    parts.append(b"]\n" if parts else b"[]\n")
    return parts


async def _render_ndjson(found: Sequence[Run]) -> list[Part]:
    parts: list[Part] = []
    pace = _Pace()
    for run in found:
        for step in _steps(run):
            parts.append(_native.render_ndjson(step, run.start, run.end, run.token))
            await pace.after(step)
    return parts


async def _render_polar(found: Sequence[Run]) -> list[Part]:
    items = found[:0xFFFF]
    parts: list[Part] = [struct.pack(">H", len(items))]
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    pace = _Pace()
    for run in items:
        records: list[bytes] = []
        for step in _steps(run):
            records.append(_native.render_records(step, run.start, run.end))
            await pace.after(step)
        payload = compressor.compress(b"".join(records))
        topic = run.topic.encode()
        parts.append(_POLAR_ITEM.pack(run.token, run.slice & 0xFF, run.epoch, len(topic)))
        parts += (topic, struct.pack(">qi", run.start, len(payload)), payload)
    return parts


def skips(extents: Sequence[Extent], ring: Placement) -> str:
    """For stored chunks: "topic/slice@offset" where the first chunk begins before what is meant.

    In a cluster "topic/token/slice@offset".
    """
    found = []
    for extent in extents:
        if extent.chunks and chunk_place(extent.chunks[0])[0] < extent.start:
            range_index, index = divmod(extent.slice, ring.slices_per_range)
            name = f"{ring.token(range_index)}/{index}" if ring.size > 1 else index
            found.append(f"{extent.topic}/{name}@{extent.start}")
    return ", ".join(found)
