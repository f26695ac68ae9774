"""The files of one replica: what changes hands when a generation ends, and what is told."""

import asyncio
import os
import random

import builder
import pytest
from replica_files import MIB, Core, make

from barco.errors import DiskFullError
from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import CorruptLineageError
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Generation
from barco.workers.storage.index.catalog import Catalog, SegmentKey
from barco.workers.storage.stores import replicas, shard_files


async def begun(shard, bulk, errors):
    """A store whose core has filled segment 0 of epoch 2."""
    store = make(shard, bulk, errors)
    await store.recover(Core())
    await store.begin(2, builder.SESSION)
    await store.next_segment()
    return store


def test_it_tells_what_a_single_member_tells(shard, go):
    errors = []

    async def test(bulk):
        store = await begun(shard, bulk, errors)
        figures = store.stats()
        for name in ("corrupt_chunks", "read_bytes", "expired_segments", "expired_bytes"):
            assert figures[f"storage_{name}"] == 0
        store.lineage.add_journal([(2, {"a": 1}), (2, {"b": 2})])
        await store.close()
        path = shard / layout.LINEAGE_NAME
        data = bytearray(path.read_bytes())
        data[9] ^= 1  # In the first record's body.
        path.write_bytes(data)
        damaged = make(shard, bulk, errors)
        assert any(isinstance(error, CorruptLineageError) for error in errors)
        assert damaged.lineage.damaged == 1

    go(test)


def test_a_full_disk_is_waited_for(shard, go, monkeypatch):
    """An index that can not be written is no reason to end: the core has it in memory."""
    errors, tries = [], []

    async def add_sealed(self, epoch, index, body, summary):
        tries.append((epoch, index))
        if len(tries) < 3:
            raise DiskFullError("no room")

    monkeypatch.setattr(Catalog, "add_sealed", add_sealed)
    monkeypatch.setattr(shard_files, "SIDECAR_RETRY_SECONDS", 0.001)

    async def test(bulk):
        store = await begun(shard, bulk, errors)
        assert await store.segment_sealed(2, 0)
        assert tries == [(2, 0)] * 3
        assert [error for error in errors if str(error) == "no room"]
        await store.close()

    go(test)


def test_the_next_generation_keeps_its_descriptor(shard, go, monkeypatch):
    """A sidecar may become stable when the core has another generation, with a segment 0 as well.

    Were that one's descriptor closed, the core would go on writing to a number that the next file
    gets.
    """
    errors = []

    async def test(bulk):
        written = asyncio.Event()

        async def add_sealed(self, epoch, index, body, summary):
            await written.wait()

        monkeypatch.setattr(Catalog, "add_sealed", add_sealed)
        store = await begun(shard, bulk, errors)
        sealed = asyncio.create_task(store.segment_sealed(2, 0))
        await asyncio.sleep(0)
        await store.begin(3, builder.SESSION + 1)
        index, fd, _ = await store.next_segment()
        assert index == 0
        written.set()
        assert not await sealed
        assert os.readlink(f"/proc/self/fd/{fd}") == str(layout.segment_path(shard, 3, 0))
        await store.close()
        with pytest.raises(OSError):
            os.fstat(fd)

    go(test)


def test_a_sidecar_is_written_by_one_at_a_time(shard, go, monkeypatch):
    """A segment that is full, and the whole generation, are sealed at the same time."""

    async def test(bulk):
        store = await begun(shard, bulk, [])
        writing = []

        async def add_sealed(*_):
            writing.append(1)
            await asyncio.sleep(0.02)
            writing.pop()

        def write_sidecar(*_):
            assert not writing

        monkeypatch.setattr(store._catalog, "add_sealed", add_sealed)
        monkeypatch.setattr(replicas, "write_sidecar", write_sidecar)
        one, _ = await asyncio.gather(store.segment_sealed(2, 0), store._seal_core(1))
        assert one
        await store.close()

    go(test)


def test_a_segment_that_was_not_needed_is_not_read_any_more(shard, go):
    """It was prepared, looked into, and thrown away; then copying made another of its name."""

    async def test(bulk):
        store = await begun(shard, bulk, [])
        await store.next_segment()
        key, path = SegmentKey(2, 1), layout.segment_path(shard, 2, 1)
        files = store._catalog.files
        with files.lease(key, path) as fd:
            assert os.fstat(fd).st_ino == path.stat().st_ino
        await store.begin(3, builder.SESSION)
        assert not path.exists()
        path.write_bytes(b"new" + bytes(4093))
        with files.lease(key, path) as fd:
            assert os.fstat(fd).st_ino == path.stat().st_ino
        await store.close()

    go(test)


def test_files_behind_damage_are_written_again(shard, go):
    """A start that finds damage keeps what is behind it: the members send the same bytes again."""
    errors = []

    async def test(bulk):
        store = await begun(shard, bulk, errors)
        store._damaged.add(2)
        path = layout.segment_path(shard, 2, 1)
        path.write_bytes(b"x" * 8192)
        index, fd, capacity = await store.next_segment()
        assert (index, capacity) == (1, 8192)
        assert os.path.samestat(os.fstat(fd), path.stat()) and path.read_bytes() == b"x" * 8192
        await store.close()

    go(test)


def test_what_a_crash_has_torn_is_cleared_before_the_log_goes_on(shard, go):
    """Its sectors would make the next append that is torn there look like rot."""
    log = builder.simple(6, in_flight=3)
    log.append(random.Random(1).randbytes(3000))
    Lineage.load(shard).opened(2, builder.SESSION, [])
    path = layout.segment_path(shard, 2, 0)
    path.parent.mkdir()
    data = bytearray(log.files(MIB)[0])
    start = log.groups[-1][1]
    data[start + 1024 : start + 1536] = bytes(512)  # Never stored.
    path.write_bytes(data)

    async def test(bulk):
        store = make(shard, bulk, [])
        core = Core()
        core.load_segment = core.load_group = core.restore = core.apply_group = lambda *_: None
        core.begin_generation(0, 0)
        found = await store.recover(core)
        assert found[2].tail == len(log.groups) - 1 and not found[2].suspect
        assert path.read_bytes() == data[:start] + bytes(MIB - start)
        await store.close()

    go(test)


def test_what_was_expected_goes_when_another_generation_begins(shard, go):
    async def test(bulk):
        store = await begun(shard, bulk, [])
        store.expect(3)
        while not layout.segment_path(shard, 3, 0).exists():
            await asyncio.sleep(0.001)
        await store.begin(4, builder.SESSION + 1)
        await asyncio.sleep(0)  # For who takes it back.
        assert not layout.segment_path(shard, 3, 0).exists()
        await store.close()

    go(test)


def test_the_core_speaks_of_its_own_generation_alone(shard, go, monkeypatch):
    """What is stable there is not of one that it has left."""

    async def test(bulk):
        store = await begun(shard, bulk, [])
        core = {"stable_gseq": 9, "segment": 0, "segment_used": 4096}
        real = store._core.log_state
        store._core.log_state = lambda: real() | core
        monkeypatch.setattr(store.lineage, "get", Generation)  # Of neither is the end noted.
        assert store.whole(2, 9) and not store.whole(2, 10)
        await store.begin(3, builder.SESSION + 1)
        assert store.whole(3, 9) and not store.whole(2, 9)
        await store.close()

    go(test)
