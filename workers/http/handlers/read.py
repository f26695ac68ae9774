"""Stateless reads of one slice: by cursor, by timestamp, from either end."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from barco import limits
from barco.errors import (
    BarcoError,
    BusyError,
    CorruptDataError,
    CursorExpiredError,
    NotFoundError,
    NotReadyError,
    RequestError,
    TopicNotFoundError,
)
from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset
from barco.workers.http.base.conditions import Condition, conditions
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import (
    NDJSON,
    RETRY_AFTER_S,
    Part,
    Request,
    Response,
    check_topic,
    choose,
    json_response,
    parse_number,
)
from barco.workers.http.base.render import (
    CHUNKS,
    COLUMNS,
    CONSUME_FORMATS,
    frame_bytes,
    render,
    skips,
)
from barco.workers.http.consuming.readers import HEADER as READER
from barco.workers.http.consuming.readers import ReaderNotes, reader_of
from barco.workers.shard.reads import Extent, chunk_place, extent_from_list, split_chunks

NEXT_CURSOR = "Barco-Next-Cursor"
HIGH_WATERMARK = "Barco-High-Watermark"

PAUSE_S = 0.02
"""Before looking again, when a wait ended and yet there was nothing: nobody spins."""

PLAN_SECONDS = 30.0
"""Looking through the indexes of a large topic takes its time."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME_CHARACTERS_MAX = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = "timestamp:"


def cursor_text(epoch: int, offset: int) -> str:
    """A place in a slice, for clients."""
    return str(Cursor(Epoch(epoch), Offset(offset)))


def parse_cursor(text: str) -> Cursor:
    """The cursor, as an earlier answer gave it."""
    try:
        return Cursor.parse(text)
    except ValueError:
        raise RequestError("This is no cursor: use one that an answer gave.") from None


def parse_place(text: str) -> str | int:
    """Where to begin, for the owner: "earliest", "latest", a timestamp as text, or an offset."""
    if text in ("earliest", "latest"):
        return text
    if text.startswith(_TIMESTAMP):
        return str(parse_timestamp(text[len(_TIMESTAMP) :]))
    if _DATE.match(text):
        return str(parse_time(text))
    return parse_cursor(text).offset


def parse_timestamp(text: str) -> int:
    """Microseconds since 1970, or before it with a sign."""
    number = parse_number("The timestamp", text.removeprefix("-"))
    return -number if text.startswith("-") else number


def parse_time(text: str) -> int:
    """A time of RFC 3339 as microseconds since 1970."""
    try:
        if len(text) > _TIME_CHARACTERS_MAX:
            raise ValueError("longer than any time")
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError("That is no time: 2026-01-31T12:00:00Z is one.") from None
    if moment.tzinfo is None:
        raise RequestError("A time says its zone: 2026-01-31T12:00:00Z, or +01:00 for Z.")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def parse_columns(text: str | None) -> int | None:
    """The columns that are asked for, as the core counts them; None: all, as they are stored."""
    if text is None:
        return None
    columns = 0
    for name in text.split(","):
        if name not in COLUMNS:
            raise RequestError(f"The parameter columns has some of {', '.join(COLUMNS)}.")
        columns |= COLUMNS[name]
    return columns


def column_names(columns: int) -> str:
    """The opposite of `parse_columns`."""
    return ",".join(name for name, bit in COLUMNS.items() if bit & columns or name == "offset")


def _plan_of(
    plans: Mapping[int, Mapping[int, Mapping[str, Any]]], shard: int, number: int, epoch: int
) -> dict[str, Any]:
    """What was found about one slice, for the document; nothing if nobody asked."""
    plan = plans.get(shard, {}).get(number, {})
    found: dict[str, Any] = {}
    if "bytes" in plan:
        found["bytes"] = plan["bytes"]
        found["splits"] = [{"offset": str(at), "bytes": size} for at, size in plan["splits"]]
    if "at" in plan:
        found |= {"at": cursor_text(epoch, plan["at"]), "atOffset": str(plan["at"])}
    return found


class Read:
    """Handlers of /v1/topic/{topic}/slices."""

    def __init__(self, context: Context, readers: ReaderNotes) -> None:
        self._context, self._readers = context, readers

    async def slices(self, request: Request) -> Response:
        """All slices of a topic: who owns them, and where they begin and end."""
        topic = check_topic(request.variables["topic"])
        described = await self._context.ask_leaders("topics", {"topic": topic})
        if not any(answer.get(topic, {}).get("exists") for answer in described.values()):
            raise TopicNotFoundError(f"There is no topic {topic}.")
        told = await self._context.ask_all("ping", {})
        plans = await self._plans(request, topic)
        found = []
        for number in self._context.numbers:
            token = self._context.range_of(number)
            known = described[token].get(topic, {"streams": []})["streams"]
            start, end, last = next((s[1:] for s in known if s[0] == number), (0, 0, 0))
            epoch = told[token]["epoch"]
            found.append(
                {
                    "token": self._context.token(number),
                    "index": self._context.index(number),
                    "rangeIndex": self._context.index(number),
                    **self._context.seats(token),
                    "version": epoch,
                    "generations": told[token]["lineage"],
                    "start": cursor_text(0, start),
                    "end": cursor_text(epoch, end),
                    "startOffset": str(start),
                    "endOffset": str(end),
                    "lastTimestamp": last,
                }
                | _plan_of(plans, token, number, epoch)
            )
        return json_response({"topic": topic, "slices": found})

    async def _plans(self, request: Request, topic: str) -> dict[int, dict[int, dict[str, Any]]]:
        """By shard and slice what readers of everything want to know, if they ask for it."""
        piece_bytes = request.number("splitBytes", default=0, most=2**62)
        at = request.value("at")
        if at is not None and not at.startswith(_TIMESTAMP):
            raise RequestError("The parameter at is timestamp:<µs>.")
        if not piece_bytes and at is None:
            return {}
        at_us = None if at is None else parse_timestamp(at[len(_TIMESTAMP) :])
        args = {"topic": topic, "piece_bytes": piece_bytes, "at_us": at_us}
        answers: dict[int, dict[int, dict[str, Any]]]
        answers = await self._context.ask_all("plan", args, timeout=PLAN_SECONDS)
        return answers

    async def events(self, request: Request) -> Response:
        """Events of one slice from a place on."""
        topic = check_topic(request.variables["topic"])
        number = self.number(request.variables["token"], request.variables["index"])
        kind = choose(request.header("accept"), CONSUME_FORMATS)
        begin = parse_place(request.value("from") or "earliest")
        stop = await self._stop(topic, number, request.value("to"))
        columns = parse_columns(request.value("columns"))
        if columns is not None and kind != CHUNKS:
            raise RequestError(f"The parameter columns is for {CHUNKS}: other formats are whole.")
        where = conditions(request.values("where"))
        if where and kind != NDJSON:
            raise RequestError(f"The parameter where is for {NDJSON}: other formats have all.")
        reader = reader_of(request.header(READER))
        wait_ms = request.number("waitMs", default=0, most=limits.POLL_WAIT_MS_MAX)
        budget = request.number(
            "maxBytes", default=limits.POLL_BYTES_DEFAULT, most=limits.POLL_BYTES_MAX
        )
        args = {
            "topic": topic,
            "slice": self._context.index(number),
            "from": begin,
            "budget": max(1, budget),
            "stored": kind == CHUNKS,
            "frame": frame_bytes(kind, topic),
        }
        if kind == CHUNKS:
            args |= {"columns": columns, "stop": stop}
        with self._context.polling() if wait_ms else nullcontext():
            answer, reserved = await self._read(number, args, wait_ms / 1000, stop)
        try:
            if not answer["known"] and not await self._context.topic_exists(topic):
                raise TopicNotFoundError(f"There is no topic {topic}.")
            if reader is not None and answer["extent"] is not None:
                _, _, first, last, _ = answer["extent"][:5]
                rows = (last if stop is None else min(last, stop)) - max(first, answer["offset"])
                self._readers.note(reader, topic, rows, self._context.service.wall_us())
            return await self._response(kind, answer, stop, columns, reserved, where)
        finally:
            self._context.memory.give_back(reserved)

    def number(self, token: str, index: str) -> int:
        """The slice's number in the ring, as its path names it."""
        ring = self._context.ring
        first = next((r for r in range(ring.size) if token == str(ring.token(r))), None)
        if first is None or not index.isascii() or not index.isdecimal():
            raise NotFoundError("No slice has this token and index: see the topic's slices.")
        if len(index) > 4 or int(index) >= ring.slices_per_range:
            raise NotFoundError(f"A token range has slices 0 to {ring.slices_per_range - 1}.")
        return first * ring.slices_per_range + int(index)

    async def _stop(self, topic: str, number: int, to: str | None) -> int | None:
        """The offset to stop before; None: the end."""
        end = None if to is None else parse_place(to)
        if end is None or isinstance(end, int):
            return end
        index = self._context.index(number)
        args = {"topic": topic, "slice": index, "from": end, "budget": 0, "stored": True}
        answer, _ = await self.ask(number, args)
        return int(answer["offset"])

    async def ask(self, number: int, args: dict[str, Any]) -> tuple[Any, int]:
        """The answer of a worker that holds the slice, and which one it was.

        This worker if it does, else the leader, else another: events that one of them shows are
        committed, but one that follows may be a little behind. So where it has nothing (any more),
        the leader is asked as well.
        """
        context = self._context
        token = context.range_of(number)
        leader, holders = context.leaders.peer(token), context.holders(token)
        holders.sort(key=lambda worker: worker != context.peer)
        # Of those that only follow none need be as far as a cursor that a leader gave.
        failure: BarcoError = NotReadyError("Nobody who is up to date holds this slice just now.")
        behind: tuple[Any, int] | None = None
        for worker in holders:
            try:
                answer = await context.ask(worker, "read", args)
            except (BusyError, CorruptDataError) as error:
                failure = error  # Not ready, or without its old events: another copy is whole.
                continue
            # In a ring whoever takes itself for the leader may be one that has been replaced.
            alone = context.options.ring_size == 1
            self._check(answer["offset"], answer, last=alone)
            if answer["extent"] is not None or worker == leader:
                return answer, worker
            if behind is None and answer["offset"] <= answer["end"]:
                behind = (answer, worker)
        if behind is None:
            raise failure
        return behind

    async def _read(
        self, number: int, args: dict[str, Any], wait_s: float, stop: int | None
    ) -> tuple[Any, int]:
        """A holder's answer, and the memory that is reserved for the events in it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        woken: set[int] = set()
        while True:
            granted = await self._context.memory.take(args["budget"])
            try:
                answer, worker = await self.ask(number, {**args, "budget": granted})
                offset = answer["offset"]
                if answer["extent"] is not None:
                    reserved, granted = granted, 0
                    return answer, reserved
            finally:
                self._context.memory.give_back(granted)
            left = deadline - loop.time()
            if left <= 0 or (stop is not None and offset >= stop):
                return answer, 0
            # The place is fixed now: "latest" must not move on while this waits.
            args = {**args, "from": offset}
            wait = {"topic": args["topic"], "slice": args["slice"], "offset": offset}
            if not woken:
                waits = {worker: {**wait, "timeout": left}}
                woken = await self._context.siblings.first_true("wait", waits, left)
            else:  # It said that there is something, and yet there was not.
                woken = set()
            if not woken and loop.time() < deadline:
                await asyncio.sleep(min(PAUSE_S, left))

    @staticmethod
    def _check(offset: int, answer: Mapping[str, Any], *, last: bool) -> None:
        """Refuse what no holder can serve; one that is only behind is passed over."""
        if offset < answer["start"]:
            earliest = cursor_text(0, answer["start"])
            raise CursorExpiredError(
                "Retention has removed the events at this cursor.", earliest=earliest
            )
        if offset > answer["end"] and last:
            raise RequestError("The cursor is beyond the end of the slice.")

    async def _response(
        self,
        kind: str,
        answer: Mapping[str, Any],
        stop: int | None,
        columns: int | None,
        budget: int,
        where: Sequence[Condition],
    ) -> Response:
        given = answer["extent"]
        extent = Extent("", 0, answer["offset"], answer["offset"], answer["end"])
        if given is not None:
            extent = extent_from_list(given)
        epoch = answer["epoch"]
        if stop is not None and extent.end > stop and kind == CHUNKS and "stopped" in answer:
            # Chunks are not cut: of the last one the reader itself leaves out what is beyond.
            extent.chunks = extent.chunks if stop > extent.start else []
            extent.end = max(stop, extent.start)
        elif stop is not None and extent.end > stop:
            stop = max(stop, extent.start)
            pairs = [pair for piece in extent.chunks for pair in split_chunks(piece)]
            wanted = [chunk for chunk, head in pairs if head["base_offset"] < stop]
            extent.chunks = wanted if stop > extent.start else []
            extent.end = stop
        parts: list[Part] = []
        if extent.chunks and kind != CHUNKS:  # What does not fit comes with the next cursor.
            parts = await render(kind, [extent], self._context.ring, budget, where)
        if extent.chunks and extent.more:
            epoch = chunk_place(extent.chunks[-1])[2]
        headers = [
            ("Cache-Control", "no-store"),
            (NEXT_CURSOR, cursor_text(epoch, extent.end)),
            (HIGH_WATERMARK, cursor_text(answer["epoch"], answer["end"])),
        ]
        if not extent.chunks:
            headers.append(("Retry-After", str(RETRY_AFTER_S)))
            return Response(204, b"", tuple(headers))
        headers.append(("Content-Type", kind))
        if kind == CHUNKS and (skip := skips([extent], self._context.ring)):
            headers.append(("Barco-Start", skip))
        if columns is not None:
            headers.append(("Barco-Columns", column_names(columns)))
            assert extent.columns == columns, "the owner cuts them down"
        if kind == CHUNKS:
            parts = await render(kind, [extent], self._context.ring)
        return Response(200, self._context.memory.counted(parts), tuple(headers))
