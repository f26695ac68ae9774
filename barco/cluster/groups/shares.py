"""Which slices each rank of a group reads: a function of how many ranks there are, and of their
weights in order.

Built rank by rank: each takes of those before it what they have too much. So one more rank at
the end moves what it gets and nothing else, and without it all is as it was before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

_Parts = Mapping[int, tuple[int, int]]
"""By weight the part of each rank of it rounded down, and the rank from which on it is not rounded
up."""


def shares(slices: int, weights: Sequence[int]) -> list[int]:
    """How many slices each rank gets: its weight's part, rounded down or up.

    Rounded up are those first that would get none, then the others, each from the first one on. Of
    equal weights, so, nobody gets more when another one comes.
    """
    ranks: dict[int, list[int]] = {}
    for rank, weight in enumerate(weights):
        ranks.setdefault(weight, []).append(rank)
    parts = _parts(slices, ranks)
    return [parts[weight][0] + (rank < parts[weight][1]) for rank, weight in enumerate(weights)]


def _parts(slices: int, ranks: Mapping[int, Sequence[int]]) -> _Parts:
    """As `shares` says it. ranks: which are of a weight, ascending."""
    assert all(weight > 0 for weight in ranks), "who weighs nothing has no rank"
    if not ranks:
        return {}
    total = sum(weight * len(mine) for weight, mine in ranks.items())
    exact = {weight: divmod(slices * weight, total) for weight in ranks}
    count = sum(map(len, ranks.values()))
    left = slices - sum(exact[weight][0] * len(mine) for weight, mine in ranks.items())
    assert 0 <= left < count, "less than one is lost of each"
    ends = dict.fromkeys(ranks, 0)
    for empty in (True, False):
        wanted = [w for w, (down, lost) in exact.items() if lost and (not down) == empty]
        many = sum(len(ranks[weight]) for weight in wanted)
        if left >= many:
            end = count
        elif many == count:
            end = left
        else:
            end = sorted(chain.from_iterable(ranks[weight] for weight in wanted))[left]
        ends.update(dict.fromkeys(wanted, end))
        left -= min(left, many)
    assert not left, "as many were rounded down at least"
    return {weight: (exact[weight][0], end) for weight, end in ends.items()}


class Shares:
    """The slices of each rank."""

    def __init__(self, slices: int) -> None:
        """`slices`: how many there are, numbered from 0."""
        assert slices > 0
        self._slices = slices
        self._weights: list[int] = []
        self._ranks: dict[int, list[int]] = {}
        """By weight, ascending."""
        self._held: list[list[int]] = []
        self._steps: list[array[int]] = []
        """By rank what moved when it came: giver, taker, giver, taker, one slice each."""
        self._last = array("I")
        """What moved at the end, for the shares that were asked for."""
        self._touched: set[int] = set()
        self._shown: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._weights)

    def of(self, rank: int) -> tuple[int, ...]:
        """The slices of one rank, ascending."""
        assert 0 <= rank < len(self._shown), "it was settled"
        return self._shown[rank]

    def settle(self, weights: Sequence[int], given: Sequence[int]) -> set[int]:
        """From now on there are ranks of these weights, with so many slices each; returns those
        whose slices have changed, new ones too."""
        assert len(weights) == len(given), "each rank has a share"
        assert not given or sum(given) == self._slices, "each slice is somebody's"
        self._undo(self._last)
        keep = 0
        for one, other in zip(self._weights, weights, strict=False):
            if one != other:
                break
            keep += 1
        while len(self._weights) > keep:
            self._undo(self._steps.pop())
            self._held.pop()
            weight = self._weights.pop()
            self._ranks[weight].pop()
            if not self._ranks[weight]:
                del self._ranks[weight]
        parts = _parts(self._slices, self._ranks)
        for weight in weights[keep:]:
            parts = self._add(weight, parts)
        self._last = self._move(list(enumerate(given)))
        assert sum(map(len, self._held)) in (0, self._slices), "no slice is lost"
        return self._show()

    def _add(self, weight: int, before: _Parts) -> _Parts:
        """One more rank, which takes its part of all others'; before: theirs. Returns all."""
        ranks = len(self._held)
        self._weights.append(weight)
        self._ranks.setdefault(weight, []).append(ranks)
        parts = _parts(self._slices, self._ranks)
        self._held.append([] if ranks else list(range(self._slices)))
        self._touched.add(ranks)
        self._steps.append(self._move(self._changed(before, parts)) if ranks else array("I"))
        return parts

    def _changed(self, before: _Parts, parts: _Parts) -> list[tuple[int, int]]:
        """(rank, what it is to have), ascending: those whose part is another one, without a look
        at the others, who are most where there are many."""
        last = len(self._held) - 1
        assert last == len(self._weights) - 1, "the new one is there, and has nothing"
        down, end = parts[self._weights[last]]
        changed = [(last, down + (last < end))]
        for weight, (less, until) in before.items():
            down, end = parts[weight]
            low, high = min(end, until, last), min(max(end, until), last)
            bounds = ((0, low, 1), (low, high, end > until), (high, last, 0))
            for start, stop, more in bounds if down != less else bounds[1:2]:
                if start < stop and less + (start < until) != down + more:
                    ranks = self._ranks[weight]
                    at = bisect_left(ranks, start)
                    within = ranks[at : bisect_left(ranks, stop, at)]
                    changed += zip(within, repeat(down + more))
        changed.sort()
        return changed

    def _move(self, wanted: Sequence[tuple[int, int]]) -> array[int]:
        """Moves what some have too much to those that have too little; returns what moved. wanted:
        (rank, what it is to have), ascending, of all that have not."""
        moved, held = array("I"), self._held
        assert sum(share - len(held[rank]) for rank, share in wanted) == 0, "one's gain, one's loss"
        lacking = [(rank, share) for rank, share in wanted if len(held[rank]) < share]
        taker, full = lacking.pop() if lacking else (0, 0)
        for rank, share in wanted:
            mine = held[rank]
            while len(mine) > share:
                while len(held[taker]) == full:
                    taker, full = lacking.pop()
                held[taker].append(mine.pop())
                moved.extend((rank, taker))
        self._touched.update(moved)
        return moved

    def _undo(self, moved: array[int]) -> None:
        """The last first: each slice is where it then came to, at the end."""
        for at in range(len(moved) - 2, -1, -2):
            self._held[moved[at]].append(self._held[moved[at + 1]].pop())
        self._touched.update(moved)

    def _show(self) -> set[int]:
        changed = set()
        del self._shown[len(self._held) :]
        for rank in sorted(self._touched):
            if rank >= len(self._held):
                continue
            mine = tuple(sorted(self._held[rank]))
            if rank == len(self._shown):
                self._shown.append(mine)
            elif self._shown[rank] == mine:
                continue
            else:
                self._shown[rank] = mine
            changed.add(rank)
        self._touched.clear()
        assert len(self._shown) == len(self._held), "each rank is shown"
        return changed
