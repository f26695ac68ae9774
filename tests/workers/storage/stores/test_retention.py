"""Rule S8 on real files: a generation is kept for as long as a child may ask for its state."""

import builder
import pytest
import replica_files
from replica_files import Loading

from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.protocol.replication import DecidedRecord
from barco.protocol.replication_codec import to_map
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.stores.retention import Policy

B = Identity(1, b"b" * 16)


class Leading(Loading):
    """Has committed this much of its generation."""

    committed = 0

    def log_state(self):
        return super().log_state() | {"committed": self.committed}


def test_a_generation_is_kept_until_its_child_has_a_group(shard, go):
    """A child that ended without one hands on its parents."""
    log, lineage = builder.simple(segments=4), Lineage.load(shard)
    log.write(shard)
    lineage.opened(2, builder.SESSION, [(1, 0)])
    lineage.sealed(2, len(log.groups), 3, len(log.segments[-1]))
    lineage.opened(3, 8, [(2, len(log.groups))])
    lineage.sealed(3, 0, 0, 0)  # It has ended without a group.
    lineage.opened(4, 9, [(3, 0)])

    async def test(bulk):
        store, core = replica_files.make(shard, bulk, [], Policy(0, 1)), Leading()
        await store.recover(core)
        assert await store.run_retention(0) == 0
        await store.begin(4, 9)
        assert await store.run_retention(0) == 0
        core.committed = 1
        assert await store.run_retention(0) == 3
        await store.close()

    go(test)


TOKEN = builder.TOKEN
SPLIT = Successor(
    28,
    Kind.SPLIT,
    tuple(
        Generation(Gid(token, 3), token + 1, B, 9, (B,), (Parent(Gid(TOKEN, 2), 28),))
        for token in (TOKEN, TOKEN + 1)
    ),
)


@pytest.mark.parametrize("kind", [Kind.SPLIT, Kind.HANDOFF])
def test_a_child_of_another_range_counts_too(shard, go, kind):
    """The second of a split, or whoever takes in what was handed off: somebody has to say that it
    has begun. That is remembered, as is that it was not said."""
    log, lineage = builder.simple(segments=4), Lineage.load(shard)
    assert len(log.groups) == 28
    log.write(shard)
    lineage.opened(2, builder.SESSION, [(1, 0)])
    value = SPLIT if kind is Kind.SPLIT else Successor(28, kind, ())
    parent, child = (TOKEN, 2), (TOKEN + 1, 3) if kind is Kind.SPLIT else None
    lineage.add_journal([(2, to_map(DecidedRecord(Gid(*parent), value)))])
    lineage.sealed(2, 28, 3, len(log.segments[-1]))
    assert lineage.elsewhere(parent) == {child: False}
    assert lineage.elsewhere((TOKEN + 5, 2)) == {}

    async def test(bulk):
        store, core = replica_files.make(shard, bulk, [], Policy(0, 1)), Leading()
        await store.recover(core)
        await store.begin(3, 9)
        core.committed = 1
        assert await store.run_retention(0) == 0
        store.lineage.begun(parent, child)
        assert await store.run_retention(0) == 3
        await store.close()

    go(test)
    assert Lineage.load(shard).elsewhere(parent) == {child: True}


def test_of_a_range_that_was_left_nothing_is_kept_for_good(shard, go):
    """The core goes on to have its last generation, and nothing comes behind that."""
    log, lineage = builder.simple(segments=4), Lineage.load(shard)
    last = log.write(shard)[-1].stat().st_size
    lineage.opened(2, builder.SESSION, [(1, 0)])
    lineage.add_journal(
        [(2, to_map(DecidedRecord(Gid(TOKEN, 2), Successor(28, Kind.HANDOFF, ()))))]
    )
    lineage.sealed(2, 28, 3, len(log.segments[-1]))

    async def test(bulk):
        store, core = replica_files.make(shard, bulk, [], Policy(0, last)), Loading()
        await store.recover(core)
        assert store.epoch == 2, "the core has it"
        assert await store.run_retention(0, left=True) == 0, "nobody has taken it in"
        store.lineage.begun((TOKEN, 2), None)
        assert await store.run_retention(0) == 3, "this broker may yet have more of it"
        assert await store.run_retention(0, left=True) == 0, "it is no more than may be kept"
        assert not store.lineage.get(2).expired
        store.lineage.gone((TOKEN, 2))
        assert await store.run_retention(0) == 0
        assert await store.run_retention(0, left=True) == 1
        assert store.lineage.get(2).expired and store.topology() == []
        assert await store.reader.earliest("a", 0) is None
        await store.close()

    go(test)
    assert Lineage.load(shard).is_gone((TOKEN, 2)) and not Lineage.load(shard).is_gone((TOKEN, 3))
    assert [each.epoch for each in Lineage.load(shard).generations()] == [2], "no other"


def test_its_age_is_enough_for_all_of_what_was_left(shard, go):
    log, lineage = builder.simple(segments=4), Lineage.load(shard)
    log.write(shard)
    lineage.opened(2, builder.SESSION, [(1, 0)])
    lineage.sealed(2, 28, 3, len(log.segments[-1]))
    lineage.begun((TOKEN, 2), None)

    async def test(bulk):
        store = replica_files.make(shard, bulk, [], Policy(1, 0))
        await store.recover(Loading())
        assert await store.run_retention(0, left=True) == 0
        assert await store.run_retention(2**62) == 3
        assert await store.run_retention(2**62, left=True) == 1
        assert not any(shard.glob("*/*.log")), "its files are gone"
        await store.close()
        again = replica_files.make(shard, bulk, [], Policy(1, 0))
        core = Loading()
        await again.recover(core)
        assert again.epoch == 0, "a start finds nothing of it"
        assert await again.run_retention(2**62, left=True) == 0
        await again.close()

    go(test)
