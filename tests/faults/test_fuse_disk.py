"""Disks that hang or are slow below brokers of a ring, and the FUSE disk that makes them so."""

import contextlib
import ctypes
import errno
import mmap
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faultlab.baddisk import FENCED_S, SLOW_MS, bad_follower, fenced_after, latencies
from faultlab.fusedisk import FuseDisk
from faultlab.prober import percentile
from faultlab.ring import Ring

from barco.limits import PAGE_BYTES

BUSY = 2
"""Beside the whole suite this machine has something else to do as well."""

REQUESTS = 300
SHARES = (0.5, 0.99, 1.0)


@pytest.fixture(scope="module")
def ring(module_root: Path, module_disks: list[FuseDisk]) -> Iterator[Ring]:
    ring = Ring(module_root / "ring", disks=module_disks)  # type: ignore[arg-type]
    try:
        ring.start()
        ring.wait_whole()
        yield ring
    finally:
        for disk in module_disks:
            disk.clear()  # Who waits for it could not end.
        ring.close()


# --- The disk itself ---------------------------------------------------------------------------


@contextlib.contextmanager
def a_file(disk: FuseDisk, flags: int = 0) -> Iterator[int]:
    fd = os.open(disk.path / "a", os.O_RDWR | os.O_CREAT | flags)
    yield fd
    os.close(fd)


def test_the_disk_fails_as_it_is_told(fuse_disk: FuseDisk) -> None:
    disk = fuse_disk
    with a_file(disk) as fd:
        os.pwrite(fd, b"x" * 100, 0)
        disk.hurt("write", "/a", "eio", nth=2, times=1)
        disk.hurt("sync", "/a", "eio", times=1)
        os.pwrite(fd, b"x", 0)
        for fails in (lambda: os.pwrite(fd, b"x", 0), lambda: os.fsync(fd)):
            with pytest.raises(OSError) as failure:
                fails()
            assert failure.value.errno == errno.EIO
            fails()  # Once.
        disk.hurt("write", "/b*", "enospc")
        disk.hurt("write", "/a", "short", times=1)
        disk.hurt("write", "/a", "torn", times=1)
        assert os.pwrite(fd, b"s" * 100, 0) == 50
        with pytest.raises(OSError):
            os.pwrite(fd, b"t" * 20, 0)
        assert (disk.inside / "a").read_bytes() == b"t" * 10 + b"s" * 40 + b"x" * 50


def test_the_disk_loses_what_was_not_synced(fuse_disk: FuseDisk) -> None:
    disk = fuse_disk
    with a_file(disk) as fd:
        os.pwrite(fd, b"x" * 10, 0)
        disk.hurt("write", "/a", "lost")
        os.pwrite(fd, b"yyyy", 8)
        assert (disk.path / "a").read_bytes() == b"x" * 8 + b"yyyy"
        assert disk.cut() == 4 and (disk.inside / "a").read_bytes() == b"x" * 10
        os.pwrite(fd, b"yyyy", 8)
        os.fsync(fd)
        os.pwritev(fd, [b"z"], 0, os.RWF_DSYNC)
        assert disk.cut() == 0 and (disk.inside / "a").read_bytes() == b"z" + b"x" * 7 + b"yyyy"
        disk.hurt("sync", "/a", "eio", times=1)
        os.pwrite(fd, b"q", 0)
        with pytest.raises(OSError):
            os.fsync(fd)
        os.fsync(fd)  # As with the kernel's pages: it says yes, and that write is gone.
        assert (disk.inside / "a").read_bytes()[:1] == b"z"
        disk.clear()
        disk.hurt("write", "/a", "lie")
        disk.hurt("sync", "/a", "lie")
        os.pwritev(fd, [b"l"], 0, os.RWF_DSYNC)
        assert disk.cut() == 1 and (disk.inside / "a").read_bytes()[:1] == b"z"


def test_a_direct_write_whose_sync_fails_is_read_and_lost(fuse_disk: FuseDisk) -> None:
    """And the next one, which is stable, does not make it so."""
    disk, page = fuse_disk, memoryview(mmap.mmap(-1, PAGE_BYTES))
    with a_file(disk, os.O_DIRECT) as fd:
        page[:1] = b"q"
        disk.hurt("sync", "/a", "eio", times=1)
        with pytest.raises(OSError):
            os.pwritev(fd, [page], 0, os.RWF_DSYNC)
        os.pwritev(fd, [page], PAGE_BYTES, os.RWF_DSYNC)
        assert os.preadv(fd, [page], 0) == PAGE_BYTES and page[:1] == b"q"
        assert disk.cut() == PAGE_BYTES
        stored = (disk.inside / "a").read_bytes()
        assert stored[:1] == b"\0" and stored[PAGE_BYTES : PAGE_BYTES + 1] == b"q"


def test_the_disk_hangs_until_it_is_released(fuse_disk: FuseDisk) -> None:
    disk = fuse_disk
    with a_file(disk) as fd:
        rule = disk.hurt("write", "/a", "hang")
        thread = threading.Thread(target=os.pwrite, args=(fd, b"x", 0))
        thread.start()
        while not disk.count(rule):
            time.sleep(0.01)
        assert thread.is_alive() and not (disk.inside / "a").read_bytes()
        disk.clear()
        thread.join(10)
        assert not thread.is_alive() and (disk.inside / "a").read_bytes() == b"x"


def test_what_the_disk_does_to_reads(fuse_disk: FuseDisk) -> None:
    disk = fuse_disk
    (disk.inside / "a").write_bytes(bytes(8192))
    with a_file(disk) as fd:
        disk.hurt("read", "/a", "flip", at=5)
        assert os.pread(fd, 8192, 0) == bytes(5) + b"\1" + bytes(8186)
    disk.clear()
    with a_file(disk, os.O_DIRECT) as fd:
        rule = disk.hurt("read", "/a", "bad", at=5000)
        buffer = memoryview(bytearray(3 * 4096))
        start = -_address(buffer) % 4096
        page = buffer[start : start + 4096]
        assert os.preadv(fd, [page], 0) == 4096
        with pytest.raises(OSError) as failure:
            os.preadv(fd, [page], 4096)
        assert failure.value.errno == errno.EIO and disk.count(rule) == 1
        os.pwritev(fd, [page], 4096)
        assert os.preadv(fd, [page], 4096) == 4096, "what is written is another sector"


def _address(buffer: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


# --- A follower's ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["slow", "hang"])
def test_a_bad_disk_at_a_follower_is_not_waited_for(
    ring: Ring, module_disks: list[FuseDisk], kind: str
) -> None:
    """The other follower is enough: no answer takes as long as the disk, and nobody is fenced."""
    ring.wait_whole()
    quiet, epochs = latencies(ring, 0, REQUESTS), ring.epochs()
    with bad_follower(ring, module_disks[1], kind):
        hurt = latencies(ring, 0, REQUESTS)
        assert ring.epochs() == epochs, "a fail-over for a follower's disk"
    for name, values in (("quiet", quiet), (kind, hurt)):
        figures = ", ".join(f"p{s * 100:g} {percentile(values, s) * 1e3:.1f} ms" for s in SHARES)
        print(f"follower's disk {name}: {figures}, load {os.getloadavg()[0]:.1f}")
    # A machine that is busy has slow answers with good disks too.
    late, before = (sum(each >= SLOW_MS / 1e3 for each in values) for values in (hurt, quiet))
    assert late <= before + REQUESTS // 100, f"{late} answers waited for the disk"
    ring.wait_whole()


# --- A leader's --------------------------------------------------------------------------------


def test_a_leader_whose_disk_hangs_is_fenced(ring: Ring, module_disks: list[FuseDisk]) -> None:
    assert fenced_after(ring, module_disks[2], 2) < BUSY * FENCED_S


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_leaders_whose_disks_hang_are_fenced(ring: Ring, module_disks: list[FuseDisk]) -> None:
    found = [fenced_after(ring, module_disks[turn % 3], turn % 3) for turn in range(5)]
    print(f"fenced: p50 {percentile(found, 0.5):.2f} s, max {max(found):.2f} s")
    assert max(found) < FENCED_S
