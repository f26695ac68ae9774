"""Groups that are kept in one file before they are written to their places together.

A header says what was stable before its group, and recovery believes it (rule S5). So whoever
copies a log would have to wait for the disk after each group, and catch up no faster than its
leader goes on. What was kept first may be torn in its place: a start of the process puts all of it
there again, the same bytes, before anybody looks at the log. One file for each generation; the next
row replaces it, when the one before is stable in its place.
"""

import os
import struct
from pathlib import Path

from crc32c import crc32c
from msgspec import Struct

from barco.limits import PAGE_BYTES
from barco.types import MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import explain, fsync_directory

NAME = "row.kept"
MAGIC = b"barcoROW"
ROW_BYTES_MAX = 1 * MiB
"""Of groups that are kept together."""

_HEADER = struct.Struct("<8sIQQI")
"""Magic, segment, offset in it, bytes, their crc32c; then the crc32c of these."""


def keep(shard: Path, epoch: int, segment: int, offset: int, data: bytes) -> None:
    """Stable when it returns. Raises BarcoError when the disk fails or is full."""
    path = layout.generation_path(shard, epoch) / NAME
    head = _HEADER.pack(MAGIC, segment, offset, len(data), crc32c(data))
    head += struct.pack("<I", crc32c(head))
    write_stable(path, 0, head.ljust(PAGE_BYTES, b"\0") + data)


class Row(Struct, frozen=True):
    """What was kept, and where its place is."""

    segment: int
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """Where its place ends in the segment."""
        return self.offset + len(self.data)

    def over(self, read: bytes, offset: int, length: int) -> bytes:
        """What `length` bytes of its segment are once the row is in its place.

        `read` is what they are now, from `offset` on; fewer where the file ends.
        """
        begin, end = max(self.offset, offset), min(self.end, offset + length)
        if begin >= end or begin > offset + len(read):
            return read
        mine = self.data[begin - self.offset : end - self.offset]
        return read[: begin - offset] + mine + read[end - offset :]


def load(shard: Path, epoch: int) -> Row | None:
    """What was kept of a generation; None if nothing, or torn: then nothing was begun in its place.

    Raises BarcoError when it cannot be read.
    """
    path = layout.generation_path(shard, epoch) / NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(error, path, "read") from error
    head, at = content[: _HEADER.size], _HEADER.size
    if len(content) < PAGE_BYTES or content[at : at + 4] != struct.pack("<I", crc32c(head)):
        return None
    magic: bytes
    segment: int
    offset: int
    length: int
    magic, segment, offset, length, crc = _HEADER.unpack(head)
    data = content[PAGE_BYTES : PAGE_BYTES + length]
    if magic != MAGIC or len(data) != length or crc32c(data) != crc:
        return None
    return Row(segment, offset, data)


def restore(shard: Path, epoch: int) -> int:
    """Puts what was kept of a generation in its place; stable when it returns. How many bytes."""
    row = load(shard, epoch)
    if row is None:
        return 0
    target = layout.segment_path(shard, epoch, row.segment)
    try:
        if target.stat().st_size < row.offset:
            return 0
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise explain(error, target, "read") from error
    write_stable(target, row.offset, row.data)
    return len(row.data)


def forget(shard: Path, epoch: int) -> None:
    """The generation has ended and is whole."""
    path = layout.generation_path(shard, epoch) / NAME
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, path, "remove") from error


def write_stable(path: Path, offset: int, data: bytes) -> None:
    """Bytes at their place in a file, which is made if it is not there; stable when it returns.

    Raises BarcoError when the disk fails or is full.
    """
    try:
        new = not path.exists()
        if new:
            layout.make_directory(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:  # However little the kernel takes at a time.
                done = os.pwrite(fd, view, offset)
                view, offset = view[done:], offset + done
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "write") from error
    if new:
        fsync_directory(path.parent)
