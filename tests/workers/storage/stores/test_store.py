"""One shard through several lives, with the real core where it is built."""

import asyncio
import mmap
import os

import builder
import pytest

from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.scan import parse_header
from barco.workers.storage.index.sidecar import IndexBuilder
from barco.workers.storage.stores.retention import Policy
from barco.workers.storage.stores.store import ShardStore

MIB = 1 << 20
KEEP_ALL = Policy(0, 0)


def make(shard, bulk, errors, policy=KEEP_ALL):
    return ShardStore(
        shard, bulk, cluster_uuid=builder.UUID, token=builder.TOKEN, segment_bytes=MIB,
        policy=policy, on_error=errors.append,
    )  # fmt: skip


class Writer:
    """Appends groups as the core does: through the descriptors of the store."""

    def __init__(self, epoch, session, offsets):
        self.log = builder.Log(epoch=epoch, session=session, offsets=offsets)

    def write_segment(self, fd, groups):
        self.log.roll()
        for number in range(groups):
            self.log.events(("a", number % 2), ("b", 0))
        data = bytes(self.log.segments[-1])
        memory = mmap.mmap(-1, len(data))
        memory[:] = data
        assert os.pwrite(fd, memory, 0) == len(data)

    def index(self, segment):
        made = IndexBuilder()
        view = memoryview(bytes(self.log.segments[segment]))
        at = 0
        while at < len(view):
            header = parse_header(view, at)
            made.add(header, view[at : at + header.group_bytes], at)
            at += header.group_bytes
        return made.body()


async def one_life(shard, bulk, offsets, errors, policy=KEEP_ALL):
    """Recovers, opens a generation, fills two segments and half of a third, dies."""
    store = make(shard, bulk, errors, policy)
    epoch = store.next_epoch
    report = await store.recover(lambda _: None, lambda _: None)
    opened, parents = store.open_generation(builder.SESSION + epoch)
    assert opened == epoch and len(parents) == 16
    writer = Writer(epoch, builder.SESSION + epoch, offsets)
    for _ in range(3):
        _, fd, _ = await store.next_segment()
        writer.write_segment(fd, 6)
    truncated = {}
    await store.start(
        lambda *_: [],
        lambda *_: None,
        lambda *_: None,
        lambda t, s, o: truncated.__setitem__((t, s), o),
    )
    for segment in (0, 1):
        await store.segment_sealed(segment, writer.index(segment))
    return store, report, truncated


def test_several_lives(shard, go, engine):
    offsets, errors = {}, []

    async def test(bulk):
        before = len(os.listdir("/proc/self/fd")) + 8  # Threads, and an epoll, come to be later.
        for life in range(3):
            store, report, _ = await one_life(shard, bulk, offsets, errors)
            assert report.T == (21 if life else 0) and report.next_epoch == 3 + life
            figures = store.stats()
            assert figures["storage_sealed_segments"] == 3 * life + 2
            assert figures["storage_corrupt_chunks"] == 0 and figures["storage_free_bytes"] > 0
            await store.close()
        store = make(shard, bulk, errors)
        await store.recover(lambda _: None, lambda _: None)
        store.open_generation(1)
        await store.start(lambda *_: [], lambda *_: None, lambda *_: None, lambda *_: None)
        for (topic, slice_), end in offsets.items():
            offset = 0
            while offset < end:
                result = await store.reader.read(topic, slice_, offset, 1 << 20)
                assert result.next_offset > offset
                offset = result.next_offset
        assert not [error for error in errors if "free" not in str(error)]
        await store.close()
        assert len(os.listdir("/proc/self/fd")) <= before

    go(test, engine)


def test_retention_in_the_open_generation(shard, go):
    """A broker that never restarts must not fill its disk: sealed segments of its own go too."""
    offsets, errors = {}, []

    async def test(bulk):
        store, _, _ = await one_life(shard, bulk, offsets, errors)
        assert await store.run_retention(2**62) == 0
        await store.close()
        store, _, truncated = await one_life(
            shard, bulk, offsets, errors, Policy(1, 0, sole_member=True)
        )
        # Three of the first life and one of this one; the newest sealed one stays.
        assert await store.run_retention(2**62) == 4
        assert layout.segment_indexes(shard, 2) == [] and layout.segment_indexes(shard, 3) == [1, 2]
        assert await store.reader.earliest("a", 0) == truncated["a", 0]
        await store.close()
        report = await make(shard, bulk, errors).recover(lambda _: None, lambda _: None)
        assert (report.epoch, report.T) == (3, 21)

    go(test)


def test_a_worker_that_dies_while_opening(shard, go):
    errors = []

    async def test(bulk):
        for attempt in range(3):
            store = make(shard, bulk, errors)
            assert store.next_epoch == 2 + attempt
            report = await store.recover(lambda _: None, lambda _: None)
            assert report.parents == [(1, 0)]
            store.open_generation(7)
            await store.next_segment()
            await asyncio.sleep(0.01)
            await store.close()
        assert layout.generation_epochs(shard) == [4]

    go(test)


def test_the_wrong_index_of_a_sealed_segment_is_not_taken(shard, go):
    """The core says that a segment is sealed which holds nothing of this generation."""

    async def test(bulk):
        store = make(shard, bulk, [])
        await store.recover(lambda _: None, lambda _: None)
        store.open_generation(7)
        await store.next_segment()
        await store.start(lambda *_: [], lambda *_: None, lambda *_: None, lambda *_: None)
        with pytest.raises(Exception, match="no group of generation 2"):
            await store.segment_sealed(0, IndexBuilder().body())
        await store.close()

    go(test)


def test_what_was_given_up_is_told_at_every_start(shard, go):
    """Promise D9: data is given up by an operator's word only, logged, counted and marked."""
    errors = []

    async def test(bulk):
        store, _, _ = await one_life(shard, bulk, {}, errors)
        assert store.stats()["storage_given_up_groups"] == 0
        await store.close()
        Lineage.load(shard).lost(2, 12, 18)
        for _ in range(2):
            errors.clear()
            store = make(shard, bulk, errors)
            assert store.stats()["storage_given_up_groups"] == 7
            (told,) = (str(each) for each in errors if "given up" in str(each))
            assert "groups 12 to 18 of generation 2" in told

    go(test)
