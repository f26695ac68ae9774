"""One question to several who can answer it, for reads that one slow of them must not hold up.

One is asked, and after a short while a second one beside it; the first good answer counts, and what
is still under way is cancelled. Who was overtaken comes last for a while: a process that is stopped
costs one short wait, and not one for each read.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from barco.errors import BarcoError

HEDGE_SECONDS = 0.3
"""For one, before another is asked as well. Reads from a busy disk take a tenth of that."""

ASKED_MAX = 3
"""At once for one question: as many as there are members."""

BESIDE_MAX = 4
"""At each of them, of what is asked of others at the same time; more wait. Where all disks are
slow, their load must not double."""

SLOW_SECONDS = 60.0
"""For so long one that was overtaken comes last."""

Taken = TypeVar("Taken")


class Hedges:
    """Of one process: who is slow, and what is asked twice."""

    def __init__(self) -> None:
        self._slow: dict[int, float] = {}
        """By their numbers in the cluster: until when they come last."""
        self._rooms: dict[int, asyncio.Semaphore] = {}
        """For what is asked beside others: if all disks are slow, load must not double."""

    def order(self, peers: Iterable[int]) -> list[int]:
        """Those that are slow come last."""
        now = asyncio.get_running_loop().time()
        self._slow = {peer: until for peer, until in self._slow.items() if until > now}
        return sorted(peers, key=self._slow.__contains__)

    async def first_good(
        self,
        peers: Sequence[int],
        ask: Callable[[int], Awaitable[Taken]],
        failures: list[BarcoError],
    ) -> tuple[int, Taken] | None:
        """Who has answered first, and what; None: nobody has, and why not is in `failures`, in the
        order in which they came. ask: raises a BarcoError where there is no answer."""
        time = asyncio.get_running_loop().time
        todo = deque(self.order(peers))
        tasks: dict[asyncio.Task[Taken], tuple[int, float]] = {}
        try:
            while todo or tasks:
                if todo and len(tasks) < ASKED_MAX:
                    peer = todo.popleft()
                    coroutine = self._beside(peer, ask) if tasks else ask(peer)
                    tasks[asyncio.ensure_future(coroutine)] = (peer, time())
                more = todo and len(tasks) < ASKED_MAX
                done, _ = await asyncio.wait(
                    tasks,
                    timeout=HEDGE_SECONDS if more else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                good: tuple[int, Taken] | None = None
                for task in done:
                    peer, began = tasks.pop(task)
                    try:
                        good = (peer, task.result())
                    except BarcoError as error:
                        failures.append(error)
                        self._note([(peer, began)])
                if good is not None:
                    self._note(tasks.values())
                    return good
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return None

    async def _beside(self, peer: int, ask: Callable[[int], Awaitable[Taken]]) -> Taken:
        async with self._rooms.setdefault(peer, asyncio.Semaphore(BESIDE_MAX)):
            return await ask(peer)

    def _note(self, overtaken: Iterable[tuple[int, float]]) -> None:
        """They have not answered, and others have, or they never will."""
        now = asyncio.get_running_loop().time()
        for peer, began in overtaken:
            if now - began >= HEDGE_SECONDS:
                self._slow[peer] = now + SLOW_SECONDS
