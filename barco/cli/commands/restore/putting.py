"""The files of a backup in a data directory, each compared with its checksum on the way."""

import json
import os
from pathlib import Path

from barco.cli.commands.backup import image, manifest
from barco.cli.commands.backup.manifest import BLOCK_BYTES, BackedUp, BlockSums, Manifest
from barco.errors import CorruptDataError, DataDirError
from barco.supervisor import datadir
from barco.supervisor.files.lock import open_lock
from barco.supervisor.files.restored import RESTORED
from barco.workers.storage.files import twofold
from barco.workers.storage.files.records import without_positions


def put_back(backup: Path, made: Manifest, target: Path) -> None:
    """All files; the one that makes it a data directory last."""
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if there := sorted(each.name for each in target.iterdir() if each.name != "lost+found"):
            raise DataDirError(
                f"{target} is not empty (it has {there[0]!r}): a backup is put into an empty"
                " directory. Move away what is there, also of a restore that was interrupted"
            )
    except OSError as error:
        raise DataDirError(f"cannot use {target}: {error.strerror}") from None
    lock = open_lock(target)
    try:
        last = [each for each in made.files if each.path == datadir.IDENTITY]
        if len(last) != 1:
            raise DataDirError(f"{backup} has no {datadir.IDENTITY}: take another backup")
        shards = set()
        for each in made.files:
            if each not in last:
                copy(backup, target, each)
            shards.add((target / each.path).parent)
        if made.ring_size > 1:
            for shard in target.glob(datadir.RANGES):
                twofold.rewrite(shard, without_positions)
            image.write_file(target, RESTORED, json.dumps({"as_of": made.began}).encode() + b"\n")
        for directory in shards:
            manifest.sync_directory(directory)
        copy(backup, target, last[0])
        manifest.sync_directory(target)
        manifest.sync_directory(target.resolve().parent)
    finally:
        os.close(lock)


def copy(backup: Path, target: Path | None, file: BackedUp) -> None:
    """One file, block by block, stable but for its name. None: it is only read.

    CorruptDataError: it is not what it was when it was copied.
    """
    whole, to, left = BlockSums(), -1, file.bytes
    try:
        with open(backup / file.path, "rb", buffering=0) as given:
            if target is not None:
                (target / file.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                to = os.open(target / file.path, flags, 0o600)
                os.ftruncate(to, file.bytes)
            for number in range(-(-file.bytes // BLOCK_BYTES)):
                block = given.read(min(BLOCK_BYTES, left))
                left -= len(block)
                whole.add(number, block)
                if to >= 0 and any(block):
                    image.write_all(to, block, number * BLOCK_BYTES)
            if to >= 0:
                os.fsync(to)
            more = bool(given.read(1))
    except OSError as error:
        raise DataDirError(f"cannot copy {backup / file.path}: {error.strerror}") from None
    finally:
        if to >= 0:
            os.close(to)
    if left or more or whole.hexdigest() != file.sum:
        raise CorruptDataError(f"{backup / file.path} is not what it was: use another backup")
