"""The routes of the ring, as far as this worker has heard who leads what."""

from collections.abc import Mapping

from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.model.options import WorkerOptions
from barco.workers.peers.ranges import RingRange, RingRanges


def route_table(
    options: WorkerOptions,
    ranges: RingRanges,
    epochs: Mapping[int | None, int] | None = None,
) -> RouteTable:
    """A route for each slice of which a generation was heard.

    epochs: by token, of the ranges that this broker holds, as its processes say: what they have
    not told yet. Who leads that generation is not known; whoever led, or the owner, will know it
    first.
    """
    table = RouteTable(ranges.cut)
    for route in ranges.routes:
        table.merge(_named(options, route))
    for held in ranges.all:
        epoch = (epochs or {}).get(held.token, 0)
        if held.route is None and epoch > 0:
            table.merge(_named(options, _owned(held, epoch)))
        elif held.route is not None and held.route.epoch < epoch:
            table.merge(_named(options, held.route._replace(epoch=epoch, handed=False)))
    return table


def _owned(held: RingRange, epoch: int) -> RangeRoute:
    members = tuple(map(int, held.members))
    return RangeRoute(held.first, held.slices, held.token, epoch, members[0], members)


def _named(options: WorkerOptions, route: RangeRoute) -> RangeRoute:
    """The only broker of a ring of one counts as broker 0, and may be called otherwise."""
    if options.ring_size > 1:
        return route
    return route._replace(leader=options.ordinal, members=(options.ordinal,))
