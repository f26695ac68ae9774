"""Journals whose files are hurt. What one of them has lost nobody notices; what both have lost is
known to be missing. The bytes and their reading are the product's: each way to use them wrongly is
caught."""

import itertools
from unittest.mock import patch

import pytest

from barco.cluster.state.events import Persisted
from barco.protocol.replication import DoubtRecord, JournalRecord
from barco.workers.replication.persisting import Persisting
from barco.workers.storage.files import frames

from . import journal
from .explorer import walk
from .journal import Files
from .mutants import Mutant
from .oracle import Violation
from .plan import run

SECONDS = 30.0
RUNS_MAX = 400
WALKS_MAX = 8000


class TakenForTorn(Files):
    """What is damaged behind the last good frame was an append that never ended."""

    def merged(self, *, expected: bool) -> frames.Merged:
        with (
            patch.object(frames, "_is_torn", lambda *_: True),
            patch.dict(journal._merged, clear=True),
        ):
            return super().merged(expected=expected)


class NotRewritten(Files):
    """A start mends what it has in memory."""

    def rewrite(self, data: bytes) -> None:
        self.copies = [data if each is None else each for each in self.copies]


class OneAlone(Files):
    """lineage.copy is written and never read."""

    def merged(self, *, expected: bool) -> frames.Merged:
        return journal.merged_of(self.copies[0], None, expected=expected)


class IgnoresTheDoubt(Files):
    """The start goes on with what there is."""

    def load(self, *, expected: bool = False, synced: bool = True) -> list[JournalRecord]:
        found = super().load(expected=expected, synced=synced)
        return [each for each in found if not isinstance(each, DoubtRecord)]


class WritesOne(Files):
    """An append is over when it is in one of the files."""

    def _write_to(self, which, written, upto) -> None:  # type: ignore[no-untyped-def]
        super()._write_to(which[:1], written, upto)


MUTANTS = {
    "damage is taken for a torn append": (TakenForTorn, 17),
    "a mended copy is not written anew": (NotRewritten, 7),
    "one copy is read": (OneAlone, 0),
    "the doubt is ignored": (IgnoresTheDoubt, 3),
    "one copy is written": (WritesOne, 17),
}
"""And the seed that is known to catch it; after a change others are tried."""


def ran(seed: int, mutant: Mutant | None = None) -> Violation | None:
    """Peers know each other's positions (A5), so what clients see of it is one seed in thousands:
    who reads a start's journal beside it sees it at once (I12)."""
    return run(seed, SECONDS, hurt=True, mutant=mutant, liveness=False, native=False).violation


@pytest.mark.parametrize("seed", range(60))
def test_hurt_journals(seed: int) -> None:
    outcome = run(seed, SECONDS, hurt=True)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str) -> None:
    kind, known = MUTANTS[name]
    for seed in itertools.chain([known], range(RUNS_MAX)):
        found = ran(seed, Mutant(0, name, files=kind))
        if found is not None:
            assert found.invariant == "I12"
            assert ran(seed) is None, f"the true journal, seed {seed}"
            return
    pytest.fail(f"{name}: nobody notices")


class TellsWhatWaits(Persisting):
    """An append that has ended stands for all that the machine wants persisted."""

    def written(self) -> Persisted:
        super().written()
        return Persisted(self._newest)


class TakesFailedForWritten(Persisting):
    """What a failed append was to hold counts."""

    def failed(self, reason: str) -> Persisted:  # type: ignore[override]
        return self.written()


EARLY = Mutant(27, "told before it is written", told_early=True)
WAITS = Mutant(28, "what waits is told", persisting=TellsWhatWaits)
FAILED = Mutant(29, "what failed is told", persisting=TakesFailedForWritten)
KNOWN = {27: 1, 28: 130, 29: 17}


def told(seed: int, mutant: Mutant | None, *, walks: bool) -> Violation | None:
    """As clients see it where walks find it; no write fails in a walk."""
    if walks:
        return walk(seed, mutant=mutant, lemmas=False).violation
    return run(seed, SECONDS, mutant=mutant, liveness=False, native=False).violation


@pytest.mark.parametrize("mutant", [EARLY, WAITS, FAILED], ids=lambda each: each.name)
def test_mutant_of_what_is_told(mutant: Mutant) -> None:
    walks = mutant is not FAILED
    for seed in itertools.chain([KNOWN[mutant.number]], range(WALKS_MAX if walks else RUNS_MAX)):
        if told(seed, mutant, walks=walks) is not None:
            assert told(seed, None, walks=walks) is None, f"the true machine, seed {seed}"
            return
    pytest.fail(f"{mutant.name}: nobody notices")
