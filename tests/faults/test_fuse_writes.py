"""Writes below a ring that find no room, come back short or torn: told, and nothing is lost."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from faultlab.broker import range_paths
from faultlab.fusedisk import FuseDisk
from faultlab.fuseload import EVENT_BYTES, append_files, await_hurt, await_that, fill
from faultlab.ring import KEYS, RANGE, SLICES
from faultlab.round import Scene
from faultlab.scene import RingScene
from faultlab.wire import Answer, call

pytestmark = pytest.mark.timeout(300)

EASE = 10.0
LOADED_S = 1.0
SHORT_WRITES = 20
AT, OTHER = 0, 1
"""The range that is hurt, led by the broker with this number; and one that is not."""


@pytest.fixture
def scene(root: Path, seed: int, disks: list[FuseDisk]) -> Iterator[RingScene]:
    # Mounts, as far as a ring looks at them: they have a path.
    scene = RingScene(root / "ring", seed, "writes", disks, ease=EASE)  # type: ignore[arg-type]
    try:
        yield scene
    finally:
        for disk in disks:
            disk.clear()
        scene.close()


def produce(scene: RingScene, at: int) -> Answer:
    """One large event to a range, at its leader; nobody checks its topic."""
    target = f"/v1/topic/filling/messages?partitionKey={KEYS[at * SLICES]}"
    return call(scene.ring.nodes[at].port, "POST", target, os.urandom(EVENT_BYTES // 2), timeout=10)


def fill_shard(scene: RingScene, at: int) -> None:
    """See `faultlab.fuseload.fill`."""
    node = scene.ring.nodes[at]
    shard = node.data_dir / RANGE
    fill(scene.ring.nodes[AT].port, [shard], [KEYS[AT * SLICES]])


def log_says(scene: RingScene, at: int, words: str) -> bool:
    return any(words in path.read_text() for path in scene.ring.nodes[at].log_paths)


# --- No room -------------------------------------------------------------------------------------


def test_no_room_for_a_leaders_segments(scene: RingScene, disks: list[FuseDisk]) -> None:
    """507 with what to do, nobody ends; the other ranges and reads go on; then all of it does."""
    fill_shard(scene, AT)
    scene.run_load()
    pids = [node.pids for node in scene.ring.nodes]

    def fault() -> None:
        rule = disks[AT].hurt("write", f"*/{RANGE}/*.tmp", "enospc")
        answers: list[Answer] = []

        def refused() -> bool:
            answers.append(produce(scene, AT))
            return answers[-1].status == 507

        await_that("a full disk is not told", refused)
        assert {answer.status for answer in answers} == {200, 507}
        assert b"urn:barco:problem:disk-full" in answers[-1].body
        assert disks[AT].count(rule) > 0
        assert produce(scene, OTHER).status == 200, "it is the disk of another broker"
        assert call(scene.ring.nodes[AT].port, "GET", "/status").status == 200
        assert log_says(scene, AT, "no space is left")
        # What the broker writes itself is refused as well: nobody waits for an answer for ever.
        kind, level = {"Content-Type": "application/json"}, b'{"compatibility": "FULL"}'
        told = call(scene.ring.nodes[AT].port, "PUT", "/registry/config", level, kind, 30)
        assert told.status == 503, told
        disks[AT].clear()
        await_that("it does not go on", lambda: produce(scene, AT).status == 200)

    scene.inflict("no room", fault)
    assert [node.pids for node in scene.ring.nodes] == pids, "nobody had to end for it"
    scene.judge()


@pytest.mark.chaos
def test_no_room_for_a_followers_segments(scene: RingScene, disks: list[FuseDisk]) -> None:
    """The other follower is enough; it catches up when there is room."""
    fill_shard(scene, 1)
    scene.run_load()

    def fault() -> None:
        rule = disks[1].hurt("write", f"*/{RANGE}/*.tmp", "enospc")
        target = scene.ring.nodes[AT].data_dir / RANGE
        before = len(list(target.glob("gen-*/seg-*.log")))

        def further() -> bool:
            assert produce(scene, AT).status == 200, "a follower's disk is not the leader's"
            return len(list(target.glob("gen-*/seg-*.log"))) >= before + 4

        await_that("no further segments", further)
        await_hurt(disks[1], rule)
        await_that("it is not told", partial(log_says, scene, 1, "no space is left"))
        disks[1].clear()

    scene.inflict("no room at a follower", fault)
    scene.judge()


@pytest.mark.chaos
def test_no_room_for_an_append(scene: RingScene, disks: list[FuseDisk]) -> None:
    """Of a file that had its room, as on a file system that copies: as any error of the log."""
    fill_shard(scene, AT)

    def fault() -> None:
        pids = scene.ring.nodes[AT].pids
        rule = disks[AT].hurt("write", append_files(RANGE), "enospc", times=1)
        await_hurt(disks[AT], rule)
        await_that("it goes on", lambda: scene.ring.nodes[AT].pids != pids)

    scene.inflict("no room for an append", fault)
    assert log_says(scene, AT, "the log cannot be written: No space left on device")
    scene.judge()


@pytest.mark.parametrize("kind", ["enospc", pytest.param("short", marks=pytest.mark.chaos)])
def test_no_room_for_a_vote(scene: RingScene, disks: list[FuseDisk], kind: str) -> None:
    """The journal has room that was kept: it votes all the same, and nobody ends."""

    def fault() -> None:
        ring, pids = scene.ring, scene.ring.nodes[1].pids
        rule = disks[1].hurt("write", f"*/{RANGE}/lineage.log", kind, times=1)
        ring.nodes[0].kill()  # Whose range the other two vote on.
        await_hurt(disks[1], rule)
        await_that("no leader", lambda: produce_anywhere(scene).status == 200)
        assert ring.nodes[1].pids == pids
        ring.nodes[0].begin()
        ring.nodes[0].await_ready()

    scene.inflict(f"a vote's write: {kind}", fault)
    scene.judge()


def produce_anywhere(scene: RingScene) -> Answer:
    """To the range whose owner is away."""
    target = f"/v1/topic/filling/messages?partitionKey={KEYS[AT * SLICES]}"
    return call(scene.ring.nodes[1].port, "POST", target, b"x", timeout=10)


# --- Short and torn ------------------------------------------------------------------------------


def test_short_writes_of_a_single_broker(root: Path, seed: int, fuse_disk: FuseDisk) -> None:
    """The rest is written, and nobody ends for it. A ring would repair what is missing from the
    others. Not with io_uring, where the kernel goes on by itself (docs/findings.md)."""
    scene = Scene(root, seed=seed, name="writes", data_dir=fuse_disk.path / "data")
    try:
        broker = scene.broker
        broker.options = ["--engine", "epoll"]
        broker.start()
        fill(broker.port, range_paths(broker.data_dir), [str(n) for n in range(16)])
        pids = broker.pids
        hurt_shortly(fuse_disk, append_files("range-*"), scene)
        assert broker.pids == pids, "nobody had to end for it"
        scene.hurt("kill", scene.kill_and_restart)
        scene.end_load()
        report = scene.verdict()
        scene.total(report, 1)
        assert not report.wrong, str(report)
    finally:
        fuse_disk.clear()
        scene.close()


def hurt_shortly(disk: FuseDisk, files: str, scene: Scene) -> None:
    """Under load, until every fifth of some appends was half done."""
    if scene.load is None:
        scene.run_load()
    turns = range(1, SHORT_WRITES)
    hurt = [disk.hurt("write", files, "short", nth=5 * turn, times=1) for turn in turns]
    for rule in hurt:
        await_hurt(disk, rule)


@pytest.mark.parametrize("at", [0, pytest.param(1, marks=pytest.mark.chaos)])
def test_a_torn_append(scene: RingScene, disks: list[FuseDisk], at: int) -> None:
    """Half of it is there, and an error: that process begins anew, and drops what is torn."""
    fill_shard(scene, at)

    def fault() -> None:
        pids = scene.ring.nodes[at].pids
        rule = disks[at].hurt("write", append_files(RANGE), "torn", times=1)
        await_hurt(disks[at], rule)
        await_that("it goes on", lambda: scene.ring.nodes[at].pids != pids)

    scene.inflict("a torn append", fault)
    assert log_says(scene, at, "the log cannot be written")
    scene.judge()


def test_a_torn_vote(scene: RingScene, disks: list[FuseDisk]) -> None:
    """In both copies of the journal: that process begins anew, and nothing of it is in doubt."""

    def fault() -> None:
        ring, pids = scene.ring, scene.ring.nodes[1].pids
        rule = disks[1].hurt("write", f"*/{RANGE}/lineage.[lc]*", "torn", times=2)
        ring.nodes[0].kill()
        await_hurt(disks[1], rule, 2)
        await_that("it goes on", lambda: ring.nodes[1].pids != pids)
        ring.nodes[0].begin()
        ring.nodes[0].await_ready()

    scene.inflict("a torn vote", fault)
    assert not log_says(scene, 1, "lineage.log: frame"), "it was taken for damage"
    scene.judge()
