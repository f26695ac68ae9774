"""Failures of files, each as one sentence that names the file and says what to do."""

import errno
import os
from pathlib import Path

from barco.errors import (
    BarcoError,
    BrokerError,
    CorruptDataError,
    DataDirError,
    DiskFullError,
    OperatorError,
)


class DiskError(BrokerError):
    """The kernel refused a read or a write (EIO and its kind); not retried as if it could pass."""

    slug = "disk"
    title = "Disk failed"


class CorruptLogError(CorruptDataError):
    """Bytes that were stable once are wrong now: not a torn tail, so nothing may be cut."""

    def __init__(self, path: str, offset: int, gseq: int, reason: str, *, durable: int) -> None:
        """`gseq`: the group that is damaged; `durable`: the highest known to have been stable."""
        self.found = (
            f"{path}: corrupt at byte {offset}, group {gseq}: {reason}; groups up to {durable} "
            "were stable, so this is not a torn tail"
        )
        super().__init__(
            f"{self.found}. Restore the file, or give up everything "
            f"from group {gseq} on with: barco recover DATA_DIR --accept-data-loss",
            file=path,
            offset=offset,
            gseq=gseq,
            durable=durable,
        )
        self.path, self.offset, self.gseq, self.reason = path, offset, gseq, reason
        self.durable = durable

    def to_be_repaired(self) -> CorruptDataError:
        """What to say where other brokers have these groups: nobody has to do anything, least of
        all give data up."""
        return CorruptDataError(
            f"{self.found}. It is repaired from the other brokers that hold the shard",
            **self.fields,
        )


class ForeignLogError(DataDirError):
    """A segment is sound, but was written by another broker or another worker."""

    def __init__(self, path: str, token: int, cluster_uuid: str) -> None:
        super().__init__(
            f"{path} belongs to another shard (token {token}, cluster {cluster_uuid}): put the "
            "shard directories back where they were"
        )


class ForeignJournalError(DataDirError):
    """A journal is sound, and is another disk's, or another range's: it has no vote here."""

    def __init__(self, path: str, why: str) -> None:
        """`why`: what speaks against it, after its name."""
        super().__init__(
            f"{path} {why}: put the directory back where it was, and the one that belongs here"
            " in its place; if that is lost, so is this disk (of a broker of a cluster: move"
            " the data directory aside, and run barco replace)"
        )


class CorruptChunkError(CorruptDataError):
    """A stored chunk does not match its checksums; it is not served."""

    def __init__(
        self, path: str, file_offset: int, topic: str, slice_: int, first: int, end: int, why: str
    ) -> None:
        """The events with offsets in [first, end) of (topic, slice_) are the ones affected."""
        super().__init__(
            f"{path}: corrupt chunk at byte {file_offset}: {why}; offsets {first} to {end - 1} of "
            f"topic {topic}, slice {slice_} are not served",
            file=path,
            offset=file_offset,
            topic=topic,
            slice=slice_,
        )
        self.path, self.file_offset = path, file_offset
        self.topic, self.slice, self.first, self.end = topic, slice_, first, end


class CorruptLineageError(CorruptDataError):
    """lineage.log contradicts itself or the generations found."""


_ADVICE: dict[int, tuple[type[BarcoError], str]] = {
    errno.ENOSPC: (DiskFullError, "no space is left: free some, or lower retention"),
    errno.EDQUOT: (DiskFullError, "the disk quota is used up: raise it, or lower retention"),
    errno.EROFS: (DataDirError, "the file system is read-only: remount it read-write"),
    errno.EACCES: (DataDirError, "permission denied: it must belong to the broker's user"),
    errno.EPERM: (DataDirError, "not permitted: it must belong to the broker's user"),
    errno.ENOTDIR: (DataDirError, "a directory is expected here"),
    errno.EISDIR: (DataDirError, "a file is expected here"),
    errno.ENOENT: (DataDirError, "it does not exist"),
    errno.EMFILE: (OperatorError, "too many open files: raise the limit (ulimit -n, LimitNOFILE)"),
    errno.ENFILE: (OperatorError, "the machine has too many open files: raise fs.file-max"),
}


def explain(error: OSError, path: str | os.PathLike[str], doing: str) -> BarcoError:
    """What to raise for `error`, met while `doing` something with `path`."""
    number = error.errno or 0
    if number in _ADVICE:
        kind, advice = _ADVICE[number]
        return kind(f"cannot {doing} {os.fspath(path)}: {advice}", errno=number)
    name = errno.errorcode.get(number, str(number))
    text = os.strerror(number) if number else str(error)
    return DiskError(f"cannot {doing} {os.fspath(path)}: {text} ({name})", errno=number)


def fsync_directory(path: Path) -> None:
    """Makes the entries of a directory stable; a rename without it may be lost in a power cut."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "sync the directory") from error
