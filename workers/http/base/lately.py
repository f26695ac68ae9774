"""Answers that are a little old, for those who say that such a one will do.

Ten people who look at a broker ask it the same questions all the time, and each question goes to
all processes of all brokers. Who sends `Cache-Control: max-age=2` (RFC 9111, 5.2.1.1) shares what
was found out for somebody else within the last two seconds; everybody else is answered anew.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

from barco.workers.http.base.messages import Request, Response

AGE_SECONDS_MAX = 5
"""No answer is kept for longer, whatever somebody would take."""
ANSWERS_MAX = 64
BYTES_MAX = 1 << 20
"""Of all answers that are kept: a larger one is shared by those who wait for it, and gone."""

_AGE = re.compile(r"\s*max-age\s*=\s*([0-9]{1,9})\s*", re.IGNORECASE)


def age_max(request: Request) -> int:
    """How old an answer may be, in seconds; 0: it is to be new."""
    given = request.header("cache-control")
    if given is None or request.method != "GET":
        return 0
    ages = [int(found[1]) for each in given.split(",") if (found := _AGE.fullmatch(each))]
    return min([*ages, AGE_SECONDS_MAX]) if ages else 0


class _Kept(NamedTuple):
    began: float
    """When it was asked for: it is no newer than that."""
    task: "asyncio.Task[Response]"


class Lately:
    """The answers of the last seconds, by what was asked."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._kept: dict[Hashable, _Kept] = {}

    async def answer(
        self, key: Hashable, age: int, make: Callable[[], Awaitable[Response]]
    ) -> Response:
        """One that is at most so old, or a new one, which others may have as well. Who asks has
        been found to be allowed to, and the answer does not depend on who asks."""
        self._forget()
        now = self._clock()
        kept = self._kept.get(key)
        if kept is None or now - kept.began > age:
            kept = _Kept(now, asyncio.ensure_future(_made(make)))
            if key in self._kept or len(self._kept) < ANSWERS_MAX:
                self._kept[key] = kept
        return await asyncio.shield(kept.task)  # Who goes away takes it from nobody else.

    def _forget(self) -> None:
        """What is old, was no answer, or is more than may be kept."""
        oldest = self._clock() - AGE_SECONDS_MAX
        left = BYTES_MAX
        for key, (began, task) in sorted(self._kept.items(), key=lambda each: -each[1].began):
            if began < oldest:
                del self._kept[key]
            elif task.done():
                if task.cancelled() or task.exception() is not None or task.result().status != 200:
                    del self._kept[key]
                    continue
                left -= len(task.result().body)
                if left < 0:
                    del self._kept[key]


async def _made(make: Callable[[], Awaitable[Response]]) -> Response:
    return await make()
