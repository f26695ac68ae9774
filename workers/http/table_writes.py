"""The part of the table that tasks and drivers of Spark use, and pipelines: staged writes."""

from barco.model.note import KEEP_SECONDS_MAX, NOTE_BYTES_MAX
from barco.protocol.batch import CONTENT_TYPE
from barco.workers.http.base.messages import JSON, NDJSON
from barco.workers.http.base.routes import RECENT, Parameter, Route, Told

_WRITER = "/v1/writes/{writer}"
_PATH = _WRITER + "/{batch}"
_OWN = "Another worker holds the slice, or leads it; owner is its address."
_HELD = "This worker does not hold the slice; owner is the address of the one that leads it."
_RETRY = Told("Retry-After", "Seconds after which it is worth trying again.", (429, 503))
_MALFORMED = "Malformed; the detail says what."

_NAMES = {"type": "array", "items": {"type": "string", "maxLength": 64}}
_ROWS = {
    "type": "object",
    "description": "By topic and slice: how many events the attempts that are named staged.",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
}

WRITE_ROUTES = (
    Route(
        "PUT",
        _PATH + "/staged",
        "writes.stage",
        "Keep batches for a slice that this worker holds. Nobody sees them before the commit.",
        "write",
        (
            Parameter("topic", "Where it is to go.", required=True),
            Parameter(
                "slice",
                "The slice of all its keys. With partitionKey it need not be said.",
                "integer",
            ),
            Parameter("partitionKey", "Of lines: the key of all of them; else they have none."),
            Parameter("attempt", "One try of one task: 1 to 64 characters.", required=True),
            Parameter(
                "seq",
                "The number of the (first) batch for this attempt, topic and slice: 0, then always "
                "one more. A repetition is recognised.",
                "integer",
                required=True,
            ),
        ),
        body={
            CONTENT_TYPE: {
                "type": "string",
                "format": "binary",
                "description": "1 to 64 batches, one behind the other, each of at most 1 MiB of "
                "values, or one event.",
            },
            NDJSON: {"type": "string", "description": "One event a line, of at most 1 MiB."},
            JSON: {"description": "One event: the body as it is, which is not parsed."},
        },
        answers={
            200: "It is kept; rows counts the events that were not here before; slice is theirs.",
            400: _MALFORMED,
            404: "There is no such topic, and topics are not created on first use.",
            409: "A gap in the sequence, expectedSeq is what would be taken; or too late.",
            413: "The batch is too large.",
            415: "The body is something else.",
            421: _HELD,
            429: "Too many writes or batches are staged; nothing was kept.",
            503: "No room, or not now; nothing was kept.",
        },
        tells=(_RETRY,),
        shape="staged",
    ),
    Route(
        "PUT",
        _PATH,
        "writes.put",
        "Prepare a write: it can be committed from then on, whatever happens. Or commit it: each "
        "slice's events appear with the mark that makes a repetition change nothing. Or say, by "
        "the state staged alone, that its tasks are alive: it does not expire for an hour.",
        "write",
        body={
            "application/json": {
                "type": "object",
                "required": ["state"],
                "properties": {
                    "state": {"enum": ["staged", "prepared", "committed"]},
                    "attempts": _NAMES | {"description": "Those that won, in order."},
                    "rows": _ROWS,
                    "note": {
                        "type": "string",
                        "maxLength": NOTE_BYTES_MAX,
                        "description": "With prepared: what this batch decides, durable as an "
                        "event when it is answered. Of each batch one note counts, the first; "
                        "batches go up. rows may be empty, or what is here of the write.",
                    },
                    "keepSeconds": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": KEEP_SECONDS_MAX,
                        "description": "With prepared: for so long it is kept without a sign of "
                        "life, because a note decides on it; else for an hour.",
                    },
                },
            }
        },
        answers={
            200: "It is so; committed: all events are durable.",
            400: _MALFORMED,
            404: "There is no such topic, and topics are not created on first use; or no write.",
            409: "What is staged is not that, or another commit of the same name has begun; or "
            "another note has decided this batch, or a later one, decidedBatch.",
            413: "The note is too long.",
            421: _OWN,
            429: "Too many writers have committed in the last ten minutes.",
            503: "Not now: send it again.",
            504: "It may have begun: send it again.",
        },
        tells=(_RETRY,),
        shape="write",
    ),
    Route(
        "GET",
        "/v1/jobs",
        "writes.jobs",
        "Who writes in batches: what is staged, and what was committed last. And who reads without "
        "a group and says so (Barco-Reader), as Spark's tasks do.",
        "administration",
        (RECENT,),
        answers={200: "Of all processes that answered."},
        shape="jobs",
        shared=True,
    ),
    Route(
        "GET",
        _WRITER,
        "writes.last",
        "The writer's last note and its batch, both null without one. Of the leader of the slice "
        "of the writer's name, at whichever worker one asks.",
        "write",
        answers={200: "The note.", 400: _MALFORMED, 503: "Not now."},
        tells=(_RETRY,),
        shape="note",
    ),
    Route(
        "DELETE",
        _WRITER,
        "writes.forget",
        "Forget the writer's note: a pipeline of this name begins anew, and stores again what its "
        "input has. Whoever writes under the name is to be stopped before.",
        "write",
        answers={204: "There is none.", 400: _MALFORMED, 503: "Not now.", 504: "Perhaps."},
        tells=(_RETRY,),
    ),
    Route(
        "GET",
        _PATH,
        "writes.get",
        "What this worker knows of a write.",
        "write",
        answers={200: "State and counts.", 400: _MALFORMED, 404: "Nothing."},
        shape="write",
    ),
    Route(
        "DELETE",
        _PATH,
        "writes.delete",
        "Give a write up.",
        "write",
        answers={204: "It is gone.", 400: _MALFORMED, 409: "It has begun to be committed."},
    ),
)
