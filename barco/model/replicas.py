"""Who holds which shard when a cluster is formatted: from the ring to processes and back. Pure.

This is the first cut, from which tables of processes are made (`barco.model.ranges`); what holds
later stands in them.

A shard range is the contiguous run of slices that one process leads. The shards of the ring are
numbered through: shard `i` of the token range with ring index `r` is `r * workers + i`. Each is
held by `seats` brokers, the owner of the range and the two after it on the ring. A broker runs
one process for every shard that it holds: process `j = k * workers + i` holds shard `i` of the
range of the broker `k` places before it (k = 0: its own).
"""

from msgspec import Struct

from barco.model.placement import REPLICAS, Placement, slices_of_worker
from barco.types import Ordinal

Process = tuple[Ordinal, int]
"""A process of the cluster: the broker's ordinal, and the number of the process there."""


class Replicas(Struct, frozen=True):
    """Shards and their processes in a ring whose brokers all have so many workers for a range."""

    placement: Placement
    workers: int

    def __post_init__(self) -> None:
        assert 1 <= self.workers <= self.placement.slices_per_range

    @property
    def seats(self) -> int:
        """How many brokers hold a shard."""
        return min(REPLICAS, self.placement.size)

    @property
    def processes(self) -> int:
        """How many processes a broker runs."""
        return self.seats * self.workers

    @property
    def shards(self) -> int:
        """How many shards the ring has."""
        return self.placement.size * self.workers

    def shard_of(self, process: Process) -> int:
        """The shard that a process holds."""
        ordinal, number = process
        seat, shard = divmod(number, self.workers)
        assert 0 <= seat < self.seats
        index = (self.placement.index_of(ordinal) - seat) % self.placement.size
        return index * self.workers + shard

    def holders(self, shard: int) -> tuple[Process, ...]:
        """The processes that hold a shard, in the order of succession: A, B, C."""
        index, number = divmod(shard, self.workers)
        return tuple(
            (ordinal, seat * self.workers + number)
            for seat, ordinal in enumerate(self.placement.replicas(index))
        )

    def numbers_of(self, shard: int) -> range:
        """The slices of a shard, numbered in the whole ring."""
        first = shard // self.workers * self.placement.slices_per_range
        within = self.slices_of(shard)
        return range(first + within.start, first + within.stop)

    def slices_of(self, shard: int) -> range:
        """The slices of a shard, numbered within their token range."""
        slices = self.placement.slices_per_range
        return slices_of_worker(shard % self.workers, slices=slices, workers=self.workers)
