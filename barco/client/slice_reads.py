"""One slice, answer by answer, in whatever form is accepted; who reads on says what it makes of it.

Knows where the slice lies and how far it was read; not what is in an answer.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from barco.client.base.errors import BadAnswerError, response_error
from barco.client.consuming.enrolment import ANSWER_GRACE_S, PAUSE_FIRST_S, PAUSE_MAX_S
from barco.client.wire.batching import SliceKey
from barco.client.wire.http1 import Request, Response
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, NotReadyError
from barco.protocol.cursor import Cursor


class SliceReads:
    """The place in one slice, and the answers from there on."""

    def __init__(
        self, pool: Pool, topic: str, told: Mapping[str, Any], accept: str, timeout_s: float
    ) -> None:
        """`told`: as GET /v1/topic/{topic}/slices tells it. timeout_s: trouble is waited out."""
        try:
            self.key = SliceKey(int(told["token"]), int(told["index"]))
            endpoints = [str(told["endpoint"]), *map(str, told.get("replicaEndpoints", ()))]
            self._endpoints = list(dict.fromkeys(endpoints))
            self.end = int(told["endOffset"])
        except (KeyError, ValueError, TypeError) as error:
            raise BadAnswerError(f"the slices of {topic}: {error!r}") from error
        self.position = "earliest"
        """As `from=` of the next question."""
        self._pool = pool
        self._accept = accept
        self._timeout_s = timeout_s
        self._target = f"/v1/topic/{topic}/slices/{self.key.token}/{self.key.slice}/events"

    def at_end(self) -> bool:
        """Whether all is read that was there when the slice was asked for."""
        try:
            return Cursor.parse(self.position).offset >= self.end
        except ValueError:
            return False  # "earliest": nothing was read yet.

    async def answer(self, most: int, wait_s: float, *, whole: bool) -> Response:
        """What comes next, 204 if nothing does within wait_s; `position` is behind it then.

        most: stored bytes. whole: an answer without anything, before the end, is not believed:
        it is of a replica that is behind.
        """
        answer = await self._fetch(most, wait_s, whole)
        try:
            self.position = str(Cursor.parse(answer.headers["barco-next-cursor"]))
        except (KeyError, ValueError) as error:
            raise BadAnswerError(f"no cursor in an answer for {self._target}") from error
        return answer

    async def _fetch(self, most: int, wait_s: float, whole: bool) -> Response:
        deadline = time.monotonic() + self._timeout_s + wait_s
        pause = PAUSE_FIRST_S
        query = {"from": self.position, "maxBytes": most, "waitMs": int(wait_s * 1000)}
        target = f"{self._target}?{urlencode(query)}"
        request = Request("GET", target, (("Accept", self._accept),))
        while True:
            try:
                answer = await self._pool.request(
                    self._endpoints[0], request, timeout_s=wait_s + ANSWER_GRACE_S
                )
                if answer.ok and (not whole or self._may_be_all(answer)):
                    return answer
                if answer.ok:
                    raise NotReadyError(f"{self._endpoints[0]} is behind: {self._target}")
                raise response_error(answer.status, answer.headers, answer.body, "read")
            except BarcoError as error:
                if not error.retryable or time.monotonic() + pause >= deadline:
                    raise
                # Any worker that holds the slice has its events.
                self._endpoints.append(self._endpoints.pop(0))
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    def _may_be_all(self, answer: Response) -> bool:
        """False: there was more when reading began, and this replica does not have it yet."""
        if answer.status != 204:
            return True
        try:
            return Cursor.parse(answer.headers["barco-next-cursor"]).offset >= self.end
        except (KeyError, ValueError):
            return True  # Told by who looks at the answer.
