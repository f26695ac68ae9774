"""The native reactor as the selector of the worker's asyncio loop: one thread, one wait point.

asyncio's own descriptors (pipes, Unix sockets, executors' wake-ups) stay in a stock epoll; its
descriptor is one poll entry of the reactor. `select` submits, waits and handles the produce path
natively, and returns to Python only for what Python must decide.
"""

import selectors
from collections.abc import Callable, Sequence
from typing import Any

from barco._native import Reactor
from barco.workers.process.turns import Turns

Upcall = tuple[Any, ...]


class ReactorSelector(selectors.EpollSelector):
    """`select` is a stay in the native loop. `on_upcalls` must not raise, block or wait."""

    def __init__(self, reactor: Reactor, turns: Turns | None = None) -> None:
        super().__init__()
        self._reactor = reactor
        self._turns = turns or Turns()
        self.on_upcalls: Callable[[Sequence[Upcall]], None] = lambda upcalls: None
        """Told what one stay has brought, if it is something."""
        reactor.watch(self.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Seconds as asyncio gives them; None waits for ever."""
        if self._turns.look():
            timeout = 0.0  # Whom it woke goes on in this turn of asyncio's loop.
        ready, upcalls = self._reactor.run(timeout)
        if upcalls:
            self.on_upcalls(upcalls)
        self._turns.look()
        return super().select(0) if ready else []
