"""First segments that are made before anybody waits for them: of no generation, and of one that is
about to begin."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from barco.errors import DiskFullError
from barco.workers.storage.files import layout
from barco.workers.storage.files.segment import SegmentPool


def test_a_first_segment_that_was_made_ahead_costs_a_name(shard, go, engine, monkeypatch):
    async def test(bulk):
        pool = SegmentPool(shard, 4 << 20, bulk, first_bytes=1 << 20)
        await pool.make_ahead()
        assert not layout.generation_epochs(shard), "it is of no generation"
        made = []
        monkeypatch.setattr(pool, "_make", lambda path, *_: made.append(path.name) or none())
        fd, capacity = await pool.prepare(2, 0)
        assert capacity == 1 << 20 == layout.segment_path(shard, 2, 0).stat().st_size
        assert made in ([], ["spare.tmp"]), "that comes behind it"
        os.close(fd)
        await pool.close()

    async def none():
        pass

    go(test, engine)


def test_what_can_not_be_made_ahead_is_told_and_made_when_it_is_needed(shard, go, monkeypatch):
    async def test(bulk):
        errors = []
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096, on_error=errors.append)
        monkeypatch.setattr(layout, "disk_space", lambda _: layout.DiskSpace(1 << 20, 1 << 30))
        await pool.make_ahead()
        assert isinstance(errors[0], DiskFullError) and not list(shard.glob("*.tmp"))
        monkeypatch.undo()
        fd, capacity = await pool.prepare(2, 0)
        assert capacity == 4096
        os.close(fd)
        await pool.close()

    go(test)


def test_the_last_spare_is_kept_for_a_start(shard, go, monkeypatch):
    """On a full disk nothing but the first segment of a generation gets it."""

    async def test(bulk):
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096)
        fd, _ = await pool.prepare(2, 0)
        os.close(fd)
        fd, capacity = await pool.prepare(2, 1)
        os.close(fd)
        assert capacity == 1 << 20
        while not (shard / layout.SPARE_NAME).exists():
            await asyncio.sleep(0.001)
        monkeypatch.setattr(layout, "disk_space", lambda _: layout.DiskSpace(16 << 20, 1 << 30))
        for _ in range(2):
            with pytest.raises(DiskFullError):
                await pool.prepare(2, 2)
        assert (shard / layout.SPARE_NAME).exists()
        await pool.close()
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096)
        fd, capacity = await pool.prepare(3, 0)
        assert capacity == 1 << 20
        os.close(fd)
        await pool.close()

    go(test)


def test_the_first_segment_of_a_generation_that_is_expected(shard, go, engine):
    """It has its name before it is asked for; of one that does not begin nothing stays."""

    async def test(bulk):
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096)
        pool.expect(2)
        while not layout.segment_path(shard, 2, 0).exists():
            await asyncio.sleep(0.001)
        fd, _ = await pool.prepare(2, 0)
        os.close(fd)
        pool.expect(3)
        pool.begins(3)
        fd, _ = await pool.prepare(2, 1)  # What still goes on needs one of its own.
        os.close(fd)
        pool.expect(4)  # In place of 3.
        assert pool._expected.epoch == 4
        pool.begins(5)
        assert await pool.prepare_if(5, 0, lambda: False) is None
        pool.expect(6)
        assert await pool.prepare_if(6, 0, lambda: False) is None, "it is over by now"
        pool.expect(7)
        await pool.close()
        await asyncio.sleep(0)  # For who takes it back.
        assert [layout.segment_indexes(shard, each) for each in range(2, 8)] == [[0, 1], *[[]] * 5]
        for name in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                assert f"{shard}/gen-" not in os.readlink(name), "each was closed"

    go(test, engine)


def test_one_that_is_too_small_for_the_state_is_not_taken(shard, go, engine):
    async def test(bulk):
        pool = SegmentPool(shard, 8 << 20, bulk, first_bytes=4096)
        await pool.make_ahead()
        fd, capacity = await pool.prepare(2, 0, 1 << 20)
        os.close(fd)
        assert capacity == 4096 + (2 << 20) == layout.segment_path(shard, 2, 0).stat().st_size
        await pool.close()
        assert not list(shard.glob("ahead*")), "nobody will have it"

    go(test, engine)


def test_each_generation_has_one_of_its_own(shard, go, engine, monkeypatch):
    """What was made ahead is one generation's; what is expected is of that epoch, and goes when
    another one begins."""

    async def test(bulk):
        pool = SegmentPool(shard, 8 << 20, bulk, first_bytes=4096)
        monkeypatch.setattr(pool, "_make_spare", none)  # It would be taken.
        await pool.make_ahead()
        pool.expect(6)
        while not layout.segment_path(shard, 6, 0).exists():
            await asyncio.sleep(0.001)
        for epoch in (3, 4):  # That go on beside it.
            fd, capacity = await pool.prepare(epoch, 0)
            os.close(fd)
            assert capacity == 4096 == layout.segment_path(shard, epoch, 0).stat().st_size
        assert layout.segment_path(shard, 6, 0).exists() and not list(shard.glob("*.tmp"))
        pool.begins(6)
        fd, _ = await pool.prepare(6, 0)
        pool.begins(7)  # It has begun by now, and has events.
        await asyncio.sleep(0)
        assert os.fstat(fd).st_nlink == 1 and layout.segment_path(shard, 6, 0).exists()
        os.close(fd)
        pool.expect(8)
        while not layout.segment_path(shard, 8, 0).exists():
            await asyncio.sleep(0.001)
        pool.begins(9)
        while layout.segment_path(shard, 8, 0).exists():  # Who made it takes it back.
            await asyncio.sleep(0.001)
        await pool.close()

    async def none():
        pass

    go(test, engine)
