"""Deletes old events: whole sealed segments, by age and by size, oldest first.

Age is by the log's own clock (native/log/clock.c) since the append: neither the events' timestamps,
which clients may set to anything, nor a wall clock, which may be wrong, say what is old. The plan
is pure; carrying it out is rate limited.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain, fsync_directory
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.trash import discard, trash_files
from barco.workers.storage.index.catalog import Catalog, SegmentKey

HOUR_US = 3600 * 1_000_000
HELD_BACK_SHARE = 16
"""A generation is to end when this part of all that is kept is only kept because it is open."""
UNLINK_PAUSE_SECONDS = 0.05
"""Between two deletions: freeing 128 MiB of extents is journal work that appends wait for."""


class Policy(Struct, frozen=True):
    """How long to keep, and how much; 0 means no limit."""

    hours: int
    shard_bytes: int
    """For this shard: the broker's retention_bytes divided by its workers."""
    sole_member: bool = False
    """In developer mode nobody else can need the open generation's sealed segments, so they may
    go too; in a cluster a generation that is not continued is left alone (rule S8)."""


class Candidate(Struct, frozen=True):
    """A sealed segment as retention sees it."""

    key: SegmentKey
    size: int
    newest_us: int
    """Of its last group; 0 when unknown, which keeps it unless the size demands it."""
    entries: int
    """Chunks in it; a segment without any holds nothing that could be read."""
    ended: bool
    """Its generation is not the open one."""
    continued: bool
    """The first group of each child of its generation is committed: nobody needs its state."""
    gone: bool = False
    """Others have removed all of its generation, as two of them say."""


def plan(
    candidates: Sequence[Candidate], policy: Policy, now_us: int, *, left: bool = False
) -> list[SegmentKey]:
    """What to delete, oldest first: a prefix of the history, so that no gap comes to be.

    `candidates` in order of history. The newest sealed segment stays, unless this broker has `left`
    the range: nothing comes behind it any more.
    """
    total = sum(candidate.size for candidate in candidates)
    doomed: list[SegmentKey] = []
    for candidate in candidates if left else candidates[:-1]:
        old = policy.hours > 0 and 0 < candidate.newest_us < now_us - policy.hours * HOUR_US
        large = policy.shard_bytes > 0 and total > policy.shard_bytes
        nothing = candidate.entries == 0 and candidate.continued
        if not (old or large or nothing or left and candidate.gone):
            break
        if not candidate.continued and not policy.sole_member:
            break
        doomed.append(candidate.key)
        total -= candidate.size
    return doomed


def held_back(candidates: Sequence[Candidate], policy: Policy, now_us: int) -> bool:
    """Whether so much is due, but for rule S8, that the open generation should end.

    A range that nobody fails in would otherwise keep everything for ever: its first generation
    would never have a successor. Ending one costs its clients a moment, so it is not done for
    every segment.
    """
    due = set(plan(candidates, replace(policy, sole_member=True), now_us))
    total = sum(candidate.size for candidate in candidates)
    held = sum(c.size for c in candidates if c.key in due and not c.ended)
    return held > 0 and held * HELD_BACK_SHARE >= total


class Retention:
    """Applies a policy to one shard when the worker asks for it (every minute or so)."""

    def __init__(
        self,
        catalog: Catalog,
        lineage: Lineage,
        bulk: BulkIo,
        policy: Policy,
        *,
        open_epoch: int,
        continued: Callable[[int], bool],
        gone: Callable[[int], bool] = lambda epoch: False,
        on_truncate: Callable[[str, int, int], None],
    ) -> None:
        """`continued(epoch)`: whether nobody will ask for a generation's state any more.
        `gone(epoch)`: whether it was noted that others have removed all of it.
        `on_truncate(topic, slice, start_offset)`: tell the core where a stream begins now."""
        self._catalog = catalog
        self._lineage = lineage
        self._bulk = bulk
        self._policy = policy
        self.open_epoch = open_epoch
        self._continued, self._gone = continued, gone
        self._on_truncate = on_truncate
        self.deleted_segments = 0
        self.deleted_bytes = 0
        self.held_back = False
        """What `held_back` said of the last run."""

    async def run(self, now_us: int, *, left: bool = False) -> int:
        """Deletes what is due; returns how many segments. One failure ends the run: DiskError.
        left: this broker takes part in the range no more."""
        candidates = await self._candidates()
        doomed = plan(candidates, self._policy, now_us, left=left)
        if not self._policy.sole_member:
            self.held_back = held_back(candidates, self._policy, now_us)
        for key in doomed:
            await self._mark(key)
            await self._delete(key)
        await self._empty_trash()
        return len(doomed)

    async def _candidates(self) -> list[Candidate]:
        found: list[Candidate] = []
        continued: dict[int, bool] = {}
        for segment in self._catalog.segments():
            if self._catalog.get(segment.key) is None:
                continue
            epoch = segment.key.epoch
            ended = self._has_ended(epoch)
            if epoch not in continued:
                continued[epoch] = ended and self._continued(epoch)
            if segment.newest_us is None:
                await self._catalog.sidecar(segment.key)
            found.append(
                Candidate(
                    segment.key,
                    segment.size,
                    segment.newest_us or 0,
                    segment.chunk_count,
                    ended,
                    continued[epoch],
                    self._gone(epoch),
                )
            )
            if len(found) % 32 == 0:
                await asyncio.sleep(0)
        return found

    def _has_ended(self, epoch: int) -> bool:
        """Of a range that this broker has left the core goes on to have the last generation."""
        known = self._lineage.get(epoch)
        return epoch != self.open_epoch or (known is not None and known.sealed)

    async def _mark(self, key: SegmentKey) -> None:
        """Where its generation begins when this segment is gone, stable before it goes: what else
        is missing was lost."""
        after = SegmentKey(key.epoch, key.segment + 1)
        if self._catalog.get(after) is None:
            return  # The generation goes with it.
        summary = (await self._catalog.sidecar(after)).summary
        if summary.first_gseq == 0:  # It can not be read.
            summary = (await self._catalog.sidecar(key)).summary
            link = summary.last_gseq + 1, summary.last_header_crc
        else:
            link = summary.first_gseq, summary.first_prev_crc
        await self._bulk.run(self._lineage.begins, key.epoch, after.segment, *link)

    async def _delete(self, key: SegmentKey) -> None:
        segment = self._catalog.get(key)
        assert segment is not None
        sidecar = await self._catalog.sidecar(key)
        ends = [(stream.topic, stream.slice, stream.end_offset) for stream in sidecar.streams()]
        # Readers first: from here on nobody is sent to this file.
        self._catalog.remove(key)
        for topic, slice_, end in ends:
            self._on_truncate(topic, slice_, end)
        shard = self._catalog.shard
        await self._bulk.run(discard, shard, segment.path)
        await self._bulk.run(discard, shard, layout.sidecar_path(segment.path))
        self.deleted_segments += 1
        self.deleted_bytes += segment.size
        if self._has_ended(key.epoch) and not layout.segment_indexes(shard, key.epoch):
            await self._bulk.run(self._expire, key.epoch)

    def _expire(self, epoch: int) -> None:
        """The last segment of a generation is gone: so is the generation."""
        self._lineage.expired(epoch)
        directory = layout.generation_path(self._catalog.shard, epoch)
        try:
            directory.rmdir()
        except OSError:
            return  # Foreign files are in it; they are not ours to remove.
        fsync_directory(directory.parent)

    async def _empty_trash(self) -> None:
        for path in await self._bulk.run(trash_files, self._catalog.shard):
            try:
                await self._bulk.run(path.unlink, True)
            except OSError as error:
                raise explain(error, path, "remove") from error
            await asyncio.sleep(UNLINK_PAUSE_SECONDS)
