"""Where a shard's files are, and whether the data directory's file system can be used at all.

broker.json and the lock are the supervisor's: barco/supervisor/datadir.py.
"""

import errno
import fcntl
import mmap
import os
import re
from pathlib import Path

from msgspec import Struct

from barco.errors import DataDirError
from barco.limits import PAGE_BYTES
from barco.model.ranges import directory_of
from barco.types import MiB
from barco.workers.storage.files.errors import explain, fsync_directory

LOCK_NAME = "lock"
LINEAGE_NAME = "lineage.log"
LINEAGE_COPY_NAME = "lineage.copy"
LINEAGE_ROOM_NAME = "lineage.room"
TRASH_NAME = "trash"
ASIDE_NAME = "aside"
SPARE_NAME = "spare.ready"
TEMPORARY_SUFFIX = ".tmp"
PROBE_NAME = "probe" + TEMPORARY_SUFFIX

EPOCH_DIGITS = 10
SEGMENT_DIGITS = 8
_GENERATION = re.compile(r"gen-(\d{10,20})\Z")
_SEGMENT = re.compile(r"seg-(\d{8,20})\.log\Z")

FREE_BYTES_RESERVE = 16 * MiB
"""Kept free for control writes (lineage, sealing) when the disk is otherwise full."""


class DiskSpace(Struct, frozen=True):
    """Bytes of the file system that holds the data directory."""

    free: int
    total: int

    @property
    def nearly_full(self) -> bool:
        """Less than 5 % or less than the reserve is left: told to the operator, never acted on."""
        return self.free < max(self.total // 20, FREE_BYTES_RESERVE)


# --- Paths ------------------------------------------------------------------------------------


def range_path(data_dir: str | os.PathLike[str], token: int) -> Path:
    """<data_dir>/range-<token>"""
    return Path(data_dir) / directory_of(token)


def generation_path(shard: Path, epoch: int) -> Path:
    """<range>/gen-<eeeeeeeeee>"""
    return shard / f"gen-{epoch:0{EPOCH_DIGITS}d}"


def segment_path(shard: Path, epoch: int, index: int) -> Path:
    """<range>/gen-<eeeeeeeeee>/seg-<nnnnnnnn>.log"""
    return generation_path(shard, epoch) / f"seg-{index:0{SEGMENT_DIGITS}d}.log"


def sidecar_path(segment: Path) -> Path:
    """The index beside a segment."""
    return segment.with_suffix(".idx")


def generation_epochs(shard: Path) -> list[int]:
    """Epochs of the generation directories, ascending; foreign names are passed over."""
    try:
        with os.scandir(shard) as entries:
            found = [
                int(match[1])
                for entry in entries
                if (match := _GENERATION.match(entry.name)) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError as error:
        raise explain(error, shard, "list") from error
    return sorted(found)


def segment_indexes(shard: Path, epoch: int) -> list[int]:
    """Indexes of a generation's segment files, ascending; empty when there is no directory."""
    directory = generation_path(shard, epoch)
    try:
        with os.scandir(directory) as entries:
            found = [
                int(match[1])
                for entry in entries
                if (match := _SEGMENT.match(entry.name)) and entry.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise explain(error, directory, "list") from error
    return sorted(found)


def make_directory(path: Path) -> None:
    """Creates `path` (mode 0700) unless it is there, and makes its entry stable."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise DataDirError(f"{path} is in the way: a directory is expected here") from None
        return
    except OSError as error:
        raise explain(error, path, "create the directory") from error
    fsync_directory(path.parent)


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replaces `path` in one step: temporary file, rename; with `durable` synced on both levels."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError as error:
        raise explain(error, path, "write") from error
    if durable:
        fsync_directory(path.parent)


# --- Checks -----------------------------------------------------------------------------------


def is_locked(data_dir: str | os.PathLike[str]) -> bool:
    """Whether a broker runs on this directory; takes nothing and changes nothing."""
    try:
        fd = os.open(Path(data_dir) / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def disk_space(data_dir: str | os.PathLike[str]) -> DiskSpace:
    """Free (to this user) and total bytes of the file system."""
    try:
        status = os.statvfs(data_dir)
    except OSError as error:
        raise explain(error, data_dir, "look at") from error
    return DiskSpace(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)


def check_data_dir(data_dir: str | os.PathLike[str]) -> DiskSpace:
    """Proves that direct I/O works here, and tells how much space is left.

    Raises DataDirError, with what to do, when the directory cannot be written or the file system
    does not know O_DIRECT (tmpfs before Linux 6.6, some network and overlay file systems).
    """
    probe = Path(data_dir) / PROBE_NAME
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        fd = os.open(probe, flags | os.O_DIRECT | os.O_DSYNC, 0o600)
    except OSError as error:
        probe.unlink(missing_ok=True)
        if error.errno == errno.EINVAL:
            raise _no_direct(data_dir) from None
        raise explain(error, data_dir, "write to") from error
    page = mmap.mmap(-1, PAGE_BYTES)
    try:
        os.pwrite(fd, page, 0)
        if os.preadv(fd, [page], 0) != PAGE_BYTES:
            raise _no_direct(data_dir)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            raise _no_direct(data_dir) from None
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise explain(error, data_dir, "write to") from error
        # Full, but sound: what is stored can be read, and retention can make room.
    finally:
        os.close(fd)
        page.close()
        probe.unlink(missing_ok=True)
    return disk_space(data_dir)


def _no_direct(data_dir: str | os.PathLike[str]) -> DataDirError:
    return DataDirError(
        f"the file system of {os.fspath(data_dir)} does not allow direct I/O (O_DIRECT): "
        "put --data-dir on ext4 or XFS"
    )
