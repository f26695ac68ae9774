"""Segment files: whole, zero-filled and stable before the first append may touch them.

A zero written ahead of the appends must never race with an append to the same block. It cannot
here: a file is zero-filled while it has a temporary name, and gets its segment name only
afterwards. So that a start does not wait for 128 MiB of zeros, the first segment of a start is
small, and while it fills up a full-sized spare is made ready in the background:

    make spare.tmp -> fallocate -> zeros (O_DIRECT, 1 MiB units) -> fsync
        -> rename to spare.ready -> fsync directory
        -> rename to gen-e/seg-n.log -> fsync both directories

A crash at any step leaves a temporary file (removed at the next start), a spare (used at the next
start) or an empty segment (recovery sees zeros: the end of the log).
"""

import asyncio
import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path

from barco.errors import BarcoError, DiskFullError
from barco.limits import PAGE_BYTES, REQUEST_BYTES_MAX
from barco.types import MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain, fsync_directory

FIRST_SEGMENT_BYTES = 2 * REQUEST_BYTES_MAX
"""The small first segment: one snapshot and one group with the largest request; ~20 ms of zeros."""

ZERO_DEPTH_FIRST = 4
ZERO_DEPTH_AHEAD = 1
"""Behind the broker's back one unit at a time, so that appends do not queue behind zeros."""

_OPEN_FLAGS = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
APPEND_FLAGS = _OPEN_FLAGS | os.O_DSYNC


class SegmentPool:
    """Makes the segment files of one shard, one spare ahead of its need.

    The descriptor that `prepare` returns is the caller's, who closes it after the last append.
    """

    def __init__(
        self,
        shard_dir: str | os.PathLike[str],
        segment_bytes: int,
        bulk: BulkIo,
        *,
        first_bytes: int = FIRST_SEGMENT_BYTES,
        on_error: Callable[[BarcoError], None] | None = None,
    ) -> None:
        """`on_error` hears why a spare could not be made; the next `prepare` tries again."""
        assert segment_bytes % PAGE_BYTES == 0 and first_bytes % PAGE_BYTES == 0
        self._shard = Path(shard_dir)
        self._segment_bytes = segment_bytes
        self._first_bytes = min(first_bytes, segment_bytes)
        self._bulk = bulk
        self._on_error = on_error
        self._spare_task: asyncio.Task[None] | None = None
        self._preparing = asyncio.Lock()
        self._started = False
        self._ahead: Path | None = None
        """A small file that is ready for whatever generation begins."""
        self._expected: _Expected | None = None
        self.installing = asyncio.Lock()

    async def prepare(self, epoch: int, index: int, state_bytes: int = 0) -> tuple[int, int]:
        """Makes segment `index` of generation `epoch`: (descriptor, capacity in bytes).

        A first segment has room for `state_bytes` of snapshot beyond what it usually holds.
        The descriptor is open for O_DIRECT|O_DSYNC appends; the file is preallocated, all zeros,
        and it and its name are stable. Raises DiskFullError (nothing is left behind, call again
        later), DataDirError, OperatorError (too many open files) or DiskError.
        """
        made = await self.prepare_if(epoch, index, lambda: True, state_bytes)
        assert made is not None
        return made

    async def prepare_if(
        self, epoch: int, index: int, wanted: Callable[[], bool], state_bytes: int = 0
    ) -> tuple[int, int] | None:
        """As `prepare`, but None if it is not wanted any more when it could get its name.

        Whoever holds `installing` meanwhile can be sure that no name appears.
        """
        expected = self._expected
        if expected is None or expected.made is None or (expected.epoch, 0) != (epoch, index):
            return await self._make_if(epoch, index, wanted, state_bytes)
        self._expected = None
        made = await asyncio.shield(expected.made)
        if made is not None and not wanted():
            _take_back(layout.segment_path(self._shard, epoch, index), expected.made)
            return None
        return made

    async def _make_if(
        self, epoch: int, index: int, wanted: Callable[[], bool], state_bytes: int
    ) -> tuple[int, int] | None:
        # One at a time: the segment of a generation may still be made when the next one begins.
        async with self._preparing:
            if index or not self._started:
                await self._spare_done()  # Else a generation begins: it takes what is there.
            return await self._prepare(epoch, index, wanted, state_bytes)

    async def _prepare(
        self, epoch: int, index: int, wanted: Callable[[], bool], state_bytes: int
    ) -> tuple[int, int] | None:
        path = layout.segment_path(self._shard, epoch, index)
        source, capacity = await self._source(state_bytes, small=index == 0)
        try:
            fd = os.open(source, APPEND_FLAGS)
        except OSError as error:
            raise explain(error, source, "open") from error
        try:
            async with self.installing:
                if not wanted():
                    os.close(fd)
                    return None
                await self._bulk.run(_install, source, path)
        except BaseException:
            os.close(fd)
            raise
        self._started = True
        if self._spare_task is None or self._spare_task.done():
            self._spare_task = asyncio.get_running_loop().create_task(self._make_spare())
        return fd, capacity

    async def make_ahead(self) -> None:
        """Makes a small first segment before there is a generation: when one begins, clients wait
        for it, and not for zeros. What goes wrong is told; `prepare` tries again."""
        assert not self._started, "there is a spare from then on"
        async with self._preparing:
            path = self._shard / f"ahead{layout.TEMPORARY_SUFFIX}"
            try:
                await self._make(path, self._first_bytes, ZERO_DEPTH_AHEAD)
                self._ahead = path
            except BarcoError as error:
                if self._on_error is not None:
                    self._on_error(error)

    def expect(self, epoch: int) -> None:
        """This generation is recorded, and about to begin: its first segment is made meanwhile, for
        `prepare_if`. It goes again when another one comes first."""
        self._unexpect()
        self._expected = expected = _Expected(epoch)
        made = self._make_if(epoch, 0, lambda: expected.wanted, 0)
        expected.made = asyncio.get_running_loop().create_task(made)

    def begins(self, epoch: int) -> None:
        """Another generation than this one is not expected any more."""
        if self._expected is not None and self._expected.epoch != epoch:
            self._unexpect()

    def _unexpect(self) -> None:
        expected, self._expected = self._expected, None
        if expected is not None and expected.made is not None:
            expected.wanted = False
            path = layout.segment_path(self._shard, expected.epoch, 0)
            expected.made.add_done_callback(functools.partial(_take_back, path))

    async def close(self) -> None:
        """Ends the background work. A finished spare stays for the next start."""
        expected = self._expected
        self._unexpect()
        if expected is not None and expected.made is not None:
            await asyncio.wait([expected.made])
        task, self._spare_task = self._spare_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _spare_done(self) -> None:
        task = self._spare_task
        if task is not None:
            await asyncio.shield(task)  # It reports its own failure; a cancelled caller does not
            self._spare_task = None  # take the spare with it.

    async def _source(self, state_bytes: int, *, small: bool) -> tuple[Path, int]:
        """A file ready to become a segment, and its size."""
        spare = self._shard / layout.SPARE_NAME
        try:
            if spare.stat().st_size == self._segment_bytes:
                if not small and self._started:
                    # The last one is kept for a start: without it the disk could not be read.
                    _check_space(self._shard, self._segment_bytes)
                return spare, self._segment_bytes
            spare.unlink()  # Of another segment_bytes.
        except FileNotFoundError:
            pass
        except OSError as error:
            raise explain(error, spare, "use") from error
        size = self._segment_bytes
        if small or not self._started:
            more = -(-2 * state_bytes // PAGE_BYTES) * PAGE_BYTES
            size = min(size, self._first_bytes + more)
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if size == self._first_bytes:
                return ahead, size
            ahead.unlink(missing_ok=True)  # It is too small for the state.
        path = self._shard / f"first{layout.TEMPORARY_SUFFIX}"
        await self._make(path, size, ZERO_DEPTH_FIRST)
        return path, size

    async def _make_spare(self) -> None:
        temporary = self._shard / f"spare{layout.TEMPORARY_SUFFIX}"
        try:
            await self._make(temporary, self._segment_bytes, ZERO_DEPTH_AHEAD)
            await self._bulk.run(_move, temporary, self._shard / layout.SPARE_NAME)
        except BarcoError as error:
            if self._on_error is not None:
                self._on_error(error)

    async def _make(self, path: Path, size: int, depth: int) -> None:
        """Creates `path` with `size` bytes of zeros that are stable; nothing remains on failure."""
        try:
            _check_space(self._shard, size)
            await self._bulk.run(_allocate, path, size)
            fd = os.open(path, _OPEN_FLAGS)
            try:
                await self._bulk.zero(fd, 0, size, depth)
            finally:
                os.close(fd)
            await self._bulk.run(_sync, path)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise explain(error, path, "prepare") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise


class _Expected:
    """A generation that is about to begin."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.wanted = True
        self.made: asyncio.Task[tuple[int, int] | None] | None = None
        """Its first segment, as `prepare_if` has it."""


def _take_back(path: Path, made: asyncio.Task[tuple[int, int] | None]) -> None:
    """Nobody wants this segment any more, which has its name: nothing is in it."""
    if made.cancelled() or made.exception() is not None or (found := made.result()) is None:
        return
    os.close(found[0])
    path.unlink(missing_ok=True)


def _check_space(directory: Path, size: int) -> None:
    space = layout.disk_space(directory)
    if space.free < size + layout.FREE_BYTES_RESERVE:
        raise DiskFullError(
            f"{directory}: {space.free // MiB} MiB are free, a segment needs {size // MiB} MiB and "
            f"{layout.FREE_BYTES_RESERVE // MiB} MiB stay in reserve: free some, or lower retention"
        )


# These run in threads, and open their files themselves: a descriptor handed over could have been
# closed, and its number reused, by the time the thread comes to it.


def _allocate(path: Path, size: int) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _move(source: Path, target: Path) -> None:
    try:
        os.rename(source, target)
    except OSError as error:
        raise explain(error, target, "rename to") from error
    fsync_directory(target.parent)


def _install(source: Path, target: Path) -> None:
    """Gives a prepared file its segment name; both directories are stable afterwards."""
    layout.make_directory(target.parent)
    if target.exists():
        raise explain(FileExistsError(errno.EEXIST, "exists"), target, "create")
    _move(source, target)
    fsync_directory(source.parent)


def remove_temporaries(shard: Path) -> int:
    """Removes what a crash left half made in a shard's directory; returns how many files."""
    count = 0
    for path in shard.glob(f"*{layout.TEMPORARY_SUFFIX}"):
        try:
            path.unlink()
        except OSError as error:
            raise explain(error, path, "remove") from error
        count += 1
    return count
