"""What becomes of a produce whose values are checked: it goes on, it is refused, some of it is."""

import asyncio
import logging
from typing import Any, NamedTuple

from barco.errors import BarcoError, UnprocessableError
from barco.model.options import DEAD, OFF, WARN
from barco.model.queues import GRAVEYARD
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import Response, json_response, problem_response
from barco.workers.http.checking.subjects import Subjects
from barco.workers.http.checking.values import Body, bodies_of, body_of, letter, packed
from barco.workers.schemas.judging import Flaw

TOLD_MAX = 16
"""Of what is wrong with a body; the number of all is told, too."""

WARN_S = 10.0
"""Between two lines of the log about one topic."""

WARNED_MAX = 1_024

_UNREAD = Flaw("This line can not be read.")

_log = logging.getLogger("barco.schemas")


class Withheld(NamedTuple):
    """A produce, as the core tells of it (`checked.h`)."""

    number: int
    topic: str
    content: int
    is_json: bool
    valid_only: bool
    key: bytes | None
    headers: bytes
    body: bytes


class Checking:
    """All produces of topics that are checked, at this worker."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._subjects = Subjects(context)
        self._last: dict[int, asyncio.Task[Any]] = {}
        """By connection: what came on one is stored in its order."""
        self._warned: dict[str, tuple[float, int]] = {}
        """By topic when there was a line, and how many were flawed since."""
        self._one = asyncio.Lock()
        """Of what the core has not counted (`checked.h`) one body is in memory at a time."""
        self.checked = self.flawed = 0

    def stats(self) -> dict[str, int]:
        """Counters."""
        return {"values_checked": self.checked, "values_flawed": self.flawed}

    async def answer(self, withheld: Withheld) -> Response | None:
        """What is answered; None: the core goes on with it, and answers."""
        connection = withheld.number >> 24
        task = asyncio.current_task()
        assert task is not None
        before, self._last[connection] = self._last.get(connection), task
        try:
            return await self._answer(withheld, before)
        except BarcoError as error:
            return problem_response(error)
        finally:
            if self._last.get(connection) is task:
                del self._last[connection]

    async def _answer(
        self, withheld: Withheld, before: asyncio.Task[Any] | None
    ) -> Response | None:
        service = self._context.service
        level = service.topics.schema_check(withheld.topic)
        body = body_of(withheld.content, withheld.body, withheld.key, withheld.headers)
        flaws: dict[int, Flaw] = {}
        with self._context.polling():  # Nothing is stored yet.
            if level != OFF:  # It may have been changed a moment ago.
                flaws = await self.flaws(withheld.topic, body, withheld.is_json)
            if before is not None:
                await asyncio.wait((before,))
        if flaws and level == WARN:
            self._warn(withheld.topic, body, flaws)
        if not flaws or level == WARN:
            service.made.go_on(withheld.number, withheld.body)
            return None
        told = _told(body, flaws)
        left = body.without(flaws) if level == DEAD or withheld.valid_only else None
        if level == DEAD:
            grave = withheld.topic + GRAVEYARD
            letters = [
                letter(body.event(at), withheld.topic, flaw.reason) for at, flaw in flaws.items()
            ]
            await service.made.produce(withheld.number, grave, packed(letters), False)
            told |= {"dead": grave}
        if left is None:
            raise refusal(withheld.topic, told)
        stored = await service.made.produce_checked(withheld.number, left)
        told = {"topic": withheld.topic, "count": len(body.values) - len(flaws)} | stored | told
        return json_response(told, 202 if _waits(stored) else 200)

    async def look(self, topic: str, batches: bytes, is_json: bool) -> None:
        """Of what is no produce of its own: UnprocessableError, unless values are only told."""
        level = self._context.service.topics.schema_check(topic)
        if level == OFF:
            return
        async with self._one:
            for body in bodies_of(batches):
                flaws = await self.flaws(topic, body, is_json)
                if flaws and level != WARN:
                    raise refusal(topic, _told(body, flaws))
                if flaws:
                    self._warn(topic, body, flaws)

    async def flaws(self, topic: str, body: Body, is_json: bool) -> dict[int, Flaw]:
        """What is wrong, by the number in the body."""
        found = await self._subjects.flaws(topic, body.values, is_json)
        found |= dict.fromkeys(body.unread, _UNREAD)
        self.checked += len(body.values)
        self.flawed += len(found)
        return dict(sorted(found.items()))

    def _warn(self, topic: str, body: Body, flaws: dict[int, Flaw]) -> None:
        now_s = asyncio.get_running_loop().time()
        last_s, count = self._warned.get(topic, (-WARN_S, 0))
        count += len(flaws)
        if now_s - last_s >= WARN_S:
            at, flaw = next(iter(flaws.items()))
            where = f"line {body.line(at)}" + (f", {flaw.pointer!r}" if flaw.pointer else "")
            _log.warning(
                "%s: %d values are not of its schema, the first of this request: %s: %s",
                *(topic, count, where, flaw.reason),
            )
            last_s, count = now_s, 0
        if len(self._warned) >= WARNED_MAX:
            self._warned.clear()
        self._warned[topic] = (last_s, count)


def _waits(stored: dict[str, Any]) -> bool:
    """Whether these events are not in their topic yet."""
    return any("delayed" in each for each in stored.get("slices", [stored]))


def _told(body: Body, flaws: dict[int, Flaw]) -> dict[str, Any]:
    """For answers: how many, and the first of them."""
    shown = []
    for at, flaw in list(flaws.items())[:TOLD_MAX]:
        pointer = {} if flaw.pointer is None else {"pointer": flaw.pointer}
        shown.append({"line": body.line(at), "reason": flaw.reason, **pointer})
    return {"refused": len(flaws), "flaws": shown}


def refusal(topic: str, told: dict[str, Any]) -> UnprocessableError:
    """That nothing of a body is stored; where and why the first value is none."""
    first = told["flaws"][0]
    at = {name: first[name] for name in ("line", "pointer") if name in first}
    return UnprocessableError(
        f"The value of line {first['line']} is not of a schema of {topic}: {first['reason']}",
        **at,
        **told,
    )
