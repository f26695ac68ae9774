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


def needed_ranges(
    target: Target | None, routes: RouteTable, heard: Iterable[int], ordinal: Ordinal
) -> list[HeldRange]:
    """The ranges for which a broker needs a process: of which it shall be a member, among all of
    the target that were heard of, and of which it is one by the routes. By token, each once."""
    found: dict[int, HeldRange] = {}
    if target is not None and ordinal in target.workers:
        joined = target.joined(routes, [*heard, ordinal])
        found = {each.token: each for each in wanted_ranges(target.wanted(joined), ordinal)}
    for route in routes:
        if ordinal in route.members and route.token not in found:
            made = held_range(routes.cut, route.first, route.slices, route.members)
            found[made.token] = made
    assert all(ordinal in each.members for each in found.values()), "it holds no other's range"
    return [found[token] for token in sorted(found)]
