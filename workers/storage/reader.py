"""Stored chunks of a (topic, slice) from an offset on, from the disk, verified.

What is still in memory is served by the core before anybody asks here. A reader that comes from
memory to the disk and back pays one read for what it asks; one that reads on and on (a replay, a
Spark load) gets the next megabytes read ahead while its last answer is on its way.
"""

import asyncio
import struct
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from barco import _native
from barco.errors import BarcoError
from barco.limits import PAGE_BYTES
from barco.types import KiB, MiB
from barco.workers.storage import layout
from barco.workers.storage.bulk import UNIT_BYTES, BulkIo
from barco.workers.storage.catalog import Catalog, SegmentKey, StreamPart
from barco.workers.storage.chunks import section_damage
from barco.workers.storage.errors import CorruptChunkError, explain
from barco.workers.storage.index import Location

READ_AHEAD_BYTES = 4 * MiB
"""Four units of 1 MiB, in parallel: where a sequential reader reaches the device's rate. While as
much is ready, as much again is on its way."""

SEQUENTIAL_READS_MIN = 2
"""Reads that continued where the last one ended, before anything is read ahead."""

REPLAYS_MAX = 3
REPLAY_IDLE_SECONDS = 5.0
"""Readers with read-ahead at one time; buffers of one that went away are given back."""

SPAN_GAP_BYTES_MAX = 64 * KiB
"""Bytes of other streams that are read along rather than asked around."""

SPAN_BYTES_MAX = UNIT_BYTES - 2 * PAGE_BYTES
"""Widened to pages at both ends a span still fits one buffer of 1 MiB."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

Locate = Callable[[str, int, int, int], list[tuple[int, int, int, int, int]]]
"""(topic, slice, from_offset, max_chunks) -> (segment, file_offset, stored_bytes, base_offset,
count) of chunks in the open generation: the core's index."""

LocateTimestamp = Callable[[str, int, int], int | None]


@dataclass(slots=True)
class ReadResult:
    """Whole chunks: the first may begin before the offset asked for."""

    chunks: list[memoryview]
    next_offset: int
    """After the last event of the chunks; what was asked for when there are none."""
    epoch: int
    """Of the last chunk's generation (0 when there are none)."""

    @property
    def bytes(self) -> int:
        """Stored bytes of all chunks."""
        return sum(len(chunk) for chunk in self.chunks)


class _Plan(NamedTuple):
    """Chunks of one segment that answer a read."""

    key: SegmentKey
    path: Path
    locations: list[Location]


@dataclass(slots=True)
class _Replay:
    """A reader that goes on and on: what is read ahead for it."""

    next_offset: int
    fetch_offset: int
    ready: deque[tuple[memoryview, int, int]] = field(default_factory=deque)
    """(chunk, its end offset, epoch)"""
    ready_bytes: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    failure: Exception | None = None
    timer: asyncio.TimerHandle | None = None


class LogReader:
    """Reads the whole history of a shard: sealed segments by index, the open one by the core's."""

    def __init__(
        self,
        catalog: Catalog,
        bulk: BulkIo,
        *,
        open_epoch: int,
        locate: Locate | None = None,
        locate_timestamp: LocateTimestamp | None = None,
    ) -> None:
        self._catalog = catalog
        self._bulk = bulk
        self._open_epoch = open_epoch
        self._locate = locate
        self._locate_timestamp = locate_timestamp
        self._steps: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self._replays: OrderedDict[tuple[str, int, int], _Replay] = OrderedDict()
        self.corrupt_chunks = 0
        """Chunks that were not served, since the start."""
        self.disk_bytes = 0
        self.read_ahead_hits = 0

    # --- The face -----------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        slice_: int,
        from_offset: int,
        max_bytes: int,
        *,
        epoch_hint: int | None = None,
    ) -> ReadResult:
        """Chunks that hold `from_offset` or, when retention was there, the next events after it.

        About `max_bytes` stored bytes, at least one chunk if there is any. Offsets go on across
        generations, so `epoch_hint` is not needed to find them. Raises CorruptChunkError (the
        events it names are never served), DiskError, BusyError.
        """
        key = (topic, slice_, from_offset)
        replay = self._replays.pop(key, None)
        if replay is not None:
            return await self._read_on(topic, slice_, replay, max_bytes)
        if self._bulk.buffers.scarce:
            self.close()  # Nobody waits for what was read ahead, but this one does.
        result = await self._fetch(topic, slice_, from_offset, max_bytes)
        if result.chunks:
            self._note_step(key, topic, slice_, result.next_offset)
        return result

    async def earliest(self, topic: str, slice_: int) -> int | None:
        """The lowest offset that is still on disk; None when there is nothing."""
        parts = await self._catalog.parts(topic, slice_)
        if parts:
            return 0 if self._catalog.complete else parts[0].first_offset
        found = self._locate(topic, slice_, 0, 1) if self._locate else []
        if not found:
            return None
        return 0 if self._catalog.complete else found[0][3]

    async def by_timestamp(self, topic: str, slice_: int, timestamp_us: int) -> int | None:
        """The offset of the first event at or after a time; None when all are older."""
        for part in list(await self._catalog.parts(topic, slice_)):
            if part.max_ts < timestamp_us or self._catalog.get(part.key) is None:
                continue
            sidecar = await self._catalog.sidecar(part.key)
            stream = sidecar.find(topic, slice_)
            location = sidecar.locate_timestamp(stream, timestamp_us) if stream else None
            if location is not None:
                return await self._event_at(topic, slice_, location.base_offset, timestamp_us)
        if self._locate_timestamp is None:
            return None
        return self._locate_timestamp(topic, slice_, timestamp_us)

    async def streams(self) -> list[tuple[str, int, int, int]]:
        """(topic, slice, first offset, end offset) over all sealed segments."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for count, segment in enumerate(self._catalog.segments()):
            if self._catalog.get(segment.key) is None:
                continue
            for stream in (await self._catalog.sidecar(segment.key)).streams():
                name = (stream.topic, stream.slice)
                first = found[name][0] if name in found else stream.first_offset
                found[name] = (first, stream.end_offset)
            if count % 32 == 31:
                await asyncio.sleep(0)
        return [(*name, *offsets) for name, offsets in sorted(found.items())]

    def close(self) -> None:
        """Gives up what is read ahead."""
        for replay in self._replays.values():
            self._drop(replay)
        self._replays.clear()

    # --- One read -----------------------------------------------------------------------------

    async def _fetch(
        self, topic: str, slice_: int, from_offset: int, max_bytes: int, *, wait: bool = True
    ) -> ReadResult:
        for attempt in range(3):
            plan = await self._plan(topic, slice_, from_offset, max_bytes)
            if plan is None:
                return ReadResult([], from_offset, 0)
            if plan.locations[0].base_offset > from_offset:
                await self._explain_hole(topic, slice_, from_offset, plan)
            try:
                return await self._read_plan(topic, slice_, plan, wait)
            except FileNotFoundError:
                continue  # Retention removed it between the look-up and the read.
            except _WrongIndexError as error:
                if attempt or plan.key.epoch == self._open_epoch:
                    raise self._corrupt(topic, slice_, plan, error) from None
                await self._catalog.rebuild(plan.key)
        return ReadResult([], from_offset, 0)

    async def _plan(
        self, topic: str, slice_: int, from_offset: int, max_bytes: int
    ) -> _Plan | None:
        part: StreamPart | None = await self._catalog.part_at(topic, slice_, from_offset)
        if part is not None:
            segment = self._catalog.get(part.key)
            sidecar = await self._catalog.sidecar(part.key)
            stream = sidecar.find(topic, slice_)
            if segment is not None and stream is not None:
                locations = sidecar.locate(stream, from_offset, max_bytes)
                return _Plan(part.key, segment.path, locations) if locations else None
        if self._locate is None:
            return None
        return self._plan_open(topic, slice_, from_offset, max_bytes)

    def _plan_open(self, topic: str, slice_: int, from_offset: int, max_bytes: int) -> _Plan | None:
        assert self._locate is not None
        rows = self._locate(topic, slice_, from_offset, max(1, min(4096, max_bytes // 512)))
        locations: list[Location] = []
        total = 0
        for segment, file_offset, stored, base, count in rows:
            total += stored
            if segment != rows[0][0] or (locations and total > max_bytes):
                break
            locations.append(Location(file_offset, stored, base, count, 0))
        if not locations:
            return None
        key = SegmentKey(self._open_epoch, rows[0][0])
        return _Plan(key, layout.segment_path(self._catalog.shard, *key), locations)

    async def _read_plan(self, topic: str, slice_: int, plan: _Plan, wait: bool) -> ReadResult:
        """Reads and verifies; fewer chunks than planned when buffers or the disk fail half-way."""
        spans = _spans(plan.locations)
        with self._catalog.files.lease(plan.key, plan.path) as fd:
            # Only the first may wait for a buffer: nobody waits while holding others.
            reads = [
                self._bulk.read(fd, first, end - first, wait=wait and number == 0)
                for number, (first, end, _) in enumerate(spans)
            ]
            views = await asyncio.gather(*reads, return_exceptions=True)
        chunks: list[memoryview] = []
        next_offset = plan.locations[0].base_offset
        for (first, _, locations), view in zip(spans, views, strict=True):
            if isinstance(view, BaseException):
                if chunks:
                    break
                if isinstance(view, OSError):
                    raise explain(view, plan.path, "read") from view
                raise view
            self.disk_bytes += len(view)
            sparse = 2 * sum(location.stored_bytes for location in locations) < len(view)
            for location in locations:
                at = location.file_offset - first
                chunk = view[at : at + location.stored_bytes]
                if sparse:  # A few KiB are not to keep a buffer of 1 MiB.
                    chunk = memoryview(bytes(chunk))
                why, wrong_index = _check(chunk, topic, slice_, location)
                if why:
                    if chunks:  # What is good is served first; the next read meets the bad one.
                        return ReadResult(chunks, next_offset, plan.key.epoch)
                    if wrong_index:
                        raise _WrongIndexError(location, why)
                    raise self._corrupt(topic, slice_, plan, _WrongIndexError(location, why))
                chunks.append(chunk)
                next_offset = location.base_offset + location.event_count
        return ReadResult(chunks, next_offset, plan.key.epoch)

    async def _explain_hole(self, topic: str, slice_: int, from_offset: int, plan: _Plan) -> None:
        """Offsets go on without gaps: what is not there above the earliest is damaged.

        An index that is made again cannot hold a chunk whose header is damaged.
        """
        earliest = await self.earliest(topic, slice_)
        if earliest is None or from_offset < earliest:
            return  # Retention.
        after = plan.locations[0]
        hole = Location(after.file_offset, 0, from_offset, after.base_offset - from_offset, 0)
        why = "the chunks before it cannot be found"
        raise self._corrupt(topic, slice_, plan, _WrongIndexError(hole, why))

    def _corrupt(
        self, topic: str, slice_: int, plan: _Plan, error: "_WrongIndexError"
    ) -> CorruptChunkError:
        self.corrupt_chunks += 1
        location = error.location
        return CorruptChunkError(
            str(plan.path),
            location.file_offset,
            topic,
            slice_,
            location.base_offset,
            location.base_offset + location.event_count,
            error.why,
        )

    async def _event_at(self, topic: str, slice_: int, offset: int, timestamp_us: int) -> int:
        """The first event at or after a time within the chunk that begins at `offset`."""
        result = await self._fetch(topic, slice_, offset, 1)
        for chunk in result.chunks:
            for event_offset, timestamp, _, _ in _native.chunk_events(chunk):
                if timestamp >= timestamp_us:
                    return event_offset
        return offset

    # --- Read-ahead -----------------------------------------------------------------------------

    def _note_step(
        self, key: tuple[str, int, int], topic: str, slice_: int, next_offset: int
    ) -> None:
        """A read that continues another one is a step; after a few of them read ahead."""
        steps = self._steps.pop(key, 0) + 1
        after = (topic, slice_, next_offset)
        if steps < SEQUENTIAL_READS_MIN:
            self._steps[after] = steps
            while len(self._steps) > 64 * REPLAYS_MAX:
                self._steps.popitem(last=False)
            return
        replay = _Replay(next_offset, next_offset)
        self._fetch_more(topic, slice_, replay)
        self._keep(after, replay)

    def _keep(self, key: tuple[str, int, int], replay: _Replay) -> None:
        old = self._replays.pop(key, None)
        if old is not None:
            self._drop(old)
        self._replays[key] = replay
        while len(self._replays) > REPLAYS_MAX:
            self._drop(self._replays.popitem(last=False)[1])
        if replay.timer is not None:
            replay.timer.cancel()
        loop = asyncio.get_running_loop()
        replay.timer = loop.call_later(REPLAY_IDLE_SECONDS, self._idle, key, replay)

    def _idle(self, key: tuple[str, int, int], replay: _Replay) -> None:
        if self._replays.get(key) is replay:
            self._drop(self._replays.pop(key))

    def _drop(self, replay: _Replay) -> None:
        if replay.timer is not None:
            replay.timer.cancel()
        if replay.task is not None:
            replay.task.cancel()
        replay.ready.clear()

    def _fetch_more(self, topic: str, slice_: int, replay: _Replay) -> None:
        if replay.task is None and replay.failure is None:
            loop = asyncio.get_running_loop()
            replay.task = loop.create_task(self._fill(topic, slice_, replay))

    async def _fill(self, topic: str, slice_: int, replay: _Replay) -> None:
        """Reads ahead until enough is ready; the reader takes from it meanwhile."""
        try:
            while replay.ready_bytes <= READ_AHEAD_BYTES and not self._bulk.buffers.scarce:
                result = await self._fetch(
                    topic, slice_, replay.fetch_offset, READ_AHEAD_BYTES, wait=False
                )
                if not result.chunks:
                    break
                for chunk in result.chunks:
                    # Verified a moment ago: count and base offset stand where the format says.
                    (count,) = _U32.unpack_from(chunk, 12)
                    (base,) = _U64.unpack_from(chunk, 24)
                    replay.ready.append((chunk, base + count, result.epoch))
                    replay.ready_bytes += len(chunk)
                replay.fetch_offset = result.next_offset
                replay.arrived.set()
        except BarcoError as error:
            replay.failure = error
        finally:
            replay.task = None
            replay.arrived.set()

    async def _read_on(
        self, topic: str, slice_: int, replay: _Replay, max_bytes: int
    ) -> ReadResult:
        if replay.timer is not None:
            replay.timer.cancel()
        if not replay.ready and replay.task is not None:
            replay.arrived.clear()
            await replay.arrived.wait()
        if not replay.ready:
            # The end, a failure, or no buffer: find out afresh, and begin again as a new reader.
            self._drop(replay)
            return await self._fetch(topic, slice_, replay.next_offset, max_bytes)
        self.read_ahead_hits += 1
        result = ReadResult([], replay.next_offset, 0)
        total = 0
        while replay.ready:
            chunk, end, epoch = replay.ready[0]
            total += len(chunk)
            if result.chunks and total > max_bytes:
                break
            replay.ready.popleft()
            replay.ready_bytes -= len(chunk)
            result.chunks.append(chunk)
            result.next_offset, result.epoch = end, epoch
        replay.next_offset = result.next_offset
        if replay.ready_bytes <= READ_AHEAD_BYTES:
            self._fetch_more(topic, slice_, replay)
        self._keep((topic, slice_, replay.next_offset), replay)
        return result


class _WrongIndexError(Exception):
    """The index points to something that is not the chunk it describes."""

    def __init__(self, location: Location, why: str) -> None:
        super().__init__(why)
        self.location, self.why = location, why


def _spans(locations: list[Location]) -> list[tuple[int, int, list[Location]]]:
    """Neighbouring chunks together: (start, end, chunks) of reads of at most about 1 MiB."""
    spans: list[tuple[int, int, list[Location]]] = []
    for location in locations:
        start, end = location.file_offset, location.file_offset + location.stored_bytes
        if spans:
            first, last, members = spans[-1]
            near = 0 <= start - last <= SPAN_GAP_BYTES_MAX
            if near and end - first <= SPAN_BYTES_MAX:
                members.append(location)
                spans[-1] = (first, end, members)
                continue
        spans.append((start, end, [location]))
    return spans


def _check(chunk: memoryview, topic: str, slice_: int, location: Location) -> tuple[str, bool]:
    """(what is wrong with a chunk or "", whether the index may be to blame)."""
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
    return section_damage(chunk), False
