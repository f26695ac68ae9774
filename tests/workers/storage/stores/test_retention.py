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
