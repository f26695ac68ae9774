"""Which slices each rank of a group reads: a function of how many ranks there are, and of their
weights in order.

Built rank by rank: each takes of those before it what they have too much. So one more rank at
the end moves what it gets and nothing else, and without it all is as it was before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

STEPS_TOUCHED_MAX = 16
"""Ranks that come or go at once. Of more all are looked at: most of them have changed."""

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
    total = sum([weight * len(mine) for weight, mine in ranks.items()])
    exact = {weight: divmod(slices * weight, total) for weight in ranks}
    left = slices - sum([exact[weight][0] * len(mine) for weight, mine in ranks.items()])
    if all(map(all, exact.values())):  # Nearly always, and there may be a thousand looks at once.
        return {weight: (down, left) for weight, (down, _) in exact.items()}
    return _rounded(left, exact, ranks) if ranks else {}


def _rounded(
    left: int, exact: Mapping[int, tuple[int, int]], ranks: Mapping[int, Sequence[int]]
) -> _Parts:
    """So many slices are left: who gets one of them. exact: by weight, what is lost of it too."""
    count = sum(map(len, ranks.values()))
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


class _Moves(NamedTuple):
    """What moves, in this order: of each giver its last slice, as often as it stands here; the
    first slices to the first taker, so many, and so on."""

    givers: list[int]
    takers: list[tuple[int, int]]


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
        self._last = _Moves([], [])
        """What moved at the end, for the shares that were asked for. What moved when a rank came
        is not kept: it is found again when the rank goes."""
        self._touched: set[int] | None = set()
        """None: of most, and all are looked at."""
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
        keep = 0
        for one, other in zip(self._weights, weights, strict=False):
            if one != other:
                break
            keep += 1
        if len(self._weights) + len(weights) - 2 * keep > STEPS_TOUCHED_MAX:
            self._touched = None
        self._undo(self._last)
        parts = _parts(self._slices, self._ranks)
        while len(self._weights) > keep:
            parts = self._remove(parts)
        for weight in weights[keep:]:
            parts = self._add(weight, parts)
        self._last = self._to_be(given)
        self._move(self._last)
        assert sum(map(len, self._held)) in (0, self._slices), "no slice is lost"
        return self._show()

    def _add(self, weight: int, before: _Parts) -> _Parts:
        """One more rank, which takes its part of all others'; before: theirs. Returns all."""
        rank = len(self._weights)
        self._weights.append(weight)
        self._ranks.setdefault(weight, []).append(rank)
        parts = _parts(self._slices, self._ranks)
        self._held.append([] if rank else list(range(self._slices)))
        if self._touched is not None:
            self._touched.add(rank)
        if rank:
            self._move(self._changed(before, parts, rank, weight))
        return parts

    def _remove(self, parts: _Parts) -> _Parts:
        """The last rank gives back what it has taken; parts: of all. Returns the others'."""
        weight = self._weights.pop()
        rank = self._ranks[weight].pop()
        assert rank == len(self._weights), "it is the last one"
        if not self._ranks[weight]:
            del self._ranks[weight]
        before = _parts(self._slices, self._ranks)
        if rank:
            self._undo(self._changed(before, parts, rank, weight))
        self._held.pop()
        return before

    def _changed(self, before: _Parts, parts: _Parts, last: int, weight: int) -> _Moves:
        """From whom to whom slices go when a last rank of this weight comes: those whose part is
        another one, without a look at the others, who are most where there are many."""
        givers: list[int] = []
        takers: list[tuple[int, int]] = []
        for each, (less, until) in before.items():
            down, end = parts[each]
            drop, ranks = less - down, self._ranks[each]
            if end > until:
                low, high, fewer = until, end, drop - 1
            else:
                low, high, fewer = end, until, drop + 1
            at, to = bisect_left(ranks, low), bisect_left(ranks, min(high, last))
            if drop:
                self._note(ranks[:at], drop, givers, takers)
                self._note(ranks[to : bisect_left(ranks, last)], drop, givers, takers)
            if fewer:
                self._note(ranks[at:to], fewer, givers, takers)
        givers.sort()
        down, end = parts[weight]
        takers.append((last, down + (last < end)))
        takers.sort(reverse=True)
        return _Moves(givers, takers)

    def _note(
        self, ranks: list[int], fewer: int, givers: list[int], takers: list[tuple[int, int]]
    ) -> None:
        """Each of these has so many slices fewer; below 0: more."""
        assert fewer != 0, "their part is another one"
        if fewer < 0:
            takers += zip(ranks, repeat(-fewer))
        for _ in range(fewer):
            givers += ranks

    def _to_be(self, given: Sequence[int]) -> _Moves:
        """From whom to whom slices go for these shares."""
        moves = _Moves([], [])
        for rank, (mine, share) in enumerate(zip(self._held, given, strict=True)):
            if len(mine) > share:
                moves.givers.extend(repeat(rank, len(mine) - share))
            elif len(mine) < share:
                moves.takers.append((rank, share - len(mine)))
        moves.takers.reverse()
        assert sum(many for _, many in moves.takers) == len(moves.givers), "one's gain, one's loss"
        return moves

    def _move(self, moves: _Moves) -> None:
        held, at = self._held, 0
        moved = [held[giver].pop() for giver in moves.givers]
        for taker, many in moves.takers:
            held[taker] += moved[at : at + many]
            at += many
        assert at == len(moved), "one's gain, one's loss"
        self._touch(moves)

    def _undo(self, moves: _Moves) -> None:
        """The last first: each slice is where it then came to, at the end."""
        held = self._held
        moved: list[int] = []
        for taker, many in moves.takers:
            mine = held[taker]
            cut = len(mine) - many
            moved += mine[cut:]
            del mine[cut:]
        assert len(moved) == len(moves.givers), "all of it is still where it came to"
        for giver, slice_ in zip(reversed(moves.givers), reversed(moved), strict=True):
            held[giver].append(slice_)
        self._touch(moves)

    def _touch(self, moves: _Moves) -> None:
        if self._touched is not None:
            self._touched.update(moves.givers)
            self._touched.update(taker for taker, _ in moves.takers)

    def _show(self) -> set[int]:
        changed = set()
        del self._shown[len(self._held) :]
        touched = self._touched
        for rank in range(len(self._held)) if touched is None else sorted(touched):
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
        self._touched = set()
        assert len(self._shown) == len(self._held), "each rank is shown"
        return changed
