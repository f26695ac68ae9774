"""The start of a shard on real files: interrupted, repeated, refused, and after a loss."""

import errno
import os
import time
from pathlib import Path

import builder
import msgpack
import pytest

from barco.errors import DataDirError, OperatorError
from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import CorruptLogError
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.segment import SegmentPool
from barco.workers.storage.files.twofold import SECTOR_BYTES, make_frame
from barco.workers.storage.stores import recovery

CAPACITY = 64 * 1024
IDENTITY = {"cluster_uuid": builder.UUID, "token": builder.TOKEN}


class State:
    """What a core would have rebuilt: the last snapshot and the groups after it."""

    def __init__(self):
        self.snapshot, self.groups = b"", []

    def restore(self, snapshot):
        self.snapshot, self.groups = bytes(snapshot), []

    def apply(self, group):
        self.groups.append(bytes(group))


def recover(shard, go, engine="threads"):
    """Runs a recovery: (report, state)."""
    state = State()

    async def test(bulk):
        return await recovery.recover_shard(
            shard, bulk=bulk, restore=state.restore, apply_group=state.apply, **IDENTITY
        )

    return go(test, engine), state


def test_a_new_shard(shard, go):
    report, state = recover(shard, go)
    assert (report.stop, report.T, report.next_epoch) == ("new", 0, 2)
    assert report.parents == [(1, 0)] and state.snapshot == b""
    assert recovery.pack_parents(report.parents) == bytes([1] + [0] * 15)
    assert recovery.open_next(report, 77) == 2
    again = Lineage.load(shard)
    assert again.next_epoch == 3 and again.get(2).session == 77


def test_state_tail_and_seal(shard, go, engine):
    log = builder.simple(5, segments=3)
    log.write(shard, CAPACITY, spare=2)
    report, state = recover(shard, go, engine)
    assert (report.epoch, report.T, report.stop, report.next_epoch) == (2, 18, "end", 3)
    assert report.groups == 18 and report.torn_bytes == 0 and report.parents == [(2, 18)]
    assert state.snapshot == b"state before group 13" and len(state.groups) == 5
    _, start, size = log.groups[-1]
    assert state.groups[-1] == bytes(log.segments[2][start : start + size])
    # Preallocated zeros are given back, unused segments are gone.
    assert layout.segment_indexes(shard, 2) == [0, 1, 2]
    assert layout.segment_path(shard, 2, 2).stat().st_size == len(log.segments[2])
    assert Lineage.load(shard).get(2).tail == 18


def test_repeated_and_interrupted(shard, go):
    """Killed after any step: the next recovery comes to the same end."""
    builder.simple(5, segments=2).write(shard, CAPACITY, spare=1)
    first, state = recover(shard, go)
    for _ in range(3):  # As if the worker died before it opened a generation.
        again, repeated = recover(shard, go)
        assert (again.epoch, again.T, again.next_epoch) == (first.epoch, first.T, 3)
        assert again.stop == "sealed" and repeated.groups == state.groups
    for step in ("opened", "directory", "segment", "torn"):
        epoch = recovery.open_next(again, 1000)
        if step != "opened":
            layout.generation_path(shard, epoch).mkdir()
        if step == "segment":
            layout.segment_path(shard, epoch, 0).write_bytes(bytes(CAPACITY))
        if step == "torn":  # The first group did not make it to the disk as a whole.
            piece, _ = builder.group(1, 0, b"state", epoch=epoch, flags=3, session=1000)
            torn = bytes(512) + piece[:512]
            layout.segment_path(shard, epoch, 0).write_bytes(torn.ljust(CAPACITY, b"\0"))
        again, repeated = recover(shard, go)
        assert (again.epoch, again.T, again.next_epoch) == (2, 12, epoch + 1), step
        assert repeated.groups == state.groups
        assert again.empty_epochs[0] == epoch
        assert layout.generation_path(shard, epoch).exists() == (step == "torn")


def test_sealed_but_not_trimmed(shard, go):
    """Killed between the seal and giving back the space."""
    paths = builder.simple(5).write(shard, CAPACITY, spare=1)
    lineage = Lineage.load(shard)
    lineage.sealed(2, 6, 0, 6 * 4096)
    report, _ = recover(shard, go)
    assert report.stop == "sealed" and paths[0].stat().st_size == 6 * 4096
    assert not paths[1].exists()


def test_corruption_refuses_and_loss_is_recorded(shard, go):
    log = builder.simple(8, segments=2)
    paths = log.write(shard, CAPACITY)
    _, start, _ = log.groups[11]
    data = bytearray(paths[1].read_bytes())
    data[start + 200] ^= 1
    paths[1].write_bytes(data)
    for _ in range(2):  # It does not get better by starting again.
        with pytest.raises(CorruptLogError) as caught:
            recover(shard, go)
        assert str(paths[1]) in str(caught.value) and "--accept-data-loss" in str(caught.value)
        assert Lineage.load(shard).get(2).tail is None

    async def accept(bulk):
        return await recovery.recover_accepting_loss(shard, bulk=bulk, **IDENTITY)

    report = go(accept)
    assert report.lost == (12, 18) and report.T == 11 and report.stop == "lost"
    generation = Lineage.load(shard).get(2)
    assert generation.lost == (12, 18) and generation.tail == 11
    assert paths[1].read_bytes()[: len(data)].rstrip(b"\0") == bytes(data).rstrip(b"\0")
    report, state = recover(shard, go)
    assert (report.T, report.stop) == (11, "sealed") and len(state.groups) == 1


def test_loss_of_a_sealed_generation(shard, go):
    """Damage that came after the seal: T is agreed, and cannot be reached any more."""
    log = builder.simple(8)
    (path,) = log.write(shard, CAPACITY)
    recover(shard, go)
    data = bytearray(path.read_bytes())
    data[log.groups[8][1] + 130] ^= 1  # The last group: before the seal it would be torn.
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        recover(shard, go)

    async def accept(bulk):
        return await recovery.recover_accepting_loss(shard, bulk=bulk, **IDENTITY)

    assert go(accept).lost == (9, 9)
    assert recover(shard, go)[0].T == 8


def test_a_vanished_generation(shard, go):
    (path,) = builder.simple(3).write(shard, CAPACITY)
    recover(shard, go)
    path.unlink()
    with pytest.raises(CorruptLogError, match="missing"):
        recover(shard, go)


def test_segments_without_a_snapshot_are_refused(shard, go):
    log = builder.Log()
    log.segments.append(bytearray())
    log.events(("a", 0))
    log.events(("a", 0))
    log.write(shard, CAPACITY)
    with pytest.raises(CorruptLogError, match="snapshot"):
        recover(shard, go)


def test_foreign_files_are_left_alone(shard, go):
    builder.simple(3).write(shard, CAPACITY)
    directory = layout.generation_path(shard, 2)
    names = ["notes.txt", "seg-1.log", "seg-00000001.log.bak", "seg-xxxxxxxx.log"]
    for name in names:
        (directory / name).write_text("mine")
    (directory / "seg-00000005.log").mkdir()
    (shard / "gen-abc").mkdir()
    (shard / "gen-0000000099.old").write_text("mine")
    report, _ = recover(shard, go)
    assert report.T == 4 and report.next_epoch == 3
    assert all((directory / name).read_text() == "mine" for name in names)


def test_temporaries_and_trash_are_cleared(shard, go):
    (shard / "spare.tmp").write_bytes(bytes(4096))
    (shard / "first.tmp").write_bytes(bytes(4096))
    (shard / layout.TRASH_NAME).mkdir()
    (shard / layout.TRASH_NAME / "gen-0000000002-seg-00000000.log").write_bytes(b"old")
    report, _ = recover(shard, go)
    assert report.temporaries == 2
    names = [layout.LINEAGE_COPY_NAME, layout.LINEAGE_NAME, layout.LINEAGE_ROOM_NAME]
    assert sorted(path.name for path in shard.iterdir()) == [*names, layout.TRASH_NAME]
    assert not list((shard / layout.TRASH_NAME).iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything: run as a user")
def test_wrong_permissions(shard, go):
    (path,) = builder.simple(3).write(shard, CAPACITY)
    path.chmod(0)
    with pytest.raises(DataDirError, match="broker's user"):
        recover(shard, go)


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
        recover(shard, go)
    assert "seg-00000000.log" in str(caught.value)
    monkeypatch.undo()
    assert recover(shard, go)[0].T == 4  # Nothing was decided by the failure.


def test_no_space_for_the_seal(shard, go, monkeypatch):
    builder.simple(3).write(shard, CAPACITY)

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Exception, match="no space is left"):
        recover(shard, go)
    monkeypatch.undo()
    assert len(layout.segment_indexes(shard, 2)) == 1  # A full disk deletes nothing.
    assert recover(shard, go)[0].T == 4


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
    report, _ = recover(shard, go)
    assert time.process_time() - began < 0.5 * 4  # Four times, for a busy machine.
    assert (report.epoch, report.T, report.next_epoch) == (count + 1, 1, count + 2)


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
        report, _ = recover(shard, go)
        assert report.T == 0, name

        async def next_start(bulk, epoch=report.next_epoch):
            pool = SegmentPool(shard, 1 << 20, bulk, first_bytes=64 * 1024)
            fd, capacity = await pool.prepare(epoch, 0)
            assert layout.segment_path(shard, epoch, 0).read_bytes() == bytes(capacity)
            os.close(fd)
            await pool._spare_done()
            await pool.close()

        go(next_start)
        assert not Path(shard / "spare.tmp").exists()


@pytest.mark.parametrize("frames", [(1,), (2,), (1, 2)])
def test_a_damaged_record_hides_no_generation(shard, go, frames):
    """The seal of an older generation, its child's record, or both: T is found all the same."""
    builder.simple(5, segments=2).write(shard, CAPACITY)
    report, _ = recover(shard, go)
    assert recovery.open_next(report, builder.SESSION) == 3
    builder.simple(3, epoch=3).write(shard, CAPACITY)
    for name in (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME):
        data = bytearray((shard / name).read_bytes())
        for frame in frames:  # The seal is the one before the last.
            data[len(data) - SECTOR_BYTES * (3 - frame) + 40] ^= 4
        (shard / name).write_bytes(data)
    again, _ = recover(shard, go)
    assert (again.epoch, again.T, again.next_epoch) == (3, 4, 4)
    assert Lineage.load(shard).get(2).tail == report.T == 12
