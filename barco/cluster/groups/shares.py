"""Which slices each rank of a group reads: a function of how many ranks there are, and of their
weights in order.

Built rank by rank: each takes of those before it what they have too much. So one more rank at
the end moves what it gets and nothing else, and without it all is as it was before.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise


def shares(slices: int, weights: Sequence[int]) -> list[int]:
    """How many slices each rank gets: its weight's part, rounded down or up.

    Rounded up are those first that would get none, then the others, each from the first one on. Of
    equal weights, so, nobody gets more when another one comes.
    """
    assert all(weight > 0 for weight in weights), "who weighs nothing has no rank"
    total = sum(weights)
    if not total:
        return []
    parts = {weight: divmod(slices * weight, total) for weight in set(weights)}
    given = [parts[weight][0] for weight in weights]
    left = slices - sum(given)
    assert 0 <= left < len(weights), "less than one is lost of each"
    for empty in (True, False):
        wanted = {w for w, (part, lost) in parts.items() if lost and (not part) == empty}
        if not wanted:
            continue
        for rank, weight in enumerate(weights):
            if not left:
                return given
            if weight in wanted:
                given[rank] += 1
                left -= 1
    assert not left, "as many were rounded down at least"
    return given


class Shares:
    """The slices of each rank."""

    def __init__(self, slices: int) -> None:
        """`slices`: how many there are, numbered from 0."""
        assert slices > 0
        self._slices = slices
        self._weights: list[int] = []
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
            self._weights.pop()
            self._held.pop()
        for weight in weights[keep:]:
            self._add(weight)
        self._last = self._even(given)
        assert sum(map(len, self._held)) in (0, self._slices), "no slice is lost"
        return self._show()

    def _add(self, weight: int) -> None:
        """One more rank, which takes its part of all others'."""
        ranks = len(self._held)
        self._touched.add(ranks)
        self._weights.append(weight)
        self._held.append([] if ranks else list(range(self._slices)))
        if not ranks:
            self._steps.append(array("I"))
        elif min(self._weights) == max(self._weights):
            self._steps.append(self._take(ranks))
        else:
            self._steps.append(self._even(shares(self._slices, self._weights)))

    def _take(self, taker: int) -> array[int]:
        """As `_even` does it where all weigh the same; without a look at those that give nothing:
        most of them, where there are many."""
        (each, more), (less, rest) = divmod(self._slices, taker), divmod(self._slices, taker + 1)
        moved, mine = array("I"), self._held[taker]
        for start, end in pairwise(sorted({0, min(rest, taker), more, taker})):
            if not (giving := each + (start < more) - less - (start < rest)):
                continue
            for rank in range(start, end):
                for _ in range(giving):
                    mine.append(self._held[rank].pop())
                moved.extend((rank, taker) * giving)
        self._touched.update(moved)
        return moved

    def _even(self, given: Sequence[int]) -> array[int]:
        """Moves what some have too much to those that have too little; returns what moved."""
        moved = array("I")
        held, lacking = self._held, []
        for rank, (mine, share) in enumerate(zip(held, given, strict=True)):
            if len(mine) < share:
                lacking.append(rank)
        if not lacking:
            return moved
        taker = lacking.pop()
        assert len(held[taker]) < given[taker]
        for rank, (mine, share) in enumerate(zip(held, given, strict=True)):
            while len(mine) > share:
                while len(held[taker]) == given[taker]:
                    taker = lacking.pop()
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
