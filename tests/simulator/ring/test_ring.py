"""Rings that grow and shrink come to rest at their targets, whatever happens on the way."""

from collections import Counter

import pytest

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.plan import StepKind, plan

from .measure import doubled, table_of
from .mutants import MUTANTS
from .world import BrokenError, expected, run

SEEDS = 24
MUTANT_SEEDS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_target_is_reached(seed: int) -> None:
    run(seed)


def test_steps_of_every_kind_are_taken() -> None:
    steps: Counter[StepKind] = Counter()
    for seed in range(100, 104):
        steps += run(seed).steps
    assert all(steps[kind] > 5 for kind in StepKind), steps


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            run(seed)
        except (BrokenError, AssertionError):
            return
    pytest.fail(f"{name} is not noticed in {MUTANT_SEEDS} worlds")


@pytest.mark.parametrize("slices", [4, 8, 64])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_wanted_ranges_are_those_of_the_whole_ring(slices: int, workers: int) -> None:
    cut = Cut(3, slices)
    for size in range(3, cut.slices // workers + 1):
        whole = 3
        while whole < size:
            whole *= 2
        if whole * workers > cut.slices:
            continue
        given = dict.fromkeys(range(size), workers)
        assert Wanted(cut, given).ranges() == expected(cut, given)


def test_growing_and_shrinking_gives_the_first_table_back_but_for_epochs() -> None:
    cut = Cut(3, 32)
    table = table_of(cut, dict.fromkeys(range(3), 2))
    first = [route[:3] for route in table]
    for size in (4, 6, 9, 12, 24, 12, 6, 5, 3):
        workers = dict.fromkeys(range(size), 2)
        steps = plan(table, Wanted(cut, workers))
        table = doubled(table, workers).table
        assert [(r.first, r.slices, r.members) for r in table] == expected(cut, workers)
        assert sum(map(len, steps)) < 4 * len(workers) * 2
    assert [route[:3] for route in table] == first
    assert all(route.epoch > 2 for route in table)


def test_a_ring_doubles_with_one_split_for_each_broker() -> None:
    """E11, as far as it is a count: nothing but splits, in one round, and a broker takes one."""
    cut = Cut(12, 16)
    table = table_of(cut, dict.fromkeys(range(3), 1))
    for size in (6, 12, 24, 48, 96, 192):
        found = doubled(table, dict.fromkeys(range(size), 1))
        table = found.table
        assert (found.steps, found.rounds, found.steps_of_a_broker) == (size // 2, 1, 1)
        assert len(table.packed()) < 64 * size
