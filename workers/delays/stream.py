"""The events of one topic and slice that wait, and go to the topic when they are due."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from barco import _native
from barco.errors import (
    BarcoError,
    CorruptDataError,
    NotFoundError,
    NotReadyError,
    OutcomeUnknownError,
)
from barco.model.delays import WAITING_PREFIX
from barco.types import KiB, MiB
from barco.workers.delays.index import DueIndex
from barco.workers.delays.marks import (
    DELAYS,
    DelayMark,
    Key,
    Name,
    cancel_key,
    cancelled,
    mark_key,
)
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends
from barco.workers.shard.reads import Chunk, Reads, chunk_place, split_chunks

AT_ONCE, BYTES_AT_ONCE = 512, 1 * MiB
"""Of one append; one event more than that if it is larger."""

CHUNKS_AT_ONCE = 8 * MiB
"""Of stored chunks in memory for one append; one alone may be larger."""

TURN_EVENTS = 4_096
"""What comes while a turn is under way waits for its end."""

LEAST_EVERY = 1024
"""Events after which it is looked at anew from where on any wait."""

SCAN_EVENTS, SCANS = 65_536, 4
"""Whose times are in memory at once, and of how many streams."""

SCAN_BYTES, READ_BYTES = 512 * KiB, 256 * KiB

_TIMES = _native.COLUMNS["timestamp"]

log = logging.getLogger("barco.delays")


class Figures(Struct):
    """What a worker tells of its delays."""

    delivered: int = 0
    cancelled: int = 0
    lost: int = 0
    """Retention has removed them before they were due."""


class Shared(Struct):
    """What the streams of a worker have in common."""

    reactor: ReactorLike
    reads: Reads
    appends: Appends
    wall_us: Callable[[], int]
    near_max: Callable[[], int]
    """Events of one stream that are known one by one."""
    figures: Figures = field(default_factory=Figures)
    scans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SCANS))


class DelayedStream:
    """One of them, at the leader of its slice."""

    def __init__(self, shared: Shared, name: Name, epoch: int, mark: DelayMark) -> None:
        self.name, self.mark = name, mark
        self._shared, self._epoch = shared, epoch
        self._waiting_topic = WAITING_PREFIX + name[0]
        self.seen = mark.least
        """Events from here on have not been looked at."""
        self.end = mark.least
        """Of what is stable."""
        self.index = DueIndex(self._times, mark.from_on)
        self.cancelled: set[int] = set()
        self.lock = asyncio.Lock()
        """Held by whoever uses it."""
        self.lost = False
        """Nobody knows what the log has of it: the next leader does."""
        self._since_least = 0

    # --- Steps --------------------------------------------------------------------------------

    async def step(self) -> int | None:
        """Do what there is to be done now, or some of it; when to come again, by the wall clock:
        None: when there is more of it. BarcoError: it did not work."""
        shared, mark = self._shared, self.mark
        await self._scan(self.end if mark.turn is None else min(self.end, mark.turn.end))
        most = shared.near_max()
        await self.index.fill(most)
        self._tell_lost(self.index.lost)
        self.index.lost = 0
        now = shared.wall_us()
        if mark.turn is None:
            first = self.index.next
            if first is None or first[0] > now:
                return None if first is None else first[0]
            last = self.index.last_due(TURN_EVENTS)
            mark.open_turn(now if last is None else min(now, last), self.seen)
        turn = mark.turn
        assert turn is not None, "it is open"
        keys = self.index.due(min(now, turn.due), AT_ONCE)
        if keys:
            self.index.taken(await self._deliver(keys))
            return now
        first = self.index.next
        if first is None or first[0] > turn.due:
            mark.close_turn()
            return now
        return first[0]  # Begun by a leader whose clock was ahead of this one's.

    async def drop(self) -> None:
        """Nothing of what waits now is delivered any more: that is on disk when this returns. A
        BarcoError: it is delivered, unless the outcome is not known."""
        mark = self.mark
        if self.lost:
            raise NotReadyError("What was written last is not known: ask again.")
        if self.end <= mark.least:
            return
        before = mark.least, mark.end, mark.turn
        mark.drop(self.end)
        try:
            await self._append([])
        except OutcomeUnknownError:
            self.lost = True
            raise
        except BaseException:
            mark.least, mark.end, mark.turn = before
            raise
        self.seen = mark.end
        self.index = DueIndex(self._times, mark.from_on)
        for offset in sorted(self.cancelled):
            self.forget(offset)
        self.cancelled.clear()

    async def _scan(self, stop: int) -> None:
        """Look at what has come, until there: not beyond the end of the open turn."""
        while self.seen < stop:
            at, self.seen = self.seen, min(stop, self.seen + SCAN_EVENTS)
            try:
                for first, times in await self._times(at, self.seen):
                    self.index.add(times, first, self._shared.near_max())
                    at = first + len(times) // 8
            except BaseException:
                self.seen = at
                raise

    async def _times(self, start: int, stop: int) -> list[tuple[int, bytes]]:
        async with self._shared.scans:
            return await self._read_times(start, min(stop, self.seen))

    async def _read_times(self, start: int, stop: int) -> list[tuple[int, bytes]]:
        topic, index = self._waiting_topic, self.name[1]
        found: list[tuple[int, bytes]] = []
        while start < stop:
            extent = await self._shared.reads.read(
                topic, index, start, SCAN_BYTES, stored=True, columns=_TIMES, stop=stop
            )
            for chunk in extent.chunks:
                try:
                    start = self._of_chunks(chunk, max(start, extent.start), stop, found)
                except ValueError as error:
                    raise CorruptDataError(f"A stored chunk is damaged: {error}.") from None
            if not extent.chunks:
                break
        return found

    def _of_chunks(
        self, chunks: Chunk, start: int, stop: int, found: list[tuple[int, bytes]]
    ) -> int:
        view, position = memoryview(chunks), 0
        while position < len(view) and start < stop:
            position, first, rows, _, columns = _native.chunks_columns(
                view,
                position,
                self._waiting_topic,
                self.name[1],
                start,
                stop,
                SCAN_BYTES,
                _TIMES,
                True,
            )
            end = min(first + rows, stop)
            if end > start:
                times = columns["timestamp"][3]
                found.append((start, times[(start - first) * 8 : (end - first) * 8]))
                start = end
        return start

    # --- Delivering ---------------------------------------------------------------------------

    async def _deliver(self, keys: Sequence[Key]) -> int:
        """The first of these, as many as fit, are in the topic, and the mark says so; how many."""
        shared, mark = self._shared, self.mark
        assert mark.turn is not None, "events are taken by turns"
        before = mark.turn.at
        wanted = [offset for _, offset in keys if offset not in self.cancelled]
        batches, last, lost = await self._batches(wanted)
        count = len(keys)
        if last is not None:  # Not all of them.
            count = next(i for i, key in enumerate(keys) if key[1] == last)
        mark.turn.at = keys[count - 1]
        self._look_for_least(keys[count - 1][1], count)
        try:
            await self._append(batches)
        except BaseException:
            mark.turn.at = before
            raise
        gone = [offset for _, offset in keys[:count] if offset in self.cancelled]
        shared.figures.delivered += count - len(gone) - lost
        shared.figures.cancelled += len(gone)
        self._tell_lost(lost)
        for offset in gone:
            self.cancelled.discard(offset)
            self.forget(offset)
        return count

    # --- Cancelling ---------------------------------------------------------------------------

    async def cancel(self, epoch: int, offset: int) -> None:
        """It is not delivered, durably. NotFoundError: it was, or there is none."""
        if self.lost:
            raise NotReadyError("What was written last is not known: ask again.")
        key = await self._key(epoch, offset) if offset < self.end else None
        if key is None or self.mark.is_done(key):
            raise NotFoundError("No such event waits: it was delivered, or never there.")
        if offset in self.cancelled:
            return
        value = cancelled(self.name, key)
        future = self._shared.appends.start(
            DELAYS, self.name[1], cancel_key(self.name, offset), value
        )
        self.cancelled.add(offset)
        try:
            await asyncio.shield(future)
        except OutcomeUnknownError:
            self.lost = True
            raise
        except BarcoError:
            self.cancelled.discard(offset)
            raise

    async def _key(self, epoch: int, offset: int) -> Key | None:
        """Of one event; None: it is not there, or was written by another generation."""
        topic, index = self._waiting_topic, self.name[1]
        extent = await self._shared.reads.read(
            topic, index, offset, 1, stored=True, columns=_TIMES, stop=offset + 1
        )
        found: list[tuple[int, bytes]] = []
        for chunk in extent.chunks:
            first, count, written = chunk_place(chunk)
            if first <= offset < first + count and written == epoch:
                self._of_chunks(chunk, offset, offset + 1, found)
        return (int.from_bytes(found[0][1], "little", signed=True), offset) if found else None

    def forget(self, offset: int) -> None:
        """That it was cancelled, in the log: it is done."""
        try:
            key = cancel_key(self.name, offset)
            self._shared.appends.start(DELAYS, self.name[1], key, b"")
        except BarcoError:
            log.info("%s/%d: what was cancelled is forgotten later", *self.name)

    def _tell_lost(self, count: int) -> None:
        """Of a block that was only known as such it is one, however many there were."""
        if count:
            self._shared.figures.lost += count
            log.error("%s/%d: %d or more were removed before they were due", *self.name, count)

    def _look_for_least(self, offset: int, count: int) -> None:
        self._since_least += count
        if self._since_least >= LEAST_EVERY or len(self.index) <= count:
            self._since_least = 0
            least = self.index.least
            # Those that are under way are not done yet.
            self.mark.least = max(self.mark.least, min(self.mark.end, least or 0))

    async def _append(self, batches: list[tuple[Any, ...]]) -> None:
        shared, (topic, index) = self._shared, self.name
        value = self.mark.packed(self.name, self._epoch)
        if not batches:
            await shared.appends.start(DELAYS, index, mark_key(self.name), value)
            return
        mark = (DELAYS, mark_key(self.name), value)
        await shared.appends.start_commit(topic, index, batches, mark=mark)

    async def _batches(
        self, offsets: Sequence[int]
    ) -> tuple[list[tuple[Any, ...]], int | None, int]:
        """Checked batches of these events in this order; the first for which there is no room, if
        there is one; how many are not there any more."""
        every, chunks = offsets, await self._chunks(offsets)
        while chunks is None:  # More than may be in memory at once: fewer of them.
            offsets = offsets[: len(offsets) // 2]
            chunks = await self._chunks(offsets)
        batches: list[tuple[Any, ...]] = []
        size = lost = at = 0
        while at < len(offsets):
            if batches and size > BYTES_AT_ONCE:
                return batches, offsets[at], lost
            if (home := chunks.get(offsets[at])) is None:
                lost, at = lost + 1, at + 1
                continue
            stop = at + 1
            while stop < len(offsets) and chunks.get(offsets[stop]) is home:
                stop += 1
            for some in self._checked(home, offsets[at:stop]):
                batches.append(some)
                size += len(some[0])
            at = stop
        return batches, every[at] if at < len(every) else None, lost

    def _checked(self, chunk: Chunk, offsets: Sequence[int]) -> list[tuple[Any, ...]]:
        try:
            batch = _native.chunk_batch(chunk, list(offsets))
            # It was accepted, whatever `event_bytes_max` is by now.
            return [(batch, *self._shared.reactor.check_batch(self.name[1], batch, True))]
        except OverflowError:
            if len(offsets) == 1:
                raise CorruptDataError(
                    f"Waiting event {offsets[0]} is larger than the log's buffer: raise"
                    " limits.memory_bytes, or cancel it."
                ) from None
            return [each for one in offsets for each in self._checked(chunk, [one])]
        except ValueError as error:
            raise CorruptDataError(f"A waiting event is damaged: {error}.") from None

    async def _chunks(self, offsets: Sequence[int]) -> dict[int, Chunk] | None:
        """By offset the stored chunk that it is in, for those that are still there. None: those
        are several chunks, and too much at once."""
        found: dict[int, Chunk] = {}
        held = 0
        topic, index = self._waiting_topic, self.name[1]
        left = sorted(offsets)
        stop = left[-1] + 1 if left else 0
        reached = 0
        while reached < len(left):
            extent = await self._shared.reads.read(
                topic, index, left[reached], READ_BYTES, stored=True, stop=stop
            )
            for piece in extent.chunks:
                for chunk, _ in split_chunks(piece):
                    first, count, _ = chunk_place(chunk)
                    while reached < len(left) and left[reached] < first:
                        reached += 1  # Retention was there.
                    if reached == len(left) or left[reached] >= first + count:
                        continue
                    held += len(chunk)
                    if found and held > CHUNKS_AT_ONCE:
                        return None
                    whole = memoryview(bytes(chunk))
                    while reached < len(left) and left[reached] < first + count:
                        found[left[reached]] = whole
                        reached += 1
            if not extent.chunks:
                break
        return found
