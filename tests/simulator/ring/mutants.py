"""The planner and its table with one rule less each."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from barco.cluster.ring import plan
from barco.cluster.ring.cut import Wanted, WantedRange
from barco.cluster.ring.plan import Planner, RingStep, StepKind
from barco.cluster.ring.routes import RangeRoute, RouteTable

Patch = Callable[[pytest.MonkeyPatch], None]


def _join_first(patch: pytest.MonkeyPatch) -> None:
    """The left neighbour takes a range in before that was handed over."""

    def taken(self: Any, route: RangeRoute) -> list[RangeRoute]:
        if route.end == self._table.cut.slices:
            return []
        after = self._table.at(route.end)
        wanted = self._wanted.at(route.first)
        return [after] if after is not None and after.first < wanted.end else []

    patch.setattr(Planner, "_taken", taken)


def _stale_wins(patch: pytest.MonkeyPatch) -> None:
    """What was heard last counts, whatever its epoch."""
    patch.setattr(RangeRoute, "age", property(lambda self: (1, False)))


def _handed_is_older(patch: pytest.MonkeyPatch) -> None:
    """That a range was handed over is passed over for the news that it was open."""
    patch.setattr(RangeRoute, "age", property(lambda self: (self.epoch, not self.handed)))


def _wrong_border(patch: pytest.MonkeyPatch) -> None:
    true = Planner._split

    def split(self: Any, route: RangeRoute, border: int) -> RingStep | None:
        return true(self, route, border + (border + 1 < route.end))

    patch.setattr(Planner, "_split", split)


def _no_quarter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "SHARE_WAITING", 0)


def _never_ready(patch: pytest.MonkeyPatch) -> None:
    """Whether a process is ready is not looked at."""
    true = Planner.__init__

    def init(self: Any, table: RouteTable, wanted: Wanted, ready: Any) -> None:
        true(self, table, wanted, lambda ordinal, token: True)

    patch.setattr(Planner, "__init__", init)


def _own_epoch(patch: pytest.MonkeyPatch) -> None:
    """A join's epoch follows from the left parent's alone."""
    true = Planner._child

    def child(self: Any, span: Any, ends: Any, members: Any, leader: Any) -> RangeRoute:
        return true(self, span, ends[:1], members, leader)

    patch.setattr(Planner, "_child", child)


def _first_slice_too(patch: pytest.MonkeyPatch) -> None:
    """Whoever may begin counts what is asked of it, not where it stands: each child gets the
    members of the range before it."""
    true = Wanted.at

    def at(self: Any, number: int) -> WantedRange:
        found = true(self, number)
        return found._replace(members=true(self, max(0, found.first - 1)).members)

    patch.setattr(Wanted, "at", at)


def _never_moves(patch: pytest.MonkeyPatch) -> None:
    true = Planner.step

    def step(self: Any, route: RangeRoute) -> RingStep | None:
        found = true(self, route)
        return None if found is not None and found.kind is StepKind.MOVE else found

    patch.setattr(Planner, "step", step)


def _forgets_the_rest(patch: pytest.MonkeyPatch) -> None:
    """Of several that were handed over one after the other a join opens the first only."""
    true = Planner._join

    def join(self: Any, route: RangeRoute, taken: list[RangeRoute]) -> RingStep:
        found = true(self, route, taken)
        child = found.opens[0]._replace(slices=route.slices)
        return replace(found, opens=(child,))

    patch.setattr(Planner, "_join", join)


MUTANTS: dict[str, Patch] = {
    "a join before the hand-over": _join_first,
    "a stale route wins": _stale_wins,
    "an open route wins over a hand-over": _handed_is_older,
    "a split at a wrong border": _wrong_border,
    "the quarter is left out": _no_quarter,
    "nobody has to be ready": _never_ready,
    "a join's epoch from one parent": _own_epoch,
    "members of the range before": _first_slice_too,
    "members are never changed": _never_moves,
    "a join loses what it takes in": _forgets_the_rest,
}
