"""What a growing ring costs: `python -m tests.simulator.ring.measure` doubles 3 to 3,072 brokers.

Steps, the bytes of the table, and the time of what each broker computes, on this machine.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.plan import Planner, carry_out, plan
from barco.cluster.ring.routes import RangeRoute, RouteTable, unpack_routes

SIZES = (3, 6, 12, 24, 48, 96, 192, 384, 768, 1536, 3072)


class Doubled(NamedTuple):
    """What one change of a ring took."""

    table: RouteTable
    steps: int
    rounds: int
    steps_of_a_broker: int
    """At most."""


def table_of(cut: Cut, workers: Mapping[int, int]) -> RouteTable:
    """A ring at rest."""
    ranges = Wanted(cut, workers).ranges()
    return RouteTable(
        cut,
        (
            RangeRoute(
                each.first, each.slices, cut.token(each.first), 2, each.members[0], each.members
            )
            for each in ranges
        ),
    )


def doubled(table: RouteTable, workers: Mapping[int, int]) -> Doubled:
    """The ring as its plan makes it."""
    rounds = plan(table, Wanted(table.cut, workers))
    after = table.copy()
    taken: Counter[int] = Counter()
    for steps in rounds:
        for step in steps:
            carry_out(after, step)
            taken[step.by] += 1
    return Doubled(after, taken.total(), len(rounds), max(taken.values(), default=0))


def milliseconds(call: Callable[[], Any], times: int = 1) -> float:
    """Of one call, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, time.perf_counter() - began)
    return 1e3 * best / times


def merged(table: RouteTable, news: list[RangeRoute]) -> float:
    """How long a table takes to hear these, in milliseconds."""
    copies = [table.copy() for _ in range(3)]
    return min(milliseconds_once(copy, news) for copy in copies)


def milliseconds_once(table: RouteTable, news: list[RangeRoute]) -> float:
    """Of one table, which knows them afterwards."""
    began = time.perf_counter()
    assert all(map(table.merge, news))
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    """The table."""
    cut = Cut(12, 256)
    table = table_of(cut, dict.fromkeys(range(SIZES[0]), 1))
    print("brokers steps rounds of-one table-KiB wanted-ms due-ms merge-ms load-ms plan-all-ms")
    for size in SIZES[1:]:
        workers = dict.fromkeys(range(size), 1)
        wanted = Wanted(cut, workers)
        planner = Planner(table, wanted, lambda ordinal, token: True)
        (step,) = planner.due(1)
        joined = milliseconds(partial(Wanted, cut, workers), 3)
        due = milliseconds(partial(planner.due, 1), 20)
        merge = merged(table, list(step.opens))
        whole = milliseconds(partial(plan, table, wanted))
        found = doubled(table, workers)
        table = found.table
        packed = table.packed()
        load = milliseconds(partial(unpack_routes, cut, packed))
        print(
            f"{size:7} {found.steps:5} {found.rounds:6} {found.steps_of_a_broker:6}"
            f" {len(packed) / 1024:9.1f} {joined:9.3f} {due:6.3f} {merge:8.3f} {load:7.1f}"
            f" {whole:11.1f}"
        )


if __name__ == "__main__":
    main()
