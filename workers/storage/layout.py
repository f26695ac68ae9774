"""Where things are in a data directory, and whether the directory can be used at all."""

import errno
import fcntl
import json
import mmap
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from barco.errors import DataDirError, InUseError
from barco.limits import PAGE_BYTES, SLICES_PER_RANGE_MAX, WORKERS_MAX
from barco.types import MiB
from barco.workers.storage.errors import explain, fsync_directory

FORMAT = 1
"""Of broker.json and everything below it; a broker refuses any other."""

IDENTITY_NAME = "broker.json"
LOCK_NAME = "lock"
LINEAGE_NAME = "lineage.log"
TRASH_NAME = "trash"
SPARE_NAME = "spare.ready"
TEMPORARY_SUFFIX = ".tmp"
PROBE_NAME = "probe" + TEMPORARY_SUFFIX

EPOCH_DIGITS = 10
SEGMENT_DIGITS = 8
_GENERATION = re.compile(r"gen-(\d{10,20})\Z")
_SEGMENT = re.compile(r"seg-(\d{8,20})\.log\Z")

FREE_BYTES_RESERVE = 16 * MiB
"""Kept free for control writes (lineage, sealing) when the disk is otherwise full."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What broker.json holds; written once, when the data directory is formatted."""

    format: int
    cluster_uuid: str
    disk_uuid: str
    ordinal: int
    workers: int
    slices_per_range: int


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes of the file system that holds the data directory."""

    free: int
    total: int

    @property
    def nearly_full(self) -> bool:
        """Less than 5 % or less than the reserve is left: told to the operator, never acted on."""
        return self.free < max(self.total // 20, FREE_BYTES_RESERVE)


# --- Paths ------------------------------------------------------------------------------------


def shard_path(data_dir: str | os.PathLike[str], worker: int) -> Path:
    """<data_dir>/shard-<iiii>"""
    return Path(data_dir) / f"shard-{worker:04d}"


def run_path(data_dir: str | os.PathLike[str]) -> Path:
    """<data_dir>/run: the workers' Unix sockets."""
    return Path(data_dir) / "run"


def generation_path(shard: Path, epoch: int) -> Path:
    """<shard>/gen-<eeeeeeeeee>"""
    return shard / f"gen-{epoch:0{EPOCH_DIGITS}d}"


def segment_path(shard: Path, epoch: int, index: int) -> Path:
    """<shard>/gen-<eeeeeeeeee>/seg-<nnnnnnnn>.log"""
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


# --- broker.json --------------------------------------------------------------------------------


def format_data_dir(
    data_dir: str | os.PathLike[str], workers: int, slices_per_range: int
) -> Identity:
    """The identity of `data_dir`: read when it is formatted, created when it is empty or missing.

    Raises DataDirError with one line when it was formatted for another number of workers or
    slices, is damaged, or holds other people's files.
    """
    assert 1 <= workers <= WORKERS_MAX and 1 <= slices_per_range <= SLICES_PER_RANGE_MAX
    root = Path(data_dir)
    if (root / IDENTITY_NAME).exists():
        identity = load_identity(root)
        _check_shape(root, identity, workers, slices_per_range)
        return identity
    if workers > slices_per_range:
        raise DataDirError(
            f"{workers} workers need at least as many slices, not {slices_per_range}: "
            "lower --workers or raise slices_per_range"
        )
    _create_root(root)
    identity = Identity(
        FORMAT, secrets.token_hex(16), secrets.token_hex(16), 0, workers, slices_per_range
    )
    for worker in range(workers):
        make_directory(shard_path(root, worker))
    text = json.dumps(asdict(identity), indent=1) + "\n"
    write_file(root / IDENTITY_NAME, text.encode(), durable=True)
    return identity


def load_identity(data_dir: str | os.PathLike[str]) -> Identity:
    """Reads broker.json; DataDirError when it is missing, damaged or of another format."""
    path = Path(data_dir) / IDENTITY_NAME
    try:
        raw = json.loads(path.read_bytes())
        identity = Identity(**raw)
        if identity.format != FORMAT:
            raise DataDirError(
                f"{path} has format {identity.format}, this barco reads {FORMAT}: "
                "start it with the version that wrote it"
            )
        numbers = (identity.ordinal, identity.workers, identity.slices_per_range)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError("a number is missing")
        for uuid in (identity.cluster_uuid, identity.disk_uuid):
            if len(bytes.fromhex(uuid)) != 16:
                raise ValueError("a uuid is not 32 hexadecimal digits")
        return identity
    except OSError as error:
        raise explain(error, path, "read") from error
    except (ValueError, TypeError) as error:
        raise DataDirError(f"{path} is damaged ({error}): restore it from a backup") from error


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


def _create_root(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {entry.name for entry in os.scandir(root)}
    except FileExistsError:
        raise DataDirError(f"{root} is a file: choose a directory with --data-dir") from None
    except OSError as error:
        raise explain(error, root, "use the data directory") from error
    # A crash between the first mkdir and the rename of broker.json leaves only these behind.
    ours = {LOCK_NAME, "run", "lost+found", PROBE_NAME, IDENTITY_NAME + TEMPORARY_SUFFIX}
    foreign = {n for n in names if n not in ours and not re.match(r"shard-\d{4}\Z", n)}
    if foreign:
        raise DataDirError(
            f"{root} holds other files ({sorted(foreign)[0]}) and no {IDENTITY_NAME}: "
            "choose an empty directory with --data-dir"
        )
    for name in names:
        if name.startswith("shard-") and generation_epochs(root / name):
            raise DataDirError(
                f"{root} holds shards with data but no {IDENTITY_NAME}: restore it from a backup"
            )
    fsync_directory(root.parent)


def _check_shape(root: Path, identity: Identity, workers: int, slices_per_range: int) -> None:
    if identity.workers != workers:
        raise DataDirError(
            f"{root} was formatted for {identity.workers} workers, not {workers}: start with "
            f"--workers {identity.workers}, or choose another --data-dir"
        )
    if identity.slices_per_range != slices_per_range:
        raise DataDirError(
            f"{root} was formatted with {identity.slices_per_range} slices per range, not "
            f"{slices_per_range}: set slices_per_range to {identity.slices_per_range}, or choose "
            "another --data-dir"
        )


# --- Lock and checks ------------------------------------------------------------------------------


def lock_data_dir(data_dir: str | os.PathLike[str]) -> int:
    """Takes the exclusive lock; the descriptor returned holds it until it is closed.

    Raises InUseError, naming the process that holds it, when another broker runs here.
    """
    path = Path(data_dir) / LOCK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise explain(error, path, "open") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            who = f" by process {holder}" if holder.isdigit() else ""
            raise InUseError(
                f"{data_dir} is in use{who}: stop that broker, or choose another --data-dir"
            ) from None
        raise explain(error, path, "lock") from error
    return fd


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
        raise explain(error, data_dir, "write to") from error
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
