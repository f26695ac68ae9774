"""The future of an event on its way, for threads: concurrent.futures.Future without its weight.

A Future makes a condition variable (a lock and a deque) when it is made: 10 µs and 1 KiB for each
event, although next to nobody ever waits on the future of a single event. Here it is made when
somebody does. `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` work as ever.
"""

import logging
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger("barco.client")

# The states of concurrent.futures, by the names that its functions compare with.
_RUNNING, _FINISHED = "RUNNING", "FINISHED"

_lock = threading.Lock()
"""Guards "has it a condition?" against "it is done". Held for a few instructions."""


class Delivery(Future[T]):
    """Cannot be cancelled: the event may be gone already."""

    def __init__(self) -> None:
        # Not the parent's, which would make the condition.
        self._made: threading.Condition | None = None
        self._state = _RUNNING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    @property
    def _condition(self) -> threading.Condition:
        with _lock:
            if self._made is None:
                self._made = threading.Condition()
            return self._made

    @_condition.setter
    def _condition(self, condition: threading.Condition) -> None:
        self._made = condition

    def cancel(self) -> bool:
        """False."""
        return False

    def done(self) -> bool:
        """True once the event is acknowledged or given up."""
        return self._state == _FINISHED

    def set_result(self, result: T) -> None:
        """For the producer."""
        self._finish(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """For the producer."""
        self._finish(None, exception)

    def _finish(self, result: Any, exception: BaseException | None) -> None:
        with _lock:
            if self._state == _FINISHED:
                raise InvalidStateError("the fate of this event is known already")
            self._result, self._exception = result, exception
            condition = self._made
            self._state = _FINISHED
        if condition is None:
            # Nobody waits, so nobody has left a callback either: that takes the condition, too.
            return
        with condition:
            # Who looked at the state before it changed is waiting by now, or has left a callback.
            for waiter in self._waiters:
                if exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            condition.notify_all()
        for callback in self._done_callbacks:
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - the user's code; as the standard library has it.
                _log.exception("a callback of %r failed", self)
