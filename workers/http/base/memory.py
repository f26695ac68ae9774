"""The memory of answers that are being put together, or that clients have not read yet."""

import asyncio
import functools
import weakref
from collections import deque
from collections.abc import Callable

from barco._native import Lent
from barco.errors import BusyError
from barco.limits import CHUNK_RAW_BYTES_MAX
from barco.workers.http.base.messages import Part

SHARE = 4
"""One answer takes a quarter of what is left at most, so that many may be under way at once."""


WAIT_SECONDS = 2.0
"""For answers to be read by their clients, before a request for another one gets 503."""


class AnswerMemory:
    """A budget. Under pressure answers become smaller, then wait; in the end requests get 503."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.shed: Callable[[int], object] = int
        """Closes connections that read nothing, for so many bytes; set by the worker."""
        self.used = 0
        self.wait_seconds = WAIT_SECONDS
        self._waiters: deque[asyncio.Event] = deque()
        self._sending: dict[int, weakref.ref[memoryview | Lent]] = {}

    async def take(self, wanted: int) -> int:
        """Reserve memory for reading: returns how many bytes may be read now, at most `wanted`.

        First come, first served. Raises BusyError after `wait_seconds`.
        """
        if not self.at_once(wanted):
            await self._turn()
        granted = self._share(wanted)
        self.used += granted
        self._wake()
        return granted

    def at_once(self, wanted: int) -> int:
        """As `take` would reserve, for who does not wait before the answer is counted; 0: it would
        have to wait."""
        return 0 if self.used >= self.bytes_max or self._waiters else self._share(wanted)

    def _share(self, wanted: int) -> int:
        return min(wanted, max((self.bytes_max - self.used) // SHARE, CHUNK_RAW_BYTES_MAX))

    async def _turn(self) -> None:
        """Wait behind all that wait already; whoever has had its turn wakes the next one."""
        loop = asyncio.get_running_loop()
        waiter = asyncio.Event()
        self._waiters.append(waiter)
        late = loop.call_later(self.wait_seconds / 2, self._make_room)
        try:
            async with asyncio.timeout_at(loop.time() + self.wait_seconds):
                while self._waiters[0] is not waiter or self.used >= self.bytes_max:
                    await waiter.wait()
                    waiter.clear()
            self._waiters.popleft()
        except BaseException as error:
            self._waiters.remove(waiter)
            self._wake()
            if isinstance(error, TimeoutError):
                raise BusyError(
                    "Clients have not read the answers that are waiting for them."
                ) from None
            raise
        finally:
            late.cancel()

    def _make_room(self) -> None:
        """Somebody has waited for long: who reads nothing of what he asked for has to go."""
        self.shed(max(0, self.used - self.bytes_max // 2))

    def give_back(self, granted: int) -> None:
        """The opposite of `take`."""
        self.used -= granted
        assert self.used >= 0, "given back twice"
        self._wake()

    def _wake(self) -> None:
        """Let the one that has waited longest look, if there is room."""
        if self._waiters and self.used < self.bytes_max:
            self._waiters[0].set()

    def counted(self, parts: list[Part]) -> list[Part]:
        """The same body; it counts until its last part has been sent and let go of."""
        if not parts:
            return parts
        size = sum(len(part) for part in parts)
        last = parts[-1] if isinstance(parts[-1], Lent) else memoryview(parts[-1])
        self.used += size
        # The reactor takes the view itself, and lets go of it when it is sent or never will be.
        self._sending[id(last)] = weakref.ref(last, functools.partial(self._sent, id(last), size))
        return [*parts[:-1], last]

    def _sent(self, key: int, size: int, _: object) -> None:
        del self._sending[key]
        self.give_back(size)
