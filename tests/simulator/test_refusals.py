"""A follower whose log does not take a group: damaged on its way, or never any good."""

import pytest

from barco.cluster.state import events as on

from .test_takeover import PAUSE_SECONDS, healthy
from .world import World


def refuse_next(world: World, times: int) -> None:
    """Both followers refuse the next group that is built, so often."""
    for ordinal in (1, 2):
        world.brokers[ordinal].refuses[world.contents + 1] = times


def until_more(world: World, limit: float) -> float:
    """Seconds until ten more groups are acknowledged."""
    start, acks = world.time, world.oracle.acks
    while world.time < start + limit:
        world.run(world.time + 0.01)
        if world.oracle.acks >= acks + 10:
            return world.time - start
    raise AssertionError(f"nothing acknowledged within {limit} s")


@pytest.mark.parametrize("seed", range(10))
def test_what_was_damaged_on_its_way_is_fetched(seed: int) -> None:
    world = healthy(seed)
    generations = len(world.oracle.generations)
    refuse_next(world, 1)
    assert until_more(world, 10) <= PAUSE_SECONDS
    world.run(world.time + 5)
    assert len(world.oracle.generations) == generations, "nobody was fenced for it"
    world.crash(1)  # Whoever stays has all of it.
    assert until_more(world, 10) <= PAUSE_SECONDS


@pytest.mark.parametrize("seed", range(10))
def test_what_nobody_takes_is_left_behind(seed: int) -> None:
    """The leader has a group that both followers refuse for ever."""
    world = healthy(seed)
    generations = len(world.oracle.generations)
    refuse_next(world, 1_000_000)
    assert until_more(world, 10) <= PAUSE_SECONDS
    assert len(world.oracle.generations) > generations
    world.run(world.time + 5)
    assert [broker.ordinal for broker, _ in world.leaders()] == [0]


@pytest.mark.parametrize("seed", range(5))
def test_one_that_refuses_delays_nobody(seed: int) -> None:
    world = healthy(seed)
    world.brokers[2].refuses[world.contents + 1] = 1_000_000
    assert until_more(world, 10) <= 1.0


def left_alone(seed: int) -> World | None:
    """Both followers have promised to B, which died before it had decided. None: they have not, in
    this seed."""
    world = healthy(seed)
    ((leader, generation),) = world.leaders()
    assert leader.replica is not None
    held = leader.replica._held[generation.gid]
    world.cuts.add((1, 0))
    world.brokers[1].step(on.Elect(generation.gid))
    third = world.brokers[2].replica
    assert third is not None
    while third._held[generation.gid].promised is None:
        world.run(world.time + 0.0001)
    world.crash(1, quiet=True)
    world.cuts.clear()
    world.start(1)
    end = world.time + 2
    while not held.left_alone and world.time < end:
        world.run(world.time + 0.0001)
    return world if held.left_alone else None


def test_one_of_those_who_left_dies() -> None:
    """Once, and again."""
    worlds = 0
    for seed in range(30):
        if (world := left_alone(seed)) is None:
            continue
        world.crash(1, quiet=True)
        assert until_more(world, 10) <= PAUSE_SECONDS, seed
        worlds += 1
        if worlds == 5:
            return
    pytest.fail(f"only {worlds} seeds come to it")
