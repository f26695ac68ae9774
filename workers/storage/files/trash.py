"""Deleting in two steps (rule S8): out of sight at once and for good, the space a little later."""

import os
from pathlib import Path

from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import explain, fsync_directory


def discard(shard: Path, path: Path) -> None:
    """Moves a file to the shard's trash; stable when it returns, both here and there."""
    trash = shard / layout.TRASH_NAME
    layout.make_directory(trash)
    target = trash / f"{path.parent.name}-{path.name}"
    try:
        os.rename(path, target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, path, "remove") from error
    fsync_directory(path.parent)
    fsync_directory(trash)


def trash_files(shard: Path) -> list[Path]:
    """What waits to be unlinked."""
    try:
        return sorted((shard / layout.TRASH_NAME).iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise explain(error, shard / layout.TRASH_NAME, "list") from error


def empty_trash(shard: Path) -> int:
    """Unlinks everything in the trash; returns how many files."""
    files = trash_files(shard)
    for path in files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, path, "remove") from error
    return len(files)
