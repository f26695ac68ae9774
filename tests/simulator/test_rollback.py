"""A data directory that is an old copy, and nobody up who remembers: two of three go on without
what was acknowledged. Nothing of it is lost, and nothing of it is silent."""

import pytest

from barco.cluster.state.held import Held
from barco.model.generation import Gid, Identity, Successor
from barco.protocol.replication import HeardRecord

from .mutants import Mutant, Unchecked
from .plan import plan, run, silent_losses
from .test_takeover import healthy
from .world import World


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("seed", [4, 5])
def test_a_failing_seed_is_repeated_with_its_own_faults(seed: int, rollback: bool) -> None:
    """What `shrink` begins with is what `run` has had; a close world ends early."""
    faults = plan(seed, 8.0, rollback=rollback)
    assert run(seed, 8.0, rollback=rollback) == run(seed, 8.0, rollback=rollback, faults=faults)


class SaysNothing(Unchecked):
    """Mutant: that two others say something else is not heard."""

    def _contradicted(self, sender: Identity, gid: Gid, value: Successor) -> None:
        pass


class KeepsNothing(Unchecked):
    """Mutant: positions are in memory only."""

    def _keep_positions(self) -> list[HeardRecord]:
        return []


def attack(seed: int, *, restarts: bool, relead: bool, mutant: Mutant | None = None) -> World:
    """B's directory is copied; A and B go on while C is down; B is the old copy; A dies; B and C go
    on; A comes back, as a new process or (`restarts` false) as the old one that was cut off."""
    world = healthy(seed, mutant)
    world.crash(2)
    world.run(world.time + 1)
    world.copy(1)
    world.run(world.time + 3)
    if relead:  # A generation that C and the copy know nothing of.
        world.crash(0)
        world.start(0)
        world.run(world.time + 3)
    world.crash(1)
    if restarts:
        world.crash(0)
    else:
        world.cuts |= {(0, 1), (1, 0), (0, 2), (2, 0)}
    world.run(world.time + 0.1)  # Nothing is on its way any more that C could hear of it by.
    world.roll_back(1)
    world.start(1)
    world.start(2)
    acks = world.oracle.acks
    world.run(world.time + 8)
    assert world.oracle.acks > acks, "two of three go on"
    assert world.oracle.losses, "without what the other has"
    world.cuts.clear()
    world.start(0)
    world.run(world.time + 20)
    return world


def lost(world: World) -> set[int]:
    """The contents of groups that were acknowledged and are not history."""
    found = set()
    for gid, tail, told in world.oracle.losses:
        for _, logs in world.brokers[0].disk.aside:
            found |= {head.header_crc for head in logs.get(gid, []) if tail < head.gseq <= told}
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("relead", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_third_gives_way_and_keeps_what_it_had(seed: int, relead: bool, restarts: bool) -> None:
    world = attack(seed, restarts=restarts, relead=relead)
    disk = world.brokers[0].disk
    assert len(disk.aside) == 1 and not silent_losses(world)
    assert len(lost(world)) == sum(told - tail for _, tail, told in world.oracle.losses)
    assert {ordinal for ordinal, text in world.warned if "aside" in text.lower()} == {0, 1, 2}
    for broker in world.brokers:
        assert broker.replica is not None and broker.replica.unclean() == 1
        assert not broker.replica.catching_up()
    acks = world.oracle.acks
    world.crash(1)
    world.run(world.time + 10)
    assert world.oracle.acks > acks + 10, "it is one of two again"
    assert not world.oracle.history()


def test_mutant_a_conflict_is_not_told() -> None:
    world = attack(0, restarts=True, relead=True, mutant=Mutant(0, "says nothing", SaysNothing))
    assert not world.brokers[0].disk.aside and not world.warned
    assert silent_losses(world)


def test_a_generation_of_the_same_name_is_no_silent_loss() -> None:
    """Broker 0 had set a line aside and said so (seed 24534); the others had its names, too."""
    assert run(24534, 30.0, rollback=True).violation is None
    world = healthy(3)
    ended = next(gid for gid in world.oracle.opened)
    world.crash(0)
    world.run(world.time + 10)
    disk = world.brokers[1].disk
    known = min(disk.witness[ended], len(disk.logs[ended]))
    assert known > 1 and disk.decided(ended)
    world.oracle.losses.append((ended, known - 1, known))
    assert not silent_losses(world), "what was lost is another one's"
    world.oracle.left_out.add((ended, known, disk.logs[ended][known - 1].header_crc))
    assert silent_losses(world)


@pytest.mark.parametrize("keeps", [True, False])
def test_who_heard_of_it_objects_though_it_began_anew_since(keeps: bool) -> None:
    """C has heard of B's votes, and was away for what came then."""
    world = healthy(3, None if keeps else Mutant(0, "keeps nothing", KeepsNothing))
    world.copy(1)
    world.crash(0)
    world.run(world.time + 5)
    world.start(0)
    world.run(world.time + 8)  # Votes of B, which C hears of.
    world.crash(2)
    world.run(world.time + 3)
    world.crash(1)
    world.crash(0)
    world.roll_back(1)
    world.start(1)
    world.start(2)
    world.run(world.time + 8)
    assert any("old copy" in text for _, text in world.warned) is keeps
    assert bool(world.oracle.losses) is not keeps
    world.start(0)
    acks = world.oracle.acks
    world.run(world.time + 20)
    assert world.oracle.acks > acks + 10
    if keeps:
        assert not world.oracle.losses and not world.oracle.history()


class VotesUnheard(Unchecked):
    """Mutant, A6: a new process votes before it has heard what the others remember."""

    def _is_unheard(self, held: Held) -> bool:
        return False


def quick_vote(seed: int, mutant: Mutant | None = None) -> World:
    """A was copied while it led B; C was away. A is back as the old copy, C with less, B was up all
    the time and knows it. A's vote may be quicker than B's word."""
    world = healthy(seed, mutant)
    world.crash(2)
    world.run(world.time + 1)
    world.copy(0)
    world.run(world.time + 2)
    world.crash(0)
    world.run(world.time + 0.1)
    world.roll_back(0)
    world.start(2)
    world.start(0)
    return world


def goes_on(world: World) -> bool:
    """Whether groups are acknowledged, and none that was before is left out."""
    acks = world.oracle.acks
    world.run(world.time + 10)
    return world.oracle.acks > acks and not world.oracle.losses


@pytest.mark.parametrize("seed", range(16))
def test_no_vote_is_quicker_than_the_word_on_it(seed: int) -> None:
    assert goes_on(quick_vote(seed))


def test_mutant_that_votes_unheard() -> None:
    mutant = Mutant(0, "votes unheard", VotesUnheard)
    assert not all(goes_on(quick_vote(seed, mutant)) for seed in range(16))


def test_who_hears_nothing_is_not_waited_for() -> None:
    """C's pings arrive, and nothing reaches C: A, started anew, leads with B all the same."""
    world = healthy(0)
    world.crash(0)
    world.crash(1)
    world.cuts |= {(0, 2), (1, 2)}
    world.start(0)
    world.start(1)
    assert goes_on(world)
