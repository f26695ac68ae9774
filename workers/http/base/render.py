"""Extents of stored chunks as bodies of answers, in the five formats that consumers may accept."""

import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter

import zstandard

from barco import _native
from barco.errors import CorruptDataError
from barco.model.placement import Placement
from barco.protocol.arrow_ipc import END
from barco.workers.http.base import arrow
from barco.workers.http.base.arrow import ARROW
from barco.workers.http.base.conditions import Condition
from barco.workers.http.base.messages import JSON, NDJSON, Part
from barco.workers.shard.reads import STRETCH_BYTES, Chunk, Extent, chunk_place
from barco.workers.shard.waiting import breathe

POLAR = "application/vnd.polar.consumermessage"
CHUNKS = "application/vnd.barco.chunks"

COLUMNS = {**dict(sorted(_native.COLUMNS.items(), key=itemgetter(1))), "offset": 0}
"""By name what may be asked for of stored chunks alone; offsets follow from a chunk's head. Answers
tell them in this order, which does not depend on how the core's table is sorted."""

CONSUME_FORMATS = (JSON, NDJSON, POLAR, CHUNKS, ARROW)

FRAME_BYTES = {JSON: 1, NDJSON: 180, POLAR: 12, ARROW: arrow.FRAME_BYTES}
"""What stands around an event's key and value in each form, about; topics not counted."""

_TEXT_BYTES = 512 * 1024
"""Of text that comes out at most of one stretch: small events become several times as long."""

_BRACKETS = 2
"""Around the values of a piece of JSON."""

_POLAR_ITEMS_MAX = 0xFFFF
_POLAR_ITEM = struct.Struct(">qBIB")
_ZSTD_LEVEL = 1


def frame_bytes(kind: str, topic: str) -> int:
    """What stands around an event's key and value when it is rendered, about."""
    return FRAME_BYTES.get(kind, 0) + (len(topic) if kind in (NDJSON, ARROW) else 0)


class Run:
    """The part of an extent that lies in one generation."""

    def __init__(self, extent: Extent, ring: Placement, epoch: int, start: int) -> None:
        self.extent = extent
        self.topic = extent.topic
        range_index, self.slice = divmod(extent.slice, ring.slices_per_range)
        self.token = int(ring.token(range_index))
        self.epoch = epoch
        self.start = start
        self.end = extent.end
        """Where it is to end, then where the rendered part of it ends."""
        self.chunks: list[Chunk] = []


def runs(extents: Sequence[Extent], ring: Placement) -> list[Run]:
    """The extents, cut where a generation ends. Their slices are numbered through the ring."""
    found: list[Run] = []
    for extent in extents:
        run: Run | None = None
        for chunk in extent.chunks:
            base, _, epoch = chunk_place(chunk)
            if run is None or run.epoch != epoch:
                start = extent.start if run is None else base
                if run is not None:
                    run.end = start
                run = Run(extent, ring, epoch, start)
                found.append(run)
            run.chunks.append(chunk)
    return found


def _steps(run: Run) -> Iterator[tuple[list[Chunk], int]]:
    """The chunks of a run, some at a time, and the offset where they end."""
    step: list[Chunk] = []
    size = 0
    for chunk in run.chunks:
        if size >= STRETCH_BYTES:
            yield step, min(run.end, chunk_place(chunk)[0])
            step, size = [], 0
        step.append(chunk)
        size += len(chunk)
    if step:
        yield step, run.end


class _Budget:
    """What may still be rendered, and when others have their turn.

    That is not before a short answer: it would wait for theirs.
    """

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.started = False
        """Whether there is an event in the answer; one is, however large."""
        self._work = 0

    @property
    def most(self) -> int:
        """For the next piece."""
        return min(max(self.left, 1), _TEXT_BYTES)

    async def spend(self, read: Sequence[Chunk], written: int) -> None:
        """A piece has been rendered."""
        self.left -= written
        self.started = True
        self._work += max(sum(len(chunk) for chunk in read), written // 2)
        if self._work >= STRETCH_BYTES:
            self._work = 0
            await breathe()


Form = Callable[[Sequence[Chunk], int, int, int], tuple[bytes, int]]
"""The text of chunks from one offset to another, about so many bytes, and where it ends."""


async def _text(run: Run, form: Form, budget: _Budget) -> list[bytes]:
    """The run as far as the budget reaches; its end is there then."""
    pieces: list[bytes] = []
    at = run.start
    steps = list(_steps(run))  # Now: they go to the run's end, which is moved.
    run.end = at
    for step, stop in steps:
        while at < stop:
            if budget.started and budget.left <= 0:
                return pieces
            text, after = form(step, at, stop, budget.most)
            if after <= at or (budget.started and len(text) > budget.left + _BRACKETS):
                return pieces
            run.end = at = after
            pieces.append(text)
            await budget.spend(step, len(text))
    return pieces


async def render(
    kind: str,
    extents: Sequence[Extent],
    ring: Placement,
    budget: int = 2**62,
    where: Sequence[Condition] = (),
) -> list[Part]:
    """The body, in parts: at most `budget` bytes and what frames them, but one event at least.

    Extents that do not fit end where the body does. Stored chunks are sent as they are. `where`, of
    lines: only these events; the others count as they would be rendered.
    """
    if kind == CHUNKS:
        return [chunk for extent in extents for chunk in extent.chunks]
    lines = partial(_render_ndjson, where=tuple(where))
    forms: dict[str, Callable[[Sequence[Run], _Budget], Awaitable[list[Part]]]]
    forms = {JSON: _render_json, NDJSON: lines, POLAR: _render_polar, ARROW: _render_arrow}
    make = forms[kind]
    found = runs(extents, ring)
    try:
        parts = await make(found, _Budget(budget))
    except ValueError as error:
        raise CorruptDataError(f"Stored events cannot be read: {error}.") from None
    for extent in extents:
        ends = [run.end for run in found if run.extent is extent and run.end > run.start]
        extent.end = ends[-1] if ends else extent.start
    return parts


async def _render_json(found: Sequence[Run], budget: _Budget) -> list[Part]:
    parts: list[Part] = []
    for run in found:
        pieces = await _text(run, _native.render_json, budget)
        if not pieces:
            continue
        # A topic's name needs no escapes; int64 values are strings, as JavaScript has no such.
        parts.append(
            f'{"," if parts else "["}{{"topic":"{run.topic}","token":"{run.token}",'
            f'"rangeIndex":{run.slice},"version":{run.epoch},'
            f'"startOffset":"{run.start}",{_lease_of(run)}"values":['.encode()
        )
        for number, values in enumerate(pieces):
            if number:
                parts.append(b",")
            parts.append(memoryview(values)[1:-1])
        parts.append(b"]}")
    parts.append(b"]\n" if parts else b"[]\n")
    return parts


def _lease_of(run: Run) -> str:
    """Of a queue: how they are acknowledged, and how many times they were given."""
    if (leased := run.extent.leased) is None:
        return ""
    leased = leased._replace(start=run.start, end=run.end)
    return f'"lease":"{leased.name}","deliveries":{leased.times},'


async def _render_ndjson(
    found: Sequence[Run], budget: _Budget, where: tuple[Condition, ...] = ()
) -> list[Part]:
    parts: list[Part] = []
    for run in found:
        token, leased = run.token, run.extent.leased
        before, times = (leased.prefix, leased.times) if leased is not None else (None, 0)

        def lines(
            step: Sequence[Chunk],
            at: int,
            end: int,
            most: int,
            more: tuple[int, str | None, int] = (token, before, times),
        ) -> tuple[bytes, int]:
            return _native.render_ndjson(step, at, end, more[0], most, *more[1:], where)

        parts += await _text(run, lines, budget)
    return parts


async def _render_arrow(found: Sequence[Run], budget: _Budget) -> list[Part]:
    parts: list[Part] = [arrow.START]
    for run in found:
        parts += await _record_batches(run, budget)
    return [*parts, END]


async def _record_batches(run: Run, budget: _Budget) -> list[Part]:
    """The run as far as the budget reaches, which is at least one batch; its end is there then."""
    parts: list[Part] = []
    where = (run.topic, run.token, run.slice)
    at = run.start
    steps = list(_steps(run))
    run.end = at
    for step, stop in steps:
        body, position = b"".join(map(memoryview, step)), 0
        while at < stop and position < len(body):
            if budget.started and budget.left <= 0:
                return parts
            some, position, after = arrow.record_batch(body, position, where, at, stop)
            size = sum(map(len, some))
            if budget.started and size > budget.left:
                return parts
            parts += some
            run.end = at = after
            await budget.spend((), size)
    return parts


async def _render_polar(found: Sequence[Run], budget: _Budget) -> list[Part]:
    parts: list[Part] = []
    items = 0
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    for run in found:
        if items == _POLAR_ITEMS_MAX:
            run.end = run.start
            continue
        records = await _text(run, _native.render_records, budget)
        if not records:
            continue
        items += 1
        payload = compressor.compress(b"".join(records))
        topic = run.topic.encode()
        parts.append(_POLAR_ITEM.pack(run.token, run.slice & 0xFF, run.epoch, len(topic)))
        parts += (topic, struct.pack(">qi", run.start, len(payload)), payload)
    return [struct.pack(">H", items), *parts]


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
