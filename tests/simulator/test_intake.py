"""Followers whose core takes the usual groups by itself: as safe, and seen to be."""

import itertools

import pytest

from .explorer import walk
from .mutants import INTAKE_MUTANTS, MUTANTS, Mutant
from .oracle import LEMMAS
from .plan import run
from .world import World

WALKS = 300
WALKS_MAX = 8000
SECONDS = 30.0

FOLLOWERS = {1, 2, 4, 6, 10, 11, 12, 14, 15}
"""Mutants that walks find within seconds where the core does its part, too."""

KNOWN = {1: 1621, 2: 103, 6: 2848, 15: 330, 20: 1621}
"""By number the walk that is known to find it; after a change others are tried."""


@pytest.mark.parametrize("seed", range(500, 530))
def test_three_brokers(seed: int) -> None:
    worlds: list[World] = []
    outcome = run(seed, SECONDS, native=True, made=worlds.append)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
    assert sum(broker.intake.taken for broker in worlds[0].brokers) > 0


def test_random_walks() -> None:
    for seed in range(200_000, 200_000 + WALKS):
        walked = walk(seed, native=True)
        assert walked.violation is None, f"walk {seed}: {walked.violation}"


@pytest.mark.parametrize(
    "mutant",
    (*(each for each in MUTANTS if each.number in FOLLOWERS), *INTAKE_MUTANTS),
    ids=lambda mutant: f"{mutant.number}-{mutant.name}",
)
def test_mutant_is_caught(mutant: Mutant) -> None:
    for seed in itertools.chain([KNOWN.get(mutant.number, 0)], range(WALKS_MAX)):
        found = walk(seed, mutant=mutant, lemmas=False, native=True).violation
        if found is not None:
            assert found.invariant not in LEMMAS
            assert walk(seed, native=True).violation is None
            return
    pytest.fail(f"mutant {mutant.number} survives: {mutant.name}")
