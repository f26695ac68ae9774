"""Waits for what the core or the replica comes to by itself, without asking again and again.

Both change only while the native loop runs, or while Python does between two stays in it. So the
selector looks once before each stay and once after it: whatever has come true is noticed at once,
and nothing is looked at while nothing happens.
"""

import asyncio
from collections.abc import Callable


class Turns:
    """The waits of one worker's loop. Few at a time, and only at a start, a stop and a takeover."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    async def until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Returns when the condition holds; false if it does not within so many seconds.

        The condition is cheap, and waits for nothing. What it raises is raised here.
        """
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = condition
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True

    def look(self) -> bool:
        """By the selector: wakes whoever can go on; whether there was anybody."""
        woken = False
        for future, condition in self._waiting.items():
            if future.done():
                continue
            try:
                if not condition():
                    continue
                future.set_result(None)
            except Exception as error:  # noqa: BLE001 - it belongs to who waits, not to the loop.
                future.set_exception(error)
            woken = True
        return woken
