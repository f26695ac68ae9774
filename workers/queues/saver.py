"""What is known of a queue's slices, into the slices' own logs.

Changes are gathered: what comes in one turn of the core, or while an append of a slice is under
way, goes into the next one, and whoever waits for it is told when that is stable. That takes no
task, and no turn of asyncio's loop beside the two in which the core tells something, a change and
that it is stable: each turn is calls of the system. Only dead letters, which are read before, have
a task.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from barco.errors import BarcoError, NotReadyError, OutcomeUnknownError
from barco.workers.groups.cursor import OFFSETS
from barco.workers.queues.kept import WindowValue
from barco.workers.queues.slot import Name, Saved, Slot
from barco.workers.queues.window import Window
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends, quiet_future, settle
from barco.workers.shard.burial import LastPlace, Letter, letters
from barco.workers.shard.reads import Reads

BURY_AGAIN_MS = 60_000
"""When there was no room for dead letters."""

ELSEWHERE = "Another worker leads the shard now, or will."

log = logging.getLogger("barco.queues")


def now_ms() -> int:
    """Of the clock that leases are measured by."""
    return time.monotonic_ns() // 1_000_000


class Saver:
    """Of the slices of one worker, which has them in `Queues`."""

    def __init__(
        self,
        reactor: ReactorLike,
        *,
        reads: Reads,
        appends: Appends,
        first_slice: int,
        now_us: Callable[[], int],
        arm_at: Callable[[int], None],
    ) -> None:
        """now_us: the log's own clock. arm_at: `bury` is to be called then."""
        self._reactor, self._reads, self._appends = reactor, reads, appends
        self._first_slice = first_slice
        self._now_us, self._arm_at = now_us, arm_at
        self.epoch = 0
        """Of the generation that is led; 0: none is."""
        self._unsaved: dict[Name, Slot] = {}
        self._is_gathering = False

    # --- What is asked for ------------------------------------------------------------------------

    def save(self, slot: Slot) -> asyncio.Future[None]:
        """All that is known of the slice now, stable when the future is done."""
        future: asyncio.Future[None] = quiet_future()
        self.tell_saved(slot, functools.partial(settle, future))
        return future

    def tell_saved(self, slot: Slot, saved: Saved) -> None:
        """All that is known of the slice now; `saved` is told when that is stable, or why it is
        not: not before this returns."""
        slot.waiting.append(saved)
        slot.dirty = True
        self._begin(slot)

    def bury(self, slot: Slot) -> None:
        """Write its dead letters, if that may be tried now."""
        if self._may_bury(slot):
            self._begin(slot)

    def gather(self) -> None:
        """What is saved from now on waits for `flush`."""
        self._is_gathering = True

    def flush(self) -> None:
        """Begin to append what is to be saved."""
        self._is_gathering = False
        if not self._unsaved:
            return
        unsaved, self._unsaved = self._unsaved, {}
        for slot in unsaved.values():
            if slot.waiting and not slot.is_saving:
                self._append_told(slot)

    def give_up(self, slot: Slot) -> None:
        """Another worker leads: it has what is stable, and nobody here hears of the rest."""
        self._unsaved.pop(slot.name, None)
        if slot.burying is not None:
            slot.burying.cancel()  # It tells who waits.
            return
        told, slot.waiting = [*(slot.under_way or ()), *slot.waiting], []
        slot.under_way = None
        _end(told, NotReadyError(ELSEWHERE))

    def _begin(self, slot: Slot) -> None:
        if slot.is_saving:
            return  # What comes meanwhile goes into the next one.
        loop = asyncio.get_running_loop()
        if self._may_bury(slot):
            slot.burying = loop.create_task(self._burying(slot))
            return
        if not self._unsaved and not self._is_gathering:
            loop.call_soon(self.flush)
        self._unsaved[slot.name] = slot

    # --- Without dead letters ---------------------------------------------------------------------

    def _append_told(self, slot: Slot) -> None:
        waiting, slot.waiting = slot.waiting, []
        if slot.lost or not self.epoch:
            _end(waiting, NotReadyError(ELSEWHERE))
            return
        slot.under_way, slot.dirty = waiting, False
        try:
            kept = slot.window.kept(now_ms())
            value = slot.packed(self.epoch, kept, self._now_us())
            told = functools.partial(self._appended, slot, slot.window, kept)
            self._appends.start_told(OFFSETS, slot.slice, slot.key, value, told)
        except Exception as error:  # Else who waits would for ever, and for other slices as well.
            if not isinstance(error, BarcoError):
                log.exception("%s/%s/%d: nothing of it can be written", *slot.name)
            slot.under_way, slot.dirty = None, True
            _end(waiting, error)

    def _appended(
        self, slot: Slot, window: Window, kept: WindowValue, outcome: int | BarcoError
    ) -> None:
        told, slot.under_way = slot.under_way, None
        if told is None:  # They know already that another worker leads.
            return
        error = outcome if isinstance(outcome, BarcoError) else None
        if error is None:
            _has_room(slot, window, kept)
        else:
            slot.dirty = True
            slot.lost = slot.lost or isinstance(error, OutcomeUnknownError)
        _end(told, error)
        if slot.waiting or self._may_bury(slot):
            self._begin(slot)

    # --- With dead letters ------------------------------------------------------------------------

    async def _burying(self, slot: Slot) -> None:
        waiting: list[Saved] = []
        failure: BaseException = NotReadyError(ELSEWHERE)
        try:
            while slot.waiting or self._may_bury(slot):
                waiting, slot.waiting = slot.waiting, []
                try:
                    await self._store(slot)
                except BarcoError as error:
                    slot.lost = slot.lost or isinstance(error, OutcomeUnknownError)
                    _end(waiting, error)
                else:
                    _end(waiting, None)
                waiting = []
        except Exception as error:
            failure = error
            raise
        finally:
            slot.burying = None
            _end((*waiting, *slot.waiting), failure)
            slot.waiting = []

    def _may_bury(self, slot: Slot) -> bool:
        window = slot.window
        dead = bool(window.dying and window.settings.dead) and not slot.lost
        return dead and now_ms() >= slot.bury_after

    async def _store(self, slot: Slot) -> None:
        if slot.lost or not self.epoch:
            raise NotReadyError(ELSEWHERE)
        dead = await self._letters(slot) if self._may_bury(slot) else []
        window = slot.window  # Other settings may have come meanwhile.
        dead = [letter for letter in dead if letter.offset in window.dying]  # Not done meanwhile.
        batches = [letter.batch for letter in dead if letter.batch is not None]
        if dead and not batches:
            for letter in dead:
                window.acknowledge(letter.offset, letter.offset + 1)
            dead = []
        if dead:
            try:
                await self._append(slot, [letter.offset for letter in dead], batches)
                return
            except OutcomeUnknownError:
                raise
            except BarcoError as error:  # All else that is known is written without them.
                log.warning("%s: dead letters wait: %s", "/".join(map(str, slot.name)), error)
                self._bury_later(slot)
        await self._append(slot, [], [])

    async def _letters(self, slot: Slot) -> list[Letter]:
        window = slot.window
        dying = [(at, count, why) for at, (count, why) in sorted(window.dying.items())]
        where = LastPlace(slot.group, slot.topic, slot.slice, self._first_slice + slot.slice)
        found = await letters(self._reads, self._reactor, where, dying)
        if not found:  # None of them can be one now.
            log.warning("%s: dead letters wait", "/".join(map(str, slot.name)))
            self._bury_later(slot)
        return found

    def _bury_later(self, slot: Slot) -> None:
        slot.bury_after = now_ms() + BURY_AGAIN_MS
        self._arm_at(slot.bury_after)

    async def _append(self, slot: Slot, gone: Sequence[int], batches: list[Any]) -> None:
        window = slot.window
        kept = window.kept(now_ms(), gone)
        slot.dirty = False
        value = slot.packed(self.epoch, kept, self._now_us())
        try:
            if batches:
                mark = (OFFSETS, slot.key, value)
                dead = window.settings.dead
                future = self._appends.start_commit(dead, slot.slice, batches, mark=mark)
            else:
                future = self._appends.start(OFFSETS, slot.slice, slot.key, value)
            await future  # Nobody else has it.
        except BaseException:
            slot.dirty = True
            raise
        _has_room(slot, window, kept)
        for at in gone:
            slot.window.acknowledge(at, at + 1)


async def until_saved(slot: Slot) -> None:
    """Until the append of it that is under way has ended, however that was."""
    if slot.burying is not None:
        await asyncio.wait([slot.burying])
    elif slot.under_way is not None:
        ended: asyncio.Future[None] = quiet_future()
        slot.under_way.append(functools.partial(settle, ended))
        await asyncio.wait([ended])


def _has_room(slot: Slot, window: Window, kept: WindowValue) -> None:
    """What was written of a window is stable: so much of it may be handed out."""
    for each in (window, slot.window):  # Other settings may have come meanwhile.
        each.reserved = max(each.reserved, kept.reserved)


def _end(waiting: Iterable[Saved], error: BaseException | None) -> None:
    for saved in waiting:
        try:
            saved(error)
        except Exception:  # One request's bug is not the others'.
            log.exception("who waited for a queue could not be told")
