"""The processes that a broker needs for a ring that is wanted. Pure."""

from collections.abc import Iterable

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.routes import RouteTable
from barco.cluster.ring.target import Target
from barco.model.ranges import HeldRange
from barco.types import Ordinal


def wanted_ranges(wanted: Wanted, ordinal: Ordinal) -> tuple[HeldRange, ...]:
    """The ranges of which a broker shall be a member, with processes numbered from 0."""
    return tuple(
        held_range(wanted.cut, each.first, each.slices, each.members, number)
        for number, each in enumerate(wanted.held_by(ordinal))
    )


def held_range(
    cut: Cut, first: int, slices: int, members: tuple[int, ...], number: int = 0
) -> HeldRange:
    """A range that the cluster was not formatted with, as one of its members holds it."""
    assert slices > 0 and len(set(members)) == len(members), "it was planned"
    return HeldRange(
        token=int(cut.token(first)),
        first=first,
        slices=slices,
        number=number,
        members=tuple(map(Ordinal, members)),
        genesis=False,
    )


def depot_range(wanted: Wanted, first: int, ordinal: Ordinal) -> HeldRange:
    """A range that a broker keeps copies of, and that may be none of the ring any more. Nobody
    votes there: who stands beside it has these slices now."""
    cut, now = wanted.cut, wanted.at(first)
    end = min(now.end, first - first % cut.slices_per_range + cut.slices_per_range)
    others = [each for each in now.members if each != ordinal][:2]
    return held_range(cut, first, end - first, (*others, ordinal))


def needed_ranges(
    target: Target | None,
    routes: RouteTable,
    heard: Iterable[int],
    up: Iterable[int],
    ordinal: Ordinal,
) -> list[HeldRange]:
    """The ranges for which a broker needs a process: of which it shall be a member, of which it is
    one by the routes, and whose depot it is. By token, each once.

    heard, up: brokers, this one aside. Leaders plan a ring of those that are up; one that was heard
    of, holds nothing and is away may be back before its range could be ready.
    """
    found: dict[int, HeldRange] = {}
    if target is not None and ordinal in target.workers:
        for present in (up, heard):
            wanted = target.wanted(target.joined(routes, [*present, ordinal]))
            found = {each.token: each for each in wanted_ranges(wanted, ordinal)} | found
        kept = (first for first, depot in target.depots if depot == ordinal)
        for made in (depot_range(wanted, first, ordinal) for first in kept):
            found.setdefault(made.token, made)
    for route in routes:
        if ordinal in route.members and route.token not in found:
            made = held_range(routes.cut, route.first, route.slices, route.members)
            found[made.token] = made
    assert all(ordinal in each.members for each in found.values()), "it holds no other's range"
    return [found[token] for token in sorted(found)]
