"""The processes that a broker needs for a ring that is wanted. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.routes import RouteTable
from barco.cluster.ring.target import Target
from barco.model.ranges import HeldRange
from barco.types import Ordinal

STARTS_MAX = 3
"""Processes that are begun at one look: each reads files, and the others go on meanwhile."""

IDLE_SECONDS = 60.0
"""A process that holds nothing ends when nobody has needed it for so long: a target may be changed
back, and a broker that went away may be back."""

HEARSAY_MAX = 6
"""Ranges that a broker has a process for only because of a route that somebody else has told. Who
is named a member had its process before, so this takes a new disk, or a lie."""


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
    assert end > first, "the wanted range that holds a slice ends behind it"
    return held_range(cut, first, end - first, (*others, ordinal))


def targeted_ranges(
    target: Target | None,
    routes: RouteTable,
    present: Iterable[Iterable[int]],
    ordinal: Ordinal,
) -> dict[int, HeldRange]:
    """By token: those of which a broker shall be a member by the target, and whose depot it is.

    present: brokers, this one aside: that are up, and that were heard of. Leaders plan a ring of
    the first; one that came, holds nothing and is away may be back before its range could be ready.
    """
    found: dict[int, HeldRange] = {}
    if target is None or ordinal not in target.workers:
        return found
    for brokers in present:
        wanted = target.wanted(target.joined(routes, [*brokers, ordinal]))
        found = {each.token: each for each in wanted_ranges(wanted, ordinal)} | found
    for first, depot in target.depots:
        if depot == ordinal:  # What it shall be a member of it has a process for already.
            made = depot_range(wanted, first, ordinal)
            found.setdefault(made.token, made)
    assert all(ordinal in each.members for each in found.values()), "it holds no other's range"
    return found


def needed_ranges(
    target: Target | None,
    routes: RouteTable,
    present: Iterable[Iterable[int]],
    ordinal: Ordinal,
) -> list[HeldRange]:
    """The ranges for which a broker needs a process: those of the target (`targeted_ranges`), and
    those of which it is a member by the routes. By token, each once."""
    return _with_routes(targeted_ranges(target, routes, present, ordinal), routes, ordinal)


def _with_routes(
    found: Mapping[int, HeldRange], routes: RouteTable, ordinal: Ordinal
) -> list[HeldRange]:
    found = dict(found)
    for route in routes:
        if ordinal in route.members and route.token not in found:
            made = held_range(routes.cut, route.first, route.slices, route.members)
            found[made.token] = made
    assert all(ordinal in each.members for each in found.values()), "it holds no other's range"
    return [found[token] for token in sorted(found)]


class Needs:
    """The ranges for which one broker needs a process, as news come in."""

    def __init__(self, ordinal: Ordinal) -> None:
        self._ordinal = ordinal
        self._hearsay: set[int] = set()
        """Tokens of those that routes of others alone name; the processes may be there."""

    def look(
        self,
        target: Target | None,
        routes: RouteTable,
        present: tuple[Collection[int], Collection[int]],
        vouched: Callable[[int], bool],
        there: Collection[int],
    ) -> list[HeldRange]:
        """As `needed_ranges`, without what would be too much by hearsay. vouched: whether a process
        of this broker says itself how a range is led. there: tokens of what there is a process
        for: those of earlier hearsay count until they have ended."""
        targeted = targeted_ranges(target, routes, present, self._ordinal)
        sure = targeted.keys() | {each.token for each in routes if vouched(each.first)}
        self._hearsay = {each for each in self._hearsay - sure if each in there}
        found = []
        for each in _with_routes(targeted, routes, self._ordinal):
            if each.token not in sure | self._hearsay and each.token not in there:
                if len(self._hearsay) >= HEARSAY_MAX:
                    continue
                self._hearsay.add(each.token)
            found.append(each)
        assert len(self._hearsay) <= HEARSAY_MAX, "what is more is passed over"
        return found


def spare_ranges(
    table: Iterable[HeldRange],
    needed: Collection[HeldRange],
    said: Iterable[tuple[int, bool, bool]],
) -> list[int]:
    """The tokens of a broker's processes that hold nothing and that nobody needs now. said: the
    number of each that runs, whether nothing was ever there (who was there when the cluster was
    formatted may just not have begun), and whether nothing is there any more. Of a broker of which
    nothing is needed there are none: it waits until the ring is to have it, with the processes that
    it came with."""
    if not needed:
        return []
    wanted = {each.token for each in needed}
    empty = {number: (blank, spent) for number, blank, spent in said}
    return [
        each.token
        for each in table
        if each.token not in wanted
        and (found := empty.get(each.number)) is not None
        and (found[1] or found[0] and not each.genesis)
    ]


class Idle:
    """Which of a broker's processes nobody has needed for a while. It is told the time."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def look(self, spare: Iterable[int], now: float) -> list[int]:
        """The tokens of those that may end. spare: of those that hold nothing, and that nobody
        needs now; news of both may be late."""
        self._since = {token: self._since.get(token, now) for token in spare}
        found = [token for token, since in self._since.items() if now - since >= IDLE_SECONDS]
        assert all(since <= now for since in self._since.values()), "time does not go back"
        return found


def next_starts(needed: Iterable[HeldRange], present: Collection[int]) -> list[HeldRange]:
    """Those that are begun now, of the ones that there is no process for yet."""
    found = [each for each in needed if each.token not in present][:STARTS_MAX]
    assert len({each.token for each in found}) == len(found), "each range is needed once"
    return found
