"""Who dials before it is known here that it holds the range: it waits, and is not sent away.

All members of a new range hear of it by themselves, one before the other, and dial the rest. One
that was sent away would take the end of its connection for the end of this process, and go on as if
this one were dead.
"""

import asyncio
import logging
from collections.abc import Callable

from barco.limits import SILENCE_SECONDS_MAX
from barco.model.replicas import Process
from barco.protocol.link import Hello
from barco.types import Ordinal
from barco.workers.peers.links import End, Handler

WAIT_SECONDS = SILENCE_SECONDS_MAX
"""Then it is closed: whoever dials judges by the silence itself."""

WAITING_MAX = 8
"""Connections that wait at a time, one of each broker. A range has three members."""

log = logging.getLogger("barco.replication")


class Strangers:
    """Of one process."""

    def __init__(self, token: int, known: Callable[[int], bool], take: Handler) -> None:
        """token: of the range here. known: whether a broker holds it. take: a connection of one
        that does."""
        self._token, self._known, self._take = token, known, take
        self._waiting: dict[int, tuple[Hello, End, asyncio.TimerHandle]] = {}
        """By ordinal, the oldest first."""
        self._told: set[Process] = set()
        """Of whom it was said: it tries again."""

    def dialled(self, hello: Hello, end: End) -> None:
        """A connection has come in."""
        process = (Ordinal(hello.ordinal), hello.worker)
        if hello.token != self._token:
            if process not in self._told:
                log.error("worker %d/%d holds another range than this one", *process)
            self._told.add(process)
            end.close()
            return
        if self._known(hello.ordinal):
            self._take(hello, end)
            return
        if process not in self._told:
            log.info("worker %d/%d is not known yet to hold this range", *process)
        self._told.add(process)
        self._drop(hello.ordinal)
        if len(self._waiting) >= WAITING_MAX:
            self._drop(next(iter(self._waiting)))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(WAIT_SECONDS, self._drop, hello.ordinal)
        self._waiting[hello.ordinal] = (hello, end, timer)
        assert len(self._waiting) <= WAITING_MAX, "each is a descriptor"

    def met(self, ordinal: int) -> None:
        """It holds the range as well: if it waits, it is taken."""
        assert self._known(ordinal), "it is known from now on"
        if (waiting := self._waiting.pop(ordinal, None)) is not None:
            hello, end, timer = waiting
            timer.cancel()
            self._take(hello, end)

    def close(self) -> None:
        """Nobody waits any more."""
        for ordinal in list(self._waiting):
            self._drop(ordinal)

    def _drop(self, ordinal: int) -> None:
        if (waiting := self._waiting.pop(ordinal, None)) is not None:
            waiting[2].cancel()
            waiting[1].close()
