"""Events and where they are, as JSON Schemas: what is produced, read, leased and listed."""

from typing import Any

from barco.workers.http.shapes.status import list_of, object_of, told
from barco.workers.http.shapes.topology import GENERATION

VALUE: dict[str, Any] = {
    "description": 'The event\'s value: any JSON, a string if it is none, {"base64": …} if it is '
    "no text, null if it has none.",
}

_WHERE: dict[str, Any] = {
    "token": told("string", "Of the token range: a signed 64-bit integer."),
    "rangeIndex": told("integer", "The slice's index in the token range."),
    "version": told("integer", "The epoch of the generation."),
    "startOffset": told("string", "Of the first event."),
    "count": told("integer", "How many events."),
}

_STORED = {
    **_WHERE,
    "delayed": told(
        "string", "Instead of startOffset, of an event that waits until it is due: its id."
    ),
}

STORED = object_of(
    "topic count",
    topic="string",
    **_STORED,
    slices=list_of(object_of("token rangeIndex version count", **_STORED))
    | {"description": "Instead of one place: the share of each, if the keys belong to several."},
    refused=told("integer", "Where some are not stored, as values are checked."),
    flaws=list_of(
        object_of(
            "line reason",
            line=told("integer", "From 1: a line, or the event of a batch."),
            reason="string",
            pointer=told("string", "Into the value, of JSON (RFC 6901)."),
        )
    )
    | {"description": "Of the first of these."},
    dead=told("string", "The topic to which they went."),
) | {"description": "Where events were stored; 64-bit integers are strings."}

EVENTS = list_of(
    object_of(
        "topic token rangeIndex version startOffset values",
        topic="string",
        token=_WHERE["token"],
        rangeIndex=_WHERE["rangeIndex"],
        version=_WHERE["version"],
        startOffset=_WHERE["startOffset"],
        lease=told("string", "Of a queue: names these events, to be given back."),
        deliveries=told("integer", "Of a queue: how often they were given."),
        values=list_of(VALUE),
    )
) | {"description": "Consecutive events of one slice and generation each."}

LINE = object_of(
    "topic token rangeIndex version offset timestamp key value",
    topic="string",
    token=_WHERE["token"],
    rangeIndex=_WHERE["rangeIndex"],
    version=_WHERE["version"],
    offset=told("string", "The event's number in its slice."),
    id=told("string", "Of a queue: names the event, to be given back."),
    deliveries=told("integer", "Of a queue: how often it was given."),
    timestamp=told("integer", "Microseconds since 1970, negative before."),
    key={"description": 'A string, {"base64": …} if it is no text, null without one.'},
    value=VALUE,
    headers={
        "type": "object",
        "description": 'Only of an event that has some: strings, or {"base64": …}.',
        "additionalProperties": {"description": 'A string, or {"base64": …}.'},
    },
) | {"description": "One event, as lines of application/x-ndjson and server-sent events have it."}

_SPLIT = object_of(
    "offset bytes", offset="string", bytes=told("integer", "Stored, about, from there on.")
)

SLICES = object_of(
    "topic slices",
    topic="string",
    slices=list_of(
        object_of(
            "token index rangeIndex endpoint worker ordinal replicas replicaEndpoints version "
            "generations start end startOffset endOffset lastTimestamp",
            token=_WHERE["token"],
            index=_WHERE["rangeIndex"],
            rangeIndex=told("integer", "The same again, as events say it."),
            endpoint=told("string", "Of the process that leads it."),
            worker="integer",
            ordinal=told("integer", "Of the broker that leads it."),
            replicas=list_of({"type": "integer"}) | {"description": "Ordinals."},
            replicaEndpoints=list_of({"type": "string"}),
            version=told("integer", "The epoch of its open generation."),
            generations=list_of(GENERATION),
            start=told("string", "A cursor: the first event that is still there."),
            end=told("string", "A cursor: behind the last one."),
            startOffset="string",
            endOffset="string",
            lastTimestamp=told("integer", "Microseconds since 1970; 0: it has none."),
            bytes=told("integer", "With splitBytes: stored, about."),
            splits=list_of(_SPLIT) | {"description": "With splitBytes: where to cut."},
            at=told("string", "With at: a cursor, where that time begins."),
            atOffset="string",
        )
    ),
)

PRODUCER = object_of(
    "topic slices",
    topic="string",
    slices=list_of(
        object_of(
            "token index epoch lastSeq",
            token=_WHERE["token"],
            index=_WHERE["rangeIndex"],
            epoch="integer",
            lastSeq=told("string", "Of the last request that was taken."),
        )
    ),
)
