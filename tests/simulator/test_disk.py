"""Disks as they are, and the machine of the logs above them: appends that end in any order, a page
cache, a write that fails once, retention."""

import pytest

from .explorer import walk
from .mutants import DISK_MUTANTS, HEARS_ALL, LOGS_MUTANTS, VERDICT_MUTANTS, Mutant
from .oracle import LEMMAS, Violation
from .plan import run
from .shrink import shrink

WALKS = 300
WALKS_MAX = 8000
RUNS_MAX = 400
SECONDS = 30.0
KNOWN = {22: 19, 23: 3484, 24: 3, 26: 259, 27: 43, 28: 43, 29: 29, 30: 100}
"""The seed that is known to catch a mutant; others are tried if it does not any more."""
SKIPS = 108
"""A seed in which a log is skipped while the core is leaving it, if nobody minds."""
RUNS = {24}
"""A write has to fail: walks have no such thing."""
ROTS = {27, 28, 29, 30}
"""So has a group."""


def broken(
    seed: int, mutant: Mutant | None, *, walks: bool = False, rotting: bool = False
) -> Violation | None:
    if walks:
        return walk(seed, mutant=mutant, lemmas=False, native=False, powers=True).violation
    how = {"liveness": False, "lemmas": False}
    return run(seed, SECONDS, mutant=mutant, native=False, rotting=rotting, **how).violation


def test_walks_in_which_power_is_lost() -> None:
    for seed in range(300_000, 300_000 + WALKS):
        walked = walk(seed, powers=True)
        assert walked.violation is None, f"walk {seed}: {walked.violation}"


@pytest.mark.parametrize(
    "mutant",
    DISK_MUTANTS + LOGS_MUTANTS + VERDICT_MUTANTS,
    ids=lambda each: f"{each.number}-{each.name}",
)
def test_mutant_is_caught(mutant: Mutant) -> None:
    rotting = mutant.number in ROTS
    walks = mutant.number not in RUNS | ROTS
    how = {"walks": walks, "rotting": rotting}
    for seed in (KNOWN[mutant.number], *range(WALKS_MAX if walks else RUNS_MAX)):
        found = broken(seed, mutant, **how)
        if found is not None:
            assert found.invariant not in LEMMAS
            assert broken(seed, None, **how) is None, f"the true machine, seed {seed}"
            return
    pytest.fail(f"mutant {mutant.number} survives: {mutant.name}")


def test_a_write_that_fails_is_left_when_a_schedule_shrinks() -> None:
    (mutant,) = (each for each in DISK_MUTANTS if each.number == 24)
    how = {"liveness": False, "lemmas": False, "native": False}
    faults, outcome = shrink(KNOWN[24], SECONDS, mutant=mutant, **how)
    assert outcome.violation is not None
    assert "eio" in [each.kind for each in faults] and len(faults) <= 4


def test_mutant_a_log_is_skipped_that_the_core_has() -> None:
    for seed in (SKIPS, *range(RUNS_MAX)):
        try:
            run(seed, SECONDS, expire=True, mutant=HEARS_ALL, liveness=False)
        except AssertionError as error:
            assert "Skip while" in str(error)
            break
    else:
        pytest.fail("nobody skipped one")
    assert run(seed, SECONDS, expire=True, native=False, liveness=False).violation is None
