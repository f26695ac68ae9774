"""Rings grow and shrink under faults: nothing acknowledged is lost, nothing comes twice."""

import pytest

from .mutants import MUTANTS, Mutant
from .plan import run

SEEDS = 16
MUTANT_SEEDS = 60

KNOWN = {"leads without state": 3, "a state at another place than T": 3}
"""The seed that is known to catch a mutant comes first."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_ring_changes_its_size_and_comes_to_rest(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None
    assert outcome.acks > 50 and outcome.generations > 6


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
    for seed in (KNOWN.get(mutant.name, 0), *range(MUTANT_SEEDS)):
        try:
            found = run(seed, mutant=mutant).violation
        except AssertionError:  # The machine notices it itself.
            return
        if found is not None:
            return
    pytest.fail(f"it is not noticed in {MUTANT_SEEDS} worlds")
