"""Whose word counts where two brokers have to say the same.

Gossip lets a broker speak for itself that nobody has listed, for it may be about to join. So a
member that lies can come a second time, from another address, and confirm itself. Counted are only
those of whom more is known than their own word: who was there when the cluster was formatted, whom
the keeper of the target has named, and who is in this process's journal. Each disk has one voice.
"""

from collections.abc import Callable, Iterable

from barco.cluster.ring.target import Target
from barco.cluster.state.kin import KnownLineage
from barco.workers.peers.ranges import RingRanges

VOICES = 2
"""So many have to say the same: of any two one is honest."""


class Voices:
    """Of one process."""

    def __init__(self, ranges: RingRanges, target: Callable[[], Target]) -> None:
        """`target`: the latest that its keeper has said."""
        self._ranges, self._target = ranges, target
        self.journal: Callable[[], KnownLineage | None] = lambda: None
        """What is known here, once it was read; set by the host of a replica."""
        self._named = {*range(ranges.cut.brokers), ranges.me}
        self._looked = [-1, -1]

    def known(self) -> frozenset[int]:
        """The ordinals of brokers that have a voice. Who was named keeps it: who leaves has what
        others need."""
        target = self._target()
        self._named |= target.workers.keys() | set(target.departed)
        journal = self.journal()
        if journal is not None and self._looked != (looked := [*map(len, journal)]):
            self._looked = looked
            for generation in journal.records.values():
                self._named |= {int(member.ordinal) for member in generation.members}
        return frozenset(self._named)

    def of(self, ordinals: Iterable[int]) -> frozenset[int]:
        """Those of these brokers that have a voice: of each disk the lowest."""
        known, found = self.known(), dict[bytes | int, int]()
        for ordinal in sorted(set(ordinals) & known):
            found.setdefault(self._ranges.disk_of(ordinal) or ordinal, ordinal)
        assert len(found) <= len(known), "nobody speaks twice"
        return frozenset(found.values())
