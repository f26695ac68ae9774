"""What a worker does for a queue's consumers: hand out, take back, wait."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from barco import _native
from barco.errors import BarcoError, CorruptDataError, NotReadyError
from barco.limits import POLL_WAIT_MS_MAX
from barco.model.queues import (
    DELAY_MS_MAX,
    LEASED_MAX,
    RUNS_MAX,
    Leased,
    QueueSettings,
    by_slice,
    check_leases,
)
from barco.types import KiB
from barco.workers.queues.queues import Queues
from barco.workers.queues.saver import now_ms
from barco.workers.queues.slot import Saved, Slot
from barco.workers.queues.window import Given
from barco.workers.shard.appends import all_stable
from barco.workers.shard.reads import Extent, Reads, extent_to_list, split_chunks

Args = Mapping[str, Any]

SCAN_BYTES = 256 * KiB
"""Of stored chunks that are looked through for keys at once."""

SCANS_MAX = 16
"""For one lease; who asks again goes on from there."""


class QueueDesk:
    """The operations, by the names that frames carry."""

    def __init__(self, queues: Queues, reads: Reads, serves: Callable[[], bool]) -> None:
        """serves: whether this leader has lately heard of a follower."""
        self._queues, self._reads, self._serves = queues, reads, serves
        self._turns: dict[tuple[str, str], int] = {}

    def operations(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """By name."""
        return {
            "queue_set": self._set,
            "queue_lease": self._lease,
            "queue_wait": self._wait,
            "queue_ack": self._ack,
            "queue_nack": self._nack,
            "queue_extend": self._extend,
            "queue_release": self._release,
        }

    def _check_serves(self) -> None:
        if not self._serves():
            raise NotReadyError("The shard's leader has not heard of its followers for a while.")

    async def _set(self, args: Args) -> None:
        """{"group", "topics", "start", "user"?, "most"?, "look"?}: settings by topic. look: whether
        it can be; nothing is changed."""
        user, most = args.get("user", ""), args.get("most", 0)
        self._queues.check_owner(args["group"], user, most)
        self._queues.check_new(args["group"], args["topics"])
        if args.get("look"):
            return
        for topic, packed in args["topics"].items():
            settings = QueueSettings.read(packed)
            await self._queues.make(args["group"], [topic], settings, args["start"], user)

    # --- At once ----------------------------------------------------------------------------------

    def lease_at_once(
        self, group: str, topic: str, most: int, budget: int, lease_ms: int
    ) -> tuple[list[Leased], list[Extent]]:
        """As `queue_lease`, where that waits for nothing: no append, no disk, no look at keys.
        Nothing: ask `queue_lease`, which also says why there is nothing."""
        slots = self._queues.known(group, topic)
        runs: list[Leased] = []
        extents: list[Extent] = []
        if not slots or not self._serves():
            return runs, extents
        turn = (self._turns.get((group, topic), -1) + 1) % len(slots)
        left = min(most, LEASED_MAX)
        for number in range(turn, turn + len(slots)):
            slot = slots[number % len(slots)]
            limit = min(left, RUNS_MAX - len(runs)) if runs else left
            found = self._of_slot_at_once(slot, limit, budget, lease_ms)
            if found is None:
                break  # Whose turn it is goes first, also if it takes its time.
            given, some = found
            runs += given
            extents += some
            for run in given:
                left -= run.end - run.start
            for extent in some:
                budget -= extent.cost
            if left <= 0 or budget <= 0 or len(runs) >= RUNS_MAX:
                break
        if runs:
            self._turns[group, topic] = turn
        return runs, extents

    def _of_slot_at_once(
        self, slot: Slot, most: int, budget: int, lease_ms: int
    ) -> tuple[list[Leased], list[Extent]] | None:
        """None: something has to be waited for."""
        queues, window = self._queues, slot.window
        if slot.lost or slot.new or window.settings.ordered:
            return None
        end, now = queues.end(slot), now_ms()
        window.due(now)
        if window.wants_room(end):
            return None
        longest = window.settings.lease_ms
        until = now + min(lease_ms or longest, longest)
        taken = window.take(most, until, end)
        if not taken:
            return [], []
        given: list[Given] = []
        extents: list[Extent] = []
        try:
            for run in taken:
                budget -= self._read_at_once(slot, run, budget, given, extents)
        except BarcoError:  # Who asks again is told.
            given.clear()
        finally:
            if given != taken:
                for run in _rest(taken, given):
                    window.release(run)
            queues.arm_at(until)
        if not given:
            return None
        index, epoch = queues.first_slice + slot.slice, queues.epoch
        return [Leased(index, epoch, *run) for run in given], extents

    def _read_at_once(
        self, slot: Slot, run: Given, budget: int, given: list[Given], extents: list[Extent]
    ) -> int:
        """As `_read`, of what is in memory."""
        start, cost = _of_last(run, given, extents), 0
        while start < run.end and (cost < budget or not given):
            extent = self._reads.at_once(
                slot.topic, slot.slice, start, max(1, budget - cost), run.end
            )
            if extent is None or not extent.chunks or extent.start > start:
                break
            start = _of(extent, start, run, given)
            extents.append(extent)
            cost += extent.cost
        return cost

    def give_up(self, group: str, topic: str, runs: Sequence[Leased]) -> None:
        """As `queue_release`."""
        for run in runs:
            if run.epoch == self._queues.epoch:
                self._queues.at(group, topic, run).window.release(Given(*run[2:]))
        self._queues.waiters.look()

    def acknowledge(self, group: str, topic: str, runs: Sequence[Leased], saved: Saved) -> int:
        """These are done; durably as soon as `saved` was called so often as this returns, which is
        not before it does."""
        slots = self._done_with(group, topic, runs)
        for slot in slots:
            self._queues.saver.tell_saved(slot, saved)
        return len(slots)

    def _done_with(self, group: str, topic: str, runs: Sequence[Leased]) -> list[Slot]:
        """Marks these as done; the slices of which that may not be stable yet."""
        found = []
        for slot, some in self._by_slot(group, topic, runs):
            news = [slot.window.acknowledge(run.start, run.end) for run in some]
            if any(news) or slot.dirty or slot.is_saving:
                found.append(slot)
        self._queues.waiters.look()
        return found

    # --- Handing out ------------------------------------------------------------------------------

    async def _lease(self, args: Args) -> dict[str, Any]:
        """{"group", "topic", "most", "budget", "leaseMs"?}: runs, and the chunks that have them."""
        group, topic = args["group"], args["topic"]
        slots = [slot for slot in self._queues.of(group, topic) if not slot.lost]
        self._check_serves()
        if not slots:
            raise NotReadyError("What was written last is not known: ask again.")
        turn = self._turns[group, topic] = (self._turns.get((group, topic), -1) + 1) % len(slots)
        left, budget = min(args["most"], LEASED_MAX), args["budget"]
        runs: list[Leased] = []
        extents: list[Extent] = []
        held, unavailable = None, []
        try:
            for slot in slots[turn:] + slots[:turn]:
                if left <= 0 or budget <= 0 or len(runs) >= RUNS_MAX:
                    break
                most = min(left, RUNS_MAX - len(runs)) if runs else left
                try:
                    got, found = await self._of_slot(slot, most, budget, args.get("leaseMs"))
                except BarcoError as error:
                    if not runs and len(slots) == 1:
                        raise
                    unavailable.append(self._queues.first_slice + slot.slice)
                    self._queues.tell(slot, error)
                    continue
                runs += got
                extents += found
                left -= sum(run.end - run.start for run in got)
                budget -= sum(extent.cost for extent in found)
                held = held or (None if got else self._held_by(slot))
        except BaseException:
            self.give_up(group, topic, runs)
            raise
        return {
            "runs": [list(run) for run in runs],
            "extents": [extent_to_list(each, self._queues.first_slice) for each in extents],
            "held": held,
            "unavailable": unavailable,
        }

    def _held_by(self, slot: Slot) -> str | None:
        at = slot.window.held_by
        if at is None:
            return None
        return Leased(self._queues.first_slice + slot.slice, self._queues.epoch, at, at + 1, 0).name

    async def _of_slot(
        self, slot: Slot, most: int, budget: int, lease_ms: int | None
    ) -> tuple[list[Leased], list[Extent]]:
        queues, window = self._queues, slot.window
        end = queues.end(slot)
        window.due(now_ms())
        if window.wants_room(end):
            await queues.saver.save(slot)
            window = slot.window
        if window.settings.ordered:
            await self._scan(slot, end)
            window = slot.window
        epoch, settings = queues.epoch, window.settings
        until = now_ms() + min(lease_ms or settings.lease_ms, settings.lease_ms)
        taken = window.take(most, until, end)
        if not taken:
            return [], []
        given: list[Given] = []
        extents: list[Extent] = []
        try:
            for run in taken:
                budget -= await self._read(slot, run, budget, given, extents)
            if slot.lost:
                raise NotReadyError("This worker does not lead the slice (any more).")
        except BaseException as error:
            if not given or slot.lost or not isinstance(error, BarcoError):
                given.clear()  # Nobody gets them.
                raise
        finally:
            for run in _rest(taken, given):
                window.release(run)
            queues.arm(slot)
        number = queues.first_slice + slot.slice
        return [Leased(number, epoch, *run) for run in given], extents

    async def _read(
        self, slot: Slot, run: Given, budget: int, given: list[Given], extents: list[Extent]
    ) -> int:
        """The events of a run, or as many as there is room for; returns what they cost."""
        start, cost = _of_last(run, given, extents), 0
        while start < run.end and (cost < budget or not given):
            extent = await self._reads.read(
                slot.topic, slot.slice, start, max(1, budget - cost), stored=True, stop=run.end
            )
            if not extent.chunks:
                if extent.more:  # Retention was faster: nobody gets them any more.
                    first = await self._reads.earliest(slot.topic, slot.slice)
                    slot.window.skipped(first)
                break
            if extent.start > start:
                slot.window.skipped(extent.start)
                start = extent.start
            if start < run.end:
                start = _of(extent, start, run, given)
                extents.append(extent)
                cost += extent.cost
        return cost

    async def _scan(self, slot: Slot, end: int) -> None:
        """Tell the window of the keys of events that it has not seen."""
        for _ in range(SCANS_MAX):
            window = slot.window
            if (at := window.scan_from(end)) is None:
                return
            stop = min(end, window.reserved)
            extent = await self._reads.read(
                slot.topic, slot.slice, at, SCAN_BYTES, stored=True, stop=stop
            )
            first = extent.start
            if not extent.chunks:
                if not extent.more:
                    return
                first = await self._reads.earliest(slot.topic, slot.slice)
            if slot.window is not window:  # Other settings came meanwhile.
                return
            if first > at:  # Retention was faster.
                window.skipped(first)
                continue
            if not extent.chunks:
                return
            keys: list[int | None] = []
            for chunk, _ in chain.from_iterable(map(split_chunks, extent.chunks)):
                try:
                    stored = _native.chunk_events(memoryview(chunk))
                except ValueError as error:
                    raise CorruptDataError(f"A stored chunk is damaged: {error}.") from None
                keys += [
                    None if event[2] is None else hash(event[2])
                    for event in stored
                    if at <= event[0] < extent.end
                ]
            window.scanned(at, keys)

    async def _wait(self, args: Args) -> bool:
        """Until there may be something to hand out; False: not in time."""
        slots = self._queues.of(args["group"], args["topic"])
        self._check_serves()
        timeout = min(args["timeout"], POLL_WAIT_MS_MAX / 1000)
        end = self._queues.end
        return await self._queues.waiters.wait(
            lambda: any(slot.lost or slot.window.has(end(slot)) for slot in slots), timeout
        )

    # --- Taking back ------------------------------------------------------------------------------

    async def _ack(self, args: Args) -> list[str]:
        """{"group", "topic", "runs"}: these are done, when this returns."""
        given = [Leased(*each) for each in args["runs"]]
        check_leases(given)
        slots = self._done_with(args["group"], args["topic"], given)
        await all_stable([self._queues.saver.save(slot) for slot in slots], own=True)
        return []

    async def _nack(self, args: Args) -> list[str]:
        """{"group", "topic", "runs", "delayMs"?, "reason"}: to be given again. Returns what was not
        to be given back: its time was over, and somebody else may have it."""
        lost: list[Leased] = []
        waiting = []
        delay = args.get("delayMs")
        delay = None if delay is None else min(delay, DELAY_MS_MAX)
        for slot, runs in self._slots(args):
            for run in runs:
                back = slot.window.give_back(
                    Given(*run[2:]),
                    now_ms(),
                    delay=delay,
                    reason=args["reason"],
                    known=run.epoch == self._queues.epoch,
                )
                lost += [Leased(run.slice, run.epoch, *each) for each in back]
            waiting.append(self._queues.saver.save(slot))
            self._queues.arm(slot)
        self._queues.waiters.look()
        await all_stable(waiting, own=True)
        return [run.name for run in lost]

    async def _extend(self, args: Args) -> list[str]:
        """{"group", "topic", "runs", "leaseMs"?}: longer with who has them; returns as `_nack`."""
        lost: list[Leased] = []
        self._check_serves()
        for slot, runs in self._slots(args):
            most = slot.window.settings.lease_ms
            until = now_ms() + min(args.get("leaseMs") or most, most)
            for run in runs:
                back = [Given(*run[2:])]
                if run.epoch == self._queues.epoch:
                    back = slot.window.extend(back[0], until)
                lost += [Leased(run.slice, run.epoch, *each) for each in back]
            self._queues.arm(slot)
        return [run.name for run in lost]

    async def _release(self, args: Args) -> None:
        """The answer that had these never left: as if they had not been given."""
        given = [Leased(*each) for each in args["runs"]]
        check_leases(given)
        self.give_up(args["group"], args["topic"], given)

    def _slots(self, args: Args) -> list[tuple[Slot, list[Leased]]]:
        given = [Leased(*each) for each in args["runs"]]
        check_leases(given)
        return self._by_slot(args["group"], args["topic"], given)

    def _by_slot(
        self, group: str, topic: str, runs: Sequence[Leased]
    ) -> list[tuple[Slot, list[Leased]]]:
        found = by_slice(runs)
        return [(self._queues.at(group, topic, some[0]), some) for some in found.values()]


def _of_last(run: Given, given: list[Given], extents: Sequence[Extent]) -> int:
    """Gives what is in a chunk that is here already; where the rest of the run begins."""
    if not extents or not extents[-1].start <= run.start < extents[-1].end:
        return run.start
    return _of(extents[-1], run.start, run, given)


def _of(extent: Extent, start: int, run: Given, given: list[Given]) -> int:
    """Gives what an extent has of a run from `start` on; where the rest begins."""
    stop = min(run.end, extent.end)
    given.append(Given(start, stop, run.times))
    return stop


def _rest(taken: Sequence[Given], given: Sequence[Given]) -> list[Given]:
    """What was taken and is not given, in runs."""
    rest: list[Given] = []
    parts = iter(given)
    part = next(parts, None)
    for start, end, count in taken:
        while part is not None and part.start < end:
            if part.start > start:
                rest.append(Given(start, part.start, count))
            start = part.end
            part = next(parts, None)
        if start < end:
            rest.append(Given(start, end, count))
    return rest
