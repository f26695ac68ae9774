"""The steps from the routes that there are to the ring that the target wants.

Each leader takes the next step of its own range by itself, from the same routes and the same
target, so nobody has to survive for a growth to go on, and it has no state of its own. A step is
the end of one generation; a child that begins where a wanted range does takes its members.

    right neighbour handed over     → join: take it in, at once, whatever is wanted else
    a wanted border lies inside     → split at the middle one
    its first slice is no border    → hand over, when the left neighbour has got all before it
    other members are wanted        → move

So the pieces of a wanted range are first cut out of what is longer, then gathered from the left to
the right; no step undoes another, and each brings the ring one step nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum

from msgspec import Struct

from barco.cluster.ring.cut import Wanted, WantedRange
from barco.cluster.ring.routes import RangeRoute, RouteTable

SHARE_WAITING = 4
"""At most a quarter of a broker's slices wait at a time, or one range if that is more."""

Ready = Callable[[int, int], bool]
"""(ordinal, token): whether that broker's process for the range of this token has said, in the
session that it has now, that it is ready."""


class StepKind(StrEnum):
    """What a leader does to its range."""

    SPLIT = "split"
    MOVE = "move"
    HAND_OVER = "hand over"
    JOIN = "join"


class RingStep(Struct, frozen=True):
    """One decision of one register."""

    kind: StepKind
    by: int
    """The leader that proposes it."""
    ends: tuple[RangeRoute, ...]
    """The proposer's own range first; of a join, also those that were handed to it."""
    opens: tuple[RangeRoute, ...]
    """The children; none if it hands over."""

    def __str__(self) -> str:
        own = self.ends[0]
        what = f"broker {self.by}: slices {_span(own)}"
        if self.kind is StepKind.HAND_OVER:
            return f"{what} go to the left neighbour"
        if self.kind is StepKind.SPLIT:
            return f"{what} become {' and '.join(map(_child, self.opens))}"
        if self.kind is StepKind.JOIN:
            taken = ", ".join(_span(each) for each in self.ends[1:])
            return f"{what} and {taken} become {_child(self.opens[0])}"
        before = " ".join(map(str, own.members))
        return f"{what} get members {' '.join(map(str, self.opens[0].members))} after {before}"


def _span(route: RangeRoute) -> str:
    return f"{route.first}-{route.end - 1}" if route.slices > 1 else str(route.first)


def _child(route: RangeRoute) -> str:
    return f"{_span(route)} ({' '.join(map(str, route.members))})"


class Planner:
    """What each leader does next, for one target and those who have joined.

    The table has the routes of all ancestors of the generations that are led: they are in the
    leader's journal. Without them it could take in once more what an ancestor took in.
    """

    def __init__(self, table: RouteTable, wanted: Wanted, ready: Ready) -> None:
        assert table.cut == wanted.cut, "slices are cut once"
        self._table = table
        self._wanted = wanted
        self._ready = ready

    def step(self, route: RangeRoute) -> RingStep | None:
        """The next step of a range, for its leader; None if there is none, or it can not be now."""
        assert route.leader in route.members, "only a member leads"
        if route.handed or not self._table.is_whole(route):
            return None
        if taken := self._taken(route):
            return self._join(route, taken)
        if not self._table.is_covering:
            return None  # Whoever knows a part of the ring does not know who has joined.
        wanted = self._wanted.at(route.first)
        if borders := self._wanted.borders(route.first, route.end):
            return self._split(route, borders[len(borders) // 2])
        if route.first != wanted.first:
            return self._hand_over(route, wanted)
        if route.slices == wanted.slices and route.members != wanted.members:
            return self._open(StepKind.MOVE, (route,), ((route.first, route.end),))
        return None

    def due(self, ordinal: int, under_way: Collection[int] = ()) -> list[RingStep]:
        """The steps that a broker begins now, joins first: as many as its clients can wait for.

        under_way: first slices of its ranges whose steps are begun and that do not lead yet.
        """
        own = self._table.led_by(ordinal)
        slices = sum(route.slices for route in own)
        waits = [route for route in own if route.handed or route.first in under_way]
        begun = sum(route.slices for route in waits if not route.handed)
        handed = sum(route.slices for route in waits if route.handed)
        steps = [step for route in own if route not in waits if (step := self.step(route))]
        steps.sort(key=lambda step: (step.kind is not StepKind.JOIN, step.ends[0].first))
        found = []
        for step in steps:
            more = step.ends[0].slices
            # A join ends the waiting of what was handed over; that must not hold it up.
            waiting = begun if step.kind is StepKind.JOIN else begun + handed
            if waiting == 0 or SHARE_WAITING * (waiting + more) <= slices:
                begun += more
                found.append(step)
        assert all(step.by == ordinal for step in found), "each leader plans for its own range"
        return found

    def is_reached(self) -> bool:
        """Whether the ring is as it is wanted, but for who leads while an owner is away."""
        ranges = [WantedRange(each.first, each.slices, each.members) for each in self._table]
        return not self._table.faults() and ranges == self._wanted.ranges()

    # --- Steps ----------------------------------------------------------------------------------

    def _taken(self, route: RangeRoute) -> list[RangeRoute]:
        """What was handed over right behind a range, one after the other."""
        found, end = [], route.end
        while end < self._table.cut.slices:
            after = self._table.at(end)
            if after is None or not after.handed or after.first != end:
                break
            found.append(after)
            end = after.end
        return found

    def _join(self, route: RangeRoute, taken: list[RangeRoute]) -> RingStep:
        """What was handed over waits: if who is wanted is not ready, the members stay."""
        assert taken[0].first == route.end, "right behind it"
        ends, span = (route, *taken), (route.first, taken[-1].end)
        step = self._open(StepKind.JOIN, ends, (span,))
        if step is not None:
            return step
        child = self._child(span, ends, route.members, route.leader)
        return RingStep(StepKind.JOIN, route.leader, ends, (child,))

    def _split(self, route: RangeRoute, border: int) -> RingStep | None:
        assert route.first < border < route.end, "neither child is empty"
        spans = (route.first, border), (border, route.end)
        return self._open(StepKind.SPLIT, (route,), spans)

    def _hand_over(self, route: RangeRoute, wanted: WantedRange) -> RingStep | None:
        """To a left neighbour that has all before it, takes nothing else in, and can take this in
        with the members that are wanted."""
        assert wanted.first < route.first < wanted.end, "it is a part of what is wanted"
        left = self._table.at(route.first - 1)
        if left is None or left.handed or left.first != wanted.first or left.end != route.first:
            return None
        if not self._ready(left.leader, left.token) or not self._table.is_whole(left):
            return None
        for other in self._table.handed():
            taker = self._table.at(other.first - 1)
            if taker is None or taker.leader == left.leader:
                return None
        if self._open(StepKind.JOIN, (left, route), ((left.first, route.end),)) is None:
            return None
        return RingStep(StepKind.HAND_OVER, route.leader, (route,), ())

    def _open(
        self, kind: StepKind, ends: tuple[RangeRoute, ...], spans: tuple[tuple[int, int], ...]
    ) -> RingStep | None:
        """A step whose children have the wanted members, if enough of them are ready: each that is
        new, one of the first two to lead, and two of three. What does not begin where a range is
        wanted will be handed over, and keeps the members that it has."""
        before = {member for route in ends for member in route.members}
        opens = []
        for span in spans:
            wanted, token = self._wanted.at(span[0]), self._table.cut.token(span[0])
            if wanted.first != span[0]:
                opens.append(self._child(span, ends, ends[0].members, ends[0].leader))
                continue
            members = wanted.members
            ready = [member for member in members if self._ready(member, token)]
            heirs = [member for member in members[:2] if member in ready]
            new = set(members) - before
            if not heirs or not new <= set(ready) or len(ready) < len(members) // 2 + 1:
                return None
            opens.append(self._child(span, ends, members, heirs[0]))
        return RingStep(kind, ends[0].leader, ends, tuple(opens))

    def _child(
        self,
        span: tuple[int, int],
        ends: tuple[RangeRoute, ...],
        members: tuple[int, ...],
        leader: int,
    ) -> RangeRoute:
        """Its epoch is that after a clean end; after another one the register says which."""
        assert leader in members
        first, end = span
        epoch = 1 + max(route.epoch for route in ends)
        return RangeRoute(first, end - first, self._table.cut.token(first), epoch, leader, members)


def carry_out(table: RouteTable, step: RingStep) -> None:
    """What the routes are when a step is decided."""
    assert bool(step.opens) == (step.kind is not StepKind.HAND_OVER)
    if step.kind is StepKind.HAND_OVER:
        table.merge(step.ends[0]._replace(handed=True))
    for child in step.opens:
        table.merge(child)


def plan(table: RouteTable, wanted: Wanted) -> list[list[RingStep]]:
    """All steps from these routes to the wanted ring, if everybody is ready and nobody dies: in
    rounds, in each of which every broker takes the steps that it may begin at a time."""
    table = table.copy()
    planner = Planner(table, wanted, lambda ordinal, token: True)
    rounds: list[list[RingStep]] = []
    asked = table.members()
    while True:
        found = [step for ordinal in sorted(asked) for step in planner.due(ordinal)]
        if not found:
            return rounds
        for step in found:
            carry_out(table, step)
        asked |= {route.leader for step in found for route in step.opens}
        rounds.append(found)
        assert len(rounds) <= 4 * table.cut.slices, "each step brings the ring nearer"
