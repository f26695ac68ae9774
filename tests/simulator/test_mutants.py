"""Each of the 19 mutants is caught by what a client could see, where the true machine passes.

The seed that is known to catch a mutant comes first. After a change of the machines it may not any
more; then others are tried, within bounds.
"""

import itertools

import pytest

from .explorer import walk
from .mutants import MUTANTS, Mutant
from .oracle import LEMMAS, Violation
from .plan import run

SECONDS = 30.0
WALKS_MAX = 8000
RUNS_MAX = 400

WALKS = {
    1: 1621,
    2: 139,
    3: 83,
    4: 25,
    5: 1,
    6: 2848,
    9: 23,
    10: 11,
    11: 1,
    12: 0,
    13: 3461,
    14: 5,
    15: 330,
}
RUNS = {7: 329, 8: 357, 16: 7, 17: 7, 18: 9, 19: 7}


def walked(seed: int, mutant: Mutant | None) -> Violation | None:
    return walk(seed, mutant=mutant, lemmas=False).violation


def ran(seed: int, mutant: Mutant | None, *, four: bool) -> Violation | None:
    return run(seed, SECONDS, mutant=mutant, four=four, liveness=False, lemmas=False).violation


def test_there_are_nineteen() -> None:
    assert [mutant.number for mutant in MUTANTS] == list(range(1, 20))
    assert sorted({**WALKS, **RUNS}) == list(range(1, 20))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.number}-{mutant.name}")
def test_mutant_is_caught(mutant: Mutant) -> None:
    walks = mutant.number in WALKS
    known = (WALKS if walks else RUNS)[mutant.number]
    for seed in itertools.chain([known], range(WALKS_MAX if walks else RUNS_MAX)):
        found = walked(seed, mutant) if walks else ran(seed, mutant, four=mutant.four)
        if found is not None:
            assert found.invariant not in LEMMAS
            break
    else:
        pytest.fail(f"mutant {mutant.number} survives: {mutant.name}")
    true = walked(seed, None) if walks else ran(seed, None, four=mutant.four)
    assert true is None, f"the true machine, seed {seed}: {true}"
