"""Dead letters that somebody has looked at: sent again to where they came from, or dropped.

A log forgets nothing before its time, so each gets a mark: an event behind it in its slice, whose
headers say of which one it is. Who lists letters leaves out those that have a mark.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import asdict

from barco import _native
from barco.errors import BarcoError, CursorExpiredError, RequestError, TopicNotFoundError
from barco.model.access import CONSUME, PRODUCE
from barco.model.queues import DEAD_PREFIX, GRAVEYARD, LETTERS_MAX, MARK, MARKED_OFFSET
from barco.types import MiB
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import (
    Request,
    Response,
    check_topic,
    json_response,
    parse_number,
)
from barco.workers.http.base.needs import Object, allow
from barco.workers.http.checking.desk import Checking
from barco.workers.http.checking.values import OfBody, packed
from barco.workers.http.consuming.positions import slice_of
from barco.workers.shard.reads import extent_from_list, split_chunks

PART_BYTES = 4 * MiB
"""Of values that are produced at once, about."""

READ_BYTES = 2 * MiB
"""Of memory for one letter: its chunk, and the events of that."""

RESENT, DROPPED = "resent", "dropped"

_BODY = 'The body is {"%s": [{"slice": 3, "offset": "17"}, ...]}, at most %d of them.'

Ask = Callable[[int, dict[str, Any]], Awaitable[tuple[Any, int]]]
"""What a holder of a slice says, and who that was."""


class Chosen(NamedTuple):
    """Which letters are meant."""

    grave: str
    """The topic they are in."""
    where: Sequence[tuple[int, int]]
    """Slice, by its number in the ring, and offset; in their order, each once."""


class Tally(Struct):
    """What has become of them."""

    done: int = 0
    """Sent, or dropped."""
    others: int = 0
    """That came from another topic, and are not sent to this one."""
    gone: int = 0
    """Of which there is no letter there, or none any more."""
    marked: int = 0
    left: int = 0
    """That were not come to, since something went wrong."""
    why: str = ""
    """What."""


class _Lot(Struct):
    """Letters that are done with at once."""

    events: list[OfBody] = field(default_factory=list)
    where: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0


class Letters:
    """Handlers of /v1/topic/{topic}/dead. `ask`: reads a place of a slice at whoever holds it."""

    def __init__(self, context: Context, checking: Checking, ask: Ask) -> None:
        self._context, self._checking, self._ask = context, checking, ask

    async def resend(self, request: Request) -> Response:
        """Each to the topic, with key, value and headers as they were; then its mark. Who is cut
        off in between may send some of them twice."""
        topic = check_topic(request.variables["topic"])
        asked = self._asked(request)
        allow(request.user, (CONSUME,), [(asked.grave, None)])

        async def send(part: _Lot) -> None:
            await self._send(request, topic, part)

        return await self._done(request, asked, topic, send)

    async def again(self, request: Request) -> Response:
        """Events of a topic to it, or to another one, with key, value and headers as they were."""
        given = request.json()
        topic = check_topic(request.variables["topic"])
        where = self._named(given, "events", ("to",))
        to = given.get("to", topic)
        if not isinstance(to, str):
            raise RequestError("to is the name of a topic.")
        allow(request.user, (PRODUCE,), [(check_topic(to), None)])

        async def send(part: _Lot, told: Tally) -> None:
            await self._send(request, to, part)
            told.done += len(part.where)

        return await self._in_parts(where, partial(self._event, topic), send, whole=True)

    async def _send(self, request: Request, topic: str, part: _Lot) -> None:
        batch = packed(part.events)
        await self._checking.look(topic, batch, False)
        known_only = bool(request.user.quota.topics)
        await self._context.service.made.produce(request.ticket, topic, batch, known_only)

    async def drop(self, request: Request) -> Response:
        """Each gets a mark, and nothing else."""
        return await self._done(request, self._asked(request), None, None)

    def _asked(self, request: Request) -> Chosen:
        where = self._named(request.json(), "letters", ("dead",))
        grave = grave_of(request)
        if grave == request.variables["topic"]:
            raise RequestError("A topic's dead letters are in another topic.")
        return Chosen(grave, where)

    def _named(self, given: Any, name: str, others: Sequence[str]) -> Sequence[tuple[int, int]]:
        """Slice, by its number in the ring, and offset, in their order, each once."""
        wrong = RequestError(_BODY % (name, LETTERS_MAX))
        listed = given.get(name) if isinstance(given, dict) else None
        if not isinstance(listed, list) or not 1 <= len(listed) <= LETTERS_MAX:
            raise wrong
        check_names("field", given, (name, *others))
        where = set()
        for each in listed:
            if not isinstance(each, dict):
                raise wrong
            check_names("field", each, ("token", "slice", "offset"))
            if type(each.get("offset")) not in (int, str):
                raise wrong
            offset = parse_number("The offset", str(each["offset"]))
            where.add((slice_of(self._context, each), offset))
        return sorted(where)

    async def _done(
        self,
        request: Request,
        asked: Chosen,
        origin: str | None,
        send: Callable[[_Lot], Awaitable[None]] | None,
    ) -> Response:
        """Of letters; each gets a mark."""

        async def end(part: _Lot, told: Tally) -> None:
            await self._part(request, asked.grave, part, send, told)

        return await self._in_parts(
            asked.where, partial(self._letter, asked.grave), end, origin=origin
        )

    async def _in_parts(
        self,
        where: Sequence[tuple[int, int]],
        read: Callable[[int, int], Awaitable[OfBody | None]],
        end: Callable[[_Lot, Tally], Awaitable[None]],
        *,
        origin: str | None = None,
        whole: bool = False,
    ) -> Response:
        """Reads and does as many as go at once, in turn. What goes wrong with the first is raised;
        later on it is told beside what is done. origin: only letters from there. whole: `_add`."""
        told, part = Tally(), _Lot()
        try:
            for at in where:
                event = await read(*at)
                if event is None:
                    told.gone += 1
                elif origin is not None and _origin(event) not in ("", origin):
                    told.others += 1
                else:
                    _add(part, at, event, whole=whole)
                    if part.size >= PART_BYTES:
                        part, full = _Lot(), part
                        await end(full, told)
            if part.where:
                await end(part, told)
        except BarcoError as error:
            if not told.done:
                raise
            told.why, told.left = error.detail, len(where) - told.done - told.gone - told.others
        return json_response(asdict(told))

    async def _part(
        self,
        request: Request,
        grave: str,
        part: _Lot,
        send: Callable[[_Lot], Awaitable[None]] | None,
        told: Tally,
    ) -> None:
        if send is not None:
            await send(part)
            told.done += len(part.where)  # Whatever becomes of their marks.
            if not request.user.may(PRODUCE, grave):
                return
        mark = DROPPED if send is None else RESENT
        for number in sorted({number for number, _ in part.where}):
            offsets = [offset for at, offset in part.where if at == number]
            marks = packed([_mark(mark, each, request.user.name) for each in offsets])
            made = self._context.service.made
            await made.produce(request.ticket, grave, marks, True, number)
            told.marked += len(offsets)
            if send is None:
                told.done += len(offsets)

    async def _letter(self, grave: str, number: int, offset: int) -> OfBody | None:
        """As it is stored; None: there is none, or what is there is a mark."""
        letter = await self._event(grave, number, offset)
        return None if letter is None or _told(letter, DEAD_PREFIX + MARK) else letter

    async def _event(self, topic: str, number: int, offset: int) -> OfBody | None:
        """As it is stored; None: there is none any more."""
        args = {
            "topic": topic,
            "slice": self._context.index(number),
            "from": offset,
            "budget": 1,
            "stored": True,
            "frame": 0,
            "columns": None,
            "stop": offset + 1,
        }
        granted = await self._context.memory.take(READ_BYTES)
        try:
            answer = await self._read(number, args)
            if answer is None or answer["extent"] is None:
                event = None
            else:
                event = _event(extent_from_list(answer["extent"]).chunks, offset)
        finally:
            self._context.memory.give_back(granted)
        if event is None and not await self._context.topic_exists(topic):
            raise TopicNotFoundError(f"There is no topic {topic}.")
        return event

    async def _read(self, number: int, args: dict[str, Any]) -> Any:
        try:
            return (await self._ask(number, args))[0]
        except (CursorExpiredError, RequestError):  # Before the first, or behind the last one.
            return None


def grave_of(request: Request) -> str:
    """The topic of the letters that a request is about: TOPIC.dead, or the one that it names."""
    topic = check_topic(request.variables["topic"])
    given = request.json()
    named = given.get("dead") if isinstance(given, dict) else None
    if named is not None and not isinstance(named, str):
        raise RequestError("dead is the name of a topic.")
    return check_topic(named or topic + GRAVEYARD)


def dropped_from(request: Request) -> list[Object]:
    """What a drop touches."""
    return [(grave_of(request), None)]


def _event(chunks: Sequence[Any], offset: int) -> OfBody | None:
    for chunk, head in (pair for piece in chunks for pair in split_chunks(piece)):
        at = offset - head["base_offset"]
        if 0 <= at < head["count"]:
            _, _, key, value, *more = _native.chunk_events(memoryview(chunk))[at]
            return OfBody(value, key, None, tuple(more[0]) if more else ())
    return None


def _told(letter: OfBody, name: str) -> str:
    """What its last header of this name says; empty: it has none."""
    return dict(letter.headers).get(name, b"").decode("utf-8", "replace")


def _origin(letter: OfBody) -> str:
    return _told(letter, DEAD_PREFIX + "topic")


def _add(part: _Lot, at: tuple[int, int], letter: OfBody, *, whole: bool = False) -> None:
    """whole: with what its headers tell of a death."""
    kept = tuple(p for p in letter.headers if whole or not p[0].startswith(DEAD_PREFIX))
    part.events.append(letter._replace(headers=kept))
    part.where.append(at)
    part.size += len(letter.value or b"") + len(letter.key or b"")


def _mark(mark: str, offset: int, user: str) -> OfBody:
    """Its value says the same as its headers, for people, and who did it where that is known."""
    said = {MARK: mark, MARKED_OFFSET: str(offset)}
    headers = tuple((DEAD_PREFIX + name, value.encode()) for name, value in said.items())
    said |= {"by": user} if user else {}
    return OfBody(json.dumps(said, separators=(",", ":")).encode(), None, None, headers)
