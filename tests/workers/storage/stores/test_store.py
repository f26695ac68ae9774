"""The shard of a single member through several lives, with the real core where it is built."""

import asyncio
import mmap
import os

import builder
import pytest
from single import KEEP_ALL, Life, make, start

from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.scan import parse_header
from barco.workers.storage.index.sidecar import IndexBuilder
from barco.workers.storage.stores.retention import Policy


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

    def fill(self, core, segment):
        """What the core knows of a segment that is full."""
        made, headers, at = IndexBuilder(), [], 0
        view = memoryview(bytes(self.log.segments[segment]))
        while at < len(view):
            headers.append(parse_header(view, at))
            made.add(headers[-1], view[at : at + headers[-1].group_bytes], at)
            at += headers[-1].group_bytes
        first, last = headers[0], headers[-1]
        core.indexes[segment] = made
        core.summaries[segment] = (
            *(segment, first.gseq, last.gseq, first.prev_crc, last.header_crc, at),
            *(first.time_us, last.time_us),
        )


async def one_life(shard, bulk, offsets, policy=KEEP_ALL):
    """Starts, fills two segments and half of a third, and dies."""
    life = Life(shard, bulk, policy=policy)
    segments = []
    life.core.add_segment = lambda *segment: segments.append(segment)
    await life.recover()
    await life.lead()
    writer = Writer(life.epoch, life.session, offsets)
    segments += [await life.store.next_segment() for _ in range(2)]
    for _, fd, _ in segments:
        writer.write_segment(fd, 6)
    for segment in (0, 1):
        writer.fill(life.core, segment)
        assert await life.store.segment_sealed(life.epoch, segment)
    return life


def test_several_lives(shard, go, engine):
    offsets, errors = {}, []

    async def test(bulk):
        before = len(os.listdir("/proc/self/fd")) + 8  # Threads, and an epoll, come to be later.
        for number in range(3):
            life = await one_life(shard, bulk, offsets)
            assert life.parent == ((1 + number, 21) if number else (1, 0))
            assert life.epoch == 2 + number
            figures = life.store.stats()
            assert figures["storage_sealed_segments"] == 3 * number + 2
            assert figures["storage_corrupt_chunks"] == 0 and figures["storage_free_bytes"] > 0
            errors.extend(life.errors)
            await life.close()
        life = await Life(shard, bulk).recover()
        await life.lead()
        for (topic, slice_), end in offsets.items():
            offset = 0
            while offset < end:
                result = await life.store.reader.read(topic, slice_, offset, 1 << 20)
                assert result.next_offset > offset
                offset = result.next_offset
        assert errors + life.errors == []
        await life.close()
        assert len(os.listdir("/proc/self/fd")) <= before

    go(test, engine)


def test_retention_in_the_open_generation(shard, go):
    """A broker that never restarts must not fill its disk: sealed segments of its own go too."""
    offsets = {}

    async def test(bulk):
        life = await one_life(shard, bulk, offsets)
        assert await life.store.run_retention(2**62) == 0
        await life.close()
        life = await one_life(shard, bulk, offsets, Policy(1, 0, sole_member=True))
        store, truncated = life.store, life.core.truncated
        # Three of the first life and one of this one; the newest sealed one stays.
        assert await store.run_retention(2**62) == 4
        assert not store.held_back, "there is no generation that would have to end first"
        assert layout.segment_indexes(shard, 2) == [] and layout.segment_indexes(shard, 3) == [1, 2]
        assert await store.reader.earliest("a", 0) == truncated["a", 0]
        await life.close()
        life = await Life(shard, bulk).recover()
        assert life.parent == (3, 21)
        await life.lead()  # What retention took of the generation that ends here is not looked for.
        assert [key.segment for key in life.store._catalog._segments] == [1, 2]
        assert not life.errors
        await life.close()

    go(test)
    assert start(shard, go).errors == []


def test_a_worker_that_dies_while_opening(shard, go):
    async def test(bulk):
        for attempt in range(3):
            life = Life(shard, bulk)
            assert len(life.store.lineage.generations()) == attempt
            await life.recover()
            assert life.parent == (1, 0)
            await life.lead()
            await life.store.next_segment()
            await asyncio.sleep(0.01)
            await life.close()
        used = [e for e in layout.generation_epochs(shard) if layout.segment_indexes(shard, e)]
        assert used == [4]

    go(test)


def test_the_wrong_index_of_a_sealed_segment_is_not_taken(shard, go):
    """The core says that a segment is sealed which holds nothing of this generation."""

    async def test(bulk):
        life = await Life(shard, bulk).recover()
        await life.lead()
        with pytest.raises(Exception, match="no group of generation 2"):
            await life.store._add_sealed(2, 0, IndexBuilder().body(), None)
        await life.close()

    go(test)


def test_what_was_given_up_is_told_at_every_start(shard, go):
    """Promise D9: data is given up by an operator's word only, logged, counted and marked."""

    async def test(bulk):
        life = await one_life(shard, bulk, {})
        assert life.store.stats()["storage_given_up_groups"] == 0
        await life.close()
        Lineage.load(shard).lost(2, 12, 18)
        for _ in range(2):
            errors = []
            store = make(shard, bulk, errors)
            assert store.stats()["storage_given_up_groups"] == 7
            (told,) = (str(each) for each in errors if "given up" in str(each))
            assert "groups 12 to 18 of generation 2" in told

    go(test)
