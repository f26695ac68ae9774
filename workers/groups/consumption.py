"""Group consumption at the owner of a slice: what was delivered, to whom, and who is next.

What has been delivered to the consumer that holds a slice, and not been committed yet, is given
again to the next holder; but what is with a living holder is not given to another.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from barco.errors import BarcoError, BusyError, NotReadyError
from barco.model.ranges import process_of
from barco.workers.groups.cursor import GroupCursor, Key
from barco.workers.groups.offsets import Name, Offsets
from barco.workers.groups.owned import user_of
from barco.workers.groups.polls import PollRequest, PollResult, Said, holds
from barco.workers.groups.views import GroupView, Member
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends, all_stable
from barco.workers.shard.burial import LastPlace, letters
from barco.workers.shard.reads import Extent, Reads, Slot
from barco.workers.shard.waiting import Waiters

DIRECT_SECONDS = 10.0
"""A consumer that has asked this broker itself so lately gets nothing of it through others."""

log = logging.getLogger("barco.consumption")


async def _nobody(worker: int, key: Key) -> str | None:
    return None


class Consumption(Offsets):
    """All cursors of the slices of one worker, and who has what of them."""

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
        super().__init__(reactor, reads=reads, appends=appends, slices=slices, now_us=now_us)
        self._waiters = waiters
        self._membership = membership
        self._first_slice = first_slice
        self.peer = peer
        self.ask_written: Callable[[int, Key], Awaitable[str | None]] = _nobody
        """What a sibling has written to a consumer last; set by who can ask the siblings."""
        self._held: dict[Key, set[Name]] = {}
        self._direct: dict[Key, float] = {}
        """Who asks this broker itself, and when it did last; ahead while it waits."""
        self._fenced: dict[Key, set[Slot]] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._turns: dict[Key, int] = {}
        self._latest: dict[Key, str] = {}
        self._ended: set[Key] = set()
        self._warned: set[Key] = set()
        """Who is told that slices are another's before they are."""
        self._unread: set[Slot] = set()
        """What could not be read when it was last tried."""

    def close(self) -> None:
        """Another worker leads now: it has the group offsets, and hands out what follows."""
        super().close()
        for table in (self._held, self._fenced, self._turns, self._latest, self._direct):
            table.clear()
        self._unread.clear()
        self._warned.clear()

    # --- Polling ------------------------------------------------------------------------------

    async def poll(self, request: PollRequest) -> PollResult:
        """Commit what the consumer got before, and hand out what follows."""
        member, result = request.member, PollResult()
        if request.far and self._is_direct(member):
            await self._hear_named(request)
            result.direct = True
            return result
        if not request.far:
            self._direct[member.key] = time.monotonic()
        if request.first:
            self._latest[member.key] = request.delivery
        elif self._latest.get(member.key, request.delivery) != request.delivery:
            result.superseded = True
            return result
        async with self._locks.setdefault(member.key, asyncio.Lock()):
            cursors = await self._claim_all(request)
            if not request.budget:
                return result
            handed: dict[Slot, tuple[GroupCursor, int]] = {}
            try:
                await self._hand_out(request, cursors, result, handed)
            except BaseException:
                for cursor, before in handed.values():
                    if cursor.holder == member.key and cursor.delivery == request.delivery:
                        cursor.position = before
                raise
        return result

    async def _hear_named(self, request: PollRequest) -> None:
        """A client that has gone on to another broker names there what it got here. It is said with
        this poll alone: what it names next is another answer."""
        if request.said.received is None:
            return
        got = await self._got(request.member.key, request.said)
        for name in sorted(self._held.get(request.member.key, ())):
            if got.get(self._cursors[name].delivery):
                self._acknowledge(self._cursors[name], request, got)

    async def _claim_all(self, request: PollRequest) -> list[GroupCursor]:
        member, key = request.member, request.member.key
        slots = member.slots(self.slices, self._first_slice)
        got = await self._got(key, request.said)
        self._fenced.pop(key, None)
        names = [(member.group, *slot) for slot in slots]
        parted = self._held.get(key, set()).difference(names)
        for name in parted:
            self._acknowledge(self._cursors[name], request, got)
        if request.placement is not None:
            self._warned.add(key)
        if parted and request.knows:
            for name in parted:  # Another's from now on.
                self._release(self._cursors[name])
            self._waiters.look()
        cursors = [c for c in map(self._cursors.get, names) if c and c.committed >= 0]
        if len(cursors) < len(names):
            epoch = self._epoch
            user = user_of(member.consumer_id)  # It was deleted while this one registered.
            await self.start_group(member.group, slots, member.start, user)
            if self._epoch != epoch:
                raise NotReadyError("Another worker leads the shard now.")
            cursors = [self._cursors[name] for name in names]
        for cursor in cursors:
            if cursor.holder == key:
                self._acknowledge(cursor, request, got)
            elif request.knows and self._is_free(cursor):
                self._claim(cursor, key)
        cursors = [cursor for cursor in cursors if cursor.holder == key]
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
                if slot in request.paused:
                    continue
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

    def _is_free(self, cursor: GroupCursor) -> bool:
        """Whether nobody who lives has it. A holder that is to part with it has it until it polls
        without it: that acknowledges what it was given."""
        return cursor.holder is None or not self._membership.is_current(cursor.holder)

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
        super()._release(cursor)

    def _part(self, key: Key) -> None:
        """Take from a consumer what it is not to read any more, unless it has something of it, or
        wants to hear of it before: then its next poll parts with it."""
        if key in self._warned:
            return
        held = self._held.get(key)
        member = self._membership.get(key[0])
        if not held or member is None or member.key != key:
            return
        slots = set(member.slots(self.slices, self._first_slice))
        for name in [name for name in held if name[1:] not in slots]:
            cursor = self._cursors[name]
            if cursor.position <= cursor.asked:
                self._release(cursor)

    async def _got(self, key: Key, said: Said) -> dict[str, bool | None]:
        """Which of the answers that are with this consumer have reached it; None: nobody knows.

        What was handed out is not what was received: the worker that asked for it may have stood
        still until it gave up the answer, or its client had gone. So it counts only if the client
        names it or, where it names nothing, if that worker says that it has written it. A client
        may ask several brokers at once: that it asks one says nothing of what another gave it.
        """
        held = [self._cursors[name] for name in self._held.get(key, ())]
        got: dict[str, bool | None] = {}
        for delivery, asker in {c.delivery: c.asker for c in held if c.position > c.asked}.items():
            last = said.received
            if last is None and asker == said.asker:
                last = said.written
            elif last is None and asker >= 0 and process_of(asker)[0] == process_of(said.asker)[0]:
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
            self._commit(cursor, cursor.position, unhurried=True)
        except BarcoError:
            pass  # The log is full now; the next poll or commit covers these events as well.

    # --- What a poll may be followed by -----------------------------------------------------------

    async def wait(
        self,
        member: Member,
        timeout: float,
        *,
        far: bool = False,
        paused: frozenset[Slot] = frozenset(),
    ) -> bool:
        """Until there is something to deliver to this consumer, or its slices change. paused: of
        these it wants nothing now."""

        def ready() -> bool:
            if self._membership.get(member.consumer_id) is not member:
                return True
            return self._has_more(member, paused) and not (far and self._is_direct(member))

        if not far:
            self._direct[member.key] = time.monotonic() + timeout
        try:
            return await self._waiters.wait(ready, timeout)
        finally:
            if not far and member.key in self._direct:
                self._direct[member.key] = time.monotonic()

    def _is_direct(self, member: Member) -> bool:
        """Whether the consumer asks this broker itself: then it gets nothing through others, whose
        polls it makes besides. Not any more if it has not for a while; while something is with it
        for as long as it may be silent."""
        last = self._direct.get(member.key)
        if last is None:
            return False
        held = map(self._cursors.__getitem__, self._held.get(member.key, ()))
        with_it = any(c.position > c.asked and self._is_near(c.asker) for c in held)
        pause = member.session_ms / 1000 if with_it else DIRECT_SECONDS
        return time.monotonic() < last + pause

    def _is_near(self, worker: int) -> bool:
        return process_of(worker)[0] == process_of(self.peer)[0] if worker >= 0 else False

    def _has_more(self, member: Member, paused: frozenset[Slot]) -> bool:
        for topic, index in member.slots(self.slices, self._first_slice):
            if (topic, index) in paused:
                continue
            ends = self._reactor.stream_ends(topic, index)
            cursor = self._cursors.get((member.group, topic, index))
            if ends is None or cursor is None:
                continue
            if cursor.holder == member.key:
                begin = cursor.position
            elif self._is_free(cursor):
                begin = cursor.asked
            else:
                continue  # Who has it polls, and then it is looked at again.
            if ends[1] > begin:
                return True
        return False

    async def commit(self, key: Key, said: Said, *, far: bool = False) -> list[Slot]:
        """Commit all that this consumer was given, and wait until that is stable.

        What was in another answer than the last that it says it received is left out. Returns the
        slices of which nothing was committed: they went to another consumer before or, if the
        client does not name what it received, nobody can say that it has. far: of what the broker
        carried that has sent this on; what the consumer was given here is not meant.
        """
        waiting, lost = [], []
        got = await self._got(key, said)
        for name in sorted(self._held.get(key, ())):
            cursor = self._cursors[name]
            if far and self._is_near(cursor.asker):
                continue
            if cursor.position > cursor.asked:
                if got.get(cursor.delivery):
                    self._commit(cursor, cursor.position)
                elif said.received is None:
                    lost.append((cursor.topic, cursor.slice))
            if cursor.pending is not None:
                waiting.append(cursor.pending)
        self._part(key)
        self._waiters.look()
        await all_stable(waiting)
        return sorted(lost if far else self._fenced.pop(key, set()).union(lost))

    async def commit_to(self, key: Key, group: str, ends: Mapping[Slot, int]) -> list[Slot]:
        """Commit these offsets, each the next one to read, and wait until that is stable.

        Returns the slices of which nothing was committed: this consumer does not hold them, or the
        offset is behind the committed one, or beyond what was delivered.
        """
        waiting, lost = [], []
        for slot, offset in ends.items():
            cursor = self._cursors.get((group, *slot))
            if cursor is None or (cursor.asked != offset and cursor.holder != key):
                lost.append(slot)  # One that is committed may be told again, by anybody.
            elif not cursor.asked <= offset <= max(cursor.asked, cursor.position):
                lost.append(slot)
            else:
                if offset > cursor.asked:
                    self._commit(cursor, offset)
                if cursor.pending is not None:
                    waiting.append(cursor.pending)
        self._part(key)
        self._waiters.look()
        await all_stable(waiting)
        return sorted(lost)

    async def reject(self, key: Key, last: LastPlace, why: tuple[int, int, str], dead: str) -> bool:
        """An event (offset, how often it was tried, reason) becomes a dead letter, and all up to it
        is committed: one step, so neither twice nor lost. False: it is not with this consumer."""
        offset = why[0]

        def has() -> GroupCursor | None:
            cursor = self._cursors.get((last.group, last.topic, last.slice))
            within = cursor is not None and cursor.asked <= offset < cursor.position
            return cursor if within and cursor is not None and cursor.holder == key else None

        cursor = has()
        if cursor is not None:
            found = await letters(self._reads, self._reactor, last, [why])
            if not found:
                raise BusyError("The event can not be stored as a dead letter now.")
            cursor = has()  # It may have been read of the disk.
        if cursor is not None:
            batches = [found[0].batch] if found[0].batch is not None else []  # Else it is gone.
            self._commit(cursor, offset + 1, (dead, batches) if batches else None)
            self._part(key)
            self._waiters.look()
        told = self._cursors.get((last.group, last.topic, last.slice))
        if told is None or told.asked <= offset:
            return False
        if told.pending is not None:  # It may be told again, by anybody.
            await all_stable([told.pending])
        return True

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

    def membership_changed(self, gone: Iterable[Key], moved: Iterable[Key] = ()) -> None:
        """Free what consumers hold that are gone, or that is another's now and has been processed,
        and let those look again whom it concerns."""
        for key in moved:
            self._part(key)
        # Those of the last change as well: a poll of theirs may have been under way.
        ended, self._ended = self._ended.union(gone), set(gone)
        for key in ended:
            for name in list(self._held.get(key, ())):
                self._release(self._cursors[name])
            known: tuple[dict[Key, Any], ...] = (self._fenced, self._turns, self._latest)
            for by_key in (*known, self._direct):
                by_key.pop(key, None)
            self._warned.discard(key)
            if key in self._locks and self._locks[key].locked():
                self._ended.add(key)
            else:
                self._locks.pop(key, None)
        self._waiters.look()

    # --- Administration ---------------------------------------------------------------------------

    async def seek(
        self, group: str, topic: str, offsets: dict[int, int], user: str = "", most: int = 0
    ) -> None:
        """As `Offsets.seek`; who waits looks again."""
        await super().seek(group, topic, offsets, user, most)
        self._waiters.wake()
