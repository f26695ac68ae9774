"""A small journal in two files: a frame that was told is on both, and is found if one is left.

One append is one frame (`frames`), written to both files and synced on both before anybody is told.

What was read is not known to be stable, and not a word is built on it before it is: `load` writes
both files anew. That also ends what a failed fsync has begun, after which nothing is appended.
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barco.errors import BarcoError, DiskFullError
from barco.types import MiB
from barco.workers.storage.files import frames, layout
from barco.workers.storage.files.errors import DiskError, explain, fsync_directory

ROOM_BYTES = MiB
"""Kept for a full disk, beside what a start needs to write both files anew."""


class Twofold:
    """Both files, to be appended to. One append at a time."""

    def __init__(self, paths: tuple[Path, Path], merged: frames.Merged) -> None:
        """Use `Twofold.load`."""
        self._paths = paths
        self._room = paths[0].with_name(layout.LINEAGE_ROOM_NAME)
        self._writable = False
        self._frames = merged.frames
        self._chain = frames.chain_of(merged)
        self.doubtful = merged.doubtful
        self.hurt = merged.hurt
        self.torn_bytes = merged.torn_bytes

    @classmethod
    def load(cls, shard: Path, *, repair: bool, doubt: bytes, expected: bool = False) -> "Twofold":
        """Reads both; with `repair` they are then written anew, and are the same. `doubt` and
        `expected` as `frames.load` has them."""
        paths = (shard / layout.LINEAGE_NAME, shard / layout.LINEAGE_COPY_NAME)
        names, data = (str(paths[0]), str(paths[1])), (_read(paths[0]), _read(paths[1]))
        merged = frames.load(names, data, doubt, expected=expected)
        made = cls(paths, merged)
        if repair:
            made.mend()
        return made

    def mend(self, *more: bytes) -> None:
        """Both are whole again, the same and stable, and hold these bodies besides; only now they
        can be appended to."""
        for body in more:
            frame = self._chain.frame(body)
            self._frames.append(frame)
            self._chain = self._chain.after(frame)
        self._write_anew()
        self._writable = True

    def bodies(self) -> Iterator[bytes]:
        """What was appended, in order, as `load` found it and `mend` left it."""
        return frames.bodies_of(self._frames)

    def append(self, body: bytes) -> None:
        """Returns when it is stable in both files. An error is the last thing that it says."""
        if not self._writable:
            raise DiskError(f"cannot append to {self._paths[0]}: an append before this one failed")
        frame, end = self._chain.frame(body), self._chain.end
        failures: list[BarcoError] = []

        def write(path: Path) -> None:
            try:
                self._with_room(_append, path, frame.data, end)
            except BarcoError as error:
                failures.append(error)

        beside = threading.Thread(target=write, args=(self._paths[1],), daemon=True)
        beside.start()
        write(self._paths[0])
        beside.join()
        if failures:
            self._writable = False
            for path in self._paths:
                _cut(path, end)
            raise failures[0]
        self._chain = self._chain.after(frame)

    def _write_anew(self) -> None:
        data = frames.bytes_of(self._frames)
        temporaries = [path.with_name(path.name + layout.TEMPORARY_SUFFIX) for path in self._paths]
        for temporary in temporaries:
            self._with_room(_write, temporary, data)
        for temporary, path in zip(temporaries, self._paths, strict=True):
            try:
                os.rename(temporary, path)
            except OSError as error:
                raise explain(error, path, "replace") from error
        fsync_directory(self._paths[0].parent)
        _reserve(self._room, ROOM_BYTES + 2 * len(data))

    def _with_room(self, call: Callable[..., None], *args: Any) -> None:
        """On a full disk the room that was kept is given up for it, once: a shard must be able to
        start, and to vote. Raises what the second attempt raises."""
        try:
            call(*args)
        except DiskFullError:
            self._room.unlink(missing_ok=True)
            call(*args)


def rewrite(shard: Path, change: Callable[[bytes], bytes]) -> None:
    """Both files anew, offline, with each body as `change` makes it; what was damaged stays so."""
    paths = (shard / layout.LINEAGE_NAME, shard / layout.LINEAGE_COPY_NAME)
    copies = frames.read_copies((str(paths[0]), str(paths[1])), (_read(paths[0]), _read(paths[1])))
    merged = frames.merge(copies)
    if merged.doubtful or not merged.frames:
        return  # A start says what is wrong with it, and is suspect anyhow.
    made: list[frames.Frame] = []
    for frame in merged.frames:
        prev = made[-1].crc if made else 0
        body = change(frame.body) if frame.body else b""
        made.append(frames.make_frame(frame.turn, frame.serial, prev, body))
    for path in paths:
        _write(path, frames.bytes_of(made))


def _read(path: Path) -> bytes | None:
    """None: there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(error, path, "read") from error


def _append(path: Path, data: bytes, at: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.pwrite(fd, data, at) != len(data):
                raise OSError(28, "short write")
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "append to") from error
    except Exception as error:
        raise DiskError(f"cannot append to {path}: {error!r}") from error


def _cut(path: Path, end: int) -> None:
    """Of what failed nothing shall be found: a full disk must not look like a damaged one."""
    try:
        os.truncate(path, end)
    except OSError:
        pass  # The next start sees it, and what it was.


def _reserve(path: Path, size: int) -> None:
    """Keeps blocks of the disk; without them, on a disk that is full already, it goes as well."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError:
        path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "write") from error
