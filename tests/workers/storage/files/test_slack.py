"""What is given back of segments that have ended: zeros, and nothing else."""

import builder
import pytest

from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.slack import cut, give_back
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

CAPACITY = 4 << 20


def sealed(shard, *, tail=None, spare=0):
    """A sealed generation, its files as they were made; (the log, their paths)."""
    log = builder.simple(groups=6, segments=2)
    lineage = Lineage.load(shard)
    lineage.opened(2, builder.SESSION, [(1, 0)])
    paths = log.write(shard, capacity=CAPACITY, spare=spare)
    last = tail or len(log.groups)
    segment, at, size = log.groups[last - 1]
    lineage.sealed(2, last, segment, at + size)
    return log, paths, lineage


@pytest.mark.parametrize("spare", [0, 1])
def test_zeros_behind_the_end_go(shard, go, spare):
    log, paths, lineage = sealed(shard, spare=spare)
    before = [path.read_bytes() for path in paths]

    async def test(bulk):
        assert await give_back(shard, lineage.get(2), bulk) == [1]
        assert await give_back(shard, lineage.get(2), bulk) == []

    go(test)
    assert paths[0].read_bytes() == before[0]  # Not the last one: its room may not be all used.
    assert paths[1].read_bytes() == bytes(log.segments[1])
    assert not any(path.exists() for path in paths[2:])


@pytest.mark.parametrize("behind", [1, 4])
def test_groups_behind_the_tail_stay(shard, go, behind):
    log, paths, lineage = sealed(shard, tail=14 - behind)

    async def test(bulk):
        assert await give_back(shard, lineage.get(2), bulk) == [1]

    go(test)
    assert paths[1].read_bytes() == bytes(log.segments[1])


def test_one_byte_at_the_very_end_keeps_all(shard, go):
    _, paths, lineage = sealed(shard)
    with paths[1].open("r+b") as file:
        file.seek(CAPACITY - 1)
        file.write(b"x")

    async def test(bulk):
        assert await give_back(shard, lineage.get(2), bulk) == []

    go(test)
    assert paths[1].stat().st_size == CAPACITY


def test_a_file_is_never_made_longer(shard):
    path = shard / "file"
    path.write_bytes(b"x" * 5000)
    cut(path, 10_000)
    assert path.stat().st_size == 5000
    cut(path, 1)
    assert path.stat().st_size == layout.PAGE_BYTES
    cut(shard / "none", 1)


def test_a_start_gives_back_what_an_earlier_life_did_not(shard, go):
    log, paths, _ = sealed(shard)

    class Core:
        def __getattr__(self, name):
            return lambda *_: None

        def log_state(self):
            return {"gseq": 0, "segment": -1, "segment_used": 0}

    async def test(bulk):
        store = ReplicaStore(
            shard, bulk, cluster_uuid=builder.UUID, token=builder.TOKEN, segment_bytes=CAPACITY,
            policy=Policy(0, 0), on_error=[].append,
        )  # fmt: skip
        store.epoch = 9  # The core has a later one.
        await store.recover(Core())
        await store._indexing
        sizes = {segment.key: segment.size for segment in store._catalog.segments()}
        assert sizes == {(2, 0): CAPACITY, (2, 1): len(log.segments[1])}
        await store.close()

    go(test)
    assert paths[1].stat().st_size == len(log.segments[1])
