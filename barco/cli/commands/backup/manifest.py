"""What a backup has in it: a list of files with their sums, written last.

A file's sum is that of its blocks' sums, so that a copy which is made from its end to its beginning
has it too. Without the list, or with one that is not whole, a directory is no backup.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from barco.errors import DataDirError
from barco.types import MiB

NAME = "backup.json"
FORMAT = 1
BLOCK_BYTES = 1 * MiB
FILES_MAX = 2_000_000
MANIFEST_BYTES_MAX = 512 * MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUp:
    """One file."""

    path: str
    """In the data directory, with slashes."""
    bytes: int
    sum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole backup."""

    format: int = FORMAT
    barco: str
    """The version that made it."""
    began: str
    """ISO 8601, UTC: what was acknowledged before is in it, as far as the broker had it."""
    ended: str
    cluster: str
    disk: str
    ordinal: int
    ring_size: int
    damaged: Sequence[str] = ()
    """What was damaged in the data directory itself, in words."""
    files: Sequence[BackedUp]

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(each.bytes for each in self.files)


class BlockSums:
    """Of a file, whose blocks come in any order."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytes] = {}

    def add(self, number: int, block: bytes | memoryview) -> None:
        """The block at number · BLOCK_BYTES."""
        self._blocks[number] = hashlib.blake2b(block, digest_size=32).digest()

    def hexdigest(self) -> str:
        """Of all of them, in the order of the file."""
        whole = b"".join(self._blocks[number] for number in sorted(self._blocks))
        return hashlib.blake2b(whole, digest_size=32).hexdigest()


def write(target: Path, manifest: Manifest) -> None:
    """Stable when it returns; the backup is one from then on."""
    said = asdict(manifest)
    text = json.dumps(said | {"check": _check(said)}, indent=1)
    temporary = target / (NAME + ".new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, target / NAME)
    sync_directory(target)


def read(backup: Path) -> Manifest:
    """DataDirError: it is no backup, not a whole one, or of a later version."""
    path = backup / NAME
    try:
        if path.stat().st_size > MANIFEST_BYTES_MAX:
            raise ValueError("it is too long")
        said: dict[str, Any] = json.loads(path.read_text("utf-8"))
        check, form = said.pop("check"), said["format"]
        if form != FORMAT:
            raise DataDirError(f"{path} has format {form}, this version of barco reads {FORMAT}")
        if check != _check(said):
            raise ValueError("its checksum is another")
        files = [BackedUp(**each) for each in said.pop("files")]
        manifest = Manifest(**said, files=files)
        if len(files) > FILES_MAX or not all(map(_plausible, files)):
            raise ValueError("it names no file of a data directory")
    except FileNotFoundError:
        raise DataDirError(
            f"{backup} is no backup of barco, or one that was not ended: it has no {NAME}"
        ) from None
    except OSError as error:
        raise DataDirError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataDirError(f"{path} is damaged ({error}): take another backup") from None
    return manifest


def sync_directory(path: Path) -> None:
    """Names in it are stable when it returns."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _plausible(file: BackedUp) -> bool:
    parts = PurePosixPath(file.path).parts
    return (
        bool(parts)
        and not file.path.startswith("/")
        and ".." not in parts
        and file.path == "/".join(parts)
        and type(file.bytes) is int
        and file.bytes >= 0
    )


def _check(said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
