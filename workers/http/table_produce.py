"""The part of the table that the C core serves: produce."""

from barco.workers.http.base.routes import Parameter, Route, Told

_RETRY_AFTER = "Seconds after which it is worth trying again."
_PARAMETERS = (
    Parameter(
        "partitionKey",
        "Events of the same key keep their order. At most 32 KiB; not with a batch, which carries "
        "its keys inside.",
    ),
    Parameter(
        "keyField",
        "With application/x-ndjson: the member of each line that is its key. Not with "
        "partitionKey.",
    ),
    Parameter(
        "timestamp",
        "Microseconds since 1970, near now unless the topic takes any; else the broker's clock.",
        "integer",
    ),
    Parameter(
        "slice",
        "The index of the slice, for clients that know it; must agree with the key.",
        "integer",
    ),
    Parameter(
        "token",
        "With slice: the start of its token range; else that of the process that is asked.",
        "integer",
    ),
    Parameter(
        "onlyValid",
        "Of lines those that the topic's schemaCheck refuses are left out, and told; with no other "
        "body.",
        values=("true",),
    ),
    Parameter(
        "Content-Encoding",
        "The body is packed so; the limits are those of what it is unpacked.",
        header=True,
        values=("gzip", "lz4", "zstd"),
    ),
    Parameter(
        "Barco-Header-NAME",
        "A header of the one event, percent-encoded, where NAME is its name: at most 64 of them "
        "and 16 KiB. So are the fields ce-* of CloudEvents in binary mode, of which ce-time and "
        "ce-partitionkey are time and key as well.",
        header=True,
    ),
    Parameter(
        "Barco-Null",
        "The one event has no value; the body is empty.",
        header=True,
        values=("1",),
    ),
    Parameter(
        "Barco-Deliver-At",
        "The event is to be seen then, not now: ISO 8601 with a zone, or milliseconds since 1970. "
        "Its timestamp is this time: not with timestamp. Of a batch: timestamp, each of its events "
        "at its own.",
        header=True,
    ),
    Parameter(
        "Barco-Deliver-After",
        "The same, from now on: milliseconds, or a number with ms, s, m, h or d. Not with the "
        "other.",
        header=True,
    ),
    Parameter("Prefer", "204 instead of 200.", header=True, values=("return=minimal",)),
    Parameter(
        "Producer-Id",
        "1 to 64 characters: requests that are repeated are stored once. Together with the "
        "next two.",
        header=True,
    ),
    Parameter(
        "Producer-Epoch", "Grows when a producer of this id starts again.", "integer", header=True
    ),
    Parameter(
        "Producer-Seq",
        "The number of the request for its topic and slice: 0, then always one more.",
        "integer",
        header=True,
    ),
    Parameter(
        "Idempotency-Key",
        "1 to 64 characters, never used for anything else: for clients that send one request. "
        "Not together with Producer-Id.",
        header=True,
    ),
    Parameter(
        "Barco-No-Forward", "421 instead of handing it to the owner.", header=True, values=("1",)
    ),
)

_CLOUDEVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "source": {"type": "string"},
        "specversion": {"type": "string", "enum": ["1.0"]},
        "type": {"type": "string"},
    },
    "required": ["id", "source", "specversion", "type"],
}

PRODUCE = Route(
    "POST",
    "/v1/topic/{topic}/messages",
    None,
    "Store events: all of the body or, of each slice that its keys belong to, all or nothing. 200 "
    "only when they are durable.",
    "produce",
    _PARAMETERS,
    body={
        "application/json": {"description": "One event: the body as it is, which is not parsed."},
        "application/x-ndjson": {
            "type": "string",
            "description": "One event a line (LF or CRLF); blank lines are skipped.",
        },
        "application/vnd.barco.events+x-ndjson": {
            "type": "string",
            "description": "One event a line: an object with key (a string, or base64 in an object "
            "of that one member), value (stored as it stands, or base64; null: none), timestamp "
            "and headers (an object of strings or base64). In place of timestamp deliverAt or "
            "deliverAfter, in all lines or in none: as the fields Barco-Deliver-At and -After.",
        },
        "application/cloudevents+json": {
            **_CLOUDEVENT,
            "description": "A CloudEvent 1.0 in structured mode: attributes become headers "
            "ce-NAME, datacontenttype content-type, data or data_base64 the value; partitionkey "
            "and time are key and timestamp as well.",
        },
        "application/cloudevents-batch+json": {
            "type": "array",
            "items": _CLOUDEVENT,
            "description": "Many of them, in one array.",
        },
        "application/octet-stream": {
            "type": "string",
            "format": "binary",
            "description": "One event: the body as it is; so with every type that is not here.",
        },
        "application/vnd.barco.batch": {
            "type": "string",
            "format": "binary",
            "description": "Many events in columns, each with a key if it has one; may be LZ4.",
        },
    },
    answers={
        200: "Stored, durably.",
        202: "Stored, durably; it will be in its topic when it is due. `delayed` is its id.",
        204: "The same with Prefer: return=minimal; or it was stored before.",
        400: "Malformed, or without events; the type says what.",
        401: "Nobody's token, or none, where one is needed.",
        403: "Not granted; or a newer epoch of the producer exists, or the topic is reserved.",
        404: "There is no such topic, and topics are not created on first use.",
        408: "The request took too long to arrive.",
        409: "A gap in the producer's sequence; expectedSeq is what would be taken.",
        411: "A length is needed, or chunked transfer.",
        413: "An event or the body is too large; limit says how much may be.",
        414: "The request line is too long.",
        415: "A content coding that is not taken; Accept-Encoding names those that are.",
        417: "An expectation that is not 100-continue.",
        421: "Another worker owns the slice; owner is its address.",
        422: "The topic's values are checked, and one is of no schema of its; line and pointer say "
        "where.",
        429: "Too much at once; nothing was written.",
        431: "The header fields are too large, or too many.",
        500: "Nobody knows whether it was written.",
        503: "Not now; nothing was written.",
        504: "Nobody knows whether it was written.",
        507: "The disk is full; nothing was written.",
    },
    tells=(
        Told("Barco-Duplicate", "true, if it was stored before.", (204,)),
        Told("Accept-Encoding", "The content codings that are taken.", (415,)),
        Told("Barco-Outcome", "not-written, where that is certain.", (421, 429, 503, 507)),
        Told("Retry-After", _RETRY_AFTER, (429, 503, 507)),
    ),
    shape="stored",
)

CANCEL = Route(
    "DELETE",
    "/v1/topic/{topic}/delayed/{id}",
    "topics.cancel_delayed",
    "A delayed event is not to be delivered. It can be repeated.",
    "produce",
    (),
    answers={
        204: "It will not be in its topic, durably.",
        400: "This is no id.",
        404: "It was delivered, or never there.",
        429: "Too many that were cancelled wait for their time.",
        503: "The slice has no leader now; nothing is changed.",
        504: "It may be cancelled, or not: send it again.",
    },
)
