"""Damage below brokers of a ring that run: repaired or refused, never delivered wrong (A4)."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faultlab.drain import CHUNKS, ReadError, read_slice
from faultlab.flips import TOPIC, segments, with_events
from faultlab.fusedisk import FuseDisk
from faultlab.ring import KEYS, RANGE, SLICES, Node, Ring
from faultlab.wire import Wire, call

from barco.limits import GROUP_HEADER_BYTES
from barco.types import MiB
from barco.workers.storage.files import layout

REPAIRED_S = 60.0
"""Issue 11, A4: of what is read; a pass of the scrub over these few segments takes less, too."""

EVENT_BYTES = 60_000
SEALED_EVENTS = 110
"""Three segments of 2 MiB."""

OPEN_SEGMENT_BYTES = 64 * MiB
OPEN_EVENTS = 500
"""30 MB: more than what the core has in memory of one segment."""

AT = 0
"""The range, and the broker that leads it; its shard 0 there, 1 at the next one."""


@pytest.fixture
def ring(root: Path, disks: list[FuseDisk]) -> Iterator[Ring]:
    ring = Ring(root / "ring", disks=disks)  # type: ignore[arg-type]
    try:
        yield ring
    finally:
        for disk in disks:
            disk.clear()
        ring.close()


def produce(ring: Ring, count: int) -> list[str]:
    """Events of one slice that can not be made smaller, in order, as they will be read."""
    rng = random.Random(count)
    wire, sent = Wire(ring.nodes[AT].port, 30), []
    target = f"/v1/topic/{TOPIC}/messages?partitionKey={KEYS[AT * SLICES]}"
    try:
        for _ in range(count):
            body = rng.randbytes(EVENT_BYTES)
            answer = wire.call("POST", target, body)
            assert answer.status == 200, answer
            sent.append(body.decode("latin-1"))
    finally:
        wire.close()
    return sent


def read(node: Node) -> list[str] | None:
    """All of that slice, as one broker serves it; None: something was refused."""
    try:
        return [event[4] for event in read_slice(node, TOPIC, AT * SLICES, CHUNKS)]
    except ReadError as error:
        assert error.status >= 500, error
        return None


def storage(node: Node, shard: int) -> dict[str, int]:
    """What /status says of a shard's health."""
    found: dict[str, dict[str, int]] = {}
    for each in json.loads(call(node.port, "GET", "/status").body)["shards"]:
        found[each["seat"]] = each["storage"]
    return found[shard]


def await_that(what: str, holds: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + REPAIRED_S, what
        time.sleep(0.05)
    return time.monotonic() - began


def body_place(path: Path, which: float) -> int:
    """A byte amid an event of a group of a segment; `which`: 0 to 1 of the file's groups."""
    found = with_events(path)
    at, header = found[int(which * len(found))]
    return at + GROUP_HEADER_BYTES + header.body_bytes // 2


def spoil(path: Path, at: int, size: int = 1) -> bytes:
    """Other bytes on the disk, below the broker; those that were there."""
    fd = os.open(path, os.O_RDWR)
    good = os.pread(fd, size, at)
    os.pwrite(fd, bytes(each ^ 1 for each in good), at)
    os.fsync(fd)
    os.close(fd)
    return good


def content(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


def below(disk: FuseDisk, path: Path) -> str:
    return "/" + str(path.relative_to(disk.inside))


LATER = pytest.mark.chaos
"""Half a minute each on a busy machine."""


@pytest.mark.parametrize("finder", ["reader", pytest.param("scrub", marks=LATER)])
def test_pages_of_a_sealed_segment_that_cannot_be_read(
    ring: Ring, disks: list[FuseDisk], finder: str
) -> None:
    """EIO until they are written: a reader at the leader, or the scrub of a follower, finds it."""
    at = AT if finder == "reader" else AT + 1
    ring.start()
    sent = produce(ring, SEALED_EVENTS)
    ring.wait_whole()
    node, disk = ring.nodes[at], disks[at]
    node.kill()  # What it has in memory it need not read.
    path = segments(disk.inside / f"data-{at}" / RANGE)[0]
    place = body_place(path, 0.5)
    page = place // 4096 * 4096
    good = spoil(path, page, 4096)
    rule = disk.hurt("read", below(disk, path), "bad", at=page)
    node.begin()
    node.await_ready()
    ring.wait_whole()
    if finder == "reader":
        took = await_that("it is not served again", lambda: read(node) == sent)
    else:
        took = await_that("no scrub", lambda: storage(node, at - AT)["repairedGroups"] > 0)
        assert read(ring.nodes[AT]) == sent
    assert disk.count(rule) > 0, "nobody met the page"
    await_that("not repaired", lambda: storage(node, at - AT)["damagedSegments"] == 0)
    assert storage(node, at - AT)["repairedGroups"] > 0
    assert content(path, page, 4096) == good
    print(f"EIO, found by the {finder}: {took:.1f} s, load {os.getloadavg()[0]:.1f}")


@pytest.mark.parametrize("how", ["disk", pytest.param("read", marks=LATER)])
def test_rot_in_the_segment_that_the_core_appends_to(
    ring: Ring, disks: list[FuseDisk], how: str
) -> None:
    """Its start is read from the disk, and verified: the byte rotted, or each read of it lies."""
    for each in ring.nodes:
        each.env["BARCO_STORAGE_SEGMENT_BYTES"] = str(OPEN_SEGMENT_BYTES)
    ring.start()
    sent = produce(ring, OPEN_EVENTS)
    ring.wait_whole()
    node, disk = ring.nodes[AT], disks[AT]
    paths = segments(disk.inside / f"data-{AT}" / RANGE)
    path = paths[-1]
    assert not layout.sidecar_path(path).exists(), "it is not the running one"
    place = body_place(path, 0.05)
    reads = disk.hurt("read", below(disk, path), "flip" if how == "read" else "slow", at=place)
    good = spoil(path, place) if how == "disk" else b""
    began = time.monotonic()
    served = read(node)
    assert disk.count(reads) > 0, "it was served from memory"
    assert served in (None, sent), "what rotted was delivered"
    print(f"rot ({how}): {'refused' if served is None else 'served'}", end=" ")
    disk.clear()
    await_that("it is not served again", lambda: read(node) == sent)
    print(f"served after {time.monotonic() - began:.1f} s, load {os.getloadavg()[0]:.1f}")
    if how == "disk":
        assert content(path, place, 1) == good
        assert storage(node, 0)["repairedGroups"] > 0
