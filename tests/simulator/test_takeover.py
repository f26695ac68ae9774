"""How long writes wait, in simulated seconds; and that a slow machine changes nothing."""

from random import Random

import pytest

from barco.cluster.state import events as on
from barco.model.generation import Identity

from .mutants import LetsBackIn, Mutant
from .world import World

CRASH_SECONDS = 0.5
PAUSE_SECONDS = 3.0
MISSED_SECONDS = 1.5
"""A pause of a broker that was punctual so far."""


def healthy(seed: int, mutant: Mutant | None = None) -> World:
    world = World(seed, mutant=mutant)
    world.group_seconds = 0.02
    for broker in world.brokers:
        broker.start()
    world.run(5.0 + seed * 0.0137)
    assert [broker.ordinal for broker, _ in world.leaders()] == [0]
    return world


def waited(world: World, limit: float) -> float:
    """Seconds until a group built from now on is acknowledged."""
    start, built = world.time, world.contents
    while world.time < start + limit:
        world.run(world.time + 0.01)
        for gid, gseq in world.oracle.acknowledged.items():
            new = world.oracle.contents[gid][gseq] > built and gid in world.oracle.opened
            if new and any(b.ordinal != 0 for b, g in world.leaders() if g.gid == gid):
                return world.time - start
    raise AssertionError(f"nothing acknowledged by another leader within {limit} s")


@pytest.mark.parametrize("seed", range(20))
def test_crash(seed: int) -> None:
    world = healthy(seed)
    world.crash(0)
    assert waited(world, 10) <= CRASH_SECONDS


@pytest.mark.parametrize("seed", range(10))
def test_pause_and_return(seed: int) -> None:
    world = healthy(seed)
    world.brokers[0].paused = True
    assert waited(world, 10) <= PAUSE_SECONDS
    world.group_seconds = 0.1
    world.run(world.time + 8)
    world.brokers[0].resume()
    world.run(world.time + 5)
    assert [broker.ordinal for broker, _ in world.leaders()] == [0], "A takes its range back"


@pytest.mark.parametrize("seed", range(10))
def test_a_punctual_broker_is_missed_soon(seed: int) -> None:
    world = healthy(seed)
    world.group_seconds = 0.1
    world.run(world.time + 20)
    world.group_seconds = 0.02
    world.brokers[0].paused = True
    assert waited(world, 10) <= MISSED_SECONDS


@pytest.mark.parametrize("seed", range(10))
def test_the_owner_returns_with_old_news(seed: int) -> None:
    """Peers hung up on it, and their pings are old: it lacks too much to take its range back."""
    world = healthy(seed)
    owner = world.brokers[0]
    owner.paused = True
    waited(world, 10)
    world.run(world.time + 10)
    (led,) = [generation for broker, generation in world.leaders() if broker.ordinal == 1]
    owner.waiting[:] = [(owner.step, on.LinkLost(1)), (owner.step, on.LinkLost(2))]
    owner.resume()
    world.run(world.time + 0.9)
    assert [(b.ordinal, generation) for b, generation in world.leaders()] == [(1, led)]
    assert waited(world, 0.1) <= 0.1
    world.run(world.time + 5)
    assert [broker.ordinal for broker, _ in world.leaders()] == [0]


@pytest.mark.parametrize("out", [True, False])
@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_partition_of_the_leader(seed: int, out: bool, into: bool) -> None:
    world = healthy(seed)
    for peer in (1, 2):
        if out:
            world.cuts.add((0, peer))
        if into:
            world.cuts.add((peer, 0))
    if out or into:
        assert waited(world, 10) <= PAUSE_SECONDS


@pytest.mark.parametrize("cut", [(0, 1), (1, 0), (0, 2), (2, 0)])
def test_one_link_is_no_reason(cut: tuple[int, int]) -> None:
    world = healthy(1)
    world.cuts |= {cut, cut[::-1]}
    acks, generations = world.oracle.acks, len(world.oracle.generations)
    world.run(world.time + 20)
    assert len(world.oracle.generations) == generations
    assert world.oracle.acks > acks + 500
    tails = [broker.replica.status()[0]["tail"] for broker in world.brokers if broker.replica]
    assert min(tails) > max(tails) - 100, "who is cut off from the leader has it from the third"


@pytest.mark.parametrize("seed", range(10))
def test_saturated_machines_do_not_fail_over(seed: int) -> None:
    """Every process is now and then not scheduled for up to 1.5 s, for a minute."""
    world = healthy(seed)
    world.group_seconds = 0.1
    rng = Random(seed)

    def stall(ordinal: int) -> None:
        world.brokers[ordinal].paused = True
        seconds = 1.5 * rng.random() ** 2
        world.at(world.time + seconds, world.brokers[ordinal].resume)
        world.at(world.time + seconds + 2 * rng.random(), stall, ordinal)

    for ordinal in range(3):
        world.at(world.time + rng.random(), stall, ordinal)
    generations = len(world.oracle.generations)
    world.run(world.time + 60)
    assert len(world.oracle.generations) == generations


@pytest.mark.parametrize("seed", range(10))
def test_nor_do_those_that_become_so_after_a_calm_time(seed: int) -> None:
    """They were punctual, and come later and later within some seconds."""
    world = healthy(seed)
    world.group_seconds = 0.1
    world.run(world.time + 25)
    rng, began = Random(seed), world.time

    def stall(ordinal: int) -> None:
        world.brokers[ordinal].paused = True
        most = min(0.3 + (world.time - began) / 10, 1.5)
        seconds = most * rng.random()
        world.at(world.time + seconds, world.brokers[ordinal].resume)
        world.at(world.time + seconds + 2 * rng.random(), stall, ordinal)

    for ordinal in range(3):
        world.at(world.time + rng.random(), stall, ordinal)
    generations = len(world.oracle.generations)
    world.run(world.time + 60)
    assert len(world.oracle.generations) == generations


def test_a_resigning_leader_is_succeeded_at_once() -> None:
    world = healthy(3)
    world.brokers[0].step(on.Resign())
    assert waited(world, 5) <= CRASH_SECONDS


def test_a_plainly_formatted_disk_is_refused() -> None:
    world = healthy(4)
    world.crash(2)
    disk = world.brokers[2].disk
    world.brokers[2].disk = type(disk)(world.new_identity(2))
    world.brokers[2].start()
    life = world.brokers[2].life
    world.run(world.time + 0.8)
    assert world.brokers[2].replica is None and world.brokers[2].life > life


def test_a_replaced_disk_gets_everything_and_its_range_back() -> None:
    world = healthy(5)
    world.wipe(0)
    world.start(0)
    world.run(world.time + 20)
    assert [broker.ordinal for broker, _ in world.leaders()] == [0]
    assert world.oracle.fault_free()


@pytest.mark.parametrize("evicts", [False, True])
def test_a_replacement_that_was_replaced_itself_is_not_let_back_in(evicts: bool) -> None:
    """It is started by mistake while the disk in its place is whole. The mutant lets it in."""
    world = healthy(6, Mutant(0, "replaces any", LetsBackIn) if evicts else None)
    owner = world.brokers[0]
    for _ in range(2):
        old = owner.disk
        world.wipe(0)
        world.start(0)
        world.run(world.time + 20)
        assert leader_of(world) == owner.disk.identity
    whole = owner.disk.identity
    world.crash(0)
    owner.disk = old
    world.start(0)
    life = owner.life
    world.run(world.time + 0.9)
    stopped = owner.replica is None and owner.life > life
    assert stopped is not evicts
    world.run(world.time + 20)
    ((_, generation),) = world.leaders()
    assert (whole in generation.members) is not evicts


@pytest.mark.parametrize("evicts", [False, True])
def test_a_replacement_that_never_got_in_does_not_evict_the_next(evicts: bool) -> None:
    """Both stand in for the same disk; only the second was ever there. The mutant lets it in."""
    world = healthy(7, Mutant(0, "replaces any", LetsBackIn) if evicts else None)
    owner = world.brokers[0]
    world.wipe(0)
    never, first = owner.disk, owner.disk.replaces
    owner.disk = type(never)(world.new_identity(0), replaces=first)
    world.start(0)
    world.run(world.time + 20)
    whole = owner.disk.identity
    assert leader_of(world) == whole
    world.crash(0)
    owner.disk = never
    world.start(0)
    world.run(world.time + 20)
    ((_, generation),) = world.leaders()
    assert (whole in generation.members) is not evicts


def leader_of(world: World) -> Identity:
    ((_, generation),) = world.leaders()
    return generation.leader
