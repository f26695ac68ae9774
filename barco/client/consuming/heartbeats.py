"""Signs of life of a consumer whose program is busy with what the last poll returned."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from barco.errors import BarcoError, NotFoundError, NotRegisteredError

BEATS_A_SESSION = 3
"""One or two may be lost."""

_log = logging.getLogger("barco.client")


class Heartbeats:
    """Says at some broker that the consumer is alive, three times a session."""

    def __init__(
        self, say: Callable[[], Awaitable[None]], session_seconds: float, busy_seconds_max: float
    ) -> None:
        """say: to any broker. busy_seconds_max: a program that has not called for so long hangs,
        and its slices are better with others."""
        self._say = say
        self._every = session_seconds / BEATS_A_SESSION
        self._busy_max = busy_seconds_max
        self._called = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on, in this loop."""
        if self._busy_max > 0:
            self._task = asyncio.ensure_future(self._run())

    def called(self) -> None:
        """The program has polled or committed."""
        self._called = time.monotonic()

    async def close(self) -> None:
        """No more of them."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        told = False
        while True:
            await asyncio.sleep(self._every)
            silent = time.monotonic() - self._called
            if silent < self._every:
                told = False
                continue  # Its polls say so themselves.
            if silent > self._busy_max:
                if not told:
                    _log.warning("nothing was polled for %.0f s: heartbeats stop", silent)
                told = True
                continue
            try:
                await self._say()
            except NotFoundError:
                return  # These brokers are older than heartbeats.
            except NotRegisteredError:
                continue  # The next poll registers again.
            except BarcoError as error:
                _log.info("a heartbeat was lost: %s", error)
