"""The part of the table that tasks and drivers of Spark use: staged writes."""

from barco.protocol.batch import CONTENT_TYPE
from barco.workers.http.base.routes import Parameter, Route, Told

_PATH = "/v1/writes/{writer}/{batch}"
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
            Parameter("slice", "The slice of all its keys.", "integer", required=True),
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
            }
        },
        answers={
            200: "It is kept; rows counts the events that were not here before.",
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
                },
            }
        },
        answers={
            200: "It is so; committed: all events are durable.",
            400: _MALFORMED,
            404: "There is no such topic, and topics are not created on first use; or no write.",
            409: "What is staged is not that, or another commit of the same name has begun.",
            421: _OWN,
            429: "Too many writers have committed in the last ten minutes.",
            503: "Not now: send it again.",
            504: "It may have begun: send it again.",
        },
        tells=(_RETRY,),
    ),
    Route(
        "GET",
        _PATH,
        "writes.get",
        "What this worker knows of a write.",
        "write",
        answers={200: "State and counts.", 400: _MALFORMED, 404: "Nothing."},
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
