"""Long polls: coroutines that wait until events become stable."""

import asyncio
import time
from collections.abc import Callable, Iterator

from barco.workers.seams import ReactorLike

CHECK_INTERVAL_S = 0.001
"""Waiters are looked at no more often than this: a busy log becomes stable thousands of times a
second, and each look costs a microsecond for each slice of each waiter."""

CHECK_SHARE = 0.1
"""Nor for more than this share of the time, however many wait."""

LOOKED_AT_ONCE = 256
"""Of thousands who wait, a fifth of a millisecond; the others after a turn of the loop, so that
produce does not wait for all of them."""

WOKEN_AT_ONCE = 1
"""It then has its request to answer, a third of a millisecond: produce waits for no more."""


class Waiters:
    """Who waits, and for what. The reactor is asked to report only while somebody does."""

    def __init__(self, reactor: ReactorLike) -> None:
        self._reactor = reactor
        self._waiting: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._checked = 0.0
        self._cost = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._left: Iterator[asyncio.Future[bool]] | None = None
        self._again = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, ready: Callable[[], bool], timeout: float) -> bool:
        """Until `ready()` (looked at whenever events become stable) or `wake`; false: timeout."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer: asyncio.TimerHandle | None = None
        if not self._waiting:
            self._reactor.notify(True)
        self._waiting[future] = ready
        try:
            # Looked at after reporting has been switched on, so that nothing falls in between.
            if ready():
                return True
            timer = loop.call_later(timeout, _give_up, future)
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[future]
            if not self._waiting:
                self._reactor.notify(False)

    def look(self) -> None:
        """Something became stable (the reactor's upcall), or the groups' members changed."""
        self._again = self._left is not None
        if not self._waiting or self._timer is not None or self._again:
            return
        loop = asyncio.get_running_loop()
        pause = max(CHECK_INTERVAL_S, self._cost / CHECK_SHARE) + self._checked - loop.time()
        if pause <= 0:
            self._check()
        else:
            self._timer = loop.call_later(pause, self._check)

    def wake(self) -> None:
        """Let everyone look again for themselves (somebody else leads, or positions were set)."""
        for future in self._waiting:
            if not future.done():
                future.set_result(True)

    def _check(self) -> None:
        """Begins a look at all who wait now."""
        self._timer = None
        self._cost = 0.0
        self._left = iter(list(self._waiting))
        self._go_on()

    def _go_on(self) -> None:
        """Looks at some more of them."""
        left, self._left = self._left, None
        assert left is not None
        began = time.thread_time()  # Not what it stood still meanwhile, on a busy machine.
        loop = asyncio.get_running_loop()
        pause: float | None = None
        woken = 0
        for looked_at, future in enumerate(left, 1):
            if not future.done() and self._waiting[future]():
                future.set_result(True)
                woken += 1
            if woken == WOKEN_AT_ONCE or looked_at == LOOKED_AT_ONCE:
                pause = 0.0  # The others after a turn of the loop.
                break
        self._checked = loop.time()
        self._cost += time.thread_time() - began
        if pause is not None:
            self._left = left
            loop.call_later(pause, self._go_on)
        elif self._again:
            self.look()


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


async def breathe() -> None:
    """Let the loop turn: produce requests wait while a long answer is put together."""
    await asyncio.sleep(0)
