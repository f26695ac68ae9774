"""What one pass of a poll over all who lead slices of the consumer has found."""

from msgspec import Struct, field

from barco.workers.groups.views import Member
from barco.workers.shard.reads import Extent


class Pass(Struct):
    """What all workers together have for a consumer."""

    extents: list[Extent]
    unavailable: set[int]
    superseded: bool = False
    """The same consumer polls on another connection."""
    lost: set[int] = field(default_factory=set)
    """Workers that may have handed something out of which nothing has come here."""
    asked: set[int] = field(default_factory=set)
    """Workers that have answered."""
    gave: set[int] = field(default_factory=set)
    """Workers of which something is in the answer."""
    reserved: int = 0
    """Memory to be given back when the extents are gone."""

    def note(self, member: Member, worker: int, now: float, *, nothing: bool) -> None:
        """Whether a worker had nothing, in the whole of the pass."""
        if worker not in self.asked and nothing:
            member.quiet[worker] = now
        elif not nothing:
            member.quiet.pop(worker, None)
        self.asked.add(worker)

    def add(self, extent: Extent) -> None:
        """One more extent; to what it continues, if that is there."""
        for known in self.extents:
            if (known.topic, known.slice, known.end) == (extent.topic, extent.slice, extent.start):
                known.join(extent)
                return
        self.extents.append(extent)
