"""When an answer has been written to its connection, all of it.

The reactor takes an answer and writes it as its client reads, and lets go of each piece when it is
written or never will be. So the last piece tells, together with whether the connection is still
there: a client that broke off, or has closed its side before the end, may not have read it.
"""

import functools
import weakref
from collections.abc import Callable

from barco._native import Lent
from barco.workers.http.base.messages import Part


class Endings:
    """Watches over the answers of one reactor. connected: whether a request's client is there."""

    def __init__(self, connected: Callable[[int], bool]) -> None:
        self._connected = connected
        self._watched: dict[int, weakref.ref[memoryview | Lent]] = {}

    def watched(
        self, body: Part | list[Part], request: int, written: Callable[[], None]
    ) -> list[Part]:
        """The same body, to be given to the reactor and to be let go of."""
        parts = body if isinstance(body, list) else [body]
        assert parts, "an answer without a body has no end to wait for"
        last = parts[-1] if isinstance(parts[-1], (memoryview, Lent)) else memoryview(parts[-1])
        ended = functools.partial(self._ended, id(last), request, written)
        self._watched[id(last)] = weakref.ref(last, ended)
        return [*parts[:-1], last]

    def _ended(self, key: int, request: int, written: Callable[[], None], _: object) -> None:
        del self._watched[key]
        if self._connected(request):
            written()
