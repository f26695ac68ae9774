"""The seam for disk work off the append path: replay, recovery, zero-filling. One method per need.

Two engines behind one face: `pyuring` (an io_uring of its own, whose descriptor is watched by the
worker's asyncio loop) and a small thread pool where io_uring is refused. Everything moves in units
of at most 1 MiB with a few of them in flight, through page-aligned buffers that return to their
pool by themselves once nobody looks at them any more.

What is used of pyuring 0.3.0, and why no more: `read_async_ptr`, `write_async_ptr`,
`peek_completion`, `submit`. Its synchronous calls (fsync among them) reap whatever completion
comes first and so can report another operation's success as their own; syncs go to a thread, and
so do zeros: where nobody waits for a unit, each costs a system call instead of a turn of the loop.
"""

import asyncio
import contextlib
import ctypes
import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from barco import _native
from barco.errors import BusyError
from barco.limits import PAGE_BYTES
from barco.types import MiB
from barco.workers.storage.files.buffers import (
    HUGE_PAGE_BYTES,
    POOL_BYTES,
    BufferPool,
    buffer_bytes,
)

pyuring: Any
try:
    import pyuring
except (ImportError, OSError):  # No wheel for this Python, or a library that does not load.
    pyuring = None

T = TypeVar("T")

ENTRY_BYTES = 32
"""Of one entry of an index (index/sidecar.py has its fields)."""

Group = tuple[int, int, int]
"""Of entries of an index that are read by one call: the first, how many, bytes of memory."""

UNIT_BYTES = 1 * MiB
"""Of one disk operation: where this path reaches the device's full rate at depth 4."""

GROUP_BYTES = HUGE_PAGE_BYTES
"""Of memory for one group of chunks: a huge page, which the kernel pins as one."""

DEPTH = 4
"""Operations in flight for one sequential reader."""

ZERO_STEP_BYTES = 8 * MiB
"""What a thread writes before a cancelled caller is listened to."""

_URING_ENTRIES = 64
_URING_IN_FLIGHT_MAX = 32
_THREADS = 4
_SUBMIT_AGAIN = (errno.EINTR, errno.EAGAIN, errno.EBUSY)


class GroupRead(NamedTuple):
    """What a group gave."""

    group: Group
    chunks: memoryview
    """Those that are what the index says, from the group's first on, back to back."""
    good: int
    """How many they are: the one after them is damaged, or could not be read."""
    raw_bytes: int
    end: int
    """The offset after their last event."""
    held: int
    """Bytes of the buffer that they lie in."""


class BulkIo(ABC):
    """Reads, writes and syncs for asyncio code. Errors are OSError; the caller knows the path."""

    engine: str
    """"pyuring" or "threads": shown in /status."""

    def __init__(self, pool_bytes: int = POOL_BYTES) -> None:
        self.buffers = BufferPool(pool_bytes)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="barco-bulk")
        self._readers = ThreadPoolExecutor(DEPTH, thread_name_prefix="barco-read")
        self._zeros: memoryview | None = None

    @abstractmethod
    def _start(self, write: bool, fd: int, offset: int, view: memoryview) -> "asyncio.Future[int]":
        """Begins one operation; its result is a count of bytes or a negative errno."""

    async def read(self, fd: int, offset: int, length: int) -> memoryview:
        """`length` bytes from `offset`, fewer only at the end of the file.

        Neither has to be aligned: what is read from an O_DIRECT descriptor is widened to pages.
        Raises OSError, and BusyError when no buffer became free.
        """
        start = offset - offset % PAGE_BYTES
        size = -(-(offset + length - start) // PAGE_BYTES) * PAGE_BYTES
        view = await self.buffers.take(size)
        try:
            got = await self.read_into(fd, start, view[:size])
        except OSError as error:
            del view  # The error's traceback keeps this frame.
            raise error.with_traceback(None) from None
        begin = offset - start
        return view[begin : max(begin, min(got, begin + length))]

    async def read_chunks(
        self,
        fd: int,
        entries: bytes,
        groups: Sequence[Group],
        wanted: tuple[str, int, int],
        *,
        wait: bool = True,
        spare: bool = False,
    ) -> list[GroupRead]:
        """Chunks of one stream by entries of an index, as `entries_plan` has grouped them.

        `wanted`: topic, slice, and columns (-1: all, whole). One call in a thread reads, checks and
        moves them together: the loop is told once. Fewer groups, the first ones, when there are not
        enough buffers: nobody waits for one while it holds others. BusyError when there is not even
        one (at once without `wait`). `spare`: for read-ahead.
        """
        taken = self._buffers_for(entries, groups, spare)
        if not taken:
            if not wait:
                raise BusyError("all read buffers are in use: read less at a time")
            group = _smaller(entries, groups[0], 1)[0]
            taken = [(group, await self.buffers.take(group[2]))]
        own = os.dup(fd)  # As in ThreadBulk; closed also where the job is cancelled.
        places = [(first, count, view) for (first, count, _), view in taken]
        job = self._readers.submit(_native.disk_chunks, own, entries, places, *wanted)
        job.add_done_callback(lambda _: os.close(own))
        found = await asyncio.wrap_future(job)
        return [
            GroupRead(group, view[:size], good, raw, end, buffer_bytes(group[2]))
            for (group, view), (good, size, raw, end) in zip(taken, found, strict=False)
        ]

    def _buffers_for(
        self, entries: bytes, groups: Sequence[Group], spare: bool
    ) -> list[tuple[Group, memoryview]]:
        """As many groups as there is room for; of the last one perhaps only its first entries."""
        taken: list[tuple[Group, memoryview]] = []
        todo = deque(groups)
        while todo:
            group = todo.popleft()
            view = self.buffers.try_take(group[2], spare=spare)
            if view is not None:
                taken.append((group, view))
            elif group[2] > UNIT_BYTES and group[1] > 1:
                todo = deque(_smaller(entries, group, UNIT_BYTES))
            elif group[1] > 1:
                todo = deque(_smaller(entries, group, 1)[:1])
            else:
                break
        return taken

    async def read_into(self, fd: int, offset: int, view: memoryview, depth: int = DEPTH) -> int:
        """Fills an aligned view from an aligned offset; the bytes read before the file's end."""
        total = 0
        for count in await self._in_units(False, fd, offset, view, depth):
            total += count
            if count < UNIT_BYTES:
                break
        return total

    async def write(self, fd: int, offset: int, view: memoryview, depth: int = DEPTH) -> None:
        """Writes an aligned view at an aligned offset; stable only after `sync` (or O_DSYNC)."""
        await self._in_units(True, fd, offset, view, depth)

    async def zero(self, fd: int, offset: int, length: int, depth: int = DEPTH) -> None:
        """Writes zeros over [offset, offset + length), both aligned, with up to `depth` threads.

        In threads, whatever the engine: a step through the loop for each MiB cost four times what
        the kernel takes for it. Raises OSError; cancelled, what a thread has begun goes on.
        """
        if self._zeros is None:
            self._zeros = _huge_page_zeros()
        zeros, end, gate = self._zeros, offset + length, asyncio.Semaphore(depth)

        async def one(at: int) -> None:
            async with gate:
                stop = min(at + ZERO_STEP_BYTES, end)
                await self.run(_write_zeros, os.dup(fd), zeros, at, stop)

        await _all_ended([one(at) for at in range(offset, end, ZERO_STEP_BYTES)])

    async def sync(self, fd: int) -> None:
        """Makes data and size of the file stable."""
        await self.run(_sync, os.dup(fd))

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """A blocking file system call, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """Waits for what is in flight; nothing may be started afterwards."""
        self._threads.shutdown(wait=True)
        self._readers.shutdown(wait=True)

    async def _in_units(
        self, write: bool, fd: int, offset: int, view: memoryview, depth: int
    ) -> list[int]:
        if len(view) <= UNIT_BYTES:
            return [await self._whole(write, fd, offset, view)]
        parts = [
            (offset + at, view[at : at + UNIT_BYTES]) for at in range(0, len(view), UNIT_BYTES)
        ]
        return await self._parts(write, fd, parts, depth)

    async def _parts(
        self, write: bool, fd: int, parts: list[tuple[int, memoryview]], depth: int
    ) -> list[int]:
        gate = asyncio.Semaphore(depth)

        async def one(at: int, view: memoryview) -> int:
            async with gate:
                return await self._whole(write, fd, at, view)

        return await _all_ended([one(*part) for part in parts])

    async def _whole(self, write: bool, fd: int, offset: int, view: memoryview) -> int:
        """Repeats short transfers; the bytes moved, fewer than asked only at the file's end."""
        done = 0
        while done < len(view):
            count = await self._start(write, fd, offset + done, view[done:])
            if count in (-errno.EINTR, -errno.EAGAIN):
                await asyncio.sleep(0.001)
                continue
            if count < 0:
                raise OSError(-count, os.strerror(-count))
            done += count
            if count == 0 or done % PAGE_BYTES:
                if write and done < len(view):
                    raise OSError(errno.EIO, f"short write: {done} of {len(view)} bytes")
                break
        return done


async def _all_ended(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results. All end before the first error is raised: the caller closes descriptors."""
    results = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


class ThreadBulk(BulkIo):
    """The fallback: preadv and pwritev in a few threads."""

    engine = "threads"

    def _start(self, write: bool, fd: int, offset: int, view: memoryview) -> "asyncio.Future[int]":
        # A duplicate: a caller that is cancelled may close fd before the thread comes to it, and
        # the number may be another file by then.
        own = os.dup(fd)
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, _transfer, write, own, offset, view)


def _smaller(entries: bytes, group: Group, group_bytes: int) -> list[Group]:
    """The entries of a group in smaller ones, of one entry at least."""
    first, count, size = group
    part = entries[first * ENTRY_BYTES : (first + count) * ENTRY_BYTES]
    groups = _native.entries_plan(part, size, group_bytes)  # All: none is larger stored.
    return [(first + at, some, memory) for at, some, memory in groups]


def _huge_page_zeros() -> memoryview:
    """UNIT_BYTES of zeros, in one huge page if there is one: the kernel pins page by page."""
    memory = mmap.mmap(-1, 2 * HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(memory)
    start = -address_of(view) % HUGE_PAGE_BYTES
    with contextlib.suppress(OSError):  # A kernel without them.
        memory.madvise(mmap.MADV_HUGEPAGE, start, HUGE_PAGE_BYTES)
    zeros = view[start : start + UNIT_BYTES]
    zeros[:] = bytes(UNIT_BYTES)  # Written to, else every page of it is the one of all zeros.
    return zeros


def _write_zeros(fd: int, zeros: memoryview, at: int, stop: int) -> None:
    """Over [at, stop), then closes fd, its own: the caller's may be closed before."""
    try:
        while at < stop:
            count = os.pwritev(fd, [zeros[: min(len(zeros), stop - at)]], at)
            if count <= 0 or count % PAGE_BYTES:
                raise OSError(errno.EIO, f"short write: {count} bytes")
            at += count
    finally:
        os.close(fd)


def _sync(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _transfer(write: bool, fd: int, offset: int, view: memoryview) -> int:
    try:
        return os.pwritev(fd, [view], offset) if write else os.preadv(fd, [view], offset)
    except OSError as error:
        return -(error.errno or errno.EIO)
    finally:
        os.close(fd)


class UringBulk(BulkIo):
    """pyuring: an io_uring of this worker's own, its descriptor watched by the asyncio loop."""

    engine = "pyuring"

    def __init__(self, pool_bytes: int = POOL_BYTES) -> None:
        """Raises OSError when the kernel refuses io_uring."""
        if pyuring is None:
            raise OSError(errno.ENOSYS, "pyuring is not installed")
        self._context: Any = pyuring.UringCtx(entries=_URING_ENTRIES)
        super().__init__(pool_bytes)
        self._fd: int = self._context.ring_fd
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next = 0
        # The views stay here until the kernel is done with them, whoever has given up waiting.
        self._in_flight: dict[int, tuple[asyncio.Future[int], memoryview]] = {}
        self._queue: deque[tuple[asyncio.Future[int], bool, int, int, memoryview]] = deque()
        self._broken: OSError | None = None

    def _start(self, write: bool, fd: int, offset: int, view: memoryview) -> "asyncio.Future[int]":
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            loop.add_reader(self._fd, self._reap)
            self._loop = loop
        future: asyncio.Future[int] = loop.create_future()
        if self._broken is not None:
            future.set_exception(self._broken)
        elif len(self._in_flight) >= _URING_IN_FLIGHT_MAX:
            self._queue.append((future, write, fd, offset, view))
        else:
            self._submit(future, write, fd, offset, view)
        return future

    def _submit(
        self, future: "asyncio.Future[int]", write: bool, fd: int, offset: int, view: memoryview
    ) -> None:
        self._next = self._next + 1 & 0x7FFFFFFF
        self._in_flight[self._next] = (future, view)
        call = self._context.write_async_ptr if write else self._context.read_async_ptr
        try:
            call(fd, address_of(view), len(view), offset, self._next)
        except OSError as error:
            # The entry is already in the submission queue; only telling the kernel has failed.
            self._submit_later(error)

    def _submit_later(self, error: OSError) -> None:
        if error.errno not in _SUBMIT_AGAIN:
            self._break(error)
        elif self._loop is not None:
            self._loop.call_later(0.001, self._submit_rest)

    def _submit_rest(self) -> None:
        if self._broken is None:
            try:
                self._context.submit()
            except OSError as error:
                self._submit_later(error)

    def _reap(self) -> None:
        while self._broken is None:
            try:
                completion = self._context.peek_completion()
            except OSError as error:
                if error.errno in _SUBMIT_AGAIN:
                    return
                self._break(error)
                return
            if completion is None:
                return
            future, _ = self._in_flight.pop(completion[0])
            if not future.done():
                future.set_result(completion[1])
            self._submit_queued()

    def _submit_queued(self) -> None:
        while self._queue and len(self._in_flight) < _URING_IN_FLIGHT_MAX:
            future, write, fd, offset, view = self._queue.popleft()
            if not future.done():  # Cancelled meanwhile: its descriptor may be closed.
                self._submit(future, write, fd, offset, view)

    def _break(self, error: OSError) -> None:
        """An io_uring that fails in an unknown way is left alone; its memory stays referenced."""
        self._broken = error
        waiting = [future for future, _ in self._in_flight.values()]
        waiting += [entry[0] for entry in self._queue]
        self._queue.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        """Waits for what is in flight (disk operations end), then gives the io_uring back."""
        self._queue.clear()
        while self._in_flight and self._broken is None:
            try:
                self._in_flight.pop(self._context.wait_completion()[0])
            except OSError as error:
                if error.errno != errno.EINTR:
                    break
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._context.close()
        super().close()


def address_of(view: memoryview) -> int:
    """Where a view's bytes are, for the kernel; the view must outlive the use of the address."""
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


def open_bulk(engine: str = "auto", pool_bytes: int = POOL_BYTES) -> BulkIo:
    """The best engine that works here; `engine` "epoll" or "threads" asks for the fallback.

    Call it in the thread that runs the asyncio loop, after any fork.
    """
    if engine not in ("epoll", "threads"):
        try:
            return UringBulk(pool_bytes)
        except OSError:
            pass  # Not installed, or forbidden (EPERM in containers); `engine` tells which it is.
    return ThreadBulk(pool_bytes)
