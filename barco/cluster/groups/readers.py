"""Who of one group asked for one topic, and in which order they get its slices.

By id while there are slices for all. Where there are more readers than slices, and some have to
stay idle, the brokers at which they registered take turns: so one broker's consumers, invented or
not, do not leave the others' without a slice.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort


class Readers:
    """Ids, each with its origin: who is charged with its registration."""

    def __init__(self, slices: int) -> None:
        """`slices`: how many there are."""
        assert slices > 0
        self._slices = slices
        self._ids: list[str] = []
        self._of: dict[int, list[str]] = {}
        """The ids of each origin, sorted, too."""

    def __len__(self) -> int:
        return len(self._ids)

    def rank(self, name: str, origin: int) -> int:
        """Where in the order one stands that is in it."""
        if len(self._ids) <= self._slices:
            return bisect_left(self._ids, name)
        turn = bisect_left(self._of[origin], name)
        assert self._of[origin][turn] == name, "who asked for it stands in its list"
        return sum(min(len(ids), turn + (each < origin)) for each, ids in self._of.items())

    def add(self, name: str, origin: int) -> list[str]:
        """One more; returns whose slices change."""
        at = bisect_left(self._ids, name)
        assert name not in self._ids[at : at + 1], "a reader stands there once"
        self._ids.insert(at, name)
        insort(self._of.setdefault(origin, []), name)
        return self._from(self.rank(name, origin), len(self._ids) == self._slices + 1)

    def remove(self, name: str, origin: int) -> list[str]:
        """One fewer; returns whose slices change."""
        rank = self.rank(name, origin)
        left = self._of[origin]
        for ids in (self._ids, left):
            at = bisect_left(ids, name)
            assert ids[at] == name, "who asked for it stands in its list"
            del ids[at]
        if not left:
            del self._of[origin]
        return self._from(rank, len(self._ids) <= self._slices)

    def _from(self, rank: int, all_change: bool) -> list[str]:
        """All, until each has one slice or none; then those from this rank on as far as there are
        slices, and who has just lost one: a turn further back at most."""
        assert 0 <= rank <= len(self._ids)
        if all_change or len(self._ids) <= self._slices:
            return list(self._ids)
        if rank >= self._slices:
            return []
        turns = itertools.zip_longest(*(self._of[origin] for origin in sorted(self._of)))
        order = (name for turn in turns for name in turn if name is not None)
        return list(itertools.islice(order, rank, self._slices + len(self._of)))
