"""The file system under a broker is cut off under load: what was answered 2xx is there after."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faultlab import mount
from faultlab.mount import LOGFLUSH, NOLOGFLUSH, Mount
from faultlab.round import Scene


@pytest.fixture
def disk(root: Path) -> Iterator[Mount]:
    if reason := mount.why_not():
        pytest.skip(reason)
    try:
        disk = Mount(root)
    except AssertionError as error:
        pytest.skip(f"loop mounts do not work here: {error}")
    yield disk
    disk.close()


@pytest.fixture
def scene(disk: Mount, root: Path, seed: int) -> Iterator[Scene]:
    scene = Scene(root, seed=seed, name="power cut", data_dir=disk.path / "data")
    scene.broker.start()
    try:
        yield scene
    finally:
        scene.close()


def cut_and_restart(scene: Scene, disk: Mount, how: int) -> None:
    """The processes see a dead disk for a moment, as they would while the power goes."""
    disk.cut(how)
    time.sleep(scene.random.choice((0.0, 0.0, 0.05, 0.5)))
    scene.broker.kill()
    disk.unmount()
    disk.mount()
    scene.broker.restart()


def cuts(scene: Scene, disk: Mount, hows: list[int]) -> None:
    for number, how in enumerate(hows):
        if scene.load is None:
            scene.run_load()
        time.sleep(0.2 + scene.random.random())
        scene.hurt("power cut", lambda how=how: cut_and_restart(scene, disk, how))
        if number % 5 == 4 or number + 1 == len(hows):
            scene.settle()
            scene.end_load()
    report = scene.verdict()
    scene.total(report, len(hows))
    assert not report.wrong, str(report)
    assert report.acked > 100


def test_power_cut(scene: Scene, disk: Mount) -> None:
    cuts(scene, disk, [NOLOGFLUSH])


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_power_cut_often(scene: Scene, disk: Mount) -> None:
    cuts(scene, disk, [NOLOGFLUSH, NOLOGFLUSH, LOGFLUSH, NOLOGFLUSH, LOGFLUSH] * 2)
