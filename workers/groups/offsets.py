"""The group offsets of one worker's slices: what is durable of every group's place.

For each (group, topic, slice) there is one cursor. Its group offset is an event in `__offsets`, in
the slice's own stream: it is as durable as an event, it is fenced by the same log, and it is
recovered with it.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import Any

from barco import limits
from barco.errors import BarcoError, ConflictError, TooManyRequestsError
from barco.workers.groups.cursor import OFFSETS, GroupCursor, restored
from barco.workers.groups.owned import GroupOwners
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends, all_stable
from barco.workers.shard.reads import Reads, Slot
from barco.workers.shard.waiting import breathe

LAGS_MAX = 1_000
"""Positions whose lag is among a broker's metrics: those furthest behind, of what it leads."""

LOOKED_AT_ONCE = 1_000
"""Of a hundred thousand positions, about a millisecond; then others have their turn."""

Name = tuple[str, str, int]
"""Of a cursor: (group, topic, slice)."""

Dead = tuple[str, list[tuple[Any, ...]]]
"""Dead letters that are stored with an offset, or neither: their topic, and checked batches."""


class Offsets:
    """All cursors of the slices of one worker, as the log has them."""

    def __init__(
        self,
        reactor: ReactorLike,
        *,
        reads: Reads,
        appends: Appends,
        slices: range,
        now_us: Callable[[], int],
    ) -> None:
        self._reactor = reactor
        self._reads = reads
        self._appends = appends
        self.slices = slices
        """Of this worker; they change only while it is closed."""
        self._now_us = now_us
        self._epoch = 0
        self._cursors: dict[Name, GroupCursor] = {}
        self.owners = GroupOwners()
        self.is_queue: Callable[[Name], bool] = lambda name: False
        """Whether a place is kept by a queue; set by whoever has the queues."""

    def open(self, epoch: int) -> None:
        """A generation is open: take up the group offsets that its log holds."""
        self.close()
        self._epoch = epoch
        for cursor in restored(self._reactor.compacted(OFFSETS)):
            if cursor.slice in self.slices:
                self._cursors[cursor.group, cursor.topic, cursor.slice] = cursor
                self.owners.add(cursor.group, cursor.owner)

    def close(self) -> None:
        """Another worker leads now: it has the group offsets."""
        self._epoch = 0
        self._cursors.clear()
        self.owners.clear()

    def committed(self, group: str, topic: str, index: int) -> int:
        """The group offset of a slice, as it is stable; -1: there is none."""
        cursor = self._cursors.get((group, topic, index))
        return -1 if cursor is None else cursor.committed

    @property
    def cursor_count(self) -> int:
        """How many group offsets this worker keeps."""
        return len(self._cursors)

    # --- In the log ---------------------------------------------------------------------------

    def _commit(
        self, cursor: GroupCursor, offset: int, dead: Dead | None = None, *, unhurried: bool = False
    ) -> asyncio.Future[int]:
        """Send a group offset to the log. It counts once it is stable, and never goes back.
        unhurried: nobody waits for that."""
        before, cursor.asked = cursor.asked, offset
        revision = cursor.revision
        try:
            future = self._store(cursor, offset, dead, unhurried=unhurried)
        except BaseException:  # What is on its way is still asked for, and no more than that.
            cursor.asked = cursor.committed if cursor.pending is None else before
            raise

        def stored(done: asyncio.Future[int]) -> None:
            if cursor.pending is done:
                cursor.pending = None
            if cursor.revision != revision:
                return  # A seek came later.
            if not done.cancelled() and done.exception() is None:
                cursor.committed = max(cursor.committed, offset)
            elif cursor.pending is None:
                cursor.asked = cursor.committed  # Still with the holder, to be committed again.

        future.add_done_callback(stored)
        return future

    def _store(
        self, cursor: GroupCursor, offset: int, dead: Dead | None = None, *, unhurried: bool = False
    ) -> asyncio.Future[int]:
        now_us = self._now_us()
        body = cursor.packed(self._epoch, offset, now_us)
        if dead is None:
            future = self._appends.start(
                OFFSETS, cursor.slice, cursor.key, body, unhurried=unhurried
            )
        else:
            mark = (OFFSETS, cursor.key, body)
            future = self._appends.start_commit(dead[0], cursor.slice, dead[1], mark=mark)
        cursor.pending = future
        cursor.stored_us = now_us
        return future

    async def start_group(
        self, group: str, slots: Iterable[Slot], start: str, user: str = "", most: int = 0
    ) -> None:
        """Where a group is new to a slice, record durably where it starts. It is the user's who
        begins it, and who may have so many of them (0: without end)."""
        self.owners.check(group, user, most)
        waiting = []
        for topic, index in slots:
            cursor = self._cursors.get((group, topic, index))
            if cursor is None or (cursor.committed < 0 and cursor.pending is None):
                cursor = self._new_cursor(group, topic, index, user)  # Or the last was refused.
                earliest, latest = self._reads.bounds(topic, index)
                offset = earliest if start == "startFromEarliest" else latest
                try:
                    self._commit(cursor, offset)
                except BaseException:
                    self._lose(cursor)
                    raise
                cursor.position = offset
                cursor.committed = -1  # Not known to the log yet.
            if cursor.committed < 0 and cursor.pending is not None:
                waiting.append((cursor, cursor.pending))
        failed: BarcoError | None = None
        for cursor, pending in waiting:
            try:
                await asyncio.shield(pending)
            except BarcoError as error:
                self._lose(cursor)
                failed = error
        if failed is not None:
            raise failed

    def _lose(self, cursor: GroupCursor) -> None:
        name = (cursor.group, cursor.topic, cursor.slice)
        if self._cursors.get(name) is cursor:
            del self._cursors[name]
            self.owners.remove(cursor.group)

    def _new_cursor(self, group: str, topic: str, index: int, user: str) -> GroupCursor:
        if self.is_queue((group, topic, index)):  # Both would have one key in the log.
            raise ConflictError(f"Group {group} is a queue: it has no positions.")
        if len(self._cursors) >= limits.POSITIONS_MAX:
            raise TooManyRequestsError(
                f"The worker keeps {limits.POSITIONS_MAX} group offsets, which is its limit: "
                "delete groups that are not needed any more."
            )
        if self._reactor.stats().get("state_full"):
            raise TooManyRequestsError(
                "The worker has no room for more group offsets: delete groups that are not needed "
                "any more, or raise limits.memory_bytes and storage.segment_bytes."
            )
        if (last := self._cursors.get((group, topic, index))) is not None:
            self._lose(last)
        self.owners.add(group, user)
        cursor = GroupCursor(group, topic, index, self.owners.of(group))
        self._cursors[group, topic, index] = cursor
        return cursor

    # --- Administration ---------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Groups with an offset on a slice of this worker."""
        return sorted({group for group, _, _ in self._cursors})

    async def positions(self, group: str) -> list[dict[str, Any]]:
        """The group's offsets on the slices of this worker, with the bounds of the slices."""
        cursors = [cursor for cursor in self._cursors.values() if cursor.group == group]
        starts = await self._reads.earliest_of([(each.topic, each.slice) for each in cursors])
        return [
            {
                "topic": cursor.topic,
                "slice": cursor.slice,
                "committed": max(0, cursor.committed),
                "delivered": cursor.position,
                "start": start,
                "end": self._reads.bounds(cursor.topic, cursor.slice)[1],
                "holder": cursor.holder[0] if cursor.holder else None,
            }
            for cursor, start in zip(cursors, starts, strict=True)
        ]

    async def lags(self, most: int) -> list[tuple[int, str, str, int]]:
        """(events, group, topic, slice) of those that are furthest behind, these first."""
        found: list[tuple[int, str, str, int]] = []
        for number, cursor in enumerate(list(self._cursors.values()), 1):
            start, end = self._reads.bounds(cursor.topic, cursor.slice)
            lag = max(0, end - max(start, cursor.committed))
            found.append((lag, cursor.group, cursor.topic, cursor.slice))
            if number % LOOKED_AT_ONCE == 0:
                found = heapq.nlargest(most, found)
                await breathe()
        return heapq.nlargest(most, found)

    async def seek(
        self, group: str, topic: str, offsets: dict[int, int], user: str = "", most: int = 0
    ) -> None:
        """Set group offsets, also back: the one way to do that, and only when asked for. A group
        begins so as well, see `start_group`."""
        self.owners.check(group, user, most, first=0 in offsets)
        waiting = []
        for index, offset in offsets.items():
            cursor = self._cursors.get((group, topic, index))
            if cursor is None:
                cursor = self._new_cursor(group, topic, index, user)
            cursor.revision += 1
            before = cursor.asked
            cursor.asked = cursor.position = offset
            cursor.committed = min(cursor.committed, offset)
            try:
                waiting.append(self._commit(cursor, offset))
            except BaseException:
                cursor.asked = cursor.position = before
                raise
        await all_stable(waiting)

    async def forget(self, group: str) -> int:
        """Drop the offsets of a group; returns how many there were."""
        return await self.drop([name for name in self._cursors if name[0] == group])

    def stored_before(self, time_us: int) -> list[tuple[str, str, int]]:
        """(group, topic, slice) of the offsets that were last stored before this time."""
        return [n for n, c in self._cursors.items() if c.pending is None and c.stored_us < time_us]

    def store_again(self, name: tuple[str, str, int]) -> None:
        """The same group offset, as of now."""
        self._commit(self._cursors[name], self._cursors[name].asked)

    async def drop(self, names: list[tuple[str, str, int]]) -> int:
        """Forget these offsets; returns how many they are."""
        waiting = []
        for name in names:
            cursor = self._cursors[name]
            waiting.append(self._appends.start(OFFSETS, cursor.slice, cursor.key, b""))
            self._release(cursor)
            cursor.revision += 1
            self._lose(cursor)
        await all_stable(waiting)
        return len(names)

    def _release(self, cursor: GroupCursor) -> None:
        """Take the cursor from its holder; what it has not committed goes to the next one."""
        cursor.holder = None
        cursor.position = cursor.asked
        cursor.delivery = ""
