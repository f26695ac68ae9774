"""The start of a single member on real files: interrupted, repeated, refused, after a loss."""

import asyncio
import errno
import os
import time
from pathlib import Path

import builder
import msgpack
import pytest
from single import Life, start

from barco.errors import DataDirError, OperatorError
from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import CorruptLogError
from barco.workers.storage.files.frames import SECTOR_BYTES, make_frame
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.segment import SegmentPool
from barco.workers.storage.stores import recovery

CAPACITY = 64 * 1024
IDENTITY = {"cluster_uuid": builder.UUID, "token": builder.TOKEN}


def test_a_new_shard(shard, go):
    life = start(shard, go, session=77)
    assert life.parent == (1, 0) and life.epoch == 2 and life.core.snapshot == b""
    assert life.core.opened == recovery.pack_parents([(1, 0)]) == bytes([1] + [0] * 15)
    again = Lineage.load(shard)
    assert [g.epoch for g in again.generations()] == [2] and again.get(2).session == 77


def test_state_tail_and_seal(shard, go, engine):
    log = builder.simple(5, segments=3)
    log.write(shard, CAPACITY, spare=2)
    life = start(shard, go, engine)
    assert life.parent == (2, 18) and life.epoch == 3
    assert life.core.opened == recovery.pack_parents([(2, 18)])
    assert life.store.walked_groups == 18
    assert life.core.snapshot == b"state before group 13" and len(life.core.groups) == 5
    _, begin, size = log.groups[-1]
    assert life.core.groups[-1] == bytes(log.segments[2][begin : begin + size])
    # Preallocated zeros are given back, unused segments are gone.
    assert layout.segment_indexes(shard, 2) == [0, 1, 2]
    assert layout.segment_path(shard, 2, 2).stat().st_size == len(log.segments[2])
    assert Lineage.load(shard).get(2).tail == 18


def test_repeated_and_interrupted(shard, go):
    """Killed after any step: the next start comes to the same end."""
    builder.simple(5, segments=2).write(shard, CAPACITY, spare=1)

    async def looked(bulk):  # As if the worker died before anything was decided.
        life = Life(shard, bulk)
        await life.recover()
        await life.close()
        return life

    first = go(looked)
    for _ in range(3):
        again = go(looked)
        assert again.found == first.found and again.core.groups == first.core.groups
    for step in ("decided", "directory", "segment", "torn"):
        epoch = start(shard, go).epoch
        directory = layout.generation_path(shard, epoch)
        path = layout.segment_path(shard, epoch, 0)
        path.unlink()
        if step == "decided":
            directory.rmdir()
        if step == "segment":
            path.write_bytes(bytes(CAPACITY))
        if step == "torn":  # The first group did not make it to the disk as a whole.
            session = Lineage.load(shard).get(epoch).session
            piece, _ = builder.group(1, 0, b"state", epoch=epoch, flags=3, session=session)
            torn = bytes(512) + piece[:512]
            path.write_bytes(torn.ljust(CAPACITY, b"\0"))
        life = start(shard, go)
        assert life.parent == (2, 12) and life.epoch == epoch + 1, step
        assert life.core.groups == first.core.groups
        assert layout.segment_indexes(shard, epoch) == []


def test_decided_but_not_sealed(shard, go, monkeypatch):
    """Killed between the decision and its seal: the end is known, and what lacks is damage."""
    log = builder.simple(5)
    (path,) = log.write(shard, CAPACITY, spare=0)

    async def killed(bulk):
        life = Life(shard, bulk)
        await life.recover()
        monkeypatch.setattr(life.store, "seal", lambda *_: asyncio.sleep(3600))
        task = asyncio.create_task(life.lead())
        while b"opened" not in (shard / layout.LINEAGE_NAME).read_bytes():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await life.close()

    go(killed)
    generation = Lineage.load(shard).get(2)
    assert (generation.tail, generation.end_bytes) == (6, 0), "the seal itself is not there"
    whole = path.read_bytes()
    torn = log.groups[-1][1]
    path.write_bytes(whole[:torn] + bytes(len(whole) - torn))
    with pytest.raises(CorruptLogError, match="--accept-data-loss"):
        start(shard, go)
    path.write_bytes(whole)
    life = start(shard, go)
    assert life.parent == (2, 6) and life.epoch == 4 and len(life.core.groups) == 5


def test_sealed_but_not_trimmed(shard, go):
    """Killed between the seal and giving back the space."""
    paths = builder.simple(5).write(shard, CAPACITY, spare=1)
    lineage = Lineage.load(shard)
    lineage.sealed(2, 6, 0, 6 * 4096)

    async def test(bulk):
        life = await Life(shard, bulk).recover()
        await life.store._indexing
        assert paths[0].stat().st_size == 6 * 4096 and not paths[1].exists()
        await life.close()

    go(test)


def test_corruption_refuses_and_loss_is_recorded(shard, go):
    log = builder.simple(8, segments=2)
    paths = log.write(shard, CAPACITY)
    _, begin, _ = log.groups[11]
    data = bytearray(paths[1].read_bytes())
    data[begin + 200] ^= 1
    paths[1].write_bytes(data)
    for _ in range(2):  # It does not get better by starting again.
        with pytest.raises(CorruptLogError) as caught:
            start(shard, go)
        assert str(paths[1]) in str(caught.value) and "--accept-data-loss" in str(caught.value)
        assert Lineage.load(shard).get(2).tail is None

    async def accept(bulk):
        return await recovery.recover_accepting_loss(shard, bulk=bulk, **IDENTITY)

    report = go(accept)
    assert report.lost == (12, 18) and report.T == 11 and report.stop == "lost"
    generation = Lineage.load(shard).get(2)
    assert generation.lost == (12, 18) and generation.tail == 11
    assert paths[1].read_bytes()[: len(data)].rstrip(b"\0") == bytes(data).rstrip(b"\0")
    life = start(shard, go)
    assert life.parent == (2, 11) and life.epoch == 3 and len(life.core.groups) == 1
    assert start(shard, go).parent == (2, 11)


def test_loss_of_a_sealed_generation(shard, go):
    """Damage that came after the seal: T is agreed, and cannot be reached any more."""
    log = builder.simple(8)
    (path,) = log.write(shard, CAPACITY)
    assert start(shard, go).epoch == 3
    data = bytearray(path.read_bytes())
    data[log.groups[8][1] + 130] ^= 1  # The last group: before the seal it would be torn.
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        start(shard, go)

    async def accept(bulk):
        return await recovery.recover_accepting_loss(shard, bulk=bulk, **IDENTITY)

    assert go(accept).lost == (9, 9)
    for epoch in (4, 5):
        life = start(shard, go)
        assert life.parent == (2, 8) and life.core.opened == recovery.pack_parents([(epoch - 1, 0)])
        assert life.epoch == epoch and len(life.core.groups) == 7


def test_a_vanished_generation(shard, go):
    (path,) = builder.simple(3).write(shard, CAPACITY)
    start(shard, go)
    path.unlink()
    with pytest.raises(CorruptLogError, match="missing"):
        start(shard, go)


def test_segments_without_a_snapshot_are_refused(shard, go):
    log = builder.Log()
    log.segments.append(bytearray())
    log.events(("a", 0))
    log.events(("a", 0))
    log.write(shard, CAPACITY)
    with pytest.raises(CorruptLogError, match="snapshot"):
        start(shard, go)


def test_foreign_files_are_left_alone(shard, go):
    builder.simple(3).write(shard, CAPACITY)
    directory = layout.generation_path(shard, 2)
    names = ["notes.txt", "seg-1.log", "seg-00000001.log.bak", "seg-xxxxxxxx.log"]
    for name in names:
        (directory / name).write_text("mine")
    (directory / "seg-00000005.log").mkdir()
    (shard / "gen-abc").mkdir()
    (shard / "gen-0000000099.old").write_text("mine")
    life = start(shard, go)
    assert life.parent == (2, 4) and life.epoch == 3
    assert all((directory / name).read_text() == "mine" for name in names)


def test_temporaries_and_trash_are_cleared(shard, go):
    (shard / "spare.tmp").write_bytes(bytes(4096))
    (shard / "first.tmp").write_bytes(bytes(4096))
    (shard / layout.TRASH_NAME).mkdir()
    (shard / layout.TRASH_NAME / "gen-0000000002-seg-00000000.log").write_bytes(b"old")

    async def test(bulk):
        life = await Life(shard, bulk).recover()
        names = [layout.LINEAGE_COPY_NAME, layout.LINEAGE_NAME, layout.LINEAGE_ROOM_NAME]
        assert sorted(path.name for path in shard.iterdir()) == [*names, layout.TRASH_NAME]
        assert not list((shard / layout.TRASH_NAME).iterdir())
        await life.close()

    go(test)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything: run as a user")
def test_wrong_permissions(shard, go):
    (path,) = builder.simple(3).write(shard, CAPACITY)
    path.chmod(0)
    with pytest.raises(DataDirError, match="broker's user"):
        start(shard, go)


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EACCES, DataDirError, "broker's user"),
        (errno.EROFS, DataDirError, "read-only"),
        (errno.EMFILE, OperatorError, "ulimit -n"),
        (errno.EIO, Exception, "EIO"),
    ],
)
def test_errors_of_the_kernel_are_explained(shard, go, monkeypatch, number, kind, words):
    builder.simple(3).write(shard, CAPACITY)
    real = os.open

    def failing(path, flags, *rest, **names):
        if str(path).endswith(".log") and "seg-" in str(path):
            raise OSError(number, os.strerror(number))
        return real(path, flags, *rest, **names)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(kind, match=words) as caught:
        start(shard, go)
    assert "seg-00000000.log" in str(caught.value)
    monkeypatch.undo()
    assert start(shard, go).parent == (2, 4)  # Nothing was decided by the failure.


def test_no_space_for_the_seal(shard, go, monkeypatch):
    builder.simple(3).write(shard, CAPACITY)

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Exception, match="no space is left"):
        start(shard, go)
    monkeypatch.undo()
    assert len(layout.segment_indexes(shard, 2)) == 1  # A full disk deletes nothing.
    assert start(shard, go).parent == (2, 4)


def test_many_generations_start_quickly(shard, go):
    """1,000 restarts: a tenth of what has to start in five seconds."""
    count = 1000
    records = []
    for epoch in range(2, 2 + count):
        path = layout.segment_path(shard, epoch, 0)
        path.parent.mkdir()
        path.write_bytes(builder.group(1, 0, b"state", epoch=epoch, flags=3)[0])
        records.append({"t": "opened", "e": epoch, "s": builder.SESSION, "p": [[epoch - 1, 1]]})
        if epoch < 1 + count:
            records.append({"t": "sealed", "e": epoch, "T": 1, "i": 0, "b": 4096})
    frames = [make_frame(1, 1, 0, b"")]
    for record in records:
        body = msgpack.packb([record])
        frames.append(make_frame(1, len(frames) + 1, frames[-1].crc, body))
    for name in (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME):
        (shard / name).write_bytes(b"".join(frame.data for frame in frames))
    began = time.process_time()
    life = start(shard, go)
    assert time.process_time() - began < 0.5 * 4  # Four times, for a busy machine.
    assert life.parent == (count + 1, 1) and life.epoch == count + 2
    began = time.process_time()
    assert start(shard, go).epoch == count + 3  # By its own records, this time.
    assert time.process_time() - began < 0.5 * 4


def test_killed_at_every_step_of_making_a_segment(shard, go):
    """Each step leaves something that the next start uses or removes."""

    async def fresh(bulk):
        pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=64 * 1024)
        fd, capacity = await pool.prepare(2, 0)
        os.close(fd)
        await pool._spare_done()
        await pool.close()
        return capacity

    assert go(fresh) == 64 * 1024
    assert (shard / layout.SPARE_NAME).stat().st_size == 1 << 20

    def renamed():
        target = layout.segment_path(shard, 50, 0)
        target.parent.mkdir()
        os.rename(shard / layout.SPARE_NAME, target)

    states = {
        "unwritten temporary": lambda: (shard / "spare.tmp").write_bytes(b""),
        "half-written temporary": lambda: (shard / "spare.tmp").write_bytes(bytes(5000)),
        "renamed into place": renamed,
        "spare of another size": lambda: (shard / layout.SPARE_NAME).write_bytes(bytes(4096)),
    }
    for name, leave in states.items():
        leave()
        life = start(shard, go)
        assert life.parent == (1, 0), name
        data = layout.segment_path(shard, life.epoch, 0).read_bytes()
        assert data and not data.strip(b"\0")

        async def spare(bulk):
            pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=64 * 1024)
            await pool._make_spare()
            await pool.close()

        go(spare)
        assert not Path(shard / "spare.tmp").exists()


@pytest.mark.parametrize("frames", [range(1), range(2, 5), range(1, 9), range(99)])
def test_damaged_records_hide_no_generation(shard, go, frames):
    """Of an older generation, of its child, of what was decided, all: the end is found all the
    same, and what follows is one line."""
    builder.simple(5, segments=2).write(shard, CAPACITY)
    epoch = start(shard, go).epoch
    session = Lineage.load(shard).get(epoch).session
    builder.Log(epoch=epoch, session=session)
    child = builder.simple(3, epoch=epoch, session=session)
    child.write(shard, CAPACITY)
    for name in (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME):
        data = bytearray((shard / name).read_bytes())
        for frame in frames:
            if (at := len(data) - SECTOR_BYTES * (frame + 1) + 40) > 0:
                data[at] ^= 4
        (shard / name).write_bytes(data)
    for number in range(2):
        life = start(shard, go)
        assert life.parent == (epoch, 4) and life.epoch == epoch + 1 + number
        known = Lineage.load(shard)
        assert (known.get(2).tail, known.get(epoch).tail) == (12, 4)
        assert not life.driver.status()["suspect"] and not life.driver.status()["catchingUp"]
