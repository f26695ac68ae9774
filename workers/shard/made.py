"""Produces of what a handler has made of a request's body: by the core, as any other."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from barco.errors import (
    BarcoError,
    BrokerError,
    BusyError,
    ForbiddenError,
    RequestError,
    TooLargeError,
    TooManyRequestsError,
    unpack_error,
)
from barco.workers.seams import ReactorLike

Refusal = tuple[int, str, str]
"""Status, type and title, as the core says them."""

Ending = tuple[Refusal | None, bytes | None]
"""What is wrong; of a body that was withheld what its answer would be."""

_BY_STATUS: dict[int, type[BarcoError]] = {
    400: RequestError,
    403: ForbiddenError,
    413: TooLargeError,
    429: TooManyRequestsError,
    503: BusyError,
}
"""Of types that only the core tells."""


def refused(refusal: Refusal) -> BarcoError:
    """The error that the core means."""
    status, slug, title = refusal
    error = unpack_error({"slug": slug, "detail": f"{title[:1].upper()}{title[1:]}."})
    if error.slug == slug:
        return error
    return _BY_STATUS.get(status, BrokerError)(error.detail)


class MadeProduces:
    """Requests of which something is being produced, and who waits for that."""

    def __init__(self, reactor: ReactorLike) -> None:
        self._reactor = reactor
        self._waiting: dict[int, asyncio.Future[Ending]] = {}

    async def produce(
        self, request: int, topic: str, batch: bytes, known_only: bool, at: int = -1
    ) -> None:
        """Returns when it is durable; BarcoError says why not. Of a request one at a time. at: the
        slice, by its number in the ring, of events without a key; -1: any."""
        await self._told(
            request, lambda: self._reactor.produce_made(request, topic, batch, known_only, at)
        )

    async def produce_checked(self, request: int, body: bytes) -> dict[str, Any]:
        """As `produce`: this body, of a request that was withheld. Returns where it is, as the
        answers of a produce say it; {} if it was stored before."""
        stored = await self._told(
            request, lambda: self._reactor.produce_checked(request, body, True)
        )
        return json.loads(stored) if stored else {}

    def go_on(self, request: int, body: bytes) -> None:
        """Nothing stands against it: the core produces and answers."""
        self._reactor.produce_checked(request, body, False)

    async def _told(self, request: int, begin: Callable[[], Refusal | None]) -> bytes | None:
        assert request not in self._waiting, "the last one has no answer yet"
        refusal, stored = begin(), None
        if refusal is None:
            future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
            self._waiting[request] = future
            try:
                refusal, stored = await future
            finally:
                self._waiting.pop(request, None)
        if refusal is not None:
            raise refused(refusal)
        return stored

    def produced(self, request: int, refusal: Refusal | None, stored: bytes | None) -> None:
        """The reactor's upcall: every one that it took has one."""
        future = self._waiting.get(request)
        if future is not None and not future.done():
            future.set_result((refusal, stored))
