"""An image of a data directory that is in use, as a crash could have left it.

A start makes the best of what a crash leaves, so that is all that an image has to be. Of one range:

- Its journal first, then its logs: a journal of an earlier moment has promised less than the logs
  allow, while one of a later moment may speak of groups that the copy lacks. The files are opened
  while the journal stays as it is, and what retention removes afterwards can still be read.
- Each log from its end to its beginning: a header says which groups before it were stable, and what
  is read after it is no older.
- Then a start's own look at the copy. Who catches up writes a row of groups in any order (`kept`),
  so it may have met a moment that no crash leaves: it is copied again.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barco.cli.commands.backup.manifest import BLOCK_BYTES, BackedUp, BlockSums, sync_directory
from barco.errors import DataDirError, NotReadyError, OperatorError
from barco.workers.storage.files import layout

JOURNAL = (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME)
PASSED_OVER = (layout.TRASH_NAME, layout.LINEAGE_ROOM_NAME, *JOURNAL)
"""What a start does not need, and what is copied in its own turn."""

STILL_TIMES_MAX = 200
STILL_SECONDS = 0.05
"""Between two attempts to open a range's files while its journal stays as it is."""

IMAGES_MAX = 10
"""Of one range, until a start would be content with it."""

_ZEROS = bytes(BLOCK_BYTES)


@dataclass(slots=True)
class Pace:
    """How fast to read, so that the broker has its disk."""

    bytes_per_second: int
    """0: as fast as it goes."""
    _at: float = field(default_factory=time.monotonic)

    def spent(self, size: int) -> None:
        """So much was read: waits until that was allowed."""
        if self.bytes_per_second:
            self._at = max(self._at, time.monotonic() - 1.0) + size / self.bytes_per_second
            time.sleep(max(0.0, self._at - time.monotonic()))


def take_range(
    source: Path, target: Path, name: str, pace: Pace, look: Callable[[Path], list[str]]
) -> tuple[list[BackedUp], list[str]]:
    """The files of one range, and what is damaged in it. look: what a start would find amiss in a
    copy. NotReadyError: its journal never stays as it is."""
    found: list[str] = []
    for _ in range(IMAGES_MAX):
        files = list(_take(source, target, name, pace))
        if not (found := look(target / name)):
            break
    return files, found


def _take(source: Path, target: Path, name: str, pace: Pace) -> Iterator[BackedUp]:
    journal, opened = _opened(source / name)
    try:
        (target / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, content in journal.items():
            yield write_file(target, f"{name}/{path}", content)
        for path in sorted(opened, reverse=True):  # The newest generation and segment first.
            yield _copy(opened[path], target, f"{name}/{path}", pace)
    finally:
        for fd in opened.values():
            os.close(fd)
    for directory in {(target / name / path).parent for path in opened} | {target / name}:
        sync_directory(directory)


def _opened(shard: Path) -> tuple[dict[str, bytes], dict[str, int]]:
    """The journal, and a descriptor for every file, of a time in which the journal stayed."""
    for _ in range(STILL_TIMES_MAX):
        opened: dict[str, int] = {}
        try:
            before = _journal(shard)
            for path in _names(shard):
                opened[path] = os.open(shard / path, os.O_RDONLY | os.O_CLOEXEC)
            if _journal(shard) == before:
                return before, opened
        except FileNotFoundError:
            pass  # It has just been removed, or got its name.
        except OSError as error:
            _close(opened)
            if error.errno in (errno.EMFILE, errno.ENFILE):
                words = f"{shard} has more files than this process may open: raise ulimit -n"
                raise OperatorError(words) from None
            raise DataDirError(f"cannot read {error.filename}: {error.strerror}") from None
        _close(opened)
        time.sleep(STILL_SECONDS)
    raise NotReadyError(f"the journal of {shard} changes all the time: try again in a while")


def _close(opened: dict[str, int]) -> None:
    for fd in opened.values():
        os.close(fd)


def _journal(shard: Path) -> dict[str, bytes]:
    return {name: (shard / name).read_bytes() for name in JOURNAL if (shard / name).exists()}


def _names(shard: Path) -> Iterator[str]:
    """All that a start may need."""
    for directory, below, files in os.walk(shard):
        inside = Path(directory).relative_to(shard)
        if inside == Path():
            below[:] = [each for each in below if each not in PASSED_OVER]
            files = [each for each in files if each not in (*PASSED_OVER, layout.SPARE_NAME)]
        for name in files:
            if not name.endswith(layout.TEMPORARY_SUFFIX):
                yield str(inside / name)


def _copy(fd: int, target: Path, path: str, pace: Pace) -> BackedUp:
    """From its end to its beginning; zeros make a hole."""
    file = target / path
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    size, whole = os.fstat(fd).st_size, BlockSums()
    to = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(to, size)
        for number in range(-(-size // BLOCK_BYTES) - 1, -1, -1):
            at = number * BLOCK_BYTES
            block = _block(fd, at, min(BLOCK_BYTES, size - at))
            whole.add(number, block)
            if block != _ZEROS[: len(block)]:
                write_all(to, block, at)
            os.posix_fadvise(fd, at, len(block), os.POSIX_FADV_DONTNEED)
            pace.spent(len(block))
        os.fsync(to)
    except OSError as error:
        raise DataDirError(f"cannot copy to {file}: {error.strerror}") from None
    finally:
        os.close(to)
    return BackedUp(path=path, bytes=size, sum=whole.hexdigest())


def _block(fd: int, at: int, size: int) -> bytes:
    """Zeros where the file has been cut meanwhile: only zeros are ever cut off."""
    got = b""
    while len(got) < size:
        piece = os.pread(fd, size - len(got), at + len(got))
        if not piece:
            break
        got += piece
    return got.ljust(size, b"\0")


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    """All of it, there."""
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, at)
        view, at = view[done:], at + done


def write_file(target: Path, path: str, content: bytes) -> BackedUp:
    """A small one, from memory; stable but for its name."""
    whole = BlockSums()
    for number in range(-(-len(content) // BLOCK_BYTES)):
        whole.add(number, content[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES])
    fd = os.open(target / path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, content, 0)
        os.fsync(fd)
    except OSError as error:
        raise DataDirError(f"cannot write {target / path}: {error.strerror}") from None
    finally:
        os.close(fd)
    return BackedUp(path=path, bytes=len(content), sum=whole.hexdigest())
