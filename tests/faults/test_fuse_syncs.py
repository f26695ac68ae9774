"""Syncs that fail once, and disks that lose what was not synced, below brokers under load.

After a sync that failed the next one says yes, and what was written before it is gone (as the
kernel does with pages): a process that went on would acknowledge events behind a hole.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from faultlab.broker import range_paths
from faultlab.fusedisk import FuseDisk
from faultlab.fuseload import append_files, await_hurt, await_that, fill
from faultlab.ring import KEYS, RANGE, SLICES
from faultlab.round import Scene
from faultlab.scene import RingScene

pytestmark = pytest.mark.timeout(300)

LOADED_S = 1.0
MET_S = 60.0
EASE = 10.0
LATER = pytest.mark.chaos
MINOR = ("leader", "follower")


@pytest.fixture
def alone(root: Path, seed: int, fuse_disk: FuseDisk) -> Iterator[Scene]:
    """A single broker: what its disk loses is lost."""
    scene = Scene(root, seed=seed, name="fuse syncs", data_dir=fuse_disk.path / "data")
    scene.broker.start()
    try:
        yield scene
    finally:
        fuse_disk.clear()
        scene.close()


@pytest.fixture
def ringed(root: Path, seed: int, disks: list[FuseDisk]) -> Iterator[RingScene]:
    # Mounts, as far as a ring looks at them: they have a path.
    scene = RingScene(root / "ring", seed, "fuse syncs", disks, ease=EASE)  # type: ignore[arg-type]
    try:
        yield scene
    finally:
        for disk in disks:
            disk.clear()
        scene.close()


def lose_what_is_not_synced(disks: Sequence[FuseDisk]) -> None:
    for disk in disks:
        disk.hurt("write", "/*", "lost")


def power_cut(scene: Scene, disks: Sequence[FuseDisk]) -> int:
    """All processes at one moment; bytes that were lost. Good disks from then on."""
    began = time.monotonic()
    scene.broker.kill()
    lost = sum(disk.cut() for disk in disks)
    for disk in disks:
        disk.clear()
    scene.broker.restart()
    scene.history.fault("power cut", began)
    return lost


def judge(scene: Scene) -> None:
    """Of a single broker; a ring's has its own."""
    scene.end_load()
    report = scene.verdict()
    scene.total(report, 1)
    assert not report.wrong, str(report)
    assert report.acked > 100


# --- A power cut ---------------------------------------------------------------------------------


def test_a_power_cut_loses_only_what_was_not_synced(alone: Scene, fuse_disk: FuseDisk) -> None:
    lose_what_is_not_synced([fuse_disk])
    alone.run_load()
    time.sleep(LOADED_S)
    power_cut(alone, [fuse_disk])
    alone.settle()
    judge(alone)


@pytest.mark.chaos
def test_a_power_cut_of_a_ring(ringed: RingScene, disks: list[FuseDisk]) -> None:
    """All three at one moment."""
    lose_what_is_not_synced(disks)
    ringed.run_load()
    time.sleep(2 * LOADED_S)
    power_cut(ringed, disks)
    ringed.tried += 1
    ringed.judge()


def test_a_disk_that_lies_is_noticed_by_the_checker(alone: Scene, fuse_disk: FuseDisk) -> None:
    """It says that things are stable, and they are not: the tests above can fail."""
    alone.run_load()
    time.sleep(LOADED_S)
    for op in ("write", "sync"):
        fuse_disk.hurt(op, "*/range-*/spare.ready", "lie")
        fuse_disk.hurt(op, "*/range-*/first.tmp", "lie")
    time.sleep(LOADED_S)
    alone.end_load()  # Cursors beyond the end would be told by the load.
    assert power_cut(alone, [fuse_disk]) > 0
    assert alone.verdict().count("C1 lost") > 0


# --- A sync that fails once ----------------------------------------------------------------------


def await_new(scene: Scene, pids: Sequence[int], what: str) -> None:
    """One of these processes ends."""
    gone = f"it goes on after {what}"
    await_that(gone, lambda: not all(Path(f"/proc/{pid}").exists() for pid in pids))


def said(scene: Scene, words: str) -> bool:
    return any(words in path.read_text() for path in scene.broker.log_paths)


def test_a_sync_of_the_log_that_fails_once(alone: Scene, fuse_disk: FuseDisk) -> None:
    """The append itself: that worker ends, and what is acknowledged before and after is there."""
    data = fuse_disk.path / "data"
    fill(alone.broker.port, range_paths(data), [str(n) for n in range(16)])
    lose_what_is_not_synced([fuse_disk])
    pids = alone.broker.pids
    alone.run_load()
    time.sleep(LOADED_S)
    began = time.monotonic()
    rule = fuse_disk.hurt("sync", append_files(RANGE), "eio", times=1)
    await_hurt(fuse_disk, rule)
    time.sleep(LOADED_S)  # Whoever goes on acknowledges behind a hole.
    ended = not all(Path(f"/proc/{pid}").exists() for pid in pids)
    alone.history.fault("sync of the log", began)
    power_cut(alone, [fuse_disk])
    alone.settle()
    judge(alone)
    assert ended, "it goes on after a sync that failed"
    assert said(alone, "the log cannot be written")


@pytest.mark.parametrize("which", [*(pytest.param(w, marks=LATER) for w in MINOR), "all"])
def test_a_sync_of_the_log_that_fails_once_in_a_ring(
    ringed: RingScene, disks: list[FuseDisk], which: str
) -> None:
    """Of one range: the members whose sync fails begin anew; then the power goes."""
    ring, at = ringed.ring, 0
    members = {"leader": [0], "follower": [1], "all": [0, 1, 2]}[which]
    paths = [ring.nodes[each].data_dir / RANGE for each in members]
    fill(ring.nodes[at].port, paths, [KEYS[at * SLICES]])
    lose_what_is_not_synced(disks)
    pids = {each: ring.nodes[each].pids for each in members}

    def fail() -> None:
        rules = [
            (disks[each], disks[each].hurt("sync", append_files(RANGE), "eio", times=1))
            for each in members
        ]
        for disk, rule in rules:
            await_hurt(disk, rule)
        for each in members:
            await_new(ringed, pids[each], "a sync that failed")

    gap = ringed.inflict(f"sync of {which} fails", fail)
    print(f"{which}: no write for {gap}")
    power_cut(ringed, disks)
    ringed.judge()
    for each in members:
        node = ring.nodes[each]
        assert any("the log cannot be written" in p.read_text() for p in node.log_paths)


# --- Of the journal --------------------------------------------------------------------------


def test_a_sync_of_the_journal_that_fails_once(ringed: RingScene, disks: list[FuseDisk]) -> None:
    """Of a voter, in both copies: it does not vote with a word that can be lost; it begins anew."""
    ring = ringed.ring
    lose_what_is_not_synced(disks)

    def fail() -> None:
        pids = ring.nodes[1].pids
        rule = disks[1].hurt("sync", f"*/{RANGE}/lineage.[lc]*", "eio", times=2)
        ring.nodes[0].kill()  # Whose range the other two vote on.
        await_hurt(disks[1], rule, 2)
        await_new(ringed, pids, "a sync of the journal that failed")
        ring.nodes[0].begin()
        ring.nodes[0].await_ready()

    gap = ringed.inflict("sync of the journal fails", fail)
    print(f"no write for {gap}")
    power_cut(ringed, disks)
    ringed.judge()
