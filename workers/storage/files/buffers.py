"""Memory for reads of the disk: page-aligned, in a few sizes, used again and again."""

import asyncio
import contextlib
import ctypes
import mmap
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from barco.errors import BusyError
from barco.types import KiB, MiB

BUFFER_BYTES_MIN = 64 * KiB
HUGE_PAGE_BYTES = 2 * MiB
"""Buffers that are as large ask for such pages: the kernel pins page by page for each read."""
POOL_BYTES = 32 * MiB
"""Buffers out at one time (reads under way, read-ahead); more waits, then is refused."""

POOL_WAIT_SECONDS = 5.0


def buffer_bytes(length: int) -> int:
    """What a buffer for so many bytes takes: steps of a quarter of a power of two."""
    step = 1 << max((length - 1).bit_length() - 3, 12)
    return max(BUFFER_BYTES_MIN, -(-length // step) * step)


class BufferPool:
    """Page-aligned memory in some sizes (`buffer_bytes`), handed out as memoryviews.

    A buffer comes back when the last view of it is gone, wherever that was: no release call that
    could come too early while a socket still sends from it. Buffers in use and those kept for the
    next use are within the pool's size together.
    """

    def __init__(self, bytes_max: int = POOL_BYTES) -> None:
        self.bytes_max = bytes_max
        self.bytes_out = 0
        self.reclaim: Callable[[], bool] = lambda: False
        """Asked when a read finds no room: lets go of read-ahead; false if there is none."""
        self._free: dict[int, list[mmap.mmap]] = {}
        self._free_bytes = 0
        self._out: dict[int, tuple[mmap.mmap, weakref.ref[Any]]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def try_take(self, length: int, *, spare: bool = False) -> memoryview | None:
        """A view of at least `length` bytes (rounded up), or None when the pool is used up.

        `spare`: for read-ahead, which takes nothing from anybody.
        """
        size = buffer_bytes(length)
        while self.bytes_out and self.bytes_out + size > self.bytes_max:
            if spare or not self.reclaim():
                return None
        memory = self._memory(size)
        lease = (ctypes.c_ubyte * size).from_buffer(memory)
        key = id(lease)
        self._out[key] = (memory, weakref.ref(lease, lambda _: self._back(key, size)))
        self.bytes_out += size
        return memoryview(lease).cast("B")

    def _memory(self, size: int) -> mmap.mmap:
        free = self._free.get(size)
        if free:
            self._free_bytes -= size
            return free.pop()
        while self._free_bytes and self.bytes_out + size + self._free_bytes > self.bytes_max:
            other = max(number for number, kept in self._free.items() if kept)
            self._free[other].pop()  # Its mapping goes with it.
            self._free_bytes -= other
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= HUGE_PAGE_BYTES:
            with contextlib.suppress(OSError):  # A kernel without them.
                memory.madvise(mmap.MADV_HUGEPAGE)
        return memory

    async def take(self, length: int) -> memoryview:
        """As `try_take`, but waits for a while; then BusyError (nothing was read).

        Whoever waits here holds no other buffer: else two could wait for each other.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + POOL_WAIT_SECONDS
        while (view := self.try_take(length)) is None:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait_for(waiter, until - loop.time())
            except TimeoutError:
                raise BusyError("all read buffers are in use: read less at a time") from None
        return view

    def _back(self, key: int, size: int) -> None:
        memory, _ = self._out.pop(key)
        self.bytes_out -= size
        if self._free_bytes + size <= self.bytes_max // 2:
            self._free.setdefault(size, []).append(memory)
            self._free_bytes += size
        # Else the mapping goes with its last reference: idle memory is half the pool at most.
        while self._waiters:
            # Each looks for itself; the first may need more than this. Buffers may be let go of by
            # another thread's last reference.
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
