"""The real machines under every fault the simulator knows."""

import pytest

from .plan import Outcome, run

SECONDS = 30.0


def check(outcome: Outcome) -> None:
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}"


@pytest.mark.parametrize("seed", range(60))
def test_three_brokers(seed: int) -> None:
    check(run(seed, SECONDS))


@pytest.mark.parametrize("seed", range(30))
def test_four_brokers_split_and_merge(seed: int) -> None:
    check(run(seed, SECONDS, four=True))


def test_work_is_done_at_all() -> None:
    """Without faults the leader never changes and nothing is left behind."""
    outcome = run(0, SECONDS, faults=[])
    check(outcome)
    assert outcome.acks > 100 and outcome.generations == 2
