"""The memory of answers that are being put together, or that clients have not read yet."""

import asyncio
import functools
import weakref
from collections import deque

from barco.errors import BusyError
from barco.limits import CHUNK_RAW_BYTES_MAX
from barco.workers.http.messages import Part

SHARE = 4
"""One answer takes a quarter of what is left at most, so that many may be under way at once."""


WAIT_SECONDS = 2.0
"""For answers to be read by their clients, before a request for another one gets 503."""


class AnswerMemory:
    """A budget. Under pressure answers become smaller, then wait; in the end requests get 503."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.wait_seconds = WAIT_SECONDS
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._sending: dict[int, weakref.ref[memoryview]] = {}

    async def take(self, wanted: int) -> int:
        """Reserve memory for reading: returns how many bytes may be read now, at most `wanted`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait_seconds
        while self.used >= self.bytes_max:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait_for(waiter, until - loop.time())
            except TimeoutError:
                raise BusyError(
                    "Clients have not read the answers that are waiting for them."
                ) from None
        granted = min(wanted, max((self.bytes_max - self.used) // SHARE, CHUNK_RAW_BYTES_MAX))
        self.used += granted
        return granted

    def give_back(self, granted: int) -> None:
        """The opposite of `take`."""
        self.used -= granted
        assert self.used >= 0, "given back twice"
        while self._waiters and self.used < self.bytes_max:
            waiter = self._waiters.popleft()
            if not waiter.done():  # Each looks for itself, in order.
                waiter.set_result(None)

    def counted(self, parts: list[Part]) -> list[Part]:
        """The same body; it counts until its last part has been sent and let go of."""
        if not parts:
            return parts
        size = sum(len(part) for part in parts)
        last = memoryview(parts[-1])
        self.used += size
        # The reactor takes the view itself, and lets go of it when it is sent or never will be.
        self._sending[id(last)] = weakref.ref(last, functools.partial(self._sent, id(last), size))
        return [*parts[:-1], last]

    def _sent(self, key: int, size: int, _: object) -> None:
        del self._sending[key]
        self.give_back(size)
