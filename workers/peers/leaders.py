"""Who leads each range of the ring, as far as this worker has heard.

News comes from this worker's own replica, from its siblings and from gossip, in any order. The
later epoch is right; within one, that its leader has stopped.
"""

from collections.abc import Callable, Iterable, Sequence

from barco.model.ranges import peer_of
from barco.model.replicas import Process
from barco.workers.peers.ranges import RingRanges

NOBODY = -1
"""In place of an ordinal: the generation has no leader any more."""

News = Sequence[int]
"""[token of the range, epoch, ordinal or NOBODY], as frames carry it."""


class Leaders:
    """The latest news of every range; they are named by their tokens."""

    def __init__(self, ranges: RingRanges, *, alone: bool) -> None:
        """`alone`: in a ring of one, where nobody else ever leads."""
        self._ranges = ranges
        self._known: dict[int, tuple[int, int]] = {}
        self._hearsay: set[int] = set()
        """Ranges of which the latest news came by gossip: not handed on, and outdone by any news
        from a process of this broker."""
        self._peers: dict[int, int | None] = {}  # Asked for several times with each poll.
        self.on_change: Callable[[int, Process | None], None] = lambda token, leader: None
        """Called with a range's token and its new leader, None for nobody."""
        if alone:
            self._known = {held.token: (0, 0) for held in ranges.all}

    def learn(self, token: int, epoch: int, ordinal: int, *, hearsay: bool = False) -> bool:
        """Take news; true if it is later than what was known. `hearsay`: by gossip."""
        if not self._ranges.known(token):
            return False
        before = self._known.get(token, (0, NOBODY))
        if token in self._hearsay and not hearsay:
            before = (0, before[1])
        after = (epoch, ordinal)
        if epoch < before[0] or after == before or (epoch == before[0] and ordinal != NOBODY):
            return False
        if ordinal != NOBODY and self._holder(token, ordinal) is None:
            return False
        self._known[token] = after
        (self._hearsay.add if hearsay else self._hearsay.discard)(token)
        self._peers.pop(token, None)
        if ordinal != before[1]:
            self.on_change(token, self.leader(token))
        return True

    def learn_all(self, news: Iterable[News]) -> list[News]:
        """Take the news of another worker; returns what was new."""
        return [each for each in news if self.learn(*each)]

    def all(self) -> list[News]:
        """All that is known, for another worker."""
        known = sorted(self._known.items())
        return [[token, *news] for token, news in known if token not in self._hearsay]

    def leader(self, token: int) -> Process | None:
        """The process that leads the range."""
        _, ordinal = self._known.get(token, (0, NOBODY))
        return self._holder(token, ordinal) if ordinal != NOBODY else None

    def peer(self, token: int) -> int | None:
        """The number in the cluster of the process that leads the range."""
        if token not in self._peers:
            leader = self.leader(token)
            self._peers[token] = None if leader is None else peer_of(leader)
        return self._peers[token]

    def epoch(self, token: int) -> int:
        """Of the latest generation that was heard of; 0: none was."""
        return self._known.get(token, (0, NOBODY))[0]

    def without(self) -> list[int]:
        """The ranges that nobody is known to lead."""
        return [held.token for held in self._ranges.all if self.leader(held.token) is None]

    def renumber(self, ordinal: int) -> None:
        """A broker has told of other processes: what it leads is called elsewhere."""
        for token, (_, leader) in self._known.items():
            if leader == ordinal:
                self._peers.pop(token, None)
                self.on_change(token, self.leader(token))

    def _holder(self, token: int, ordinal: int) -> Process | None:
        return self._ranges.holder(token, ordinal)
