"""Every order of events within small bounds, and long random walks."""

import pytest

from .copying import copy_world
from .explorer import Bounds, Space, explore, walk
from .mutants import MUTANTS

WALKS = 600


def test_one_ballot_and_a_restart_exhaustively() -> None:
    found = explore(Bounds(ballots=1, groups=0, restarts=1))
    assert found.violation is None, found.violation
    assert found.exhausted and found.states > 1000


@pytest.mark.parametrize(
    ("bounds", "share"),
    [
        (Bounds(ballots=1, groups=0, restarts=1), 0.51),  # 1358 of 2700
        (Bounds(ballots=1, groups=0, restarts=0, repeats=1), 0.41),  # 861 of 2153
    ],
)
def test_delays_that_are_not_tried_lead_nowhere_new(bounds: Bounds, share: float) -> None:
    found, all_of_them = explore(bounds), explore(bounds, every_delay=True)
    assert found.exhausted and all_of_them.exhausted and found.settled == all_of_them.settled
    assert found.states < all_of_them.states * share


@pytest.mark.chaos
@pytest.mark.timeout(1500)  # By its work it ends: 160 s of a core, which others may need, too.
def test_three_ballots_exhaustively() -> None:
    found = explore(Bounds(ballots=3, groups=0, restarts=0))
    assert found.violation is None, found.violation
    assert found.exhausted and found.states > 100_000


def test_the_beginning_of_three_ballots_with_a_group_and_a_restart() -> None:
    found = explore(Bounds(ballots=3, groups=1, restarts=1, repeats=1), states_max=500)
    assert found.violation is None, found.violation


def test_the_search_finds_a_follower_that_is_not_fenced() -> None:
    (mutant,) = (each for each in MUTANTS if each.number == 1)
    found = explore(Bounds(ballots=2, groups=2, restarts=0), mutant=mutant, states_max=20_000)
    assert found.violation is not None and found.violation.invariant == "I2"


def test_random_walks() -> None:
    for seed in range(100_000, 100_000 + WALKS):
        walked = walk(seed)
        assert walked.violation is None, f"walk {seed}: {walked.violation}"


def test_a_copy_shares_nothing_that_changes() -> None:
    first = Space(Bounds(ballots=1, groups=1, restarts=1))
    before = first.fingerprint()
    for action in list(first.actions()):
        copy_world(first).act(action)
        assert first.fingerprint() == before
