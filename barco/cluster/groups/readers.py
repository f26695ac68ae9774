"""Who of one group asked for one topic, and which of its slices each reads.

A pure function of what their registrations say, whatever was heard of them first: brokers that know
the same come to the same. A function of the names alone could not be even and move only what must
(docs/consumers.md, Placement), so a registration says one thing more: the rank that its broker has
given it, which is the next one. What is read at each rank says `Shares`. When somebody leaves, the
last one gets the rank that is free.

Where there are more readers than slices, and some have to stay idle, the brokers at which they
registered take turns: so one broker's consumers, invented or not, do not leave the others' without
a slice.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from barco.cluster.gossip.facts import RANK_END
from barco.cluster.groups.shares import Shares, shares

NO_RANK = RANK_END
"""Of who was given none."""

DRAWS_MAX = 256
"""As many ranks at most are drawn for. Where more are free nearly all have just come or gone."""


class ReaderInfo(Struct, frozen=True):
    """What the registration of one reader says."""

    rank: int
    """Which it had last."""
    session: int
    weight: int
    origin: int
    """Who is charged with it."""


class Readers:
    """Names, each with its info."""

    def __init__(self, slices: int) -> None:
        """`slices`: how many there are."""
        assert slices > 0
        self._slices = slices
        self._readers: dict[str, ReaderInfo] = {}
        self._of: dict[int, list[tuple[int, int, str]]] = {}
        """Of each origin (rank, session, name), sorted."""
        self._weights: Counter[int] = Counter()
        self._shares = Shares(slices)
        self._by_rank: list[str] = []
        self._ranks: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def put(self, name: str, info: ReaderInfo) -> None:
        """One more, or another registration of one. What follows from it: `settle`."""
        assert info.weight > 0 and 0 <= info.rank <= NO_RANK
        if name in self._readers:
            self.remove(name)
        self._readers[name] = info
        insort(self._of.setdefault(info.origin, []), (info.rank, info.session, name))
        self._weights[info.weight] += 1

    def remove(self, name: str) -> None:
        """One fewer."""
        info = self._readers.pop(name)
        mine = self._of[info.origin]
        at = bisect_left(mine, (info.rank, info.session, name))
        assert mine[at][2] == name, "who asked for it stands in its list"
        del mine[at]
        if not mine:
            del self._of[info.origin]
        self._weights[info.weight] -= 1
        if not self._weights[info.weight]:
            del self._weights[info.weight]

    def rank(self, name: str) -> int:
        """Which one has as of the last `settle`; of who is idle, what its registration says."""
        return self._ranks.get(name, self._readers[name].rank)

    def slices(self, name: str) -> Sequence[int]:
        """What it reads, as of the last `settle`; ascending."""
        rank = self._ranks.get(name)
        return () if rank is None else self._shares.of(rank)

    def settle(self) -> set[str]:
        """Who reads what from now on; returns whose slices have changed."""
        given = self._given_by_turns() if len(self._readers) > self._slices else None
        by_rank = self._rank_all(list(self._readers if given is None else given))
        weights = [self._readers[name].weight for name in by_rank]
        if given is None:
            share = shares(self._slices, weights)
        else:
            share = [given[name] for name in by_rank]
        changed = self._shares.settle(weights, share)
        before, self._by_rank = self._by_rank, by_rank
        self._ranks = {name: rank for rank, name in enumerate(by_rank)}
        assert len(self._ranks) == len(by_rank) <= self._slices, "each has one rank"
        moved = {
            name
            for rank, name in enumerate(by_rank)
            if rank in changed or rank >= len(before) or before[rank] != name
        }
        idle = (name for name in before if name not in self._ranks)
        return moved.union(name for name in idle if name in self._readers)

    def _given_by_turns(self) -> dict[str, int]:
        """Where not all get a slice: how many those get that do."""
        turns = self._turns()
        if len(self._weights) == 1:  # None costs more the more there are that stay idle.
            return dict.fromkeys(itertools.islice(turns, self._slices), 1)
        names = list(turns)
        assert len(names) == len(self._readers), "each has a turn"
        given = shares(self._slices, [self._readers[name].weight for name in names])
        return {name: some for name, some in zip(names, given, strict=True) if some}

    def _turns(self) -> Iterator[str]:
        """All, the first of each origin, then the second of each."""
        turns = itertools.zip_longest(*(self._of[origin] for origin in sorted(self._of)))
        return (each[2] for turn in turns for each in turn if each is not None)

    def _rank_all(self, names: list[str]) -> list[str]:
        """These by their ranks, from 0 on. Of two that say the same one the later registration has
        it: its broker saw that the other one had left it. Who has none gets one that is free."""
        ranked: list[str | None] = [None] * len(names)
        others = []
        for name in names:
            rank = self._readers[name].rank
            if rank >= len(ranked):
                others.append(name)
                continue
            other = ranked[rank]
            if other is None:
                ranked[rank] = name
                continue
            older, newer = sorted((name, other), key=self._since)
            ranked[rank] = newer
            others.append(older)
        self._give(sorted(others, key=self._since), ranked)
        return [name for name in ranked if name is not None]

    def _give(self, others: list[str], ranked: list[str | None]) -> None:
        """Each by a draw of its own for each rank that is free, so that one more who comes or goes
        changes little for the others."""
        assert len(others) <= len(ranked)
        free = [rank for rank, name in enumerate(ranked) if name is None]
        for name in others:
            best = 0
            if len(free) <= DRAWS_MAX:
                draws = [_draw(self._readers[name].session, rank) for rank in free]
                best = draws.index(min(draws))
            ranked[free.pop(best)] = name
        assert not free, "there are as many ranks as readers"

    def _since(self, name: str) -> tuple[int, str]:
        return self._readers[name].session, name


def _draw(session: int, rank: int) -> int:
    mixed = (session * 0x9E3779B97F4A7C15 ^ (rank + 1) * 0xC2B2AE3D27D4EB4F) % 2**64
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 % 2**64
