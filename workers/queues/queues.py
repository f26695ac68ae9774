"""Queues at the leader of their slices: leases in memory, all else in the slice's own log."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from barco import limits
from barco.errors import (
    BarcoError,
    ConflictError,
    NotFoundError,
    NotReadyError,
    TooManyRequestsError,
)
from barco.model.queues import Leased, QueueSettings
from barco.workers.groups.consumption import Consumption
from barco.workers.groups.cursor import OFFSETS
from barco.workers.queues.saver import Saver, now_ms, until_saved
from barco.workers.queues.slot import Name, Slot, read_slot
from barco.workers.queues.window import Window
from barco.workers.seams import ReactorLike
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends, all_stable
from barco.workers.shard.reads import Reads
from barco.workers.shard.waiting import Waiters

TELL_AGAIN_MS = 60_000
"""Of the trouble of one slice."""

TICK_SECONDS_MIN = 0.02
"""Between two looks at what is due."""

log = logging.getLogger("barco.queues")


class Queues:
    """Of the slices of one worker."""

    def __init__(
        self,
        reactor: ReactorLike,
        *,
        reads: Reads,
        appends: Appends,
        waiters: Waiters,
        consumption: Consumption,
        first_slice: int,
        now_us: Callable[[], int],
    ) -> None:
        """now_us: the log's own clock."""
        self._reactor, self.reads = reactor, reads
        self._appends, self.waiters = appends, waiters
        self.saver = Saver(
            reactor,
            reads=reads,
            appends=appends,
            first_slice=first_slice,
            now_us=now_us,
            arm_at=self.arm_at,
        )
        self._consumption = consumption
        consumption.is_queue = lambda name: name in self._slots
        self.first_slice = first_slice
        self._now_us = now_us
        self.epoch = 0
        """Of the generation that is led; 0: none is."""
        self._slots: dict[Name, Slot] = {}
        self._of: dict[tuple[str, str], list[Slot]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._told: dict[Name, int] = {}

    # --- Beginning and ending ---------------------------------------------------------------------

    def open(self, epoch: int) -> None:
        """A generation is open, and its first group committed: take up what its log holds."""
        self.close()
        self.epoch = self.saver.epoch = epoch
        now, now_us = now_ms(), self._now_us()
        for found in internal.each(OFFSETS, self._reactor.compacted(OFFSETS), read_slot):
            if found is None or found[0][2] not in self._consumption.slices:
                continue
            (group, topic, index), owner, settings, kept, at_us = found
            end = self.reads.bounds(topic, index)[1]
            passed = max(0, now_us - at_us) // 1000
            window = Window.restored(settings, kept, end, now, passed)
            self._add(Slot(group, topic, index, owner, window))
        for slot in self._slots.values():
            self.arm(slot)

    def close(self) -> None:
        """Another worker leads now, which has what was stable."""
        self.epoch = self.saver.epoch = 0
        for slot in self._slots.values():
            slot.lost = True
            self.saver.give_up(slot)
        self._slots.clear()
        self._of.clear()
        self._told.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add(self, slot: Slot) -> None:
        self._slots[slot.name] = slot
        self._of.setdefault((slot.group, slot.topic), []).append(slot)
        self._consumption.owners.add(slot.group, slot.owner)

    def _drop(self, slot: Slot) -> None:
        if self._slots.get(slot.name) is not slot:
            return
        slot.lost = True
        del self._slots[slot.name]
        self._of[slot.group, slot.topic].remove(slot)
        if not self._of[slot.group, slot.topic]:
            del self._of[slot.group, slot.topic]
        self._consumption.owners.remove(slot.group)

    # --- What there is ----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Slices of all queues."""
        return len(self._slots)

    def every(self) -> list[Slot]:
        """All of them."""
        return list(self._slots.values())

    def groups(self) -> list[str]:
        """Those that are queues."""
        return sorted({slot.group for slot in self._slots.values()})

    def is_queue(self, group: str) -> bool:
        """Whether the group is one, on any topic."""
        return any(slot.group == group for slot in self._slots.values())

    def all_of(self, group: str) -> list[Slot]:
        """The slices of a queue's topics here."""
        return [slot for slot in self._slots.values() if slot.group == group]

    def known(self, group: str, topic: str) -> Sequence[Slot]:
        """The slices of one topic of it, those as well that are not made yet; nothing where it is
        no queue, or nothing is led."""
        return self._of.get((group, topic), ()) if self.epoch else ()

    def of(self, group: str, topic: str) -> list[Slot]:
        """The slices of one topic of it."""
        if not self.epoch:
            raise NotReadyError("This worker does not lead the shard (any more).")
        found = [slot for slot in self._of.get((group, topic), ()) if not slot.new]
        if not found:
            raise NotFoundError(
                f"Group {group} is no queue of topic {topic}: PUT /v1/groups/{group}?type=queue"
                f"&topic={topic} makes it one."
            )
        return found

    def at(self, group: str, topic: str, run: Leased) -> Slot:
        """The slice of something that was handed out."""
        index = run.slice - self.first_slice
        known = self._slots.get((group, topic, index)) if self.epoch else None
        if known is not None and not known.new and not known.lost:
            return known
        for slot in self.of(group, topic):
            if slot.slice == index:
                if slot.lost:
                    raise NotReadyError("What was written last is not known: ask again.")
                return slot
        raise NotReadyError("This worker does not lead the slice (any more).")

    def end(self, slot: Slot) -> int:
        """Of what is stable in its slice; what retention has removed is not waited for."""
        start, end = self.reads.bounds(slot.topic, slot.slice)
        if start > slot.window.base:
            slot.window.skipped(start)
        return end

    def check_owner(self, group: str, user: str, most: int) -> None:
        """QuotaUsedUpError: the user may begin no other group."""
        self._consumption.owners.check(group, user, most)

    def tell(self, slot: Slot, error: BarcoError) -> None:
        """It could not be read, or written: its consumers ask again all the time."""
        if (now := now_ms()) >= self._told.get(slot.name, now):
            self._told[slot.name] = now + TELL_AGAIN_MS
            log.error("%s/%s/%d: nothing can be handed out: %s", *slot.name, error)

    # --- Settings ---------------------------------------------------------------------------------

    async def make(
        self, group: str, topics: Sequence[str], settings: QueueSettings, start: str, user: str
    ) -> None:
        """The group is a queue of these topics from now on, durably; or has other settings."""
        self.check_new(group, topics)
        slots, before = [], []
        for topic in topics:
            for index in self._consumption.slices:
                slot = self._slots.get((group, topic, index))
                before.append(settings if slot is None else slot.window.settings)
                if slot is None:
                    slot = self._begin(group, topic, index, settings, start, user)
                else:
                    self._change(slot, settings)
                slots.append(slot)
        waiting = [self.saver.save(slot) for slot in slots]
        try:
            await all_stable(waiting)
        finally:
            for slot, future, was in zip(slots, waiting, before, strict=True):
                self._made(slot, future, settings, was)
        self.waiters.wake()

    def _made(
        self, slot: Slot, future: asyncio.Future[None], settings: QueueSettings, was: QueueSettings
    ) -> None:
        """What is not in the log is not so: then it is as it was, or there is no such slice."""
        failed = not future.done() or future.cancelled() or future.exception() is not None
        if slot.new and failed:
            self._drop(slot)
        elif failed and not slot.lost and slot.window.settings == settings != was:
            self._change(slot, was)
            self.saver.save(slot)
        slot.new = False

    def check_new(self, group: str, topics: Iterable[str]) -> None:
        """ConflictError, TooManyRequestsError: it can not be a queue of all these topics. Looked at
        before any of them is one."""
        if group in self._consumption.groups():
            raise ConflictError(
                f"Group {group} has positions of ordinary consumers: a queue needs a group of its "
                "own, or has these forgotten first (DELETE /v1/groups/GROUP)."
            )
        names = [(group, topic, index) for topic in topics for index in self._consumption.slices]
        new = sum(name not in self._slots for name in names)
        room = limits.POSITIONS_MAX - self._consumption.cursor_count - len(self._slots)
        if new and (new > room or self._reactor.stats().get("state_full")):
            raise TooManyRequestsError(
                "The worker has no room for more group offsets: delete groups that are not needed "
                "any more, or raise limits.memory_bytes and storage.segment_bytes."
            )

    def _begin(
        self, group: str, topic: str, index: int, settings: QueueSettings, start: str, user: str
    ) -> Slot:
        earliest, latest = self.reads.bounds(topic, index)
        base = earliest if start == "startFromEarliest" else latest
        slot = Slot(group, topic, index, user, Window(settings, base), new=True)
        self._add(slot)
        return slot

    def _change(self, slot: Slot, settings: QueueSettings) -> None:
        now, ordered = now_ms(), slot.window.settings.ordered
        slot.window.change(settings, now)
        if ordered == settings.ordered:
            return
        kept = slot.window.kept(now)
        window = Window.restored(settings, kept, slot.window.next, now, 0)
        window.reserved = slot.window.reserved
        slot.window = window
        self.arm(slot)

    async def forget(self, group: str) -> int:
        """Drop the queue; how many slices it had."""
        slots = self.all_of(group)
        waiting = []
        for slot in slots:
            before, slot.lost = slot.lost, True  # Nothing more of it is begun.
            try:
                await until_saved(slot)  # What is appended is to be before what removes it.
                waiting.append(self._appends.start(OFFSETS, slot.slice, slot.key, b""))
            except BaseException:
                slot.lost = before or self._slots.get(slot.name) is not slot
                raise
            self._drop(slot)
        await all_stable(waiting)
        return len(slots)

    # --- Time -------------------------------------------------------------------------------------

    def arm(self, slot: Slot) -> None:
        """Look when a lease of it ends, or an event may be given again."""
        if (due := slot.window.next_due()) is not None:
            self.arm_at(due)

    def arm_at(self, due: int) -> None:
        """Look then, or before."""
        if self._timer is not None and self._timer_at <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        pause = max(TICK_SECONDS_MIN, (due - now_ms()) / 1000)
        self._timer_at = due
        self._timer = loop.call_later(pause, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now, some = now_ms(), False
        for slot in self._slots.values():
            if slot.window.due(now):
                some = True
                self.saver.save(slot)  # Counts, and dead letters.
            elif slot.window.dying:
                self.saver.bury(slot)
            if slot.bury_after > now and slot.window.dying:
                self.arm_at(slot.bury_after)
            self.arm(slot)
        if some:
            self.waiters.look()
