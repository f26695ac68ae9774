"""Two of three disks are lost: nothing goes on by itself, and everything on the operator's word."""

import pytest

from barco.cluster.state.unclean import unclean_successor
from barco.model.generation import Identity, Kind
from barco.protocol.replication import DecidedRecord

from .images import Recovery
from .world import World

LEFT = 2


def lose(seed: int, away: bool) -> World:
    """A ring in use whose brokers 0 and 1 lose their disks; `away`: 2 had been down for long."""
    world = World(seed)
    for broker in world.brokers:
        broker.start()
    world.run(5.0 + seed * 0.0137)
    if away:
        world.crash(LEFT)
        world.run(world.time + 2)
        world.crash(0)
        world.brokers[0].start()
        world.run(world.time + 5)
        assert world.oracle.acks > 0 and world.leaders()
    for broker in world.brokers:
        if broker.replica is not None:
            world.crash(broker.ordinal)
    for ordinal in range(LEFT):
        world.wipe(ordinal)
    return world


def verdict(world: World, disks: dict[int, Identity]):
    disk = world.brokers[LEFT].disk
    recovered = Recovery(disk).found
    return unclean_successor(
        disk.journal,
        disk.identity,
        disks,
        lambda gid: recovered[gid].tail if gid in recovered else 0,
        world.new_session(),
    )


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_goes_on_from_the_disk_that_is_left(seed: int, away: bool) -> None:
    world = lose(seed, away)
    for broker in world.brokers:
        if broker.replica is None:
            broker.start()
    acks, generations = world.oracle.acks, len(world.oracle.generations)
    world.run(world.time + 20)
    assert world.oracle.acks == acks and len(world.oracle.generations) == generations
    world.crash(LEFT)
    disk = world.brokers[LEFT].disk
    held = {gid: len(log) for gid, log in disk.logs.items()}
    found = verdict(world, {o: world.brokers[o].disk.identity for o in range(LEFT)})
    assert found.refusal == "" and found.lost == (0, 1), found
    decided = found.records[0]
    assert isinstance(decided, DecidedRecord) and decided.value.kind is Kind.UNCLEAN
    assert decided.value.tail == held.get(decided.gid, 0), "all that is left is kept"
    disk.load(synced=True)  # `barco recover` is a process of its own.
    disk.add(found.records)
    world.oracle.given_up(decided)
    world.brokers[LEFT].start()
    world.run(world.time + 15)
    assert world.oracle.acks > acks + 20, "writes go on"
    assert [broker.ordinal for broker, _ in world.leaders()] == [0]
    for ordinal in range(LEFT):
        logs = world.brokers[ordinal].disk.logs
        assert len(logs.get(decided.gid, ())) == decided.value.tail, "the copies are made again"


def test_one_lost_disk_is_no_reason() -> None:
    world = lose(1, away=False)
    found = verdict(world, {0: world.brokers[0].disk.identity})
    assert not found.records and "broker 1 has a copy" in found.refusal


def test_a_disk_that_was_not_taken_in_has_no_say() -> None:
    world = lose(1, away=False)
    stranger = Identity(LEFT, b"x" * 16)
    disk = world.brokers[LEFT].disk
    disks = {o: world.brokers[o].disk.identity for o in range(LEFT)}
    found = unclean_successor(disk.journal, stranger, disks, lambda _: 99, 1)
    assert not found.records and "not taken in" in found.refusal


def test_without_the_groups_before_it_there_is_no_state() -> None:
    world = lose(1, away=False)
    world.brokers[LEFT].disk.logs.clear()
    found = verdict(world, {o: world.brokers[o].disk.identity for o in range(LEFT)})
    generation = found.generation
    assert generation is not None
    if any(tail for _, tail in generation.parents):
        assert not found.records and "had not been copied" in found.refusal
    else:
        assert found.tail == 0
