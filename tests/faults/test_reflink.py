"""Crash images of a live ext4 under a broker: each is a disk after a power cut at that moment."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faultlab import reflink
from faultlab.broker import Broker
from faultlab.drain import Event, drain
from faultlab.history import parse_value
from faultlab.reflink import ReflinkDisk
from faultlab.round import Scene

LOADED_S = 0.7
IMAGES, IMAGES_OFTEN = 3, 20


@pytest.fixture
def disk(root: Path) -> Iterator[ReflinkDisk]:
    if reason := reflink.why_not():
        pytest.skip(reason)
    try:
        disk = ReflinkDisk(root)
    except AssertionError as error:
        pytest.skip(f"no ext4 in a file that can be cloned: {error}")
    yield disk
    disk.close()


@pytest.fixture
def scene(root: Path, seed: int, disk: ReflinkDisk) -> Iterator[Scene]:
    scene = Scene(root, seed=seed, name="reflink images", data_dir=disk.path / "data")
    scene.broker.start()
    try:
        yield scene
    finally:
        scene.close()


def by_slice(events: list[Event]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = {}
    for event in events:
        found.setdefault(event[0], []).append(event)
    return found


def recovered(disk: ReflinkDisk, image: Path, scene: Scene) -> list[Event]:
    """All events that a broker finds on an image."""
    place = disk.mounted(image)
    logs = image.with_name(image.stem + "-logs")
    logs.mkdir()
    broker = Broker(place / "data", logs=logs)
    try:
        broker.start()
        broker.wait_ready()
        return drain(broker, scene.topic)
    finally:
        broker.close()
        disk.forget(image, place)


def judge(scene: Scene, taken: list[tuple[float, list[Event]]]) -> None:
    """Of each image: what had been acknowledged before is there, and the rest is what came next.

    The broker that went on has lost nothing, so its log begins with that of each image.
    """
    whole = by_slice(drain(scene.broker, scene.topic))
    sends = [each for each in scene.history.records() if each["f"] == "send"]
    for since, events in taken:
        for slice_, found in by_slice(events).items():
            assert found == whole[slice_][: len(found)], f"slice {slice_} is not how it went on"
        there = {value[:2] for event in events if (value := parse_value(event[4].encode()))}
        acked = {
            (each["proc"], number)
            for each in sends
            if each["type"] == "ok" and each["t1"] <= since
            for number in each["ns"]
        }
        assert len(acked) > 100
        assert not acked - there, f"{len(acked - there)} of {len(acked)} are lost"


def run(scene: Scene, disk: ReflinkDisk, count: int) -> None:
    scene.run_load()
    images: list[tuple[float, Path]] = []
    took = 0.0
    for number in range(count):
        time.sleep(LOADED_S if not number else scene.random.random() / 5)
        since = time.monotonic()
        images.append((since, disk.image()))
        took = max(took, time.monotonic() - since)
    scene.end_load()
    taken = [(since, recovered(disk, image, scene)) for since, image in images]
    sizes = ", ".join(str(len(events)) for _, events in taken)
    print(f"{count} images, {took * 1e3:.0f} ms at most each; events: {sizes}")
    judge(scene, taken)
    report = scene.verdict()
    scene.total(report, count)
    assert not report.wrong, str(report)


def test_images_of_a_live_file_system(scene: Scene, disk: ReflinkDisk) -> None:
    run(scene, disk, IMAGES)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_images_of_a_live_file_system_often(scene: Scene, disk: ReflinkDisk) -> None:
    run(scene, disk, IMAGES_OFTEN)
