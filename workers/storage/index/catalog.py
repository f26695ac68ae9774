"""Which sealed segments a shard has, and which of them hold a (topic, slice).

Opens sidecars when they are needed, keeps the ones used last, rebuilds missing and wrong ones.
"""

import asyncio
import os
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from barco.errors import CorruptDataError
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.rebuild import read_headers, rebuild_index
from barco.workers.storage.index.scan import Buffer, Read, SegmentSummary, Tags
from barco.workers.storage.index.sidecar import IndexBuilder, Sidecar, write_sidecar

SIDECARS_MAX = 256
FILES_MAX = 64
STREAMS_MAX = 4096
"""Kept open or in memory: the ones used last."""

HOLE_SEGMENTS_MAX = 8
"""Looked at for a hole in the offsets, while its reader waits."""

_TURN = 32
"""Looks into sidecars before the event loop gets its turn."""


class SegmentKey(NamedTuple):
    """Identifies a segment of a shard; sorts in the order of history."""

    epoch: int
    segment: int


class SegmentFile(Struct):
    """A sealed segment."""

    key: SegmentKey
    path: Path
    size: int
    """Bytes that its file takes."""
    newest_us: int | None = None
    """Of its last group, by the log's own clock; None until its sidecar was looked at."""
    chunk_count: int = 0


class Health(Protocol):
    """Whoever looks into damage, and repairs it (`scrub.Scrub`)."""

    def suspect(self, key: SegmentKey) -> object:
        """Somebody met something wrong in this segment."""

    async def mended(self, key: SegmentKey) -> bool:
        """Somebody met something wrong there, and waits for its repair: whether to read again."""


class StreamPart(NamedTuple):
    """What one segment holds of one (topic, slice)."""

    key: SegmentKey
    first_offset: int
    end_offset: int
    max_ts: int
    newest_us: int
    """When the segment's last group was appended, by the log's own clock."""


class Catalog:
    """The sealed segments of one shard, of all generations."""

    def __init__(
        self, shard: Path, lineage: Lineage, *, cluster_uuid: bytes, token: int, bulk: BulkIo
    ) -> None:
        self.shard = shard
        self.files = FileCache()
        self._lineage = lineage
        self._cluster_uuid = cluster_uuid
        self._token = token
        self._bulk = bulk
        self._segments: dict[SegmentKey, SegmentFile] = {}
        self._order: list[SegmentKey] = []
        self._sidecars: OrderedDict[SegmentKey, Sidecar] = OrderedDict()
        self._streams: OrderedDict[tuple[str, int], list[StreamPart]] = OrderedDict()
        self._building: dict[SegmentKey, asyncio.Task[Sidecar]] = {}
        self._removed = False
        self.health: Health | None = None
        """Hears of what is damaged; the scrub, once it is there."""
        self.rebuilt = 0
        """Sidecars that had to be made again."""

    async def load(self) -> None:
        """Finds the segments of all sealed generations; the open one has none yet."""
        for segment in await self._bulk.run(self._find):
            self._insert(segment)

    def _find(self) -> list[SegmentFile]:
        found = []
        for generation in self._lineage.generations():
            if not generation.sealed or generation.expired or not generation.tail:
                continue
            indexes = layout.segment_indexes(self.shard, generation.epoch)
            # What is missing is damaged: retention would have left a mark, and it is known where
            # the history ends.
            first, last = generation.begin[0], max(generation.end_segment, *indexes, 0)
            for index in sorted({*indexes, *range(first, last + 1)}):
                found.append(self._file(SegmentKey(generation.epoch, index)))
        return found

    def _file(self, key: SegmentKey) -> SegmentFile:
        path = layout.segment_path(self.shard, *key)
        try:
            return SegmentFile(key, path, path.stat().st_size)
        except FileNotFoundError:
            return SegmentFile(key, path, 0)
        except OSError as error:
            raise explain(error, path, "look at") from error

    def _insert(self, segment: SegmentFile) -> None:
        assert segment.key not in self._segments
        self._segments[segment.key] = segment
        insort(self._order, segment.key)

    @property
    def complete(self) -> bool:
        """Whether nothing was ever removed: every stream begins at offset 0 then."""
        generations = self._lineage.generations()
        if self._removed or any(g.expired for g in generations):
            return False
        if [g.epoch for g in generations] != list(range(2, 2 + len(generations))):
            return False  # One is not known any more. Genesis, epoch 1, is never in the list.
        first = next((g.epoch for g in generations if g.tail != 0), 0)
        return not self._order or self._order[0] == SegmentKey(first, 0)

    def segments(self) -> list[SegmentFile]:
        """All sealed segments, oldest first."""
        return [self._segments[key] for key in self._order]

    def get(self, key: SegmentKey) -> SegmentFile | None:
        """The sealed segment, unless retention has removed it."""
        return self._segments.get(key)

    async def add_sealed(
        self, epoch: int, index: int, body: bytes, summary: SegmentSummary | None = None
    ) -> None:
        """Takes in a segment of the open generation that is full; `body`: the core's index of it.

        Without a `summary` it is read from the group headers. The core's own index of this
        segment can be dropped when this returns.
        """
        key = SegmentKey(epoch, index)
        segment = self._file(key)
        if summary is None:
            walk = read_headers(segment.size, index, self._tags(epoch))
            summary = await self._drive(walk, segment)
        if summary is None:
            raise CorruptDataError(
                f"{segment.path}: no group of generation {epoch} is at its start"
            )
        await self._bulk.run(write_sidecar, segment.path, body, epoch, summary)
        if key not in self._segments:  # The generation was sealed meanwhile.
            self._insert(segment)
        sidecar = await self.sidecar(key)
        for (topic, slice_), parts in self._streams.items():
            if not parts or parts[-1].key != key:  # Else it was looked up a moment ago.
                parts.extend(_parts(key, sidecar, topic, slice_))

    def add_known(self, epoch: int, index: int) -> None:
        """Takes in a segment that is whole; its index is read, or made, when it is asked for."""
        key = SegmentKey(epoch, index)
        if key not in self._segments:
            self._insert(self._file(key))
            self._streams.clear()

    def cut(self, key: SegmentKey) -> None:
        """A segment's file has become shorter."""
        segment = self._segments.get(key)
        if segment is not None:
            segment.size = self._file(key).size

    def remove(self, key: SegmentKey) -> None:
        """Forgets a segment whose file is gone."""
        self._removed = True
        self._segments.pop(key, None)
        if key in self._order:
            self._order.remove(key)
        sidecar = self._sidecars.pop(key, None)
        if sidecar is not None:
            sidecar.close()
        self.files.forget(key)
        for parts in self._streams.values():
            parts[:] = [part for part in parts if part.key != key]

    # --- Sidecars ---------------------------------------------------------------------------

    async def sidecar(self, key: SegmentKey) -> Sidecar:
        """The sidecar of a segment, rebuilt when it is missing or wrong."""
        known = self._sidecars.get(key)
        if known is not None:
            self._sidecars.move_to_end(key)
            return known
        path = layout.sidecar_path(self._segments[key].path)
        try:
            sidecar = Sidecar.open(path, *key)
        except OSError as error:
            raise explain(error, path, "open") from error
        return self._keep(key, sidecar) if sidecar is not None else await self.rebuild(key)

    async def rebuild(self, key: SegmentKey) -> Sidecar:
        """Makes a sidecar again from its segment; several callers wait for the same work."""
        task = self._building.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._rebuild(key))
            self._building[key] = task
            task.add_done_callback(lambda _: self._building.pop(key, None))
        return await asyncio.shield(task)

    async def _rebuild(self, key: SegmentKey) -> Sidecar:
        segment = self._segments[key]
        generation = self._lineage.get(key.epoch)
        builder = IndexBuilder()
        tail = generation.tail if generation is not None else None
        walk = rebuild_index(segment.size, key.segment, self._tags(key.epoch), builder, tail)
        try:
            summary = await self._drive(walk, segment)
        except FileNotFoundError:
            if self._segments.get(key) is not segment:
                raise  # Retention.
            summary = None
        if summary is None:  # Not one group can be read.
            summary = SegmentSummary(key.segment, 0, 0, 0, 0, 0, 0, 0)
        self.rebuilt += 1
        body = builder.body()
        await self._bulk.run(write_sidecar, segment.path, body, key.epoch, summary)
        self._sidecars.pop(key, None)
        sidecar = Sidecar.open(layout.sidecar_path(segment.path), *key)
        assert sidecar is not None, "written a moment ago"
        return self._keep(key, sidecar)

    async def refresh(self, key: SegmentKey) -> None:
        """The segment was repaired, or its index is not what it should be."""
        self._segments[key].size = self._file(key).size
        await self.rebuild(key)
        self._streams.clear()

    def damage(self, key: SegmentKey) -> None:
        """Something wrong was met in a segment."""
        if self.health is not None:
            self.health.suspect(key)

    def damage_at_end(self) -> None:
        """Something is missing at the end of a stream."""
        for key in self._order[-2:]:
            self.damage(key)

    async def mended(self, key: SegmentKey) -> bool:
        """Something wrong was met in a segment: waits for its repair; whether to read it again."""
        return self.health is not None and await self.health.mended(key)

    async def mended_before(self, topic: str, slice_: int, offset: int, key: SegmentKey) -> bool:
        """An offset is missing: waits for the repair of the segments that may have held it, up to
        `key`; whether to read them again."""
        parts = [part.key for part in await self.parts(topic, slice_) if part.end_offset <= offset]
        low = parts[-1] if parts else self._order[0]
        keys = [each for each in self._order if low <= each <= key]
        return any([await self.mended(each) for each in keys[-HOLE_SEGMENTS_MAX:]])

    async def build_missing(self) -> int:
        """Makes the sidecars that are missing, as after a crash; returns how many. For a task."""
        before = self.rebuilt
        for count, key in enumerate(list(self._order)):
            if key in self._segments:
                path = layout.sidecar_path(self._segments[key].path)
                if not path.exists():
                    await self.rebuild(key)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return self.rebuilt - before

    def _keep(self, key: SegmentKey, sidecar: Sidecar) -> Sidecar:
        self._sidecars[key] = sidecar
        segment = self._segments[key]
        segment.newest_us = sidecar.summary.max_time_us
        segment.chunk_count = sidecar.entry_count
        while len(self._sidecars) > SIDECARS_MAX:
            # Not closed: somebody may still look at it; it goes with its last reference.
            self._sidecars.popitem(last=False)
        return sidecar

    def _tags(self, epoch: int) -> Tags:
        generation = self._lineage.get(epoch)
        session = generation.session if generation is not None else None
        return Tags(self._cluster_uuid, self._token, epoch, session)

    async def _drive(
        self, walk: Generator[Read, Buffer, SegmentSummary | None], segment: SegmentFile
    ) -> SegmentSummary | None:
        with self.files.lease(segment.key, segment.path) as fd:
            try:
                wish = next(walk)
                while True:
                    data = await self._bulk.read(fd, wish.offset, wish.length)
                    wish = walk.send(data)
                    del data
            except StopIteration as end:
                summary: SegmentSummary | None = end.value
                return summary
            except OSError as error:
                raise explain(error, segment.path, "read") from error

    # --- Streams ----------------------------------------------------------------------------

    async def parts(self, topic: str, slice_: int) -> list[StreamPart]:
        """Where the events of a (topic, slice) are, in order of offsets. Do not change the list."""
        name = (topic, slice_)
        known = self._streams.get(name)
        if known is not None:
            self._streams.move_to_end(name)
            return known
        return (await self._look_up([name]))[name]

    async def look_up(self, streams: Iterable[tuple[str, int]]) -> None:
        """Find out in one walk over the segments where all of these are, and not in one for each:
        `parts` of some thousand of them knows it then."""
        unknown = [name for name in dict.fromkeys(streams) if name not in self._streams]
        if unknown:
            await self._look_up(unknown[:STREAMS_MAX])

    async def _look_up(
        self, streams: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], list[StreamPart]]:
        found: dict[tuple[str, int], list[StreamPart]] = {name: [] for name in streams}
        visited: set[SegmentKey] = set()
        looked = 0
        # Again until nothing is new: segments are sealed while the loop has other turns.
        while todo := [key for key in self._order if key not in visited]:
            for key in todo:
                visited.add(key)
                try:
                    sidecar = await self.sidecar(key)
                except (KeyError, FileNotFoundError):
                    continue  # Retention was faster.
                for name in streams:
                    found[name] += _parts(key, sidecar, *name)
                looked += len(streams)
                if looked >= _TURN:
                    looked = 0
                    await asyncio.sleep(0)
        for name, parts in found.items():
            self._streams[name] = sorted(part for part in parts if part.key in self._segments)
        while len(self._streams) > STREAMS_MAX:
            self._streams.popitem(last=False)
        return {name: self._streams.get(name, parts) for name, parts in found.items()}

    async def part_at(self, topic: str, slice_: int, offset: int) -> StreamPart | None:
        """The segment that holds `offset`, or else the next event after it."""
        parts = await self.parts(topic, slice_)
        row = bisect_right(parts, offset, key=lambda part: part.end_offset)
        return parts[row] if row < len(parts) else None

    def close(self) -> None:
        """Closes all files."""
        for sidecar in self._sidecars.values():
            sidecar.close()
        self._sidecars.clear()
        self.files.close()


def _parts(key: SegmentKey, sidecar: Sidecar, topic: str, slice_: int) -> list[StreamPart]:
    stream = sidecar.find(topic, slice_)
    if stream is None:
        return []
    newest = sidecar.summary.max_time_us
    return [StreamPart(key, stream.first_offset, stream.end_offset, stream.max_ts, newest)]


class FileCache:
    """Read descriptors of segments: the ones used last stay open, none is closed while in use."""

    def __init__(self, files_max: int = FILES_MAX) -> None:
        self._max = files_max
        self._open: OrderedDict[SegmentKey, _OpenFile] = OrderedDict()

    def lease(self, key: SegmentKey, path: Path) -> "_OpenFile":
        """A context manager that gives the descriptor (O_RDONLY|O_DIRECT).

        Raises FileNotFoundError when retention was faster, else what `explain` makes of it.
        """
        file = self._open.get(key)
        if file is None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise explain(error, path, "open") from error
            file = self._open[key] = _OpenFile(fd)
        self._open.move_to_end(key)
        while len(self._open) > self._max:
            self._open.popitem(last=False)[1].retire()
        return file

    def forget(self, key: SegmentKey) -> None:
        """Closes the descriptor as soon as nobody reads from it."""
        file = self._open.pop(key, None)
        if file is not None:
            file.retire()

    def close(self) -> None:
        """Forgets all."""
        for key in list(self._open):
            self.forget(key)


class _OpenFile:
    """A descriptor with a count of its users."""

    __slots__ = ("_fd", "_retired", "_users")

    def __init__(self, fd: int) -> None:
        self._fd, self._users, self._retired = fd, 0, False

    def __enter__(self) -> int:
        self._users += 1
        return self._fd

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        self._close_if_done()

    def retire(self) -> None:
        self._retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._retired and self._users == 0 and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
