"""Crash images of what stands beside the segments: sidecars, lineage.log, row.kept.

Sidecars are not synced, so a crash leaves any part of one, or none; an append to the journal is in
any of the copies, or none (one sector here: longer ones are in test_twofold.py); a row on its way
to its place is there in any blocks, and was kept. A start on each must find the same end and the
same state as on what is whole.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faultlab.images import SECTOR, Disk
from faultlab.recorder import EPOCH, Recording, make_reactor, record
from test_crash_images import ends, recover, write_shard

from barco.limits import PAGE_BYTES
from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.sidecar import Sidecar

SIDECAR_IMAGES, JOURNAL_IMAGES, ROW_IMAGES = 12, 12, 12
KEPT_GROUPS = 3


@pytest.fixture(scope="module")
def recording(module_root: Path, module_seed: int) -> Recording:
    print(f"seed {module_seed}")
    return record(module_root, module_seed, 300)


@pytest.fixture
def shard(root: Path, recording: Recording) -> Path:
    """All of the log, as a killed process leaves it."""
    disk = Disk(recording)
    disk.advance(recording.stable)
    shard = root / "shard"
    shard.mkdir()
    write_shard(shard, disk)
    return shard


def check(shard: Path, recording: Recording) -> None:
    """What a start finds is all of the log."""
    reactor = make_reactor(epoch=0)
    try:
        assert recover(shard, reactor) == recording.stable
        assert ends(reactor) == recording.groups[-1].ends
    finally:
        reactor.close()


def images(shard: Path, root: Path, count: int, hurt: Callable[[Path], str]) -> list[Path]:
    """Copies, each hurt in its own way; how is printed."""
    made = []
    for number in range(count):
        image = root / f"image-{number}"
        shutil.copytree(shard, image)
        print(f"{image.name}: {hurt(image)}")
        made.append(image)
    return made


def partly(data: bytes, old: bytes, unit: int, rng: random.Random) -> bytes:
    """Some units of what was written, in any order; where none arrived is what was there."""
    old = old.ljust(len(data), b"\0")
    parts = [
        (data if rng.random() < 0.5 else old)[at : at + unit] for at in range(0, len(data), unit)
    ]
    return b"".join(parts)


def test_sidecars(shard: Path, root: Path, recording: Recording, module_seed: int) -> None:
    rng = random.Random(module_seed)
    check(shard, recording)  # Which makes them.
    generation = layout.generation_path(shard, EPOCH)
    assert len(list(generation.glob("*.idx"))) > 2

    def hurt(image: Path) -> str:
        told = []
        for path in sorted(layout.generation_path(image, EPOCH).glob("*.idx")):
            how, data = rng.choice(("whole", "gone", "empty", "cut", "blocks")), path.read_bytes()
            if how == "gone":
                path.rename(path.with_name(path.name + layout.TEMPORARY_SUFFIX))
            elif how != "whole":
                cut = data[: rng.randrange(len(data))] if how == "cut" else b""
                path.write_bytes(partly(data, b"", SECTOR, rng) if how == "blocks" else cut)
            told.append(how)
        return " ".join(told)

    for image in images(shard, root, SIDECAR_IMAGES, hurt):
        for index, path in enumerate(sorted(layout.generation_path(image, EPOCH).glob("*.log"))):
            sidecar = layout.sidecar_path(path)
            found = Sidecar.open(sidecar, EPOCH, index)
            if found is not None:
                found.close()
                assert sidecar.read_bytes() == (generation / sidecar.name).read_bytes()
        check(image, recording)


def test_the_journal(shard: Path, root: Path, recording: Recording, module_seed: int) -> None:
    """Of the seal, which nobody was told of: there, or not, or half, in each copy."""
    rng = random.Random(module_seed)
    paths = [layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME]
    before = [(shard / name).read_bytes() for name in paths]
    last = recording.groups[-1]
    Lineage.load(shard).sealed(EPOCH, recording.stable, last.segment, last.offset + len(last.data))
    after = [(shard / name).read_bytes() for name in paths]

    def hurt(image: Path) -> str:
        told = []
        for name, old, new in zip(paths, before, after, strict=True):
            end = rng.randrange(len(old), len(new) + SECTOR, SECTOR)
            added = partly(new[len(old) : end], b"", SECTOR, rng)
            (image / name).write_bytes(old + added)
            told.append(f"{len(added)} of {len(new) - len(old)}")
        return ", ".join(told)

    for image in images(shard, root, JOURNAL_IMAGES, hurt):
        assert not Lineage.load(image, repair=False).doubtful
        check(image, recording)


def test_a_row_that_was_kept(
    shard: Path, root: Path, recording: Recording, module_seed: int
) -> None:
    """Groups of one row, in their place in part: the row has them."""
    rng = random.Random(module_seed)
    segment = recording.groups[-1].segment
    row = [each for each in recording.groups if each.segment == segment][-KEPT_GROUPS:]
    data = b"".join(each.data for each in row)
    kept.keep(shard, EPOCH, segment, row[0].offset, data)

    def hurt(image: Path) -> str:
        path = layout.segment_path(image, EPOCH, segment)
        content, at = path.read_bytes(), row[0].offset
        there = partly(data, b"", rng.choice((SECTOR, PAGE_BYTES)), rng)
        path.write_bytes(content[:at] + there + content[at + len(data) :])
        return f"{sum(a != b for a, b in zip(there, data, strict=True))} bytes differ"

    for image in images(shard, root, ROW_IMAGES, hurt):
        check(image, recording)
