"""Topics: list, look at, create, change, delete."""

from collections.abc import Mapping
from typing import Any

from barco import limits
from barco.errors import NotFoundError, RequestError, TooManyRequestsError, TopicNotFoundError
from barco.model.access import ADMIN, PRODUCE, User
from barco.model.delays import WAITING_PREFIX, DelayedId
from barco.model.options import CHECKS, COMPRESSIONS, DEAD, OFF, TIMESTAMPS
from barco.model.queues import GRAVEYARD
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import Request, Response, check_topic, json_response
from barco.workers.http.base.needs import allow
from barco.workers.shard.producers import PRODUCER_NAME_MAX, inner_id

_NUMBERS = {
    "retentionHours": ("retention_hours", limits.RETENTION_HOURS_MAX),
    "retention_hours": ("retention_hours", limits.RETENTION_HOURS_MAX),
    "retentionBytes": ("retention_bytes", 2**62),
    "retention_bytes": ("retention_bytes", 2**62),
}
_LIKE = ("retention_hours", "retention_bytes", "compression", "timestamps")
"""The settings as records have them, that a topic of dead letters has from its origin."""

_STORED = (*_LIKE, "schema_check")
_SHOWN = ("retentionHours", "retentionBytes", "compression", "timestamps", "schemaCheck")

_WORDS = {
    "compression": ("compression", COMPRESSIONS),
    "timestamps": ("timestamps", TIMESTAMPS),
    "schemaCheck": ("schema_check", CHECKS),
    "schema_check": ("schema_check", CHECKS),
}


class Topics:
    """Handlers of /v1/topics."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def every(self, request: Request) -> Response:
        """Names and settings of all topics."""
        merged = _merge(await self._context.ask_all("topics", {"topic": None}))
        topics = [self._document(name, merged[name]) for name in sorted(merged)]
        return json_response({"topics": [topic for topic in topics if topic is not None]})

    async def cancel_delayed(self, request: Request) -> Response:
        """A delayed event will not be in the topic. Said twice it is the same."""
        topic = check_topic(request.variables["topic"])
        number, epoch, offset = DelayedId.parse(request.variables["id"])
        if number not in self._context.numbers:
            raise NotFoundError(f"There is no slice {number}.")
        index = number % self._context.options.slices_per_range
        args = {"topic": topic, "slice": index, "epoch": epoch, "offset": offset}
        await self._context.change_slice(number, "delay_cancel", args)
        return Response(204)

    async def get(self, request: Request) -> Response:
        """One topic, with its slices."""
        topic = check_topic(request.variables["topic"])
        merged = _merge(await self._context.ask_all("topics", {"topic": topic}))
        document = self._document(topic, merged[topic]) if topic in merged else None
        if document is None:
            raise TopicNotFoundError(f"There is no topic {topic}.")
        document["slices"] = [
            {
                "token": self._context.token(number),
                "rangeIndex": self._context.index(number),
                "startOffset": str(start),
                "endOffset": str(end),
                "lastTimestamp": last,
            }
            for number, start, end, last in sorted(merged[topic]["streams"])
        ]
        return json_response(document)

    async def producer(self, request: Request) -> Response:
        """What was taken last of a producer's id, which belongs to who asks."""
        topic = check_topic(request.variables["topic"])
        name = request.variables["id"].encode()
        if not 0 < len(name) <= PRODUCER_NAME_MAX:
            raise RequestError(f"A Producer-Id has 1 to {PRODUCER_NAME_MAX} bytes.")
        waits = request.value("delayed")
        if waits not in (None, "1"):
            raise RequestError("delayed is 1, or not there.")
        where = WAITING_PREFIX + topic if waits else topic
        args = {"topic": where, "id": inner_id(name, request.user)}
        answers = await self._context.ask_all("producer", args)
        found = sorted(each for some in answers.values() for each in some)
        slices = [
            {
                "token": self._context.token(number),
                "index": self._context.index(number),
                "epoch": epoch,
                "lastSeq": str(seq),
            }
            for number, epoch, seq in found
        ]
        return json_response({"topic": topic, "slices": slices})

    async def put(self, request: Request) -> Response:
        """Create a topic or change its settings: 201 for a new one."""
        topic = check_topic(request.variables["topic"])
        settings = _settings(request.json())
        merged = await self._patiently(topic)
        known = merged.get(topic)
        exists = known is not None and known["exists"]
        before = known["record"] if known else None
        record = self._next(topic, before)
        owner = "" if exists else request.user.name  # Of what events have made: nobody.
        if exists and before and not before["deleted"]:
            record["created_us"] = before["created_us"]
            # What is not mentioned stays as it is.
            record |= {name: before.get(name) for name in _STORED}
            owner = before.get("owner", "")
        record |= {"owner": owner} if owner else {}
        if settings.get("schema_check") == DEAD:
            await self.graveyard(request.user, topic, None)
        await self._apply(request.user, record | settings, new=not exists)
        merged = await self._patiently(topic)
        return json_response(self._document(topic, merged[topic]), 200 if exists else 201)

    async def _apply(self, user: User, record: Mapping[str, Any], *, new: bool) -> None:
        """Note it everywhere; a new topic counts as one of the user's."""
        if new and self._context.service.topics.known() >= limits.TOPICS_MAX:
            raise TooManyRequestsError(
                f"The broker has {limits.TOPICS_MAX} topics, which is its limit."
            )
        if new and (most := user.quota.topics):
            # Where slice 0 is led all are counted, one after the other.
            await self._context.change_slice(0, "topic_apply", {"record": record, "most": most})
        await self._context.change_all("topic_apply", {"record": record})

    async def graveyard(self, user: User, topic: str, given: str | None) -> str:
        """The topic of another one's dead letters; it is there. Another than its own one is written
        to by who may."""
        if not given and len(topic) + len(GRAVEYARD) > limits.TOPIC_NAME_BYTES_MAX:
            raise RequestError(
                f"Its dead letters would go to {topic}{GRAVEYARD}, a name of more than "
                f"{limits.TOPIC_NAME_BYTES_MAX} characters: name another topic, where dead can be "
                "said."
            )
        dead = check_topic(given or topic + GRAVEYARD)
        if dead == topic:
            raise RequestError("Dead letters go to another topic.")
        if given and given != topic + GRAVEYARD and not user.is_everybody:
            allow(user, (PRODUCE,), ((dead, None),))
        await self._make_like(user, dead, topic)
        return dead

    async def _make_like(self, user: User, topic: str, origin: str) -> None:
        """Create a topic, if there is none of this name, with the settings of another one. Who
        makes it has to be one who may: by a call, or by a first event where that makes topics."""
        merged = await self._patiently(topic)
        if topic in merged and merged[topic]["exists"]:
            return
        if not user.is_everybody:
            verbs = (ADMIN, PRODUCE) if self._context.options.auto_create else (ADMIN,)
            allow(user, verbs, ((topic, None),))
        like = (await self._patiently(origin)).get(origin)
        settings = like["record"] if like is not None and like["record"] else {}
        record = self._next(topic, merged[topic]["record"] if topic in merged else None)
        record |= {name: settings[name] for name in _LIKE if settings.get(name) is not None}
        record |= {"owner": user.name} if user.name else {}
        await self._apply(user, record, new=True)

    async def delete(self, request: Request) -> Response:
        """Delete a topic and its events."""
        topic = check_topic(request.variables["topic"])
        merged = await self._patiently(topic)
        if topic not in merged or not merged[topic]["exists"]:
            raise TopicNotFoundError(f"There is no topic {topic}.")
        record = self._next(topic, merged[topic]["record"])
        await self._context.change_all("topic_apply", {"record": record | {"deleted": True}})
        return Response(204)

    async def _patiently(self, topic: str) -> dict[str, Any]:
        return _merge(await self._context.ask_all("topics", {"topic": topic}, patient=True))

    def _next(self, topic: str, before: Mapping[str, Any] | None) -> dict[str, Any]:
        now_us = self._context.service.wall_us()  # To be shown; versions say what is newer.
        return {
            "topic": topic,
            "version": before["version"] + 1 if before else 1,
            "changed_us": now_us,
            "author": self._context.peer,
            "created_us": now_us,
        }

    def _document(self, topic: str, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        if not entry["exists"]:
            return None
        record = entry["record"]
        if record is not None and record["deleted"]:
            record = None  # Written to again after it was deleted.
        options = self._context.options
        hours, size, compression, timestamps, check = (
            record.get(name) if record else None for name in _STORED
        )
        return {
            "topic": topic,
            "retentionHours": options.retention_hours if hours is None else hours,
            "retentionBytes": options.retention_bytes if size is None else size,
            "compression": compression or options.compression,
            "timestamps": timestamps or TIMESTAMPS[0],
            "schemaCheck": check or OFF,
            "createdAt": record["created_us"] if record else None,
            "events": sum(end - start for _, start, end, _ in entry["streams"]),
        }


def _merge(answers: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What all shards know: the latest record, and the streams of all."""
    merged: dict[str, dict[str, Any]] = {}
    for answer in answers.values():
        for name, entry in answer.items():
            into = merged.setdefault(name, {"record": None, "exists": False, "streams": []})
            into["exists"] = into["exists"] or entry["exists"]
            into["streams"] += entry["streams"]
            record = entry["record"]
            if record is not None and (
                into["record"] is None or _stamp(into["record"]) < _stamp(record)
            ):
                into["record"] = record
    return merged


def _stamp(record: Mapping[str, Any]) -> tuple[int, int, int]:
    return record["version"], record["changed_us"], record["author"]


def _settings(given: Any) -> dict[str, int | str | None]:
    """The settings in a request's body, checked; unknown names are refused."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RequestError("The body is to be a JSON object.")
    check_names("setting", given, {*_NUMBERS, *_WORDS}, _SHOWN)
    settings: dict[str, int | str | None] = {}
    for name, value in given.items():
        if name in _WORDS:
            stored, words = _WORDS[name]
            if value not in words:
                raise RequestError(f"{name} is one of {', '.join(words)}.")
            settings[stored] = None if value == OFF else value
            continue
        stored, most = _NUMBERS[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise RequestError(f"{name} is a whole number from 0 (no limit) to {most}.")
        settings[stored] = value
    return settings
