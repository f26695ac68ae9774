"""Staged writes: tasks bring events, a driver makes them visible. At the slices' own workers."""

import asyncio
import re
from typing import Any

from barco import limits
from barco._native import batch_encode
from barco.errors import (
    BarcoError,
    FarTimestampError,
    MisdirectedError,
    NotReadyError,
    QuotaUsedUpError,
    RequestError,
    TooLargeError,
    TopicNotFoundError,
    UnsupportedMediaTypeError,
)
from barco.model.access import User
from barco.model.note import KEEP_SECONDS_MAX, NOTE_BYTES_MAX, home_of, home_of_key
from barco.model.ranges import process_of
from barco.protocol.batch import CONTENT_TYPE
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import (
    JSON,
    NDJSON,
    Request,
    Response,
    check_topic,
    json_response,
    media_type,
    parse_number,
)
from barco.workers.http.checking.desk import Checking
from barco.workers.http.consuming.readers import readers_of
from barco.workers.writes.jobs import writers_of
from barco.workers.writes.staged import WriterRoom

_JOBS_SECONDS = 1.0
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.:-]+", re.ASCII)
_STATES = ("prepared", "committed")
_DECIDING = {"note", "keepSeconds"}


class Writes:
    """Handlers of /v1/writes."""

    def __init__(self, context: Context, checking: Checking) -> None:
        self._context, self._checking = context, checking

    async def stage(self, request: Request) -> Response:
        """A batch of events for one slice; nobody sees it."""
        body, key = _batch_of(request)
        writer, batch = _write_of(request)
        attempt = _name("attempt", request.required("attempt"), limits.ATTEMPT_NAME_BYTES_MAX)
        topic = check_topic(request.required("topic"))
        index = self._slice_of(request, key)
        seq = parse_number("seq", request.required("seq"))
        self._check_exists(topic, request.user)
        is_json = _is_lines(request)

        async def look() -> None:
            await self._checking.look(topic, body, is_json)

        staging = self._context.service.staging
        near = self._near if self._checks_times(topic) else None
        whose = WriterRoom(request.user.own(""), request.user.quota.staged)
        rows = await staging.stage(
            writer, batch, attempt, (topic, index), seq, body, near, whose=whose, look=look
        )
        return json_response({"rows": rows, "duplicate": rows == 0, "slice": index})

    async def put(self, request: Request) -> Response:
        """Prepare it, or commit it; or say that its tasks are alive. A note decides it."""
        writer, batch = _write_of(request)
        given = request.json()
        if given == {"state": "staged"}:
            return json_response(self._context.service.staging.touch(writer, batch))
        if isinstance(given, dict):
            check_names("field", given, ("state", "attempts", "rows", *_DECIDING))
        if not isinstance(given, dict) or given.keys() - _DECIDING != {"state", "attempts", "rows"}:
            raise RequestError("The body is a JSON object with state, attempts and rows.")
        if given["state"] not in _STATES:
            raise RequestError(f"A write's state is set to one of {', '.join(_STATES)}.")
        attempts = _attempts(given["attempts"])
        rows = self._rows(given["rows"])
        for topic in {topic for topic, _ in rows}:
            self._check_exists(topic, request.user)
        staging = self._context.service.staging
        if given["state"] == "committed":
            if given.keys() & _DECIDING:
                raise RequestError("note and keepSeconds go with the state prepared.")
            self._check_leads()
            return json_response(await staging.commit(writer, batch, attempts, rows))
        note, keep_s = _note(given.get("note")), _keep_seconds(given.get("keepSeconds"))
        told: dict[str, Any] = {"writer": writer, "batch": str(batch), "state": "prepared"}
        if rows or note is None:
            told = await staging.prepare(writer, batch, attempts, rows, keep_s)
        if note is not None:
            await self._decide(request, batch, note)
        return json_response(told)

    async def _decide(self, request: Request, batch: int, note: str) -> None:
        """Have the slice of the writer's name keep the note; who leads it next is waited for."""
        number, named = self._note_of(request)
        args = {**named, "batch": batch, "note": note, "prefix": request.user.own("")}
        await self._context.change_slice(number, "note_set", args)

    async def last(self, request: Request) -> Response:
        """What the writer's last batch has decided. Of the leader, at whichever worker one asks."""
        number, named = self._note_of(request)
        found = await self._context.change_slice(number, "note", named)
        told = {"writer": request.variables["writer"], "batch": None, "note": None}
        if found is not None:
            told |= {"batch": str(found["batch"]), "note": found["note"]}
            told["decidedAt"] = found["at_us"]
        return json_response(told)

    async def forget(self, request: Request) -> Response:
        """The writer begins anew."""
        number, named = self._note_of(request)
        await self._context.change_slice(number, "note_forget", named)
        return Response(204)

    def _note_of(self, request: Request) -> tuple[int, dict[str, Any]]:
        """The slice that keeps the writer's note, and how both are named there."""
        writer = _writer_of(request)
        number = home_of(request.variables["writer"], self._context.ring)
        return number, {"writer": writer, "slice": self._context.index(number)}

    async def jobs(self, request: Request) -> Response:
        """Who writes in batches, and who reads without a group and says so."""
        context = self._context
        writers, readers = await asyncio.gather(
            context.siblings.broadcast(
                "jobs", {peer: {} for peer in context.owners(context.numbers)}, _JOBS_SECONDS
            ),
            context.siblings.broadcast("readers", context.every_process(), _JOBS_SECONDS),
        )
        told = [
            [each for each in some.values() if not isinstance(each, BarcoError)]
            for some in (writers, readers)
        ]
        silent = len(writers) + len(readers) - sum(map(len, told))
        found = {"writers": writers_of(told[0]), "readers": readers_of(told[1])}
        return json_response(found | {"silent": silent})

    async def get(self, request: Request) -> Response:
        """What this worker knows of it."""
        return json_response(self._context.service.staging.state(*_write_of(request)))

    async def delete(self, request: Request) -> Response:
        """Give it up."""
        await self._context.service.staging.abort(*_write_of(request))
        return Response(204)

    def _slice_of(self, request: Request, key: bytes | None) -> int:
        """The one that is named, or that of the key of all lines."""
        if key is None or "slice" in request.query:
            return self._own(parse_number("slice", request.required("slice")))
        number = home_of_key(key, self._context.ring)
        if number not in self._context.numbers_of(self._context.options.peer):
            raise self._misdirected(self._context.owner(number))
        return self._own(self._context.index(number))

    def _own(self, index: int) -> int:
        """Every process that holds the shard keeps a copy; `_check_leads` says who commits."""
        options = self._context.options
        if index >= options.slices_per_range:
            raise RequestError(f"There are slices 0 to {options.slices_per_range - 1}.")
        # Slices are of the token range of the shard endpoint that was asked.
        number = self._context.first_slice(options.peer) + index
        if number not in self._context.numbers_of(options.peer):
            raise self._misdirected(self._context.owner(number))
        if index not in self._context.service.slices:
            raise NotReadyError("This process does not have the slice yet, or any more.")
        if not self._context.is_held(number):
            # Of what it had it keeps all; a copy that the next leaders do not know of is none.
            raise self._misdirected(self._context.owner(number))
        return index

    def _check_leads(self) -> None:
        if not self._context.service.staging.leads:
            options = self._context.options
            leader = self._context.owner(self._context.numbers_of(options.peer)[0])
            if leader != options.peer:
                raise self._misdirected(leader)
            raise NotReadyError("This process is about to lead the slices.")

    def _misdirected(self, owner: int) -> MisdirectedError:
        endpoint = self._context.service.neighbours.endpoint(process_of(owner))
        return MisdirectedError("The slices belong to another worker.", owner=endpoint)

    def _checks_times(self, topic: str) -> bool:
        """Whether timestamps far from now are refused: where the topic's settings are sure."""
        service = self._context.service
        return service.staging.leads and not service.topics.any_time(topic)

    def _near(self, time_us: int) -> None:
        if not self._context.service.reactor.time_plausible(time_us):
            raise FarTimestampError(
                f"The timestamp {time_us} is not within 10 years before now and a day after: "
                "microseconds since 1970 are expected; the topic setting timestamps=any takes "
                "it as it is.",
                timestampUs=str(time_us),
            )

    def _check_exists(self, topic: str, user: User) -> None:
        service = self._context.service
        topics = service.topics
        record = topics.record(topic)
        creates = self._context.options.auto_create and not user.quota.topics
        # The leader says so; others hear of a new topic only with its next group.
        if creates or not service.staging.leads or (record is not None and not record.deleted):
            return
        if topic in topics.names():
            return
        if self._context.options.auto_create:
            raise QuotaUsedUpError(
                "This user's topics are counted: PUT /v1/topics/NAME makes one, a write does not."
            )
        raise TopicNotFoundError(f"There is no topic {topic}.")

    def _rows(self, given: Any) -> dict[tuple[str, int], int]:
        rows: dict[tuple[str, int], int] = {}
        if not isinstance(given, dict):
            raise RequestError("rows is an object: topic, then slice, then the number of events.")
        for topic, slices in given.items():
            check_topic(topic)
            if not isinstance(slices, dict):
                raise RequestError("Each topic in rows has an object: slice to number of events.")
            for text, count in slices.items():
                if isinstance(count, bool) or not isinstance(count, int) or not 0 < count < 2**63:
                    raise RequestError("A number of events in rows is a whole number from 1.")
                rows[topic, self._own(parse_number("slice", text))] = count
        return rows


def _is_lines(request: Request) -> bool:
    """Whether the body is JSON in so many words."""
    return media_type(request.header("content-type") or "") in (JSON, NDJSON)


def _batch_of(request: Request) -> tuple[bytes, bytes | None]:
    """The body as packed batches, and the key of all events in it, if it says one: what is not
    packed is one event, or one a line, of one key or of none."""
    given = request.header("content-type")
    kind = "" if given is None else media_type(given)
    if kind == CONTENT_TYPE:
        if "partitionKey" in request.query:
            raise RequestError("A batch has its keys in it: partitionKey is for lines.")
        return request.body, None
    if kind not in (JSON, NDJSON):
        raise UnsupportedMediaTypeError(f"The body is to be {CONTENT_TYPE}, {NDJSON} or {JSON}.")
    lines = [request.body]
    if kind == NDJSON:  # No loop of this program: split, strip and filter run in C.
        lines = list(filter(None, map(bytes.strip, bytes(request.body).split(b"\n"))))
    if not lines or not lines[0]:
        raise RequestError("There is no event in the body.")
    text = request.value("partitionKey")
    key = text.encode() if text else None
    try:
        return batch_encode(lines, None if key is None else [key] * len(lines)), key
    except ValueError as error:
        raise RequestError(f"The lines cannot be staged: {error}.") from None


def _write_of(request: Request) -> tuple[str, int]:
    """Writer and batch, the name of a write."""
    return _writer_of(request), parse_number("batch", request.variables["batch"])


def _writer_of(request: Request) -> str:
    """As it is spelt inside."""
    writer = _name("writer", request.variables["writer"], limits.WRITER_NAME_BYTES_MAX)
    return _name("writer", request.user.own(writer), limits.WRITER_NAME_BYTES_MAX)


def _note(given: Any) -> str | None:
    if given is not None and not isinstance(given, str):
        raise RequestError("The note is a string.")
    try:
        size = len(given.encode()) if given is not None else 0
    except UnicodeEncodeError:
        raise RequestError("The note is no text: half of a surrogate pair is in it.") from None
    if size > NOTE_BYTES_MAX:
        raise TooLargeError(f"The note has {size} bytes of UTF-8, of {NOTE_BYTES_MAX} at most.")
    return given


def _keep_seconds(given: Any) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= KEEP_SECONDS_MAX:
        raise RequestError(f"keepSeconds is a whole number from 0 to {KEEP_SECONDS_MAX}.")
    return given


def _name(what: str, text: str, most: int) -> str:
    if len(text) > most or not _NAME.fullmatch(text):
        raise RequestError(
            f"The {what} has 1 to {most} of the characters a-z, A-Z, 0-9, '_', '.', ':' and '-'."
        )
    return text


def _attempts(given: Any) -> list[str]:
    if not isinstance(given, list) or len(given) > limits.COMMIT_ATTEMPTS_MAX:
        raise RequestError(f"attempts is a list of at most {limits.COMMIT_ATTEMPTS_MAX} names.")
    names = [
        _name("attempt", each if isinstance(each, str) else "", limits.ATTEMPT_NAME_BYTES_MAX)
        for each in given
    ]
    if len(set(names)) < len(names):
        raise RequestError("An attempt is named twice.")
    return names
