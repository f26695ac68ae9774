"""Looks for damage in what is history, all the time and slowly, and repairs it from a member.

Every whole segment is walked (`sound`): its groups, their checksums, their chain from the segment
before to the one behind, up to the tail that was decided. What a reader or a peer finds bad is
looked at at once. Groups that are damaged come again from a member, and are believed only when they
fit between what is sound here: each carries the checksum of the one before, so the sound group (or
the known end) behind the damage proves all of them. They go to the places where they stood; nothing
sound is ever written over, and a repair that is interrupted is repeated.

Repair does not touch the machine: what is decided or committed is another's as well, and this
member's tail is what it was. A single broker has nobody to ask: it tells, and does not serve it.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from barco.errors import BarcoError, CorruptDataError
from barco.limits import PAGE_BYTES, SCRUB_BYTES_PER_SECOND
from barco.types import MiB
from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.catalog import Catalog, SegmentKey
from barco.workers.storage.index.scan import GEN_START, SNAPSHOT, GroupHeader, Tags, parse_header
from barco.workers.storage.index.sidecar import read_summary
from barco.workers.storage.index.sound import (
    Link,
    Soundness,
    Walk,
    check_group,
    check_segment,
    misplaced,
)

PASS_PAUSE_SECONDS = 10.0
"""Between two passes over everything."""

RETRY_SECONDS = 10.0
"""Between two attempts to repair what could not be: a member may be away."""

_HELPLESS = (
    f". No other broker gave it; they are asked again every {RETRY_SECONDS:.0f} s. If none will"
    " ever have it: restore the file, or see barco recover --help"
)

WAIT_SECONDS = 3.0
"""A reader waits so long for a repair, then it gets the refusal."""

FETCH_GROUPS = 16
"""Asked for at a time."""

HELD_BYTES_MAX = 8 * MiB
"""Fetched groups that are kept until the chain is closed; of more the checksums are kept, and they
are fetched again."""

log = logging.getLogger("barco.storage")


class RepairSource(Protocol):
    """Where sound groups come from."""

    def members(self, epoch: int) -> list[int]:
        """Ordinals of those who may have them, whom to ask first at the front."""

    async def fetch(self, member: int, epoch: int, first: int, last: int) -> list[bytearray]:
        """Groups from `first` on as this member has them; fewer, or none, where it does not."""


class _End(NamedTuple):
    """Where a segment's history ends."""

    gseq: int | None
    """Its last group; None: unknown."""
    header_crc: int | None = None
    """Of that group, if something sound tells it."""


class _Refused(Exception):
    """What a member sent can not be what stood here."""


class Scrub:
    """The health of one shard's whole segments."""

    source: RepairSource | None = None
    """None: there is nobody to repair from."""

    def __init__(
        self,
        shard: Path,
        catalog: Catalog,
        lineage: Lineage,
        bulk: BulkIo,
        *,
        tags_of: Callable[[int], Tags],
        committed: Callable[[int], int | None],
        on_error: Callable[[BarcoError], None],
    ) -> None:
        """`committed(epoch)`: up to which group a generation that has not ended is history."""
        self._shard = shard
        self._catalog = catalog
        self._lineage = lineage
        self._bulk = bulk
        self._tags_of = tags_of
        self._committed = committed
        self._on_error = on_error
        self.bytes_per_second = SCRUB_BYTES_PER_SECOND
        self._damaged: dict[SegmentKey, str] = {}
        self._looks: dict[SegmentKey, asyncio.Task[bool]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._one = asyncio.Lock()
        self.bytes = self.passes = self.repaired_groups = self.failed_repairs = 0
        self._pass = (0, 0)  # Segments done, and to do.
        catalog.health = self

    def start(self) -> None:
        """From now on, in the background."""
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(self._run()), loop.create_task(self._retry())]

    async def close(self) -> None:
        """Ends what is under way; a repair that is cut off here is made again."""
        tasks = [*self._tasks, *self._looks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self) -> dict[str, int]:
        """For /status."""
        done, todo = self._pass
        return {
            "scrubPasses": self.passes,
            "scrubPercent": 100 * done // max(1, todo),
            "damagedSegments": len(self._damaged),
            "repairedGroups": self.repaired_groups,
        }

    def stats(self) -> dict[str, int]:
        """For the metrics."""
        return {
            "storage_scrub_bytes": self.bytes,
            "storage_scrub_passes": self.passes,
            "storage_damaged_segments": len(self._damaged),
            "storage_repaired_groups": self.repaired_groups,
            "storage_failed_repairs": self.failed_repairs,
        }

    # --- What others find ---------------------------------------------------------------------

    def suspect(self, key: SegmentKey) -> "asyncio.Task[bool]":
        """Somebody met something that is not as it should be in this segment."""
        task = self._looks.get(key)
        if task is None:
            task = self._looks[key] = asyncio.get_running_loop().create_task(self._look(key))
            task.add_done_callback(lambda _: self._looks.pop(key, None))
        return task

    async def mended(self, key: SegmentKey) -> bool:
        """Has a segment looked at in which damage was met, and waits: whether to read it again."""
        if key in self._damaged:
            return False  # It is tried again in a while.
        task = self.suspect(key)
        done, _ = await asyncio.wait([task], timeout=WAIT_SECONDS)
        return bool(done) and not task.cancelled() and task.result()

    async def sound(self, epoch: int, bytes_per_second: int) -> bool:
        """Reads all of a generation that has ended from the disk: whether all of it is as it must
        be. What is not is not repaired by this."""
        keys = [each.key for each in self._catalog.segments() if each.key.epoch == epoch]
        generation = self._lineage.get(epoch)
        assert generation is not None and generation.sealed, "it has ended"
        wanted = range(generation.begin[0], generation.end_segment + 1)
        if [key.segment for key in keys] != list(wanted):
            return False
        for key in keys:
            verdict = await self._check(key, bytes_per_second)
            if verdict is None or verdict.damage:
                return False
        for key in keys:
            self._damaged.pop(key, None)  # Made anew.
        return True

    def damaged(self, epoch: int) -> bool:
        """Whether something of a generation is known to be damaged."""
        return any(key.epoch == epoch for key in self._damaged)

    def keys_at(self, path: str) -> list[SegmentKey]:
        """The segment with this file, or all of the generation in this directory."""
        known = self._catalog.segments()
        return [each.key for each in known if path in (str(each.path), str(each.path.parent))]

    # --- The background -----------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            keys = [segment.key for segment in self._catalog.segments()]
            for done, key in enumerate(keys):
                self._pass = (done, len(keys))
                if key in self._damaged:
                    continue
                try:
                    verdict = await self._check(key, self.bytes_per_second)
                except (BarcoError, OSError) as error:
                    log.warning("scrub: %s", error)
                    verdict = None
                if verdict is not None and verdict.damage:
                    await self.suspect(key)
            self._pass = (len(keys), len(keys))
            self.passes += 1
            await asyncio.sleep(PASS_PAUSE_SECONDS)

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            for key in list(self._damaged):
                if self.source is not None or self._catalog.get(key) is None:
                    await self.suspect(key)

    async def _look(self, key: SegmentKey) -> bool:
        """Checks a segment, and repairs it: whether it is sound now. One at a time."""
        async with self._one:
            try:
                sound = await self._make_sound(key)
            except (BarcoError, OSError) as error:
                self._tell(key, str(error))
                return False
            if sound:
                self._damaged.pop(key, None)
                if self._catalog.get(key) is not None:
                    # Made from what was damaged, it may lack something.
                    await self._catalog.refresh(key)
            return sound

    async def _make_sound(self, key: SegmentKey) -> bool:
        last = -1
        while (verdict := await self._check(key)) is not None and verdict.damage:
            if verdict.end <= last:
                self._tell(key, f"{verdict.damage}, after it was repaired")
                return False
            last = verdict.end
            if not await self._mend(key, verdict):
                return False
        return True

    def _tell(self, key: SegmentKey, why: str) -> None:
        if key in self._damaged:
            return
        self._damaged[key] = why
        path = layout.segment_path(self._shard, *key)
        self._on_error(CorruptDataError(f"{path} is damaged and was not repaired yet: {why}"))

    # --- Checking -----------------------------------------------------------------------------

    async def _check(self, key: SegmentKey, pace: int = 0) -> Soundness | None:
        """What a segment is like. None: there is nothing to say of it, or not any more.

        pace: bytes a second; 0: as fast as it goes."""
        if self._catalog.get(key) is None and self._committed(key.epoch) is None:
            return None
        end = await self._end(key)
        link = await self._link(key)
        if link is None:
            return Soundness((0, 0), 0, "where it begins is not known, the one before is damaged")
        path = layout.segment_path(self._shard, *key)
        tags = self._tags_of(key.epoch)
        try:
            walk = check_segment(path.stat().st_size, key.segment, tags, link, end.gseq)
            return await self._drive(walk, key, path, pace)
        except FileNotFoundError:
            if self._catalog.get(key) is None:
                return None  # Retention.
            return Soundness(link, 0, "the file is missing")

    async def _drive(self, walk: Walk, key: SegmentKey, path: Path, pace: int) -> Soundness:
        with self._catalog.files.lease(key, path) as fd:
            try:
                wish = next(walk)
                while True:
                    data = await self._read(fd, wish.offset, wish.length, path)
                    self.bytes += len(data)
                    wish = walk.send(data)
                    del data
                    if pace:
                        await asyncio.sleep(wish.length / pace)
            except StopIteration as end:
                verdict: Soundness = end.value
                return verdict

    async def _read(self, fd: int, offset: int, length: int, path: Path) -> memoryview:
        """Pages that the disk can not read are zeros: written again, it may find others."""
        try:
            return await self._bulk.read(fd, offset, length)
        except OSError as error:
            if error.errno != errno.EIO:
                raise explain(error, path, "read") from error
        found = bytearray()
        for at in range(offset, offset + length, PAGE_BYTES):
            try:
                page = bytes(await self._bulk.read(fd, at, PAGE_BYTES))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise explain(error, path, "read") from error
                page = bytes(PAGE_BYTES)
            found += page
        return memoryview(bytes(found))

    async def _first(self, key: SegmentKey) -> GroupHeader | None:
        """The header at a segment's start, if it is sound."""
        path = layout.segment_path(self._shard, *key)
        try:
            with self._catalog.files.lease(key, path) as fd:
                header = parse_header(await self._read(fd, 0, PAGE_BYTES, path))
        except FileNotFoundError:
            return None
        if header is None or not header.flags & (GEN_START | SNAPSHOT):
            return None
        link = (header.gseq, header.prev_crc)
        return None if misplaced(self._tags_of(key.epoch), header, link, key.segment) else header

    async def _link(self, key: SegmentKey) -> Link | None:
        """The place of a segment's first group in the chain."""
        generation = self._lineage.get(key.epoch)
        begin = generation.begin if generation is not None else (0, 1, 0)
        if key.segment <= begin[0]:
            return begin[1], begin[2]
        header = await self._first(key)
        if header is not None:
            return header.gseq, header.prev_crc
        before = await self._check(SegmentKey(key.epoch, key.segment - 1))
        return before.next if before is not None and not before.damage else None

    async def _end(self, key: SegmentKey) -> _End:
        """Where it ends: before the next one's first group, or at the generation's tail."""
        generation = self._lineage.get(key.epoch)
        tail = generation.tail if generation is not None else None
        if tail is None:
            tail = self._committed(key.epoch)
        after = await self._first(SegmentKey(key.epoch, key.segment + 1))
        if after is not None and (tail is None or after.gseq <= tail):
            return _End(after.gseq - 1, after.prev_crc)
        path = layout.segment_path(self._shard, *key)
        summary = read_summary(layout.sidecar_path(path), *key)
        if summary is not None and summary.last_gseq == 0:
            summary = None  # Made when not one group could be read.
        if generation is None or not generation.sealed or key.segment >= generation.end_segment:
            known = summary is not None and summary.last_gseq == tail
            return _End(tail, summary.last_header_crc if summary is not None and known else None)
        return _End(summary.last_gseq if summary is not None else None)

    # --- Repairing ----------------------------------------------------------------------------

    async def _mend(self, key: SegmentKey, verdict: Soundness) -> bool:
        """Replaces what is damaged; false: nobody has it, or it is not what stood here."""
        if self.source is None or verdict.next[0] == 0:
            self._tell(key, verdict.damage)
            return False
        end, why = await self._end(key), verdict.damage
        for member in self.source.members(key.epoch):
            try:
                count = await self._mend_from(member, key, verdict, end)
            except _Refused as error:
                why = f"{verdict.damage}; broker {member}: {error}"
                continue
            self.repaired_groups += count
            log.warning(
                "%s: groups %d to %d were damaged (%s), and repaired from broker %d",
                *(layout.segment_path(self._shard, *key), verdict.next[0]),
                *(verdict.next[0] + count - 1, verdict.damage, member),
            )
            return True
        self.failed_repairs += 1
        self._tell(key, why + _HELPLESS)
        return False

    async def _mend_from(self, member: int, key: SegmentKey, verdict: Soundness, end: _End) -> int:
        """Learns what stood there until the chain is closed, and only then writes."""
        plan: list[tuple[int, int]] = []  # Place and header_crc of each group.
        held: list[bytearray] = []
        link, at, closed = verdict.next, verdict.end, False
        while not closed:
            groups = await self._fetch(member, key, link[0], self._limit(key, end))
            for group in groups:
                header = check_group(self._tags_of(key.epoch), group, link)
                if isinstance(header, str):
                    raise _Refused(header)
                if plan and end.gseq is None and header.segment_index == key.segment + 1:
                    closed = True  # Nothing here tells where the segment ended; the next one does.
                    break
                if header.segment_index != key.segment:
                    raise _Refused(f"group {link[0]} is of another segment")
                plan.append((at, header.header_crc))
                held.append(group)
                link, at = (link[0] + 1, header.header_crc), at + header.group_bytes
                closed = await self._closes(key, link, at, end)
                if closed:
                    break
            if sum(map(len, held)) > HELD_BYTES_MAX:
                held.clear()
        await self._write(member, key, verdict.next[0], plan, held)
        return len(plan)

    def _limit(self, key: SegmentKey, end: _End) -> int:
        generation = self._lineage.get(key.epoch)
        tail = generation.tail if generation is not None else None
        known = [each for each in (end.gseq, tail, self._committed(key.epoch)) if each is not None]
        return min(known, default=0)

    async def _fetch(self, member: int, key: SegmentKey, first: int, limit: int) -> list[bytearray]:
        assert self.source is not None
        if first > limit:
            raise _Refused(f"group {first} is beyond the end of the history")
        last = min(first + FETCH_GROUPS - 1, limit)
        groups = await self.source.fetch(member, key.epoch, first, last)
        if not groups:
            raise _Refused(f"it did not give group {first}")
        return groups

    async def _closes(self, key: SegmentKey, link: Link, at: int, end: _End) -> bool:
        """Whether the chain ends here, or goes on with what is sound here; _Refused: neither."""
        if end.gseq is not None and link[0] > end.gseq:
            if end.header_crc is not None and end.header_crc != link[1]:
                raise _Refused("what it has is not what the next segment follows on")
            return True
        path = layout.segment_path(self._shard, *key)
        try:
            with self._catalog.files.lease(key, path) as fd:
                header = parse_header(await self._read(fd, at, PAGE_BYTES, path))
        except FileNotFoundError:
            return False
        if header is None or header.gseq != link[0]:
            return False
        if misplaced(self._tags_of(key.epoch), header, link, key.segment):
            raise _Refused(f"what it has is not what group {link[0]} follows on")
        return True

    async def _write(
        self,
        member: int,
        key: SegmentKey,
        first: int,
        plan: list[tuple[int, int]],
        held: list[bytearray],
    ) -> None:
        path = layout.segment_path(self._shard, *key)
        done = 0
        while done < len(plan):
            groups = held
            if len(held) != len(plan):  # Too many to have been kept.
                limit = first + len(plan) - 1
                groups = await self._fetch(member, key, first + done, limit)
            for group in groups:
                at, crc = plan[done]
                header = parse_header(group)
                link = (first + done, header.prev_crc if header is not None else 0)
                found = check_group(self._tags_of(key.epoch), group, link, key.segment)
                if isinstance(found, str) or found.header_crc != crc:
                    raise _Refused("it gave something else the second time")
                await self._bulk.run(kept.write_stable, path, at, group)
                done += 1
        self._catalog.files.forget(key)
