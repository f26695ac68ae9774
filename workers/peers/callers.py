"""Who asks from other brokers: one connection of each process, and so many of a broker."""

from collections.abc import Hashable
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

CONNECTIONS_MAX = 128
"""Of one broker at one process: each has 64 KiB to receive into and as much to pack in, so they
take 16 MiB. A broker with more processes than that dials again now and then."""

HOME = -1

CALLER: ContextVar[int] = ContextVar("caller", default=HOME)
"""The ordinal of the broker that asks for what is being done; HOME: this one."""


class Calling(Hashable, Protocol):
    """A connection."""

    @property
    def busy(self) -> bool:
        """Whether something is under way for it."""

    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Calling)


class Callers(Generic[Connection]):
    """The connections that count, by broker and process; who was there first comes first."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], Connection] = {}

    def add(self, caller: tuple[int, int], connection: Connection) -> None:
        """A process has called: of what it called before nobody waits any more. Where its broker
        has too many, the first that waits for nothing is closed; where all wait, this one."""
        if (before := self._open.pop(caller, None)) is not None:
            before.close()
        same = [each for each in self._open if each[0] == caller[0]]
        assert len(same) <= CONNECTIONS_MAX, "each came through here"
        if len(same) >= CONNECTIONS_MAX:
            idle = next((each for each in same if not self._open[each].busy), None)
            if idle is None:
                connection.close()
                return
            self._open.pop(idle).close()
        self._open[caller] = connection

    def gone(self, connection: Connection) -> None:
        """It was closed."""
        for caller, each in list(self._open.items()):
            if each is connection:
                del self._open[caller]
