"""Journals that lose records in both copies: who has forgotten its votes does not vote.

Each way to get that wrong is caught by what a client sees, or by a lemma that is broken before.
"""

import itertools
from typing import Any

import pytest

from barco.cluster.replica.replica import Replica
from barco.cluster.state.held import Held
from barco.model.generation import Identity
from barco.protocol.replication import DoubtRecord, Promise

from .mutants import Mutant
from .plan import run

SECONDS = 30.0
RUNS_MAX = 400


class VotesAllTheSame(Replica):
    """What was forgotten is taken for never having been."""

    def _forgotten(self, held: Held) -> bool:
        return False


class DoubtsWhatItKnows(Replica):
    """Only the generations that it knows itself, as if no record could be among the lost ones."""

    def _members_besides(self) -> set[int]:
        return set()

    def _start_doubt(self) -> None:
        super()._start_doubt()
        self._settle_doubt()


class ForgetsTheDoubt(Replica):
    """It is over with the next start."""

    def _load(self, journal: Any, logs: Any) -> None:
        found = list(journal)
        super()._load([e for e in found if not isinstance(e, DoubtRecord) or e is found[-1]], logs)


class SuspectCounts(Replica):
    """A4: the promise of a suspect member is one like any other."""

    def _on_promise(self, sender: Identity, message: Promise) -> None:
        told = (message.gid, message.ballot, message.tail, message.accepted)
        super()._on_promise(sender, Promise(*told, False))


MUTANTS = {
    "votes all the same": (VotesAllTheSame, 7),
    "doubts what it knows": (DoubtsWhatItKnows, 63),
    "forgets the doubt": (ForgetsTheDoubt, 261),
    "suspect counts": (SuspectCounts, 926),
}
"""And the seed that is known to catch it; after a change others are tried."""


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str) -> None:
    kind, known = MUTANTS[name]
    for seed in itertools.chain([known], range(RUNS_MAX)):
        mutant = Mutant(0, name, kind)
        if run(seed, SECONDS, forget=True, mutant=mutant, liveness=False).violation is not None:
            assert run(seed, SECONDS, forget=True, liveness=False).violation is None
            return
    raise AssertionError(f"{name} passed for good")


@pytest.mark.parametrize("seed", range(60))
def test_a_journal_that_lost_records(seed: int) -> None:
    outcome = run(seed, SECONDS, forget=True)
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}"
