"""Staged events on disk: one file for each write, appended to by its tasks, read by its commit.

A file is a row of records: magic, lengths and checksums, a msgpack head, a body. The first names
the write; each further one is a staged batch or a plan (which attempts won). After a crash the
records up to the first that is torn or damaged are what was staged. They are stable only after
`sync`, which a commit asks for before it begins.
"""

import asyncio
import errno
import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from barco.errors import BrokerError, BusyError, CorruptDataError
from barco.limits import STAGED_DISK_FREE_MIN
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain, fsync_directory

_HEAD = struct.Struct("<IIII")
_MAGIC = 0x47545342
_SUFFIX = ".stage"
_META_BYTES_MAX = 1 << 20
_SCAN_BYTES = 1 << 20


class StagedRecord(NamedTuple):
    """One record of a file: what it says, and where its body lies."""

    meta: dict[str, Any]
    offset: int
    length: int
    crc: int


Entry = tuple[dict[str, Any], bytes | memoryview]
"""What a record is to say, and its body."""


class SpoolFile:
    """The file of one write."""

    def __init__(self, path: Path, fd: int, end: int) -> None:
        self.path = path
        self.fd = fd
        self.end = end
        self.synced = 0
        """All before this position is stable."""
        self.lock = asyncio.Lock()

    @property
    def closed(self) -> bool:
        """True once it is removed."""
        return self.fd < 0


class Spool:
    """The staging directory of a shard."""

    def __init__(self, directory: Path, bulk: BulkIo, free_min: int = STAGED_DISK_FREE_MIN) -> None:
        self._directory = directory
        self._bulk = bulk
        self._free_min = free_min

    async def recover(self) -> list[tuple[SpoolFile, list[StagedRecord]]]:
        """The files of an earlier run; each begins with a record of its write."""
        try:
            return await self._bulk.run(self._recover)
        except OSError as error:
            raise explain(error, self._directory, "read") from error

    def _recover(self) -> list[tuple[SpoolFile, list[StagedRecord]]]:
        layout.make_directory(self._directory)
        found = []
        for path in sorted(self._directory.glob("*" + _SUFFIX)):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            records = _scan(fd)
            if not records:
                os.close(fd)
                path.unlink()
                continue
            last = records[-1]
            file = SpoolFile(path, fd, last.offset + last.length)
            os.ftruncate(fd, file.end)
            found.append((file, records))
        return found

    async def create(self, name: str, meta: dict[str, Any]) -> SpoolFile:
        """A new file for the write of this name; errors as `append`."""
        path = self._directory / (hashlib.sha256(name.encode()).hexdigest()[:32] + _SUFFIX)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            fd = await self._bulk.run(os.open, path, flags, 0o600)
        except OSError as error:
            raise _refused(error, path) from error
        file = SpoolFile(path, fd, 0)
        try:
            await self.append(file, meta, b"")
        except BaseException:
            await self.remove(file)
            raise
        return file

    async def append(
        self, file: SpoolFile, meta: dict[str, Any], body: bytes | memoryview
    ) -> StagedRecord:
        """Adds a record at the end; under the file's lock. BusyError: there is no room for it."""
        return (await self.append_all(file, [(meta, body)]))[0]

    async def append_all(self, file: SpoolFile, entries: Sequence[Entry]) -> list[StagedRecord]:
        """Adds some records by one write; as `append`. A crash may leave the first of them."""
        pieces: list[bytes | memoryview] = []
        records = []
        end = file.end
        for meta, body in entries:
            packed = msgpack.packb(meta)
            assert len(packed) <= _META_BYTES_MAX
            body_crc = crc32c(body)
            head = _HEAD.pack(_MAGIC, len(packed), len(body), body_crc)
            crc = crc32c(packed, crc32c(head)).to_bytes(4, "little")
            pieces += (head, crc, packed, body)
            records.append(
                StagedRecord(meta, end + len(head) + 4 + len(packed), len(body), body_crc)
            )
            end = records[-1].offset + len(body)
        if layout.disk_space(self._directory).free - (end - file.end) < self._free_min:
            raise BusyError("The disk has no room for staged events.")
        try:
            await self._bulk.run(_write, file.fd, pieces, file.end)
        except OSError as error:
            raise _refused(error, file.path) from error
        file.end = end
        return records

    async def sync(self, file: SpoolFile) -> None:
        """Makes everything that was appended so far stable, the file's entry as well."""
        end = file.end
        if end == file.synced:
            return
        try:
            await self._bulk.run(_sync, file.fd, self._directory if file.synced == 0 else None)
        except OSError as error:
            # After a failed sync nobody knows what is on the disk: the whole write is given up.
            await self.remove(file)
            raise explain(error, file.path, "sync") from error
        file.synced = end

    async def read(self, file: SpoolFile, records: Sequence[StagedRecord]) -> list[bytes]:
        """The bodies; CorruptDataError if one is not what was staged."""
        spans = [(record.offset, record.length) for record in records]
        try:
            bodies = await self._bulk.run(_read, file.fd, spans)
        except OSError as error:
            raise explain(error, file.path, "read") from error
        for body, record in zip(bodies, records, strict=True):
            if len(body) != record.length or crc32c(body) != record.crc:
                raise CorruptDataError(f"{file.path}: a staged batch at {record.offset} is damaged")
        return bodies

    async def remove(self, file: SpoolFile) -> None:
        """Closes and deletes it."""
        fd, file.fd = file.fd, -1
        if fd >= 0:
            await self._bulk.run(_remove, fd, file.path)

    def close(self, files: Sequence[SpoolFile]) -> None:
        """Closes the descriptors; the files stay."""
        for file in files:
            if file.fd >= 0:
                os.close(file.fd)
                file.fd = -1


def _refused(error: OSError, path: Path) -> BrokerError | BusyError:
    """Why a write did not take place: nothing of it counts."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BusyError("The disk has no room for staged events.")
    return BrokerError(f"{path} cannot be written: {error.strerror}")


def _write(fd: int, pieces: list[bytes | memoryview], offset: int) -> None:
    """All of it, or an OSError; then the file ends where it ended before."""
    total = sum(map(len, pieces))
    try:
        done = os.pwritev(fd, pieces, offset)
        if done != total:
            joined = b"".join(pieces)
            while done < total:
                done += os.pwrite(fd, joined[done:], offset + done)
    except OSError:
        os.ftruncate(fd, offset)
        raise


def _sync(fd: int, directory: Path | None) -> None:
    os.fdatasync(fd)
    if directory is not None:
        fsync_directory(directory)


def _read(fd: int, spans: list[tuple[int, int]]) -> list[bytes]:
    return [os.pread(fd, length, offset) for offset, length in spans]


def _remove(fd: int, path: Path) -> None:
    os.close(fd)
    path.unlink(missing_ok=True)


def _scan(fd: int) -> list[StagedRecord]:
    """The records from the start up to the first that is not whole."""
    records: list[StagedRecord] = []
    size = os.fstat(fd).st_size
    at = 0
    while at + _HEAD.size + 4 <= size:
        head = os.pread(fd, _HEAD.size + 4, at)
        if len(head) < _HEAD.size + 4:
            break
        magic, meta_len, length, body_crc = _HEAD.unpack_from(head)
        if magic != _MAGIC or meta_len > _META_BYTES_MAX:
            break
        offset = at + len(head) + meta_len
        if offset + length > size:
            break
        packed = os.pread(fd, meta_len, at + len(head))
        if crc32c(packed, crc32c(head[: _HEAD.size])) != int.from_bytes(head[-4:], "little"):
            break
        if _body_crc(fd, offset, length) != body_crc:
            break
        records.append(StagedRecord(msgpack.unpackb(packed), offset, length, body_crc))
        at = offset + length
    return records


def _body_crc(fd: int, offset: int, length: int) -> int:
    crc = 0
    end = offset + length
    while offset < end:
        piece = os.pread(fd, min(_SCAN_BYTES, end - offset), offset)
        if not piece:
            return -1
        crc = crc32c(piece, crc)
        offset += len(piece)
    return crc
