"""The routes of the ring as one process has heard of them, by whom it trusts how far.

Three kinds of word, of which the first is the best:

    home     a process of this broker says it: it is in that process's journal
    hearsay  another broker says it, by gossip: true, or a lie
    hint     it was true when this broker last ran

Of what a process of this broker is a member of, it learns the end itself, from the other members
and in its journal. So as long as it is there nothing else is believed of those slices: a word from
elsewhere, of an epoch that never comes, would not be outdone. Of all others the later word counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, RouteTable


class HeardRoutes:
    """`routes` is what counts of all that was heard. It is another object after a word was taken
    back, so nobody keeps it."""

    def __init__(self, cut: Cut, ordinal: int, present: Callable[[int], bool]) -> None:
        """present: whether this broker has a process for the range of this token, which can be
        asked now."""
        self.routes = RouteTable(cut)
        self._cut = cut
        self._ordinal = ordinal
        self._present = present
        self._home = RouteTable(cut)
        self._hearsay = RouteTable(cut)
        self._hints: list[RangeRoute] = []
        self._weighed: set[int] = set()
        """Who vouched when all was last weighed."""

    # --- What is told ---------------------------------------------------------------------------

    def learn(self, route: RangeRoute) -> bool:
        """A process of this broker says so; true if that is news, or changes what counts."""
        assert 0 <= route.first < route.end <= self._cut.slices, "checked where it came in"
        news = self._home.merge(route)
        silent = not self._weighed <= self._vouching()
        if self._vouched(route):
            self._weighed.add(route.token)
        dropped = self._drop_hints(route)
        changed = self.routes.merge(route)
        if silent or any(self.routes.at(number) != route for number in self._own(route)):
            # Hearsay counts from now on that came while it was not believed; or it stands where
            # this outdoes it, whatever its epoch.
            self._weigh()
            changed = True
        return news or changed or dropped

    def hear(self, routes: Iterable[RangeRoute]) -> bool:
        """Another broker says so; true if it changes what counts."""
        changed = False
        for route in routes:
            assert route.end <= self._cut.slices, "checked where it came in"
            self._hearsay.merge(route)
            if self._contradicted(route) is None:
                changed |= self._drop_hints(route)
                changed |= self.routes.merge(route)
        return changed

    def recall(self, routes: Iterable[RangeRoute]) -> bool:
        """So it was before this start: it stands where nothing else is known of a slice."""
        changed = False
        for route in routes:
            if not self._known(route):
                self._hints.append(route)
                changed |= self.routes.merge(route)
        return changed

    def look_again(self) -> bool:
        """Whether one can vouch for its range changes as processes come and go; true if one has
        come or gone, and all was weighed anew."""
        if self._vouching() == self._weighed:
            return False
        self._weigh()
        return True

    # --- What is known --------------------------------------------------------------------------

    def is_home(self, number: int) -> bool:
        """Whether what counts of a slice is the word of a process of this broker."""
        assert 0 <= number < self._cut.slices, "a slice of the whole ring"
        route = self.routes.at(number)
        return route is not None and route == self._home.at(number)

    def at_home(self) -> list[RangeRoute]:
        """What this broker's processes have said, as far as nothing later is known."""
        return [
            route
            for route in self._home
            if any(self.routes.at(number) == route for number in range(route.first, route.end))
        ]

    def faults(self) -> list[str]:
        """In words: what does not fit together, and what is not believed; empty if all is well."""
        found = self.routes.faults()
        for route in self._hearsay:
            known = self._contradicted(route)
            if known is not None and route.age >= known.age:
                found.append(
                    f"others say that slices {route.first} to {route.end - 1} are led by broker"
                    f" {route.leader} in epoch {route.epoch}; this broker's own copy knows of"
                    f" epoch {known.epoch}, led by broker {known.leader}"
                )
        return found

    # --- Weighing -------------------------------------------------------------------------------

    def _vouched(self, route: RangeRoute) -> bool:
        """Whether a process of this broker will know what follows this generation. What was handed
        over goes on in a register that it may be no member of."""
        member = self._ordinal in route.members and not route.handed
        return member and self._present(route.token)

    def _vouching(self) -> set[int]:
        """The tokens of the ranges that are vouched for."""
        return {route.token for route in self._home if self._vouched(route)}

    def _own(self, route: RangeRoute) -> Iterator[int]:
        """The slices of which this is the last word of a process that vouches for it."""
        if self._vouched(route):
            assert not route.handed, "nobody leads it"
            for number in range(route.first, route.end):
                if self._home.at(number) == route:
                    yield number

    def _contradicted(self, route: RangeRoute) -> RangeRoute | None:
        """What a process of this broker vouches for instead; None if nothing is against it."""
        last: RangeRoute | None = None
        for number in range(route.first, route.end):
            known = self._home.at(number)
            if known is not None and known not in (route, last) and self._vouched(known):
                return known
            last = known
        return None

    def _known(self, route: RangeRoute) -> bool:
        """Whether anything but hints was heard of its slices."""
        assert route.slices > 0, "a range is not empty"
        tables = self._home, self._hearsay
        return any(
            table.at(number) is not None
            for number in range(route.first, route.end)
            for table in tables
        )

    def _drop_hints(self, news: RangeRoute) -> bool:
        """Hints are not held against anything: an epoch that never was would stay for ever."""
        kept = [each for each in self._hints if each.end <= news.first or news.end <= each.first]
        if len(kept) == len(self._hints):
            return False
        assert news not in kept, "what was heard is no hint"
        self._hints = kept
        self._weigh()
        return True

    def _weigh(self) -> None:
        """From the beginning: something that counted does not any more."""
        table = RouteTable(self._cut)
        for route in self._home:
            table.merge(route)
        for route in self._hearsay:
            if self._contradicted(route) is None:
                table.merge(route)
        for route in self._hints:
            if all(table.at(number) is None for number in range(route.first, route.end)):
                table.merge(route)
        self._weighed = self._vouching()
        assert table.cut == self._cut, "slices are cut once"
        self.routes = table
