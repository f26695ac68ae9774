"""Internal events: appended by a worker itself, answered when they are stable."""

import asyncio
import functools
from collections.abc import Callable, Iterable
from typing import Any

from barco.errors import BarcoError, BusyError, CorruptDataError, OutcomeUnknownError
from barco.workers.seams import ReactorLike

PENDING_MAX = 65_536
"""Appends under way; each is a few hundred bytes. Above it new ones are refused as busy."""


REFUSED = "The log does not take the event now"
FULL = "the broker's disk is full"

Ended = Callable[[int | BarcoError], object]
"""Told where the event is, or why it is not known to be there."""


class Appends:
    """Tags of appends under way, and who waits for them."""

    def __init__(self, reactor: ReactorLike) -> None:
        self._reactor = reactor
        self._waiting: dict[int, Ended] = {}
        self._last_tag = 0

    def start(
        self, topic: str, slice: int, key: bytes | None, value: bytes, *, unhurried: bool = False
    ) -> asyncio.Future[int]:
        """Append one event; the future has its offset once it is stable, or a BarcoError.
        unhurried: nobody waits for it, so it may share a group with what others append a little
        later."""
        return self._awaited(
            lambda tag: self._reactor.append(tag, topic, slice, key, value, unhurried)
        )

    def start_told(self, topic: str, slice: int, key: bytes, value: bytes, ended: Ended) -> None:
        """As `start`, for who is told at once: a future's callbacks take a turn of the loop more,
        which is a call of the system or two."""
        self._start(lambda tag: self._reactor.append(tag, topic, slice, key, value), ended)

    def start_commit(
        self,
        topic: str,
        slice: int,
        batches: list[tuple[Any, ...]],
        *,
        mark: tuple[str, bytes, bytes],
    ) -> asyncio.Future[int]:
        """Append checked batches and their mark (topic, key, value), all or nothing; the future as
        that of `start`.

        CorruptDataError: a batch is not what was checked.
        """
        try:
            return self._awaited(
                lambda tag: self._reactor.append_commit(tag, topic, slice, batches, *mark)
            )
        except (ValueError, OverflowError) as error:
            raise CorruptDataError(f"What was staged cannot be committed: {error}.") from None

    def _awaited(self, append: Callable[[int], None]) -> asyncio.Future[int]:
        future: asyncio.Future[int] = quiet_future()
        self._start(append, functools.partial(settle, future))
        return future

    def _start(self, append: Callable[[int], None], ended: Ended) -> None:
        if len(self._waiting) >= PENDING_MAX:
            raise BusyError("Too many internal events are waiting for the disk.")
        self._last_tag += 1
        tag = self._last_tag
        try:
            append(tag)
        except RuntimeError as error:
            raise BusyError(f"{REFUSED}: {error}.") from None
        self._waiting[tag] = ended

    def appended(self, tag: int, status: int, offset: int) -> None:
        """The reactor's upcall: status 0 or 2xx, the event is stable; else it is as HTTP says."""
        ended = self._waiting.pop(tag, None)
        if ended is None:
            return
        if status == 0 or 200 <= status < 300:
            ended(offset)
        elif status in (429, 503, 507):
            why = f": {FULL}." if status == 507 else "."
            ended(BusyError(REFUSED + why))
        else:
            ended(OutcomeUnknownError("The event may or may not be stored."))


def quiet_future() -> asyncio.Future[Any]:
    """One whose failure perhaps nobody asks for, as of a commit on the way of a poll: that is not
    worth a warning."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


def settle(future: asyncio.Future[Any], outcome: object) -> None:
    """Its result or, where that is one, its exception; nothing, if it was given up."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


async def all_stable(waiting: Iterable[asyncio.Future[Any]], *, own: bool = False) -> None:
    """Wait for every one of them, and only then report the first failure. own: nobody else waits
    for these; to protect them from who is cancelled takes another turn of the loop."""
    failures = []
    for future in waiting:
        try:
            await (future if own else asyncio.shield(future))
        except BarcoError as error:
            failures.append(error)
    if failures:
        raise failures[0]
