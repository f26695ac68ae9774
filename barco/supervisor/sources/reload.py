"""SIGHUP: the configuration is read again, checked as at a start, taken up or refused whole."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType

from barco.config import Config
from barco.errors import BarcoError
from barco.supervisor.sources.changes import changes

log = logging.getLogger("barco.supervisor")


_early: list[int] = []


def heed_early() -> None:
    """From now on SIGHUP does not end the process: it is remembered until the broker runs, for the
    configuration may have been read before it."""
    signal.signal(signal.SIGHUP, _remember)


def _remember(number: int, frame: FrameType | None) -> None:
    _early.append(number)


class Reloader:
    """What a running broker does with its configuration when it is asked to read it again."""

    def __init__(
        self,
        running: Config,
        *,
        read: Callable[[], Config],
        wish: Callable[[Sequence[str]], Awaitable[str]],
        take_up: Callable[[Config], str] = lambda config: "",
        notify: Callable[..., None],
    ) -> None:
        """read: the configuration as it is now, checked as at a start; called in a thread.
        wish: the brokers of a longer list shall be in the cluster. take_up: what counts at once:
        the log, the certificate of TLS as its files have it now. notify: tells systemd."""
        self._running = running
        self._listed = running.cluster.brokers
        self._read, self._wish, self._take_up, self._notify = read, wish, take_up, notify
        self._asked = asyncio.Event()

    def hang_up(self) -> None:
        """Read it again, soon; once, however often that is said meanwhile."""
        self._asked.set()

    async def run(self) -> None:
        """For as long as the broker runs."""
        if _early:
            self._asked.set()
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
            try:
                said = await self._reload()
            except (BarcoError, OSError) as error:
                why = error.detail if isinstance(error, BarcoError) else str(error)
                why = " ".join(why.split())  # One line, for systemd too.
                said = f"reload refused, all of it, and nothing is changed: {why}"
                log.error("%s", said)
            else:
                log.info("%s", said)
            self._notify(READY=1, STATUS=said)

    async def _reload(self) -> str:
        found = await asyncio.to_thread(self._read)
        change = changes(self._running, self._listed, found)
        parts = []
        if change.added:
            brokers = found.cluster.brokers
            parts.append(f"cluster.brokers lists {len(brokers)}: {await self._wish(brokers)}")
        if taken_up := self._take_up(found):
            parts.append(taken_up)
        if change.later:
            parts.append(f"only the next start takes up {', '.join(change.later)}")
        self._listed = found.cluster.brokers
        return f"configuration read again: {'; '.join(parts) or 'it is as it was'}"
