"""Rings grow and shrink under faults: nothing acknowledged is lost, nothing comes twice."""

import pytest

from .mutants import MUTANTS, Mutant
from .plan import LARGE, SMALL, run

SEEDS, SMALL_SEEDS = 6, 24
MUTANT_SEEDS = 72

KNOWN = {
    "leads without state": 39,
    "what was handed over is left out of the union": 60,
    "a state at another place than T": 3,
    "epoch = own + 1": 30,
}
"""The seed that is known to catch a mutant comes first."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_ring_changes_its_size_and_comes_to_rest(seed: int) -> None:
    outcome = run(seed, LARGE)
    assert outcome.violation is None
    assert outcome.acks > 50 and outcome.generations > 6


def test_so_do_small_ones() -> None:
    """As campaigns play them: each has acknowledged something, and grown. The last one waited for
    ever: of what two had decided one lost its disk before the third had heard of it."""
    outcomes = [run(seed, SMALL) for seed in (*range(100, 100 + SMALL_SEEDS), 20346)]
    assert [each for each in outcomes if each.violation is not None] == []
    assert min(each.acks for each in outcomes) > 5
    assert min(each.generations for each in outcomes) >= 5


def test_what_is_to_happen_happens() -> None:
    """All steps of the plan, a liar among the teachers, states from elsewhere."""
    seen = frozenset[str]().union(*(run(seed).seen for seed in (4, 5, 7)))
    for name in (
        *(f"a {step} is proposed" for step in ("split", "move", "hand over")),
        "taught",
        "a leader that holds no parent",
        "a state of another process",
    ):
        assert name in seen


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    """Also by small worlds, which is what a campaign of them is worth."""
    for seed in (KNOWN.get(mutant.name, 0), *range(MUTANT_SEEDS)):
        try:
            found = run(seed, SMALL, mutant=mutant).violation
        except AssertionError:  # The machine notices it itself.
            return
        if found is not None:
            return
    pytest.fail(f"it is not noticed in {MUTANT_SEEDS} worlds")
