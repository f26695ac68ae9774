"""The routes of the ring, as far as this worker has heard who leads what.

Until ranges are split and moved, they are those of the first cut.
"""

from collections.abc import Mapping

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.model.options import WorkerOptions
from barco.types import Epoch
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.ranges import RingRanges


def route_table(
    options: WorkerOptions,
    ranges: RingRanges,
    leaders: Leaders,
    epochs: Mapping[int | None, int] | None = None,
) -> RouteTable:
    """A route for each range of which a generation was heard.

    epochs: by token, of the ranges that this broker holds, as its processes say; gossip may be
    later. Where a generation's leader has stopped, its owner stands for it: it will know first.
    """
    table = RouteTable(Cut(options.ring_size, options.slices_per_range))
    for held in ranges.all:
        epoch = Epoch(max(leaders.epoch(held.token), (epochs or {}).get(held.token, 0)))
        if epoch == 0:
            continue
        members: tuple[int, ...] = held.members
        if options.ring_size == 1:
            members = (options.ordinal,)
        process = leaders.leader(held.token)
        leader = members[0] if process is None or options.ring_size == 1 else process[0]
        route = RangeRoute(held.first, held.slices, held.token, epoch, leader, members)
        table.merge(route)
    return table
