"""Stored chunks of a (topic, slice) from an offset on, from the disk, verified.

What is still in memory is served by the core before anybody asks here. A reader that comes from
memory to the disk and back pays one read for what it asks; one that reads on and on (a replay, a
Spark load) gets the next megabytes read ahead while its last answer is on its way.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from barco import _native
from barco.errors import BarcoError, BusyError, CorruptDataError
from barco.limits import OFFSET_MAX
from barco.types import MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.buffers import buffer_bytes
from barco.workers.storage.files.bulk import GROUP_BYTES, BulkIo, Group
from barco.workers.storage.files.errors import CorruptChunkError, DiskError, explain
from barco.workers.storage.index.catalog import Catalog, SegmentKey, StreamPart
from barco.workers.storage.index.sidecar import ENTRIES_MAX, Location, entry_of
from barco.workers.storage.reading.chunks import Plan, WrongIndexError, chunk_damage
from barco.workers.storage.reading.readahead import (
    ChunkRun,
    ReadAhead,
    ReadResult,
    Replay,
    Want,
    fitting,
    from_ready,
)

READ_AHEAD_BYTES = 8 * MiB
"""For one reader: half of it in parallel is where a sequential reader reaches the device's rate,
while it takes the other half. Counted in buffers, with what they are rounded up to."""

READ_AHEAD_SHARE = 2
"""All readers together have this part of the pool; the rest is for reads that wait."""

SEQUENTIAL_READS_MIN = 2
"""Reads that continued where the last one ended, before anything is read ahead."""

REPLAYS_MAX = 16
"""Readers with read-ahead at one time; one more gets it when one of them pauses."""

REPLAY_PAUSE_SECONDS = 0.25
REPLAY_IDLE_SECONDS = 5.0
"""The buffers of a reader that went away are given back, sooner where others need them."""

GIVEN_SHARE = 3
"""Of the pool may be held by answers that clients have not taken yet; beyond it they are copied."""

Streamed = tuple[str, int, int]
"""Topic, slice, and the columns that are wanted of it (-1: whole chunks)."""


class Locate(Protocol):
    """The core's index of the open generation."""

    def __call__(
        self, topic: str, slice: int, from_offset: int, max_chunks: int, max_bytes: int = ..., /
    ) -> list[tuple[int, int, int, int, int]]:
        """(segment, file_offset, stored_bytes, base_offset, count) of chunks; at least one."""


LocateTimestamp = Callable[[str, int, int], int | None]


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
        self.open_epoch = open_epoch
        self._locate = locate
        self._locate_timestamp = locate_timestamp
        self.between: Callable[[int, int, int], bool] = lambda slice_, after, before: False
        """Whether generations of a slice that lie between two epochs are elsewhere."""
        self._steps: OrderedDict[tuple[Streamed, int], int] = OrderedDict()
        self._replays: OrderedDict[tuple[Streamed, int], Replay] = OrderedDict()
        self._live: set[Replay] = set()
        bulk.buffers.reclaim = self._reclaim
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
        raw_bytes_max: int | None = None,
        more: bool = False,
        columns: int = -1,
        stop: int = OFFSET_MAX,
    ) -> ReadResult:
        """Chunks that hold `from_offset` or, when retention was there, the next events after it.

        About `max_bytes` stored bytes or `raw_bytes_max` uncompressed ones, of one generation; at
        least one chunk if there is any. With `more`, for a caller that has some already, perhaps
        none, and it does not wait for buffers. What is given counts as taken: a reader that goes on
        after it is read ahead for, but not beyond `stop`, from where on it wants nothing. Raises
        CorruptChunkError (the events it names are never served), DiskError, BusyError.
        """
        stream = topic, slice_, columns
        want = Want(max_bytes, raw_bytes_max, more, columns, stop)
        replay = self._replays.pop((stream, from_offset), None)
        if replay is not None:
            return self._given(await self._read_on(stream, replay, want))
        found = await self._fetch(stream, from_offset, max_bytes, stop, wait=not more)
        result = fitting(found, want)
        if result.runs and result.next_offset < stop:
            self._note_step(stream, from_offset, result.next_offset, stop)
        return self._given(result)

    def _given(self, result: ReadResult) -> ReadResult:
        """The result as it is, or copied where too many buffers would be held by its likes."""
        ahead = sum(replay.held for replay in self._live)
        pool = self._bulk.buffers
        if (pool.bytes_out - ahead) * GIVEN_SHARE > pool.bytes_max:
            result.runs = [
                run._replace(chunks=memoryview(bytes(run.chunks))) for run in result.runs
            ]
        return result

    def missing(self, topic: str, slice_: int, first: int, end: int) -> CorruptDataError:
        """What to raise when nothing is found below the stable end: the last chunks are damaged."""
        self.corrupt_chunks += 1
        self._catalog.damage_at_end()
        return CorruptDataError(
            f"offsets {first} to {end - 1} of topic {topic}, slice {slice_} cannot be found: the "
            "chunks that held them are damaged"
        )

    async def look_up(self, streams: Sequence[tuple[str, int]]) -> None:
        """`earliest` of each of these will be asked for: what it takes is looked for once."""
        await self._catalog.look_up(streams)

    async def earliest(self, topic: str, slice_: int) -> int | None:
        """The lowest offset that is still on disk; None when there is nothing."""
        parts = await self._catalog.parts(topic, slice_)
        if parts:
            return 0 if self._catalog.complete else parts[0].first_offset
        found = self._locate(topic, slice_, 0, 1) if self._locate else []
        if not found:
            return None
        return 0 if self._catalog.complete else found[0][3]

    async def epoch_before(self, topic: str, slice_: int, offset: int) -> int:
        """The last generation that has a chunk before this offset here; 0: none has."""
        rows = self._locate(topic, slice_, 0, 1) if self._locate else []
        if rows and rows[0][3] < offset:
            return self.open_epoch
        parts = await self._catalog.parts(topic, slice_)
        return max((part.key.epoch for part in parts if part.first_offset < offset), default=0)

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
        for replay in list(self._live):
            self._drop(replay)
        self._replays.clear()

    # --- One read -----------------------------------------------------------------------------

    async def _fetch(
        self,
        stream: Streamed,
        from_offset: int,
        max_bytes: int,
        stop: int = OFFSET_MAX,
        *,
        wait: bool = True,
        spare: bool = False,
    ) -> ReadResult:
        """`wait`: for buffers, and at least one chunk is read, however large."""
        topic, slice_, _ = stream
        for attempt in range(3):
            plan = await self._plan(topic, slice_, from_offset, max_bytes)
            if plan is None:
                return ReadResult([], from_offset, 0)
            if plan.location(0).base_offset > from_offset:
                hole = await self._explain_hole(topic, slice_, from_offset, plan)
                if hole is not None:
                    where = (topic, slice_, from_offset, plan.key)
                    if attempt < 2 and await self._catalog.mended_before(*where):
                        continue
                    raise hole
            if not wait and not spare and plan.location(0).stored_bytes > max_bytes:
                return ReadResult([], from_offset, plan.key.epoch)  # There is more, but too large.
            # Up to where an offset is missing: the next read begins there, and tells.
            groups = _native.entries_plan(plan.entries, max_bytes, GROUP_BYTES, stop)
            try:
                return await self._read_plan(stream, plan, groups, wait, spare)
            except FileNotFoundError:
                if self._catalog.get(plan.key) is not None:  # Else retention was faster.
                    await self._catalog.mended(plan.key)
            except WrongIndexError as error:
                if attempt < 2 and await self._catalog.mended(plan.key):
                    continue
                if attempt or plan.key.epoch == self.open_epoch:
                    raise self._corrupt(topic, slice_, plan, error) from None
                await self._catalog.rebuild(plan.key)
            except (CorruptChunkError, DiskError):
                if attempt or not await self._catalog.mended(plan.key):
                    raise
        return ReadResult([], from_offset, 0)

    async def _plan(self, topic: str, slice_: int, from_offset: int, max_bytes: int) -> Plan | None:
        part: StreamPart | None = await self._catalog.part_at(topic, slice_, from_offset)
        if part is not None:
            segment = self._catalog.get(part.key)
            sidecar = await self._catalog.sidecar(part.key)
            stream = sidecar.find(topic, slice_)
            if segment is not None and stream is not None:
                entries = sidecar.entries(stream, from_offset)
                return Plan(part.key, segment.path, entries) if entries else None
        if self._locate is None:
            return None
        return self._plan_open(topic, slice_, from_offset, max_bytes)

    def _plan_open(self, topic: str, slice_: int, from_offset: int, max_bytes: int) -> Plan | None:
        assert self._locate is not None
        rows = self._locate(topic, slice_, from_offset, ENTRIES_MAX, max_bytes)
        if not rows:
            return None
        entries = [entry_of(Location(*row[1:], 0)) for row in rows if row[0] == rows[0][0]]
        key = SegmentKey(self.open_epoch, rows[0][0])
        path = layout.segment_path(self._catalog.shard, *key)
        return Plan(key, path, b"".join(entries))

    async def _read_plan(
        self,
        stream: Streamed,
        plan: Plan,
        groups: list[Group],
        wait: bool,
        spare: bool,
    ) -> ReadResult:
        """Reads and verifies; fewer chunks than planned when buffers or the disk fail half-way."""
        result = ReadResult([], plan.location(0).base_offset, plan.key.epoch)
        with self._catalog.files.lease(plan.key, plan.path) as fd:
            try:
                found = await self._bulk.read_chunks(
                    fd, plan.entries, groups, stream, wait=wait, spare=spare
                )
            except OSError as error:
                # Its traceback would keep the frames, and with them every buffer.
                raise explain(error, plan.path, "read") from error.with_traceback(None)
            for (first, count, size), chunks, good, raw, end, held in found:
                self.disk_bytes += size
                if good:
                    result.runs.append(ChunkRun(chunks, raw, end, held))
                    result.next_offset = end
                if good < count:
                    # What is good is served first; the next read meets the bad.
                    if not result.runs:
                        result.runs.append(await self._single(fd, stream, plan, first))
                        result.next_offset = result.runs[0].end
                    break
        return result

    async def _single(self, fd: int, stream: Streamed, plan: Plan, row: int) -> ChunkRun:
        """A chunk that was not what it should be, by itself: to tell why, if it still is not."""
        topic, slice_, columns = stream
        location = plan.location(row)
        position, stored, base, count, _ = location
        try:
            chunk = await self._bulk.read(fd, position, stored)
        except OSError as error:
            raise explain(error, plan.path, "read") from error
        if not _native.chunk_is(chunk, topic, slice_, base, count):
            why, wrong_index = chunk_damage(chunk, topic, slice_, location)
            if wrong_index:
                raise WrongIndexError(location, why)
            raise self._corrupt(topic, slice_, plan, WrongIndexError(location, why))
        _, raw, end = _native.chunks_fit(chunk, stored, 2**63, 2**63, True)
        if columns >= 0:
            return ChunkRun(memoryview(_native.chunks_project(chunk, columns)), raw, end, 0)
        return ChunkRun(chunk, raw, end, buffer_bytes(stored))

    async def _explain_hole(
        self, topic: str, slice_: int, from_offset: int, plan: Plan
    ) -> CorruptChunkError | None:
        """Offsets go on without gaps: what is not there above the earliest is damaged.

        An index that is made again cannot hold a chunk whose header is damaged.
        """
        earliest = await self.earliest(topic, slice_)
        if earliest is None or from_offset < earliest:
            return None  # Retention.
        before = await self.epoch_before(topic, slice_, from_offset)
        if self.between(slice_, before, plan.key.epoch):
            return None  # Others have it, or retention has removed it there.
        after = plan.location(0)
        hole = Location(after.file_offset, 0, from_offset, after.base_offset - from_offset, 0)
        why = "the chunks before it cannot be found"
        return self._corrupt(topic, slice_, plan, WrongIndexError(hole, why))

    def _corrupt(
        self, topic: str, slice_: int, plan: Plan, error: "WrongIndexError"
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
        result = await self._fetch((topic, slice_, -1), offset, 1)
        for chunk in result.chunks:  # One in all.
            head = _native.chunk_info(chunk)
            after = _native.chunk_since(chunk, timestamp_us)
            if head is not None and after < head["base_offset"] + head["count"]:
                return after
        return offset

    # --- Read-ahead -----------------------------------------------------------------------------

    def _note_step(self, stream: Streamed, from_offset: int, next_offset: int, stop: int) -> None:
        """A read that continues another one is a step; after a few of them read ahead."""
        steps = self._steps.pop((stream, from_offset), 0) + 1
        after = (stream, next_offset)
        if steps < SEQUENTIAL_READS_MIN or not self._admitted():
            self._steps[after] = steps
            while len(self._steps) > 64 * REPLAYS_MAX:
                self._steps.popitem(last=False)
            return
        replay = Replay(next_offset, next_offset, stop, asyncio.get_running_loop().time())
        self._live.add(replay)
        self._fetch_more(stream, replay)
        self._keep(after, replay)

    def _admitted(self) -> bool:
        """Whether one more may have read-ahead: in the place of a reader that pauses, if need be.

        Those that read on keep theirs: if all took it from each other, all would read twice.
        """
        if len(self._live) < REPLAYS_MAX:
            return True
        oldest = next(iter(self._replays.values()), None)
        now = asyncio.get_running_loop().time()
        return oldest is not None and now - oldest.used > REPLAY_PAUSE_SECONDS and self._reclaim()

    def _reclaim(self) -> bool:
        """Gives up what is ready for the reader that is away longest; false: there is none."""
        for key, replay in self._replays.items():
            if replay.held or replay.task is not None:
                self._drop(self._replays.pop(key))
                return True
        return False

    def _window(self) -> int:
        """What may be read ahead for each of the readers that do not pause (or have gone)."""
        now = asyncio.get_running_loop().time()
        busy = sum(now - each.used < REPLAY_PAUSE_SECONDS for each in self._live)
        share = self._bulk.buffers.bytes_max // READ_AHEAD_SHARE // max(1, busy)
        return min(READ_AHEAD_BYTES, share)

    def _keep(self, key: tuple[Streamed, int], replay: Replay) -> None:
        old = self._replays.pop(key, None)
        if old is not None:
            self._drop(old)
        self._replays[key] = replay
        if replay.timer is not None:
            replay.timer.cancel()
        loop = asyncio.get_running_loop()
        replay.used = loop.time()
        replay.timer = loop.call_later(REPLAY_IDLE_SECONDS, self._idle, key, replay)

    def _idle(self, key: tuple[Streamed, int], replay: Replay) -> None:
        if self._replays.get(key) is replay:
            self._drop(self._replays.pop(key))

    def _drop(self, replay: Replay) -> None:
        self._live.discard(replay)
        if replay.timer is not None:
            replay.timer.cancel()
        if replay.task is not None:
            replay.task.cancel()
        replay.ready.clear()
        replay.held = 0

    def _fetch_more(self, stream: Streamed, replay: Replay) -> None:
        idle = replay.task is None and replay.failure is None
        if idle and replay.lacks(self._window() // 2):
            loop = asyncio.get_running_loop()
            replay.task = loop.create_task(self._fill(stream, replay))

    async def _fill(self, stream: Streamed, replay: Replay) -> None:
        """Reads ahead until enough is ready; the reader takes from it meanwhile."""
        try:
            while replay.lacks(half := self._window() // 2):
                result = await self._fetch(
                    stream, replay.fetch_offset, half, replay.stop, wait=False, spare=True
                )
                if not result.runs:
                    break
                for run in result.runs:
                    replay.ready.append(ReadAhead(run, result.epoch))
                    replay.held += run.held
                replay.fetch_offset = result.next_offset
                replay.arrived.set()
        except BarcoError as error:
            replay.failure = error
        finally:
            replay.task = None
            replay.arrived.set()

    async def _read_on(self, stream: Streamed, replay: Replay, want: Want) -> ReadResult:
        if replay.timer is not None:
            replay.timer.cancel()
        replay.stop = want.stop
        try:
            while not replay.ready and replay.task is not None:
                replay.arrived.clear()
                await replay.arrived.wait()
            if replay.ready:
                self.read_ahead_hits += 1
                result = from_ready(replay, want)
            else:
                # The end, a failure, or no buffer: find out afresh.
                replay.failure = None
                found = await self._fetch(
                    stream, replay.next_offset, want.stored, want.stop, wait=not want.more
                )
                result = fitting(found, want)
                replay.fetch_offset = result.next_offset
                if not found.runs and not found.epoch:
                    self._drop(replay)
                    return result
        except BusyError:
            self._keep((stream, replay.next_offset), replay)
            raise
        except BaseException:
            self._drop(replay)
            raise
        replay.next_offset = result.next_offset
        if replay.next_offset >= replay.stop:
            self._drop(replay)  # Others have what is read ahead for those that go on.
            return result
        self._fetch_more(stream, replay)
        self._keep((stream, replay.next_offset), replay)
        return result
