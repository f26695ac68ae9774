"""A disk that is full, or that fails: what was acknowledged stays, and what can go on goes on."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faultlab import mount
from faultlab.mount import NOLOGFLUSH, Mount
from faultlab.round import Scene
from faultlab.wire import call

from barco.workers.storage.files import layout

MiB = 1 << 20
SMALL_DISK_BYTES = 160 * MiB


@pytest.fixture
def disk(root: Path) -> Iterator[Mount]:
    if reason := mount.why_not():
        pytest.skip(reason)
    try:
        disk = Mount(root, SMALL_DISK_BYTES)
    except AssertionError as error:
        pytest.skip(f"loop mounts do not work here: {error}")
    yield disk
    disk.close()


def new_scene(root: Path, seed: int, name: str, data_dir: Path | None = None) -> Scene:
    scene = Scene(root, seed=seed, name=name, data_dir=data_dir)
    scene.broker.start()
    return scene


def judge(scene: Scene, tried: int) -> None:
    report = scene.verdict()
    scene.total(report, tried)
    assert not report.wrong, str(report)
    assert report.acked > 100


def wait_for(scene: Scene, what: str, status: int) -> None:
    """Until producing to every worker is answered so."""
    until = time.monotonic() + 60
    for port in scene.broker.ports[2:]:
        while True:
            try:
                # A request that is answered 200 here belongs to a topic that nobody checks.
                target = "/v1/topic/probe/messages"
                answer = call(port, "POST", target, os.urandom(30_000))
                if answer.status == status:
                    break
            except (OSError, EOFError):
                pass
            assert time.monotonic() < until, what
            time.sleep(0.01)


# --- No room left ------------------------------------------------------------------------------


def fill(disk: Mount) -> Path:
    """Everything that is free goes to a file of somebody else."""
    ballast = disk.path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), MiB)
                file.seek(0, os.SEEK_END)
        except OSError:
            pass
    return ballast


def test_full_disk(root: Path, disk: Mount, seed: int) -> None:
    """Produces get 507, never an acknowledgement that is lost; it goes on when there is room."""
    scene = new_scene(root, seed, "full disk", disk.path / "data")
    try:
        scene.run_load()
        for _ in range(2):
            time.sleep(0.5)
            began = time.monotonic()
            ballast = fill(disk)
            wait_for(scene, "a full disk is not told", 507)
            assert call(scene.broker.port, "GET", "/status").status == 200, "it can still be read"
            ballast.unlink()
            wait_for(scene, "it does not go on when there is room again", 200)
            scene.history.fault("full disk", began)
        scene.settle()
        scene.end_load()
        judge(scene, 2)
    finally:
        scene.close()


def test_a_disk_that_has_become_full_is_read_after_a_start(
    root: Path, disk: Mount, seed: int
) -> None:
    """A spare was kept for it: all is read, and events are stored until that is full; it says so
    then."""
    scene = new_scene(root, seed, "full disk", disk.path / "data")
    try:
        scene.run_load()
        time.sleep(0.5)
        began = time.monotonic()
        fill(disk)
        wait_for(scene, "a full disk is not told", 507)
        scene.history.fault("full disk", began)
        scene.broker.kill()
        assert scene.load is not None
        scene.load.stopping.set()
        scene.end_load()
        assert list(scene.broker.data_dir.rglob(layout.SPARE_NAME)), "the last one is a segment"
        scene.broker.begin()
        scene.broker.await_ready()
        judge(scene, 1)
        wait_for(scene, "a disk that is still full is not told", 507)
        assert json.loads(call(scene.broker.port, "GET", "/ready").body)["diskFull"] is True
    finally:
        scene.close()


def test_start_on_a_full_disk(root: Path, disk: Mount, seed: int) -> None:
    """Nothing is lost, it is said what to do, and it opens by itself when there is room."""
    scene = new_scene(root, seed, "full disk", disk.path / "data")
    try:
        scene.run_load()
        time.sleep(1)
        scene.broker.kill()
        assert scene.load is not None
        scene.load.stopping.set()
        scene.end_load()
        for spare in scene.broker.data_dir.rglob(layout.SPARE_NAME):
            spare.unlink()  # With it a start would need no room.
        ballast = fill(disk)
        scene.broker.begin()
        until = time.monotonic() + 60
        while "the disk is full" not in scene.broker.log:
            assert time.monotonic() < until, scene.broker.log[-2000:]
            time.sleep(0.05)
        ballast.unlink()
        scene.broker.await_ready()
        scene.broker.wait_ready()
        judge(scene, 1)
    finally:
        scene.close()


# --- A disk that fails -------------------------------------------------------------------------


def test_a_dead_disk_ends_the_broker_with_a_clear_word(root: Path, disk: Mount, seed: int) -> None:
    """Every operation fails with EIO: no acknowledgement any more; all is there afterwards."""
    scene = new_scene(root, seed, "dead disk", disk.path / "data")
    try:
        scene.run_load()
        time.sleep(1)
        began = time.monotonic()
        disk.cut(NOLOGFLUSH)
        assert scene.broker.wait_end(120) != 0
        scene.history.fault("dead disk", began)
        last = scene.broker.log.strip().splitlines()[-1]
        assert last.startswith("barco: ") and "Traceback" not in scene.broker.log, last
        scene.end_load()
        disk.unmount()
        disk.mount()
        scene.broker.restart()
        judge(scene, 1)
    finally:
        scene.close()


@pytest.fixture
def bad_writes(
    root: Path, shim: Path, seed: int, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """A broker whose appends do what the file `fault` says."""
    scene = Scene(root, seed=seed, name="bad writes")
    scene.broker.options = ["--engine", "epoll"]
    scene.broker.env = {"LD_PRELOAD": str(shim), "BARCO_FAULT_WRITES": str(root / "fault")}
    scene.broker.start()
    yield scene
    scene.close()


@pytest.mark.parametrize("what", ["short", "interrupted"])
def test_writes_that_have_to_be_continued(bad_writes: Scene, root: Path, what: str) -> None:
    bad_writes.run_load()
    (root / "fault").write_text(what[0])
    pids = bad_writes.broker.pids
    time.sleep(2)
    bad_writes.end_load()
    (root / "fault").unlink()
    assert bad_writes.broker.pids == pids, "nobody had to die for it"
    judge(bad_writes, 1)


@pytest.mark.parametrize("what", ["E", "N"])
def test_an_append_that_fails_ends_the_worker_and_nothing_is_lost(
    bad_writes: Scene, root: Path, what: str
) -> None:
    bad_writes.run_load()
    pids = bad_writes.broker.pids
    time.sleep(0.5)
    began = time.monotonic()
    (root / "fault").write_text(what)
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until, "a worker goes on after an append that failed"
        time.sleep(0.01)
    (root / "fault").unlink()
    bad_writes.history.fault("EIO", began)
    bad_writes.broker.wait_ready()
    bad_writes.settle()
    bad_writes.end_load()
    assert "the log cannot be written" in bad_writes.broker.log
    judge(bad_writes, 1)
