"""Who leads each shard of the ring, as far as this worker has heard.

News comes from this worker's own replica, from its siblings and from gossip, in any order. The
later epoch is right; within one, that its leader has stopped.
"""

from collections.abc import Callable, Iterable, Sequence

from barco.model.options import WorkerOptions
from barco.model.replicas import Process
from barco.types import Ordinal

NOBODY = -1
"""In place of an ordinal: the generation has no leader any more."""

News = Sequence[int]
"""[shard, epoch, ordinal or NOBODY], as frames carry it."""


class Leaders:
    """The latest news of every shard."""

    def __init__(self, options: WorkerOptions) -> None:
        self._replicas = options.replicas
        self._known: dict[int, tuple[int, int]] = {}
        self._hearsay: set[int] = set()
        """Shards of which the latest news came by gossip: not handed on, and outdone by any news
        from a process of this broker."""
        self._peers: dict[int, int | None] = {}  # Asked for several times with each poll.
        self.on_change: Callable[[int, Process | None], None] = lambda shard, leader: None
        """Called with a shard and its new leader, None for nobody."""
        if options.ring_size == 1:  # Nobody else ever leads.
            self._known = {shard: (0, 0) for shard in range(self._replicas.shards)}

    def learn(self, shard: int, epoch: int, ordinal: int, *, hearsay: bool = False) -> bool:
        """Take news; true if it is later than what was known. `hearsay`: by gossip."""
        if not 0 <= shard < self._replicas.shards:
            return False
        before = self._known.get(shard, (0, NOBODY))
        if shard in self._hearsay and not hearsay:
            before = (0, before[1])
        after = (epoch, ordinal)
        if epoch < before[0] or after == before or (epoch == before[0] and ordinal != NOBODY):
            return False
        if ordinal != NOBODY and self._holder(shard, ordinal) is None:
            return False
        self._known[shard] = after
        (self._hearsay.add if hearsay else self._hearsay.discard)(shard)
        self._peers.pop(shard, None)
        if ordinal != before[1]:
            self.on_change(shard, self.leader(shard))
        return True

    def learn_all(self, news: Iterable[News]) -> list[News]:
        """Take the news of another worker; returns what was new."""
        return [each for each in news if self.learn(*each)]

    def all(self) -> list[News]:
        """All that is known, for another worker."""
        known = sorted(self._known.items())
        return [[shard, *news] for shard, news in known if shard not in self._hearsay]

    def leader(self, shard: int) -> Process | None:
        """The process that leads the shard."""
        _, ordinal = self._known.get(shard, (0, NOBODY))
        return self._holder(shard, ordinal) if ordinal != NOBODY else None

    def peer(self, shard: int) -> int | None:
        """The number in the cluster of the process that leads the shard."""
        if shard not in self._peers:
            leader = self.leader(shard)
            self._peers[shard] = None if leader is None else self._replicas.peer(leader)
        return self._peers[shard]

    def epoch(self, shard: int) -> int:
        """Of the latest generation that was heard of; 0: none was."""
        return self._known.get(shard, (0, NOBODY))[0]

    def without(self) -> list[int]:
        """The shards that nobody is known to lead."""
        shards = range(self._replicas.shards)
        return [shard for shard in shards if self.leader(shard) is None]

    def _holder(self, shard: int, ordinal: int) -> Process | None:
        for process in self._replicas.holders(shard):
            if process[0] == Ordinal(ordinal):
                return process
        return None
