"""One slice of a queue, as a machine without a clock or a disk.

Each event from the oldest that is not acknowledged (`base`) to the furthest that was handed out has
a mark, one byte: so what is free, and what is done, is found by searches of bytes and not by a look
at each event. What has to survive is packed into one value of at most 4 KiB: which of the window is
acknowledged, how often the others were given, and `reserved`: nothing from there on was ever given.

Times are milliseconds of a clock that whoever drives the machine reads.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barco.model.queues import LEASE_MS_MAX, RUNS_MAX, WINDOW_MAX, QueueSettings
from barco.workers.queues.flight import InFlight, Lease
from barco.workers.queues.kept import COUNT, COUNTS_KEPT, WindowValue
from barco.workers.queues.keys import KeyOrder

AHEAD = 1_024
"""How far `reserved` is written ahead of what was handed out: that many events cost one append."""

FREE, DONE, TAKEN, DELAYED, DOUBTFUL, DYING, BEHIND = range(7)
"""Marks. DOUBTFUL: may be with who got it from the leader before. BEHIND: its key is in use."""

_FREE = re.compile(b"\x00+")
_NOT_DONE = bytes(each for each in range(7) if each != DONE)
_UNDONE = bytes.maketrans(bytes(range(7)), b"0100000")


class Given(NamedTuple):
    """Neighbours that are given for the same time."""

    start: int
    end: int
    times: int
    """How often each of them was given, this time included."""


class Window:
    """Who has which event of one slice, as far as its leader knows."""

    def __init__(self, settings: QueueSettings, base: int) -> None:
        self.settings = settings
        self.base = base
        self.reserved = base
        """As it is stable: nothing from here on may be handed out yet."""
        self.dying: dict[int, tuple[int, str]] = {}
        """Count and reason of those that are to go to the dead letters."""
        self._marks = bytearray()
        self._leases = InFlight(base)
        self._ends: list[tuple[int, int, int, int, Lease]] = []
        self._counts: dict[int, int] = {}
        self._later: list[tuple[int, int, int, int]] = []
        self._again: dict[int, int] = {}
        self._turn = 0
        self._held_until = 0
        """Leases of other settings, and of leaders before, are over by then."""
        self._keys = KeyOrder() if settings.ordered else None
        self._scanned = base
        self._given_before = base
        """What is below may have been given by a leader before, however it is marked."""

    @classmethod
    def restored(
        cls, settings: QueueSettings, kept: WindowValue, end: int, now: int, passed: int
    ) -> "Window":
        """At a new leader, whose log ends at `end`; `passed` since it was written, about.

        What was handed out and is not acknowledged may still be with who got it: it is left there
        for the time of a lease, the longest that it may have. What came later was given to nobody.
        """
        window = cls(settings, kept.base)
        known = int.from_bytes(kept.done, "little")
        length = max(known.bit_length(), min(kept.reserved, end) - kept.base, 0)
        length = min(length, WINDOW_MAX)
        bits = f"{known:0{length}b}"[::-1][:length] if length else ""
        table = str.maketrans("01", chr(DOUBTFUL) + chr(DONE))
        window._marks = bytearray(bits.translate(table).encode("latin-1"))
        window.reserved = max(kept.reserved, kept.base + length)
        window._given_before = kept.base + length
        window._held_until = now + max(settings.lease_ms, kept.held - passed)
        for delta, count, rest in COUNT.iter_unpack(kept.counts):
            at = kept.base + delta
            if delta < length and window._marks[delta] == DOUBTFUL:
                window._counts[at] = count
                if now + rest - passed > window._held_until:
                    window._delay(at, at + 1, now + rest - passed)
        window._later_on(window._held_until, kept.base, kept.base + length)
        window._shrink()
        return window

    # --- What there is ----------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """The first event that nobody has looked at yet."""
        return self.base + len(self._marks)

    @property
    def in_flight(self) -> int:
        """Handed out."""
        return self._leases.count

    @property
    def waiting(self) -> int:
        """Given back, and not given again yet; or behind one of the same key."""
        return len(self._marks) - self._marks.count(DONE) - self._leases.count - len(self.dying)

    @property
    def done(self) -> int:
        """Acknowledged beyond the base."""
        return self._marks.count(DONE)

    @property
    def held_by(self) -> int | None:
        """The event for which all others wait: the window is full from it on."""
        return self.base if len(self._marks) >= WINDOW_MAX else None

    def wants_room(self, end: int) -> bool:
        """Whether there are events that may be given once `reserved` is written further."""
        return self.reserved <= self.next < end and self.held_by is None

    def scan_from(self, end: int) -> int | None:
        """Ordered: from where on keys are to be told before more can be given; None: not now."""
        stop = min(end, self.reserved, self.base + WINDOW_MAX)
        if self._keys is None or self._scanned >= stop or self._keys.ready >= RUNS_MAX:
            return None
        return self._scanned

    def has(self, end: int) -> bool:
        """Whether something can be given now, or may be once it was looked at."""
        if self._leases.count >= self.settings.in_flight:
            return False
        if self._keys is not None:
            more = self._scanned < min(end, self.base + WINDOW_MAX)
            return self._keys.ready > 0 or more
        return FREE in self._marks or (self.held_by is None and self.next < end)

    def next_due(self) -> int | None:
        """When a lease ends, or an event may be given again."""
        while self._ends and not self._ends[0][-1].left:
            heapq.heappop(self._ends)
        times = [heap[0][0] for heap in (self._ends, self._later) if heap]
        return min(times) if times else None

    # --- Handing out ------------------------------------------------------------------------------

    def take(self, most: int, until: int, end: int) -> list[Given]:
        """Up to so many events for somebody, until then. `end`: of what is stable in the slice."""
        room = min(most, self.settings.in_flight - self._leases.count)
        if room <= 0:
            return []
        runs = self._ordered(room) if self._keys is not None else self._free(room, end)
        for start, stop, count in runs:
            lease = Lease(until, count, stop - start)
            if stop == start + 1:
                self._marks[start - self.base] = TAKEN
            else:
                self._mark(start, stop, TAKEN)
            self._leases.give(start, stop, lease)
            self._ends_later(start, stop, lease)
        return runs

    def _ends_later(self, start: int, stop: int, lease: Lease) -> None:
        if len(self._ends) > 2 * self._leases.count + RUNS_MAX:  # Most of them are over long ago.
            self._ends = [entry for entry in self._ends if entry[-1].left]
            heapq.heapify(self._ends)
        self._turn += 1
        heapq.heappush(self._ends, (lease.until, self._turn, start, stop, lease))

    def _free(self, room: int, end: int) -> list[Given]:
        found: list[Given] = []
        for match in _FREE.finditer(bytes(self._marks)) if FREE in self._marks else ():
            start = self.base + match.start()
            stop = min(self.base + match.end(), start + room)
            for run in self._counted(start, stop):
                found.append(run)
                room -= run.end - run.start
                if len(found) == RUNS_MAX:
                    return found
            if room <= 0:
                return found
        start = self.next
        stop = min(start + room, end, self.reserved, self.base + WINDOW_MAX)
        if stop > start:
            self._marks += bytes(stop - start)
            found.append(Given(start, stop, 1))
        return found

    def _counted(self, start: int, stop: int) -> Iterator[Given]:
        """The events in runs of one count."""
        if not self._counts:
            yield Given(start, stop, 1)
            return
        first, count = start, self._counts.get(start, 0)
        for at in range(start + 1, stop):
            other = self._counts.get(at, 0)
            if other != count:
                yield Given(first, at, count + 1)
                first, count = at, other
        yield Given(first, stop, count + 1)

    def _ordered(self, room: int) -> list[Given]:
        assert self._keys is not None
        found: list[Given] = []
        while room > 0 and (at := self._keys.first()) is not None:
            if at < self.base or self._marks[at - self.base] != FREE:
                self._keys.pop()
                continue
            count = self._counts.get(at, 0) + 1
            if at >= self.reserved:
                break
            if found and found[-1].end == at and found[-1].times == count:
                found[-1] = Given(found[-1].start, at + 1, count)
            elif len(found) == RUNS_MAX:
                break
            else:
                found.append(Given(at, at + 1, count))
            self._keys.pop()
            room -= 1
        return found

    def scanned(self, start: int, keys: Iterable[int | None]) -> None:
        """Ordered: the hashes of the keys of the events from `start` on, None without a key."""
        assert self._keys is not None
        if start != self._scanned:
            return  # Somebody else was faster.
        for at, key in enumerate(keys, start):
            if at >= self.base + WINDOW_MAX or at >= self.reserved:
                break
            if at >= self.next:
                self._marks.append(FREE)
            self._scanned = at + 1
            if at < self.base or self._marks[at - self.base] == DONE:
                continue
            first = self._keys.add(at, key)
            if self._marks[at - self.base] == FREE:
                self._offer(at, first)

    def change(self, settings: QueueSettings, now: int) -> None:
        """Other settings: what would not die by these is given again."""
        self._held_until = max(self._held_until, now + self.settings.lease_ms)
        self.settings = settings
        for at, (count, _) in list(self.dying.items()):
            if not 0 < settings.deliveries <= count:
                del self.dying[at]
                self._free_again(at)

    def skipped(self, offset: int) -> None:
        """Retention has removed what is before: there is nothing of it to be given."""
        self._end(self.base, min(offset, self.base + WINDOW_MAX, self.next))
        if offset > self.next and not self._marks:
            self.base = self._scanned = offset
            self._leases.move(offset)
            self.reserved = max(self.reserved, offset)

    def _offer(self, at: int, first: bool) -> None:
        """It may be given, in an ordered queue if it is the first of its key."""
        if self._keys is None:
            self._mark(at, at + 1, FREE)
        elif first:
            self._mark(at, at + 1, FREE)
            self._keys.offer(at)
        else:
            self._mark(at, at + 1, BEHIND)

    # --- Taking back ------------------------------------------------------------------------------

    def acknowledge(self, start: int, end: int) -> bool:
        """Done with; whether that is news. Also of a lease that is over, and of a leader before:
        whoever has it now finds it done. What nobody was ever given is not done by that: where keys
        are in order much is looked at that waits behind others."""
        start, end = max(start, self.base), min(end, self.next)
        if self._keys is None:
            return self._end(start, end)
        never = [at for at in range(start, end) if self._was_never_given(at)]
        news = False
        for at in (*never, end):
            news |= self._end(max(start, self.base), at)
            start = at + 1
        return news

    def _was_never_given(self, at: int) -> bool:
        waits = self._marks[at - self.base] in (FREE, BEHIND)
        return waits and at >= self._given_before and at not in self._counts

    def _end(self, start: int, end: int) -> bool:
        """As `acknowledge`, of what is known."""
        if start >= end:
            return False
        marks = self._marks[start - self.base : end - self.base]
        if marks.count(DONE) == end - start:
            return False
        self._leases.let_go(start, end)
        if self._counts or self.dying:
            for at in range(start, end):
                self._counts.pop(at, None)
                self._again.pop(at, None)
                self.dying.pop(at, None)
        self._mark(start, end, DONE)
        if self._keys is not None:
            for at in range(start, end):
                self._follow(at)
        self._shrink()
        return True

    def _follow(self, at: int) -> None:
        """The next one of the key of an event that is done."""
        assert self._keys is not None
        following = self._keys.remove(at)
        if following is not None and self._marks[following - self.base] == BEHIND:
            self._offer(following, True)

    def give_back(
        self, run: Given, now: int, *, delay: int | None = None, reason: str, known: bool
    ) -> list[Given]:
        """Not done: to be given again, after a delay, or to the dead letters. `known`: by the lease
        of this leader; else by one of a leader before. Returns those that are somebody else's."""
        lost: list[Given] = []
        pause = self.settings.pause_ms(run.times) if delay is None else delay
        last = 0 < self.settings.deliveries <= run.times
        for at in range(run.start, run.end):
            if not self._is_with(at, run.times, known):
                _add(lost, at, run.times)
                continue
            self._leases.let_go(at, at + 1)
            self._counts[at] = max(run.times, self._counts.get(at, 0))
            if last:
                self._mark(at, at + 1, DYING)
                self.dying[at] = (run.times, reason)
            elif pause:
                self._delay(at, at + 1, now + pause)
            else:
                self._free_again(at)
        return lost

    def release(self, run: Given) -> None:
        """It never reached who it was for: as if it had not been given."""
        for at in range(run.start, run.end):
            if self._is_with(at, run.times, True):
                self._leases.let_go(at, at + 1)
                self._free_again(at)

    def extend(self, run: Given, until: int) -> list[Given]:
        """Longer with who has it; returns those that are somebody else's."""
        lost: list[Given] = []
        lease = Lease(until, run.times, 0)
        for at in range(run.start, run.end):
            if self._is_with(at, run.times, True):
                self._leases.let_go(at, at + 1)
                self._leases.give(at, at + 1, lease)
                lease.left += 1
            else:
                _add(lost, at, run.times)
        if lease.left:
            self._ends_later(run.start, run.end, lease)
        return lost

    def _is_with(self, at: int, count: int, known: bool) -> bool:
        if not self.base <= at < self.next:
            return False
        if not known:
            return self._marks[at - self.base] == DOUBTFUL
        lease = self._leases.get(at)
        return lease is not None and lease.count == count

    def due(self, now: int) -> bool:
        """Leases that are over, and events whose time has come; whether there was something."""
        some = False
        while self._ends and self._ends[0][0] <= now:
            _, _, start, end, lease = heapq.heappop(self._ends)
            for at in range(start, end):
                if self._leases.get(at) is lease:
                    some = True
                    run = Given(at, at + 1, lease.count)
                    self.give_back(run, now, reason="expired", known=True)
        while self._later and self._later[0][0] <= now:
            time, _, start, end = heapq.heappop(self._later)
            for at in range(max(start, self.base), min(end, self.next)):
                mark = self._marks[at - self.base]
                if mark == DOUBTFUL or (mark == DELAYED and self._again.get(at) == time):
                    some = True
                    self._ready(at)
        return some

    def _ready(self, at: int) -> None:
        """Its time has come; of a leader before it may have been given for the last time."""
        self._again.pop(at, None)
        count = self._counts.get(at, 0)
        if 0 < self.settings.deliveries <= count:
            self._mark(at, at + 1, DYING)
            self.dying[at] = (count, "expired")
        else:
            self._free_again(at)

    def _free_again(self, at: int) -> None:
        if self._keys is not None and at >= self._scanned:
            self._mark(at, at + 1, FREE)  # Its key is told later, and then it is offered.
        else:
            self._offer(at, self._keys is None or self._keys.is_first(at))

    def _delay(self, start: int, end: int, until: int) -> None:
        self._mark(start, end, DELAYED)
        self._again.update(dict.fromkeys(range(start, end), until))
        self._later_on(until, start, end)

    def _later_on(self, time: int, start: int, end: int) -> None:
        if end > start:
            if len(self._later) > 2 * len(self._again) + RUNS_MAX:  # Most of them are done.
                self._later = [entry for entry in self._later if self._is_due(*entry)]
                heapq.heapify(self._later)
            self._turn += 1
            heapq.heappush(self._later, (time, self._turn, start, end))

    def _is_due(self, time: int, _turn: int, start: int, end: int) -> bool:
        if end <= self.base:
            return False
        doubtful = end > start + 1 or self._marks[start - self.base] == DOUBTFUL
        return doubtful or self._again.get(start) == time

    def _mark(self, start: int, end: int, mark: int) -> None:
        self._marks[start - self.base : end - self.base] = bytes((mark,)) * (end - start)

    def _shrink(self) -> None:
        """The base goes on to the oldest that is not done."""
        done = len(self._marks) - len(self._marks.lstrip(b"\x01"))
        if done:
            del self._marks[:done]
            self.base += done
            self._leases.move(self.base)
            self._scanned = max(self._scanned, self.base)

    # --- What survives ----------------------------------------------------------------------------

    def kept(self, now: int, gone: Iterable[int] = ()) -> WindowValue:
        """As it is now; `gone`: these are acknowledged by what is written along with it."""
        marks = self._marks
        if extra := list(gone):
            marks = bytearray(marks)
            for at in extra:
                marks[at - self.base] = DONE
        done = b""
        if DONE in marks:
            bits = marks.rstrip(_NOT_DONE)
            digits = bits.translate(_UNDONE)[::-1]
            done = int(digits, 2).to_bytes((len(digits) + 7) // 8, "little")
        counts = self._counts_kept(now, extra) if self._counts else b""
        reserved = max(self.reserved, min(self.next, self.base + WINDOW_MAX) + AHEAD)
        held = min(self._held_until - now, LEASE_MS_MAX)
        held = held if held > self.settings.lease_ms else 0  # Else it goes without saying.
        return WindowValue(self.base, reserved, done, counts, held)

    def _counts_kept(self, now: int, gone: Sequence[int]) -> bytes:
        """Of those that were given most often, in their order."""
        left = [(-count, at) for at, count in self._counts.items() if at not in gone]
        return b"".join(
            COUNT.pack(at - self.base, min(-count, 65_535), max(0, self._again.get(at, now) - now))
            for count, at in sorted(sorted(left)[:COUNTS_KEPT], key=lambda each: each[1])
        )


def _add(runs: list[Given], at: int, count: int) -> None:
    if runs and runs[-1].end == at:
        runs[-1] = Given(runs[-1].start, at + 1, count)
    else:
        runs.append(Given(at, at + 1, count))
