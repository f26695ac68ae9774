"""Processes that die or stand still under load: nothing acknowledged is lost, or stored twice."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from faultlab.round import Scene

CHECK_EVERY = 10


@pytest.fixture
def scene(root: Path, seed: int, request: pytest.FixtureRequest) -> Iterator[Scene]:
    name = request.node.originalname.removeprefix("test_").removesuffix("_often")
    scene = Scene(root, seed=seed, name=name.replace("_", " "))
    scene.broker.start()
    try:
        yield scene
    finally:
        scene.close()


def judge(scene: Scene, tried: int) -> None:
    """The verdict on everything so far."""
    report = scene.verdict()
    scene.total(report, tried)
    assert not report.wrong, str(report)
    assert report.acked > 100


def kill_all(scene: Scene, times: int) -> None:
    """SIGKILL of the whole group at random moments, the clients going on all the time."""
    for number in range(times):
        if scene.load is None:
            scene.run_load()
        time.sleep(scene.random.random() * 1.2)
        scene.hurt("kill all", scene.kill_and_restart)
        if number % CHECK_EVERY == CHECK_EVERY - 1 or number == times - 1:
            scene.settle()
            scene.end_load()
    judge(scene, times)


def kill_workers(scene: Scene, times: int) -> None:
    """SIGKILL of one worker; the other one serves, the supervisor starts it again."""
    scene.run_load()
    for number in range(times):
        time.sleep(1 + scene.random.random())
        scene.hurt("kill worker", scene.broker.kill_worker)
        # Five deaths of a worker in half a minute would be a crash loop: a broker gives up then.
        time.sleep(3 if number + 1 < times else 0)
    scene.settle()
    scene.end_load()
    judge(scene, times)


def pause(scene: Scene, seconds: list[float]) -> None:
    """SIGSTOP, some time, SIGCONT: to one worker or to all processes."""
    scene.run_load()
    for number, duration in enumerate(seconds):
        time.sleep(scene.random.random())
        whole = number % 2 == 1
        scene.hurt("pause", partial(scene.broker.pause, duration, whole=whole))
    scene.settle()
    scene.end_load()
    judge(scene, len(seconds))


def test_kill_all(scene: Scene) -> None:
    kill_all(scene, 3)


def test_kill_worker(scene: Scene) -> None:
    kill_workers(scene, 2)


def test_pause(scene: Scene) -> None:
    pause(scene, [0.3, 0.6])


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_kill_all_often(scene: Scene) -> None:
    kill_all(scene, 50)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_kill_worker_often(scene: Scene) -> None:
    kill_workers(scene, 20)


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_pause_often(scene: Scene) -> None:
    pause(scene, [0.2, 0.5, 3, 1, 0.1, 6, 17, 2])
