"""Groups and queues, as JSON Schemas."""

from typing import Any

from barco.workers.http.shapes.status import list_of, object_of, told

GROUPS = object_of(
    "groups", groups=list_of(object_of("group members", group="string", members="integer"))
)

_SETTINGS: dict[str, Any] = {
    "type": {"type": "string", "enum": ["queue"]},
    "maxInFlight": told("integer", "Of each slice so many events are out at a time."),
    "leaseMs": told("integer", "For how long an event is with who got it, at most."),
    "ordered": {"type": "string", "enum": ["key", "no"]},
    "maxDeliveries": told("integer", "Then it is a dead letter; 0: never."),
    "retryMs": told("integer", "The pause before an event is given for the second time."),
    "dead": {
        "type": ["string", "null"],
        "description": "The topic of dead letters; null: none, or TOPIC.dead of each of several.",
    },
}
_ITS = " ".join(_SETTINGS)

QUEUE = object_of(
    f"group topics {_ITS}",
    group="string",
    topics=list_of({"type": "string"}),
    **_SETTINGS,
)

LETTERS = object_of(
    "done others gone marked left why",
    done=told("integer", "Letters that were sent, or dropped, durably."),
    others=told("integer", "That came from another topic, and were not sent to this one."),
    gone=told("integer", "Of these there is no letter, or none any more."),
    marked=told("integer", "That are not listed any more; who may not produce there marks none."),
    left=told("integer", "That were not come to, since something went wrong."),
    why=told("string", "What went wrong; empty: nothing."),
)

_POSITION = object_of(
    "topic token rangeIndex worker offset deliveredOffset startOffset endOffset lag consumerId",
    topic="string",
    token="string",
    rangeIndex="integer",
    worker="integer",
    offset=told("string", "The first event that is not committed."),
    deliveredOffset=told("string", "The first one that nobody was given."),
    startOffset="string",
    endOffset="string",
    lag=told("integer", "Events from there to the end that are still there."),
    consumerId={"type": ["string", "null"], "description": "Who has it."},
    queue=object_of(
        f"{_ITS} inFlight waiting acknowledged dying",
        **_SETTINGS,
        inFlight=told("integer", "Events that are with somebody."),
        waiting=told("integer", "Events that are to be given again."),
        acknowledged=told("integer", "Events beyond `offset` that are done."),
        dying=told("integer", "Events on their way to the dead letters."),
    )
    | {"description": "Only of a queue."},
)

GROUP = object_of(
    "group members positions lag",
    group="string",
    members=list_of(
        object_of(
            "consumerId sessionMs weight topics slices",
            consumerId="string",
            sessionMs="integer",
            weight="integer",
            topics=list_of({"type": "string"}),
            slices={
                "type": "object",
                "description": "By topic the numbers of the slices that it is given.",
                "additionalProperties": {"type": "array", "items": {"type": "integer"}},
            },
        )
    ),
    positions=list_of(_POSITION),
    lag=told("integer", "Of all its slices."),
    queues={
        "type": "object",
        "description": "By topic its settings, if it is a queue.",
        "additionalProperties": object_of(_ITS, **_SETTINGS),
    },
)

POSITIONS = object_of(
    "group topic positions", group="string", topic="string", positions=list_of(_POSITION)
)

ASSIGNMENT = object_of(
    "placement slices",
    placement=told("string", "A name for it: another one when it has changed."),
    slices={
        "type": "object",
        "description": "By topic the numbers of the slices that it is to read.",
        "additionalProperties": {"type": "array", "items": {"type": "integer"}},
    },
)
