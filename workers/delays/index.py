"""Which of a slice's waiting events are due next, without one entry for each of them.

The events that are due first are known one by one, `most` of them at the most. All others are
known by block: BLOCK offsets in a row, and of each the key that is due first. When few are known
one by one, the blocks that have the next ones are read again, their times only.
"""

import bisect
import heapq
from collections.abc import Awaitable, Callable

from barco import _native
from barco.workers.delays.marks import LAST, Key

BLOCK = 4096
"""Offsets of one entry: 10 million events that wait are 2,442 of them."""

Times = Callable[[int, int], Awaitable[list[tuple[int, bytes]]]]
"""Of the offsets of a range, as far as they are there: (first offset, times of 8 bytes each)."""

Floors = Callable[[int, int], list[tuple[int, int, Key]]]
"""A range in parts, each with the first key in it that is not done (`DelayMark.from_on`)."""


class DueIndex:
    """The keys of one slice. Below `bound` all are known one by one, from there on by block."""

    def __init__(self, times: Times, floors: Floors) -> None:
        self._times, self._floors = times, floors
        self._near: list[Key] = []
        """Those before `_at` were taken."""
        self._at = 0
        self._sorted = True
        self.lost = 0
        """Blocks of which the event that was due first is not there any more."""
        self.bound: Key = LAST
        self._far: dict[int, Key] = {}
        self._blocks: list[tuple[Key, int]] = []
        """A heap of what `_far` says, or said once."""

    def __len__(self) -> int:
        """Events that are known one by one."""
        return len(self._near) - self._at

    @property
    def blocks(self) -> int:
        """Those that have events which are not."""
        return len(self._far)

    @property
    def next(self) -> Key | None:
        """What is due first of all."""
        self._sort()
        far = self._far_next()
        near = self._near[self._at] if self._at < len(self._near) else None
        if near is None or far is None:
            return near or far
        return min(near, far)

    @property
    def least(self) -> int | None:
        """No offset below it waits; None: none does."""
        offsets = [key[1] for key in self._near[self._at :]]
        offsets += [block * BLOCK for block in self._far]
        return min(offsets, default=None)

    def _far_next(self) -> Key | None:
        while self._blocks and self._far.get(self._blocks[0][1]) != self._blocks[0][0]:
            heapq.heappop(self._blocks)
        return self._blocks[0][0] if self._blocks else None

    def _note_far(self, key: Key) -> None:
        block = key[1] // BLOCK
        if (known := self._far.get(block)) is None or key < known:
            self._far[block] = key
            heapq.heappush(self._blocks, (key, block))
            if len(self._blocks) > 2 * len(self._far) + BLOCK:  # Most of it was said once.
                self._blocks = [(least, at) for at, least in self._far.items()]
                heapq.heapify(self._blocks)

    # --- What comes -------------------------------------------------------------------------------

    def add(self, times: bytes, first: int, most: int) -> None:
        """Events from an offset on, which were not known."""
        start, end = first, first + len(times) // 8
        while start < end:
            stop = min(end, (start // BLOCK + 1) * BLOCK)  # Of one block.
            for low, high, floor in self._floors(start, stop):
                self._add(times[(low - first) * 8 : (high - first) * 8], low, floor)
                if len(self) > most:
                    self._cut(max(1, most // 2))
            start = stop

    def _add(self, times: bytes, first: int, floor: Key) -> None:
        found, beyond = _native.times_between(times, first, floor, max(floor, self.bound))
        if beyond is not None:
            self._note_far(beyond)
        self._near += found
        self._sorted = self._sorted and not found

    def _sort(self) -> None:
        if not self._sorted:
            self._near = sorted(self._near[self._at :])
            self._at, self._sorted = 0, True

    def _cut(self, count: int) -> None:
        """Know only so many one by one."""
        self._sort()
        over = self._near[self._at + count :]
        self._near = self._near[self._at : self._at + count]
        self._at = 0
        if over:
            self.bound = over[0]
            for key in over:
                self._note_far(key)

    # --- What is taken ----------------------------------------------------------------------------

    def due(self, until: int, most: int) -> list[Key]:
        """Those that are due by then, at most so many; they stay until they are `taken`."""
        self._sort()
        stop = bisect.bisect_right(self._near, (until, LAST[1]), self._at)
        return self._near[self._at : min(stop, self._at + most)]

    def taken(self, count: int) -> None:
        """The first of them are done."""
        self._at += count
        assert self._at <= len(self._near), "they were known"
        if self._at * 2 > len(self._near):
            self._near = self._near[self._at :]
            self._at = 0

    def last_due(self, most: int) -> int | None:
        """When the last of the next `most` is due, or of those that are known one by one; None: it
        is all of them."""
        self._sort()
        if not len(self) or (len(self) <= most and not self._far):
            return None
        return self._near[self._at + min(most, len(self)) - 1][0]

    async def fill(self, most: int) -> None:
        """Know `most // 2` one by one, or all that there are, where there are few."""
        want = max(1, most // 2)
        if not self._far or len(self) * 4 > want:
            return
        low, high = self.bound, LAST
        found: list[Key] = []
        while (least := self._far_next()) is not None and least < high:
            del self._far[least[1] // BLOCK]
            try:
                again = await self._look_again(least[1] // BLOCK, low, high)
                self.lost += least not in again
                found += again
            except BaseException:  # As it was before.
                for key in (least, *found):
                    self._note_far(key)
                raise
            if len(found) > 2 * want:
                found.sort()
                high = found[want]
                for key in found[want:]:
                    self._note_far(key)
                del found[want:]
        self._near += found
        self._sorted = False
        self.bound = high

    async def _look_again(self, block: int, low: Key, high: Key) -> list[Key]:
        """Of a block all keys below `high`; the first beyond is noted."""
        found: list[Key] = []
        for first, times in await self._times(block * BLOCK, (block + 1) * BLOCK):
            for start, stop, floor in self._floors(first, first + len(times) // 8):
                part = times[(start - first) * 8 : (stop - first) * 8]
                keys, beyond = _native.times_between(part, start, max(low, floor), high)
                found += keys
                if beyond is not None:
                    self._note_far(beyond)
        return found
