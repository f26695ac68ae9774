"""Journals that lose records in both copies: who has forgotten its votes does not vote.

Each way to get that wrong is caught by what a client sees, or by a lemma that is broken before.
"""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state.effects import Drain, Effect, Persist, Send
from barco.cluster.state.events import Drained, Persisted, Received, Tick
from barco.cluster.state.held import Held
from barco.model.generation import Gid, Identity, Kind, Parent, Successor, genesis
from barco.protocol.replication import (
    Accept,
    DecidedRecord,
    DoubtRecord,
    Message,
    OpenedRecord,
    Ping,
    Prepare,
    Promise,
)
from barco.types import Epoch, Ordinal

from .mutants import Mutant, Unchecked
from .plan import run
from .world import World

SECONDS = 30.0
RUNS_MAX = 400


class VotesAllTheSame(Unchecked):
    """What was forgotten is taken for never having been."""

    def _forgotten(self, held: Held) -> bool:
        return False


class DoubtsWhatItKnows(Unchecked):
    """Only the generations that it knows itself, as if no record could be among the lost ones."""

    def _members_besides(self) -> set[int]:
        return set()

    def _start_doubt(self) -> None:
        super()._start_doubt()
        self._settle_doubt()


class BelievesNoName(Unchecked):
    """It waits for the answers, and takes what they name and it does not know for made up."""

    def _settle_doubt(self) -> None:
        for peer in self._peers.values():
            peer.epoch = Epoch(0)
        super()._settle_doubt()


class ForgetsTheDoubt(Unchecked):
    """It is over with the next start."""

    def _load(self, journal: Any, logs: Any) -> None:
        found = list(journal)
        super()._load([e for e in found if not isinstance(e, DoubtRecord) or e is found[-1]], logs)


class SuspectCounts(Unchecked):
    """A4: the promise of a suspect member is one like any other."""

    def _on_promise(self, sender: Identity, message: Promise) -> None:
        told = (message.gid, message.ballot, message.tail, message.accepted)
        super()._on_promise(sender, Promise(*told, False))


MUTANTS = {
    "votes all the same": (VotesAllTheSame, 7),
    "doubts what it knows": (DoubtsWhatItKnows, 375),
    "believes no name": (BelievesNoName, 2526),
    "forgets the doubt": (ForgetsTheDoubt, 92),
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


FALSE_ALARMS = (900134, 900309)
"""Of a disk whose damage a power cut healed; and of progress asked of two of whom one had no vote
in what only the third could end."""


@pytest.mark.parametrize("seed", [*range(60), *FALSE_ALARMS])
def test_a_journal_that_lost_records(seed: int) -> None:
    outcome = run(seed, SECONDS, forget=True)
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}"


def test_who_was_never_told_of_a_generation_has_forgotten_no_vote_in_it() -> None:
    """Two have accepted what begins it, and the one that proposed it loses its journal before it
    hears of that: seeds 131558 and 131606, until a new process waited for the others (A6)."""
    world = World(1)
    broker, oracle = world.brokers[0], world.oracle
    (first,) = world.ranges
    child = replace(first, gid=Gid(first.gid.token, 2))  # type: ignore[arg-type]
    oracle.opened[child.gid] = oracle.generations[child.gid] = child
    lost = (broker.disk.identity, child.gid)
    oracle.forgot(broker.disk.identity)
    assert lost not in oracle.forgotten
    oracle.recorded(broker, OpenedRecord(child))
    oracle.forgot(broker.disk.identity)
    assert lost in oracle.forgotten


def proposer_hears(kind: type[Replica]) -> list[Message]:
    """A restarted owner seals its generation: what it says to a member whose votes are forgotten
    and whose promise, with a short log, comes before that of the third one, which has all."""
    disks = [bytes([each + 1]) * 16 for each in range(3)]
    members = tuple(Identity(Ordinal(at), disk) for at, disk in enumerate(disks))
    first = genesis(-(2**63), 2**63, (0, 1, 2))
    child = replace(
        first,
        gid=Gid(first.gid.token, 2),  # type: ignore[arg-type]
        leader=members[0],
        session=50,
        members=members,
        parents=(Parent(first.gid, 0),),
    )
    value = Successor(0, Kind.RELEAD, (child,))
    journal = [OpenedRecord(first), DecidedRecord(first.gid, value), OpenedRecord(child)]
    settings = Settings(me=members[0], session=51, ranges=(first,))
    machine = kind(settings, journal, {}, lambda: 0.5, 0.0)
    said: list[Message] = []
    ping = Ping(b"", True, (), 1, (51 >> 2) + 1, 0, ())
    prompts = [machine.start(0.0)]
    prompts += [machine.step(0.1, Received(each, 9, ping)) for each in members[1:]]
    prompts += [machine.step(0.1 + each, Tick()) for each in range(1, 4)]
    for effects in prompts:
        carried_out(machine, effects, said)
    ballot = next(each.ballot for each in said if isinstance(each, Prepare))
    said.clear()
    promise = Promise(child.gid, ballot, 3, None, True)
    carried_out(machine, machine.step(4.0, Received(members[1], 9, promise)), said)
    return said


def carried_out(machine: Replica, effects: list[Effect], said: list[Message]) -> None:
    """The journal and the drains are there at once."""
    while effects:
        again: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Persist):
                again += machine.step(4.0, Persisted(effect.serial))
            elif isinstance(effect, Drain):
                again += machine.step(4.0, Drained(effect.gid, 0, 0))
            elif isinstance(effect, Send):
                said.append(effect.message)
        effects = again


def test_the_promise_of_a_suspect_member_makes_no_quorum() -> None:
    """With it the tail would be decided without the third one, which may have acknowledged more."""
    assert not [each for each in proposer_hears(Replica) if isinstance(each, Accept)]
    assert [each for each in proposer_hears(SuspectCounts) if isinstance(each, Accept)]
