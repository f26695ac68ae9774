"""Layout, buffers, bulk I/O, segment files and the retention plan."""

import asyncio
import errno
import fcntl
import gc
import os
import random

import builder
import pytest

from barco import _native
from barco.errors import BusyError, DataDirError, DiskFullError
from barco.workers.storage.files import layout, segment
from barco.workers.storage.files.buffers import BufferPool
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.storage.files.segment import SegmentPool
from barco.workers.storage.index.catalog import SegmentKey
from barco.workers.storage.index.sidecar import Location, entry_of
from barco.workers.storage.stores.retention import HOUR_US, Candidate, Policy, held_back, plan

# --- Layout -------------------------------------------------------------------------------------


def test_paths(shard):
    path = layout.segment_path(shard, 7, 3)
    assert path == shard / "gen-0000000007" / "seg-00000003.log"
    assert layout.sidecar_path(path).name == "seg-00000003.idx"
    assert layout.generation_epochs(shard) == [] and layout.segment_indexes(shard, 7) == []


def test_direct_io_is_proven_and_space_told(root):
    space = layout.check_data_dir(root)
    assert 0 < space.free <= space.total
    assert not list(root.iterdir())
    assert layout.DiskSpace(4 << 30, 100 << 30).nearly_full
    assert not layout.DiskSpace(6 << 30, 100 << 30).nearly_full


def test_no_direct_io(root, monkeypatch):
    real = os.open

    def refuse(path, flags, *rest):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataDirError, match="ext4 or XFS"):
        layout.check_data_dir(root)


# --- Buffers and bulk I/O -----------------------------------------------------------------------


def test_buffers_come_back_with_their_last_view():
    pool = BufferPool(1 << 20)
    view = pool.try_take(1_000_000)
    assert len(view) == 1 << 20 and pool.bytes_out == 1 << 20
    assert pool.try_take(1) is None
    part = view[100:200]
    del view
    gc.collect()
    assert pool.bytes_out == 1 << 20
    del part
    assert pool.bytes_out == 0
    assert pool.try_take(10) is not None


def test_buffers_are_waited_for_and_then_refused(monkeypatch):
    monkeypatch.setattr("barco.workers.storage.files.buffers.POOL_WAIT_SECONDS", 0.2)

    async def main():
        pool = BufferPool(1 << 20)
        held = [pool.try_take(1 << 20)]
        asyncio.get_running_loop().call_later(0.05, held.clear)
        view = await pool.take(1 << 19)
        assert pool.bytes_out == 1 << 19
        with pytest.raises(BusyError):
            await pool.take(1 << 20)
        del view
        assert (await pool.take(1 << 20)) is not None

    asyncio.run(main())


def written_chunks(path, count=300):
    """A file of chunks with gaps, and its index: (bytes of each, entries)."""
    rng, at, base = random.Random(6), 0, 0
    chunks, entries, data = [], [], bytearray()
    for _ in range(count):
        chunk = builder.chunk("a", 0, base, count=rng.randrange(1, 90))
        events = _native.chunk_info(chunk)["count"]
        data += bytes(at - len(data)) + chunk
        chunks.append(chunk)
        entries.append(entry_of(Location(at, len(chunk), base, events, 0)))
        base += events
        at += len(chunk) + rng.choice([0, 8, 4096, 70_000])
    path.write_bytes(data)
    return chunks, b"".join(entries)


async def held_are(bulk, size):
    """Until so many bytes of buffers are out: a thread lets go of them just after its answer."""
    async with asyncio.timeout(10):
        while bulk.buffers.bytes_out != size:
            await asyncio.sleep(0.001)


def test_chunks_are_read_together_as_buffers_allow(root, go, engine):
    chunks, entries = written_chunks(root / "file")

    async def test(bulk):
        fd = os.open(root / "file", os.O_RDONLY | os.O_DIRECT)
        groups = _native.entries_plan(entries, 1 << 30, 1 << 18)
        assert len(groups) > 1 and sum(group[1] for group in groups) == len(chunks)
        found = await bulk.read_chunks(fd, entries, groups, ("a", 0, -1))
        assert b"".join(each.chunks for each in found) == b"".join(chunks)
        assert [each.group for each in found] == groups
        await held_are(bulk, sum(each.held for each in found))
        del found
        wanted = ("a", 0, _native.COLUMNS["key"])
        keys = await bulk.read_chunks(fd, entries, groups[:1], wanted)
        some = chunks[: groups[0][1]]
        assert keys[0].chunks == _native.chunks_project(b"".join(some), _native.COLUMNS["key"])
        del keys
        await held_are(bulk, 0)
        bulk.buffers.bytes_max = 200_000  # Less than a group takes.
        kept = bulk.buffers.try_take(1)
        (few,) = await bulk.read_chunks(fd, entries, groups, ("a", 0, -1))
        assert few.chunks == chunks[0] and few.good == few.group[1] == 1
        await held_are(bulk, 2 << 16)
        rest = bulk.buffers.try_take(1)
        assert rest is not None
        with pytest.raises(BusyError):
            await bulk.read_chunks(fd, entries, groups, ("a", 0, -1), wait=False)
        del few, kept, rest
        bulk.buffers.bytes_max = 1 << 24
        (bad,) = await bulk.read_chunks(fd, entries, groups, ("a", 1, -1))
        assert bad.good == 0 and bad.group == groups[0]  # Nothing is read beyond it.
        os.close(fd)
        with pytest.raises(OSError, match="Bad file"):
            await bulk.read_chunks(fd, entries, groups, ("a", 0, -1))

    go(test, engine)


def test_a_group_that_does_not_fit_is_read_in_part(root, go, engine, monkeypatch):
    chunks, entries = written_chunks(root / "file")
    monkeypatch.setattr("barco.workers.storage.files.bulk.UNIT_BYTES", 1 << 16)

    async def test(bulk):
        fd = os.open(root / "file", os.O_RDONLY | os.O_DIRECT)
        groups = _native.entries_plan(entries, 1 << 30, 1 << 18)
        bulk.buffers.bytes_max = 280_000
        kept = bulk.buffers.try_take(1)  # Beside it three parts of a group.
        found = await bulk.read_chunks(fd, entries, groups, ("a", 0, -1))
        count = sum(each.group[1] for each in found)
        assert kept is not None and len(found) == 3 and 3 < count < groups[0][1]
        assert b"".join(each.chunks for each in found) == b"".join(chunks[:count])
        os.close(fd)

    go(test, engine)


def test_chunks_are_planned_up_to_a_bound_or_a_hole(root):
    chunks, entries = written_chunks(root / "file", 20)
    size = sum(map(len, chunks[:7]))
    assert sum(group[1] for group in _native.entries_plan(entries, size, 1 << 14)) == 7
    assert _native.entries_plan(entries, 1, 1)[0][:2] == (0, 1)
    hole = entries[:160] + entries[192:]
    assert sum(group[1] for group in _native.entries_plan(hole, 1 << 30, 1 << 30)) == 5
    with pytest.raises(ValueError, match="32 bytes"):
        _native.entries_plan(entries[:-1], 1, 1)
    for places in ([(0, 20, memoryview(bytearray(4096)))], [(3, 18, memoryview(bytearray(1)))]):
        with pytest.raises(ValueError, match="too small|so many"):
            _native.disk_chunks(0, entries, places, "a", 0, -1)


def test_chunks_within_bounds():
    chunks = [builder.chunk("a", 0, 100 + 3 * number) for number in range(4)]
    info = _native.chunk_info(chunks[0])
    whole, size, raw = b"".join(chunks), len(chunks[0]), info["raw_bytes"]
    most = 1 << 40
    assert _native.chunks_fit(whole, most, most, most, False) == (4 * size, 4 * raw, 112)
    assert _native.chunks_fit(whole, 3 * size - 1, most, most, False) == (2 * size, 2 * raw, 106)
    assert _native.chunks_fit(whole, most, 2 * raw - 1, most, False) == (size, raw, 103)
    assert _native.chunks_fit(whole, most, most, 107, False) == (3 * size, 3 * raw, 109)
    assert _native.chunks_fit(whole, 0, 0, 0, False) == (0, 0, 0)
    assert _native.chunks_fit(whole, 0, 0, 0, True) == (size, raw, 103)
    cut = _native.chunks_project(whole, _native.COLUMNS["key"])
    found = _native.chunks_fit(cut, most, most, 106, False, _native.COLUMNS["key"])
    assert found == (len(cut) // 2, 2 * raw, 106)
    with pytest.raises(ValueError, match="damaged"):
        _native.chunks_fit(whole[: size + 20], most, most, most, False)


def test_bulk_reads_and_writes(root, go, engine):
    data = random.Random(3).randbytes(5_000_000)
    size = len(data) // 4096 * 4096

    async def test(bulk):
        fd = os.open(root / "file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        view = bulk.buffers.try_take(size)
        view[:size] = data[:size]
        await bulk.write(fd, 0, view[:size])
        await bulk.sync(fd)
        del view
        for offset, length in [(0, 1), (1, 4095), (4097, 3_000_000), (size - 10, 10)]:
            assert bytes(await bulk.read(fd, offset, length)) == data[offset : offset + length]
        assert bytes(await bulk.read(fd, size - 10, 100)) == data[size - 10 : size]
        assert bytes(await bulk.read(fd, size + 4096, 100)) == b""
        many = await asyncio.gather(*(bulk.read(fd, n * 4096, 4096) for n in range(200)))
        assert [bytes(part) for part in many] == [data[n * 4096 :][:4096] for n in range(200)]
        del many
        await bulk.zero(fd, 4096, 2 << 20)
        whole = bytes(await bulk.read(fd, 0, size))
        assert whole == data[:4096] + bytes(2 << 20) + data[4096 + (2 << 20) : size]
        os.close(fd)
        with pytest.raises(OSError, match="Bad file"):
            await bulk.read(fd, 0, 4096)
        gc.collect()  # The error's traceback holds a view, in a cycle.
        assert bulk.buffers.bytes_out == 0

    go(test, engine)


def test_cancelled_reads_keep_their_memory(root, go, engine):
    (root / "file").write_bytes(bytes(8 << 20))

    async def test(bulk):
        fd = os.open(root / "file", os.O_RDONLY | os.O_DIRECT)
        for _ in range(20):
            task = asyncio.ensure_future(bulk.read(fd, 0, 4 << 20))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert len(await bulk.read(fd, 0, 4096)) == 4096
        os.close(fd)

    go(test, engine)


def test_the_fallback(monkeypatch):
    monkeypatch.setattr("barco.workers.storage.files.bulk.pyuring", None)
    bulk = open_bulk()
    assert bulk.engine == "threads"
    bulk.close()


# --- Segments -------------------------------------------------------------------------------------


def test_segments_are_whole_before_they_have_a_name(shard, go, engine):
    async def test(bulk):
        errors = []
        pool = SegmentPool(shard, 4 << 20, bulk, first_bytes=1 << 20, on_error=errors.append)
        for index in range(3):
            fd, capacity = await pool.prepare(2, index)
            assert capacity == (4 << 20 if index else 1 << 20)
            path = layout.segment_path(shard, 2, index)
            assert path.read_bytes() == bytes(capacity)
            assert os.fstat(fd).st_blocks * 512 >= capacity
            flags = os.O_DIRECT | os.O_DSYNC
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & flags == flags
            os.close(fd)
        await pool._spare_done()
        await pool.close()
        assert not errors
        again = SegmentPool(shard, 4 << 20, bulk, first_bytes=1 << 20)
        fd, capacity = await again.prepare(3, 0)  # The spare of the last start.
        assert capacity == 4 << 20
        os.close(fd)
        await again.close()

    go(test, engine)


def test_a_segment_is_never_replaced(shard, go):
    async def test(bulk):
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096)
        path = layout.segment_path(shard, 2, 0)
        path.parent.mkdir()
        path.write_bytes(b"precious")
        with pytest.raises(Exception, match="exists"):
            await pool.prepare(2, 0)
        assert path.read_bytes() == b"precious"
        await pool.close()

    go(test)


@pytest.mark.parametrize("failing", ["fallocate", "space"])
def test_a_full_disk(shard, go, monkeypatch, failing):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    async def test(bulk):
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096)
        if failing == "fallocate":
            monkeypatch.setattr(os, "posix_fallocate", full)
        else:
            monkeypatch.setattr(layout, "disk_space", lambda _: layout.DiskSpace(1 << 20, 1 << 30))
        with pytest.raises(DiskFullError, match="retention"):
            await pool.prepare(2, 0)
        assert not list(shard.glob("*.tmp")) and not list(shard.glob("gen-*/*"))
        monkeypatch.undo()
        fd, _ = await pool.prepare(2, 0)  # Somebody has freed some.
        os.close(fd)
        await pool.close()

    go(test)


def test_a_spare_that_fails_is_told_and_tried_again(shard, go, monkeypatch):
    async def test(bulk):
        errors = []
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096, on_error=errors.append)
        real = segment._allocate

        def refuse(path, size):
            if path.name.startswith("spare"):
                raise OSError(errno.EIO, "broken")
            real(path, size)

        monkeypatch.setattr(segment, "_allocate", refuse)
        fd, _ = await pool.prepare(2, 0)
        os.close(fd)
        fd, capacity = await pool.prepare(2, 1)  # Without a spare it takes longer, that is all.
        assert capacity == 1 << 20 and "EIO" in str(errors[0])
        os.close(fd)
        await pool.close()

    go(test)


def test_segments_of_two_generations_at_once(shard, go, engine):
    async def test(bulk):
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=4096)
        made = await asyncio.gather(*(pool.prepare(epoch, 0) for epoch in (2, 3, 4)))
        for fd, _ in made:
            os.close(fd)
        assert layout.generation_epochs(shard) == [2, 3, 4]
        await pool.close()

    go(test, engine)


def test_closing_while_a_spare_is_made(shard, go, engine):
    async def test(bulk):
        pool = SegmentPool(shard, 64 << 20, bulk, first_bytes=4096)
        fd, _ = await pool.prepare(2, 0)
        os.close(fd)
        await asyncio.sleep(0.005)
        await pool.close()

    go(test, engine)


# --- Retention ------------------------------------------------------------------------------------

NOW = 1_000 * HOUR_US


def candidates(*ages, size=100, entries=5, open_from=99, continued=99):
    return [
        Candidate(
            SegmentKey(2 + n, 0),
            size,
            NOW - age * HOUR_US,
            entries,
            n < open_from,
            n < min(open_from, continued),
        )
        for n, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    ("ages", "policy", "doomed"),
    [
        ((9, 8, 7, 1), Policy(0, 0), 0),
        ((9, 8, 7, 1), Policy(7, 0), 2),
        ((9, 8, 7, 1), Policy(1, 0), 3),
        ((9, 9, 9, 9), Policy(1, 0), 3),  # The newest stays, whatever its age.
        ((1, 9, 9, 1), Policy(5, 0), 0),  # A clock that went back: never a gap.
        ((3, 2, 1, 0), Policy(0, 400), 0),
        ((3, 2, 1, 0), Policy(0, 399), 1),
        ((3, 2, 1, 0), Policy(0, 1), 3),
        ((9, 8, 1, 0), Policy(7, 150), 3),
        ((), Policy(1, 1), 0),
        ((9,), Policy(1, 1), 0),
    ],
)
def test_retention_plan(ages, policy, doomed):
    assert plan(candidates(*ages), policy, NOW) == [SegmentKey(2 + n, 0) for n in range(doomed)]


def test_retention_leaves_an_undecided_generation():
    old = candidates(9, 9, 9, 9, open_from=2)
    assert len(plan(old, Policy(1, 1), NOW)) == 2
    assert len(plan(old, Policy(1, 1, sole_member=True), NOW)) == 3


def test_retention_leaves_what_a_child_may_need():
    """Its members may be others, who ask for the state at the end (rule S8)."""
    old = candidates(9, 9, 9, 9, continued=2)
    assert len(plan(old, Policy(1, 1), NOW)) == 2
    assert plan(candidates(9, 9, 9, entries=0, continued=0), Policy(1, 1), NOW) == []
    assert not held_back(old, Policy(1, 1), NOW), "to end the open one would not help"


def test_an_open_generation_ends_when_it_holds_enough_back():
    """A sixteenth of all: not for every segment, and not never."""
    old = candidates(9, *[1] * 15, open_from=0)
    assert plan(old, Policy(5, 0), NOW) == [] and held_back(old, Policy(5, 0), NOW)
    assert not held_back(candidates(9, *[1] * 16, open_from=0), Policy(5, 0), NOW)
    assert not held_back(candidates(9, *[1] * 15), Policy(5, 0), NOW), "it has ended"
    assert not held_back(candidates(*[1] * 16, open_from=0), Policy(5, 0), NOW), "nothing is due"
    assert held_back(candidates(*[1] * 16, open_from=0), Policy(0, 1500), NOW)


def test_retention_of_generations_without_events():
    """A broker that restarts all day leaves no thousands of empty generations behind."""
    assert len(plan(candidates(1, 1, 1, entries=0), Policy(100, 0), NOW)) == 2


def test_retention_with_an_unknown_age():
    unknown = [Candidate(SegmentKey(2 + n, 0), 100, 0, 5, True, True) for n in range(3)]
    assert plan(unknown, Policy(1, 0), NOW) == []
    assert len(plan(unknown, Policy(1, 150), NOW)) == 2
