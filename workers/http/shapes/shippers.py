"""What shippers of logs are answered, each as its own protocol has it, as JSON Schemas."""

from barco.workers.http.shapes.status import list_of, object_of, told

_WHY = object_of("type reason", type="string", reason="string")

_DOCUMENT = object_of(
    "_index status",
    _index={"type": ["string", "null"]},
    _id="string",
    result={"type": "string", "enum": ["created"]},
    _version="integer",
    status="integer",
    error=_WHY,
)

BULK = object_of(
    "took errors items",
    took=told("integer", "Milliseconds."),
    errors=told("boolean", "Whether any of them was refused."),
    items=list_of(
        {
            "type": "object",
            "description": "By what was asked for, of one document.",
            "additionalProperties": _DOCUMENT,
        }
    ),
)

REFUSED = object_of("error status", error=_WHY, status="integer")

ELASTIC = {
    "type": "object",
    "description": "A name and a version, as Elasticsearch's clients look for them.",
    "additionalProperties": True,
}

COLLECTED = object_of(
    "text code",
    text="string",
    code=told("integer", "0: stored."),
    ackId=told("integer", "Where a channel was said."),
    **{"invalid-event-number": told("integer", "The first one that is malformed, from 0 on.")},
)

ACKS = object_of(
    "acks",
    acks={
        "type": "object",
        "description": "By id whether it is durable.",
        "additionalProperties": {"type": "boolean"},
    },
)

LOGS = object_of(
    "",
    partialSuccess=object_of(
        "rejectedLogRecords errorMessage", rejectedLogRecords="string", errorMessage="string"
    ),
)
