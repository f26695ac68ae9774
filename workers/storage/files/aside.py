"""What was set aside: logs that two other members go on without (`barco.cluster.replica.conflict`).

    <shard>/aside/<nnnn>/gen-<eeeeeeeeee>/...   the files as they were
    <shard>/aside/<nnnn>/lineage.log            sessions and parents of these generations
    <shard>/aside/<nnnn>/about.json             {"epoch", "tail", "epochs"}: what others have

A record of the machine asks for it (`AsideRecord`), and its process ends; the next start carries it
out before it looks at any log, and notes that in lineage.log. Until that note is there it can be
done again. Nothing here is ever deleted by barco: whoever has exported it removes the directory.
"""

import json
import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import explain, fsync_directory
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Generation

ABOUT_NAME = "about.json"


class Aside(Struct, frozen=True):
    """One of these directories."""

    path: Path
    epoch: int
    """The generation that ended elsewhere with group `tail`."""
    tail: int
    epochs: tuple[int, ...]
    """The generations whose files are here."""

    def beyond(self, epoch: int) -> int:
        """The group up to which a generation's groups are in what the others go on with."""
        return self.tail if epoch == self.epoch else 0


def carry_out(shard: Path, lineage: Lineage) -> bool:
    """Moves what the machine gave up out of the way. True: then the lineage is to be read again.

    Stable when it returns. Raises BarcoError; it can be tried again.
    """
    for number, wish in lineage.to_set_aside():
        path = shard / layout.ASIDE_NAME / f"{number:04d}"
        layout.make_directory(path.parent)
        layout.make_directory(path)
        moved = [each for each in wish.generations if _there(shard, path, each.epoch)]
        _describe(path, moved)
        about = {"epoch": wish.epoch, "tail": wish.tail, "epochs": [e.epoch for e in moved]}
        layout.write_file(path / ABOUT_NAME, json.dumps(about).encode() + b"\n", durable=True)
        for generation in moved:
            _move(layout.generation_path(shard, generation.epoch), path)
        fsync_directory(path)
        fsync_directory(shard)
        lineage.moved(wish.epoch, number)
    return bool(lineage.to_set_aside(done=True))


def _there(shard: Path, path: Path, epoch: int) -> bool:
    return any(layout.generation_path(where, epoch).is_dir() for where in (shard, path))


def _describe(path: Path, generations: list[Generation]) -> None:
    """A lineage of its own: it can be looked at like any shard. Begun anew if interrupted."""
    for name in (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME, layout.LINEAGE_ROOM_NAME):
        (path / name).unlink(missing_ok=True)
    if any(path.glob("gen-*")):
        lineage = Lineage.load(path, repair=True, expected=False)
    else:
        lineage = Lineage.load(path)
    for each in generations:
        lineage.described(each.epoch, each.session or 0, list(each.parents))
        if each.begin[1] > 1:
            lineage.begins(each.epoch, *each.begin)
    (path / layout.LINEAGE_ROOM_NAME).unlink(missing_ok=True)


def _move(source: Path, target: Path) -> None:
    try:
        os.rename(source, target / source.name)
    except FileNotFoundError:
        return  # Moved before this process.
    except OSError as error:
        raise explain(error, source, "set aside") from error


def found(shard: Path) -> list[Aside]:
    """What there is, in order; what can not be read is passed over."""
    asides = []
    for path in sorted((shard / layout.ASIDE_NAME).glob("[0-9]*")):
        try:
            about: dict[str, Any] = json.loads((path / ABOUT_NAME).read_bytes())
            asides.append(Aside(path, about["epoch"], about["tail"], tuple(about["epochs"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return asides


def disk_bytes(shard: Path) -> int:
    """Bytes of the disk that it takes."""
    total = 0
    for path in (shard / layout.ASIDE_NAME).rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue  # Removed just now.
    return total
