"""Group consumption at the owner of a slice: what was delivered, and what is committed.

For each (group, topic, slice) there is one cursor. What has been delivered to the consumer that
holds it, and not been committed yet, is given again to the next holder. The group offset is an
event in `__offsets`, in the slice's own stream: it is as durable as an event, it is fenced by the
same log, and it is recovered with it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from barco import limits
from barco.errors import BarcoError, NotReadyError, TooManyRequestsError
from barco.workers.groups.cursor import OFFSETS, GroupCursor, Key, restored
from barco.workers.groups.owned import GroupOwners, user_of
from barco.workers.groups.polls import PollRequest, PollResult, Said, holds
from barco.workers.groups.views import GroupView, Member
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends, all_stable
from barco.workers.shard.reads import Extent, Reads, Slot
from barco.workers.shard.waiting import Waiters

log = logging.getLogger("barco.consumption")


async def _nobody(worker: int, key: Key) -> str | None:
    return None


class Consumption:
    """All cursors of the slices of one worker."""

    def __init__(
        self,
        reactor: ReactorLike,
        *,
        reads: Reads,
        appends: Appends,
        waiters: Waiters,
        membership: GroupView,
        slices: range,
        first_slice: int,
        peer: int,
        now_us: Callable[[], int],
    ) -> None:
        self._reactor = reactor
        self._reads = reads
        self._appends = appends
        self._waiters = waiters
        self._membership = membership
        self.slices = slices
        """Of this worker; they change only while it is closed."""
        self._first_slice = first_slice
        self._now_us = now_us
        self.peer = peer
        self.ask_written: Callable[[int, Key], Awaitable[str | None]] = _nobody
        """What a sibling has written to a consumer last; set by who can ask the siblings."""
        self._epoch = 0
        self._cursors: dict[tuple[str, str, int], GroupCursor] = {}
        self.owners = GroupOwners()
        self._held: dict[Key, set[tuple[str, str, int]]] = {}
        self._fenced: dict[Key, set[Slot]] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._turns: dict[Key, int] = {}
        self._latest: dict[Key, str] = {}
        self._ended: set[Key] = set()
        self._unread: set[Slot] = set()
        """What could not be read when it was last tried."""

    def open(self, epoch: int) -> None:
        """A generation is open: take up the group offsets that its log holds."""
        self.close()
        self._epoch = epoch
        for cursor in restored(self._reactor.compacted(OFFSETS)):
            if cursor.slice in self.slices:
                self._cursors[cursor.group, cursor.topic, cursor.slice] = cursor
                self.owners.add(cursor.group, cursor.owner)

    def close(self) -> None:
        """Another worker leads now: it has the group offsets, and hands out what follows."""
        self._epoch = 0
        for table in (self._cursors, self._held, self._fenced, self._turns, self._latest):
            table.clear()
        self.owners.clear()
        self._unread.clear()

    def committed(self, group: str, topic: str, index: int) -> int:
        """The group offset of a slice, as it is stable; -1: there is none."""
        cursor = self._cursors.get((group, topic, index))
        return -1 if cursor is None else cursor.committed

    @property
    def cursor_count(self) -> int:
        """How many group offsets this worker keeps."""
        return len(self._cursors)

    # --- Polling ------------------------------------------------------------------------------

    async def poll(self, request: PollRequest) -> PollResult:
        """Commit what the consumer got before, and hand out what follows."""
        member, result = request.member, PollResult()
        if request.first:
            self._latest[member.key] = request.delivery
        elif self._latest.get(member.key, request.delivery) != request.delivery:
            result.superseded = True
            return result
        async with self._locks.setdefault(member.key, asyncio.Lock()):
            cursors = await self._claim_all(request)
            handed: dict[Slot, tuple[GroupCursor, int]] = {}
            try:
                await self._hand_out(request, cursors, result, handed)
            except BaseException:
                for cursor, before in handed.values():
                    if cursor.holder == member.key and cursor.delivery == request.delivery:
                        cursor.position = before
                raise
        return result

    async def _claim_all(self, request: PollRequest) -> list[GroupCursor]:
        member, key = request.member, request.member.key
        slots = member.slots(self.slices, self._first_slice)
        got = await self._got(key, request.said)
        self._fenced.pop(key, None)
        names = [(member.group, *slot) for slot in slots]
        for name in self._held.get(key, set()).difference(names):  # Another's from now on.
            self._acknowledge(self._cursors[name], request, got)
            self._release(self._cursors[name])
        cursors = [c for c in map(self._cursors.get, names) if c and c.committed >= 0]
        if len(cursors) < len(names):
            epoch = self._epoch
            user = user_of(member.consumer_id)  # It was deleted while this one registered.
            await self.start_group(member.group, slots, member.start, user)
            if self._epoch != epoch:
                raise NotReadyError("Another worker leads the shard now.")
            cursors = [self._cursors[name] for name in names]
        for cursor in cursors:
            if cursor.holder != key:
                self._claim(cursor, key)
            elif cursor.position > cursor.asked:
                self._acknowledge(cursor, request, got)
        turn = self._turns[key] = (self._turns.get(key, -1) + 1) % max(1, len(cursors))
        return cursors[turn:] + cursors[:turn]

    async def _hand_out(
        self,
        request: PollRequest,
        cursors: list[GroupCursor],
        result: PollResult,
        handed: dict[Slot, tuple[GroupCursor, int]],
    ) -> None:
        extents: dict[Slot, Extent] = {}
        left, hungry = request.budget, cursors
        for _ in range(2):  # Fair shares first; then what some did not need, for those with more.
            for number, cursor in enumerate(hungry):
                ends = self._reactor.stream_ends(cursor.topic, cursor.slice)
                if ends is None or ends[1] <= cursor.position:
                    continue
                slot = (cursor.topic, cursor.slice)
                before = extents.get(slot)
                share = left // (len(hungry) - number)
                extent = await self._read(cursor, request, share, result)
                if extent is None or (extents and extent.cost > left):
                    continue
                handed.setdefault(slot, (cursor, cursor.position))
                cursor.position, cursor.delivery = extent.end, request.delivery
                cursor.asker = request.said.asker
                left -= extent.cost
                if before is None:
                    extents[slot] = extent
                else:
                    before.join(extent)
            hungry = [handed[slot][0] for slot, extent in extents.items() if extent.more]
            if 4 * left < request.budget:
                break
        result.extents = list(extents.values())

    async def _read(
        self, cursor: GroupCursor, request: PollRequest, budget: int, result: PollResult
    ) -> Extent | None:
        start, revision = cursor.position, cursor.revision
        try:
            extent = await self._reads.read(
                cursor.topic,
                cursor.slice,
                start,
                max(1, budget),
                stored=request.stored,
                frame=request.frame,
            )
        except BarcoError as error:
            result.unavailable.append(cursor.slice)
            self._tell_unread(cursor, error)
            return None
        self._unread.discard((cursor.topic, cursor.slice))
        if cursor.holder != request.member.key or cursor.revision != revision:
            return None  # Taken over or moved while the disk was read.
        if extent.chunks:
            return extent
        if extent.more:  # Retention was faster.
            start = await self._reads.earliest(cursor.topic, cursor.slice)
            if cursor.holder == request.member.key and cursor.revision == revision:
                cursor.position = max(cursor.position, start)
        return None

    def _tell_unread(self, cursor: GroupCursor, error: BarcoError) -> None:
        """Once, until it can be read again: consumers wait for it, and poll all the time."""
        slot = (cursor.topic, cursor.slice)
        if slot not in self._unread:
            self._unread.add(slot)
            log.error("%s/%d cannot be read from %d on: %s", *slot, cursor.position, error)

    def _claim(self, cursor: GroupCursor, key: Key) -> None:
        self._release(cursor)
        cursor.holder = key
        self._held.setdefault(key, set()).add((cursor.group, cursor.topic, cursor.slice))

    def _release(self, cursor: GroupCursor) -> None:
        """Take the cursor from its holder; what it has not committed goes to the next one."""
        if cursor.holder is not None:
            held = self._held.get(cursor.holder, set())
            held.discard((cursor.group, cursor.topic, cursor.slice))
            if not held:
                self._held.pop(cursor.holder, None)
            if cursor.position > cursor.asked and self._membership.is_current(cursor.holder):
                self._fenced.setdefault(cursor.holder, set()).add((cursor.topic, cursor.slice))
        cursor.holder = None
        cursor.position = cursor.asked
        cursor.delivery = ""

    async def _got(self, key: Key, said: Said) -> dict[str, bool | None]:
        """Which of the answers that are with this consumer have reached it; None: nobody knows.

        What was handed out is not what was received: the worker that asked for it may have stood
        still until it gave up the answer, or its client had gone. So it counts only if the client
        names it or, where it names nothing, if that worker says that it has written it.
        """
        held = [self._cursors[name] for name in self._held.get(key, ())]
        got: dict[str, bool | None] = {}
        for delivery, asker in {c.delivery: c.asker for c in held if c.position > c.asked}.items():
            last = said.received
            if last is None and asker == said.asker:
                last = said.written
            elif last is None:
                last = await self.ask_written(asker, key)
            got[delivery] = None if last is None else holds(last, delivery, self.peer)
        return got

    def _acknowledge(
        self, cursor: GroupCursor, request: PollRequest, got: Mapping[str, bool | None]
    ) -> None:
        """The holder is back: it has what it was given, or is given it again."""
        if cursor.position <= cursor.asked or cursor.delivery == request.delivery:
            return  # Nothing, or a second pass for the same answer.
        if not got.get(cursor.delivery):
            cursor.position = cursor.asked
            return
        try:
            self._commit(cursor, cursor.position)
        except BarcoError:
            pass  # The log is full now; the next poll or commit covers these events as well.

    def _commit(self, cursor: GroupCursor, offset: int) -> asyncio.Future[int]:
        """Send a group offset to the log. It counts once it is stable, and never goes back."""
        cursor.asked = offset
        revision = cursor.revision
        future = self._store(cursor, offset)

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

    def _store(self, cursor: GroupCursor, offset: int) -> asyncio.Future[int]:
        now_us = self._now_us()
        body = cursor.packed(self._epoch, offset, now_us)
        try:
            future = self._appends.start(OFFSETS, cursor.slice, cursor.key, body)
        except BaseException:
            cursor.asked = cursor.committed if cursor.pending is None else cursor.asked
            raise
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

    # --- What a poll may be followed by -----------------------------------------------------------

    async def wait(self, member: Member, timeout: float) -> bool:
        """Until there is something to deliver to this consumer, or its slices change."""

        def ready() -> bool:
            return self._membership.get(member.consumer_id) is not member or self._has_more(member)

        return await self._waiters.wait(ready, timeout)

    def _has_more(self, member: Member) -> bool:
        for topic, index in member.slots(self.slices, self._first_slice):
            ends = self._reactor.stream_ends(topic, index)
            cursor = self._cursors.get((member.group, topic, index))
            if ends is None or cursor is None:
                continue
            if ends[1] > (cursor.position if cursor.holder == member.key else cursor.asked):
                return True
        return False

    async def commit(self, key: Key, said: Said) -> list[Slot]:
        """Commit all that this consumer was given, and wait until that is stable.

        What was in another answer than the last that it says it received is left out. Returns the
        slices of which nothing was committed: they went to another consumer before or, if the
        client does not name what it received, nobody can say that it has.
        """
        waiting, lost = [], []
        got = await self._got(key, said)
        for name in sorted(self._held.get(key, ())):
            cursor = self._cursors[name]
            if cursor.position > cursor.asked:
                if got.get(cursor.delivery):
                    self._commit(cursor, cursor.position)
                elif said.received is None:
                    lost.append((cursor.topic, cursor.slice))
            if cursor.pending is not None:
                waiting.append(cursor.pending)
        await all_stable(waiting)
        return sorted(self._fenced.pop(key, set()).union(lost))

    async def goodbye(self, key: Key, *, commit: bool, said: Said) -> None:
        """The consumer leaves; its slices are free for the others."""
        try:
            if commit:
                await self.commit(key, said)
        finally:
            for name in list(self._held.get(key, ())):
                self._release(self._cursors[name])
            self._fenced.pop(key, None)

    def revoke(self, key: Key, delivery: str) -> None:
        """This answer never left: its events are to be delivered again."""
        for name in self._held.get(key, ()):
            cursor = self._cursors[name]
            if cursor.delivery == delivery:
                cursor.position = cursor.asked

    def membership_changed(self, gone: Iterable[Key]) -> None:
        """Free what consumers hold that are gone, and let those look again whom it concerns."""
        # Those of the last change as well: a poll of theirs may have been under way.
        ended, self._ended = self._ended.union(gone), set(gone)
        for key in ended:
            for name in list(self._held.get(key, ())):
                self._release(self._cursors[name])
            known: tuple[dict[Key, Any], ...] = (self._fenced, self._turns, self._latest)
            for by_key in known:
                by_key.pop(key, None)
            if key in self._locks and self._locks[key].locked():
                self._ended.add(key)
            else:
                self._locks.pop(key, None)
        self._waiters.look()

    # --- Administration ---------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Groups with an offset on a slice of this worker."""
        return sorted({group for group, _, _ in self._cursors})

    async def positions(self, group: str) -> list[dict[str, Any]]:
        """The group's offsets on the slices of this worker, with the bounds of the slices."""
        found = []
        for cursor in list(self._cursors.values()):
            if cursor.group == group:
                start = await self._reads.earliest(cursor.topic, cursor.slice)
                _, end = self._reads.bounds(cursor.topic, cursor.slice)
                found.append(
                    {
                        "topic": cursor.topic,
                        "slice": cursor.slice,
                        "committed": max(0, cursor.committed),
                        "delivered": cursor.position,
                        "start": start,
                        "end": end,
                        "holder": cursor.holder[0] if cursor.holder else None,
                    }
                )
        return found

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
        self._waiters.wake()

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
