"""The part of the table about queues."""

from barco.model.queues import (
    DELAY_MS_MAX,
    DELIVERIES_MAX,
    IN_FLIGHT_DEFAULT,
    IN_FLIGHT_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LEASED_DEFAULT,
    LEASED_MAX,
    REASON_BYTES_MAX,
)
from barco.workers.http.base.messages import JSON, NDJSON
from barco.workers.http.base.render import CHUNKS
from barco.workers.http.base.routes import Parameter, Route, Told
from barco.workers.http.table_events import MAX_BYTES, MISSING_TOPICS, RETRY_AFTER, WAIT

_TOPIC = Parameter("topic", "The topic that it is a queue of.", required=True)
_NO_QUEUE = "The group is no queue of this topic."
_GONE = "Of some the time was over, or they are done: `events` names them. The others are changed."
_WRONG = "A parameter or the body is wrong."
_NOT_NOW = "The slice has no leader now, or no room; nothing is changed."
_PERHAPS = "It may be done, or not: send it again."

_NAMED = {
    "lease": {"type": "string", "description": "Barco-Lease of an answer: all of it."},
    "events": {
        "type": "array",
        "items": {"type": "string"},
        "description": "ids, `slice.epoch.offset.count`; `.n` behind one says that n neighbours "
        "are meant.",
    },
}


def _body(more: dict[str, object]) -> dict[str, object]:
    return {"application/json": {"type": "object", "properties": {**_NAMED, **more}}}


QUEUE_ROUTES = (
    Route(
        "PUT",
        "/v1/groups/{group}",
        "queues.put",
        "Make a group a queue of some topics, or give it other settings: 200 when every slice has "
        "that on disk.",
        "consume",
        (
            Parameter("type", "queue.", required=True, values=("queue",)),
            Parameter("topic", "A topic; several are allowed.", required=True, repeated=True),
            Parameter("onNewGroup", "startFromEarliest (else) or startFromLatest."),
            Parameter(
                "maxInFlight",
                f"Of each slice so many events are out at a time: {IN_FLIGHT_DEFAULT:,} if not "
                f"given, {IN_FLIGHT_MAX:,} at most.",
                "integer",
            ),
            Parameter(
                "leaseMs",
                "For how long an event is with who got it, at most, unless it is extended: "
                f"{LEASE_MS_MIN:,} to {LEASE_MS_MAX:,}, else {LEASE_MS_DEFAULT:,}.",
                "integer",
            ),
            Parameter(
                "ordered",
                "key: events of one key one after the other, each when the one before is "
                "acknowledged. no (else): in any order.",
            ),
            Parameter(
                "maxDeliveries",
                "An event that was given so often and not acknowledged goes to the dead letters: "
                f"1 to {DELIVERIES_MAX:,}; 0 (else): never.",
                "integer",
            ),
            Parameter(
                "retryMs",
                "Before an event is given for the second time, twice as long before each one "
                f"more: up to {DELAY_MS_MAX:,}. 0 (else): at once.",
                "integer",
            ),
            Parameter("dead", "The topic of dead letters; else TOPIC.dead."),
        ),
        answers={
            200: "It is a queue.",
            400: _WRONG,
            404: "No such topic, and topics are not created on first use.",
            409: "The group has consumers who poll, or positions of such.",
            429: "Too many groups, or no room for their state.",
            503: _NOT_NOW,
            504: "Not every slice has it: send it again.",
        },
        tells=(MISSING_TOPICS,),
        shape="queue",
    ),
    Route(
        "POST",
        "/v1/queue/{group}/lease",
        "queues.lease",
        "Events to work on, of whichever slice has some; nobody else gets them for a while.",
        "consume",
        (
            _TOPIC,
            Parameter(
                "max",
                f"How many: 1 to {LEASED_MAX:,}, {LEASED_DEFAULT} if not given.",
                "integer",
            ),
            Parameter(
                "leaseMs",
                f"For how long: {LEASE_MS_MIN:,} at least; the queue's leaseMs at most, and if not "
                "given.",
                "integer",
            ),
            MAX_BYTES,
            WAIT,
        ),
        answers={
            200: "Events. Each line has its id and deliveries, each array of JSON its lease.",
            204: "None in time.",
            400: _WRONG,
            404: _NO_QUEUE,
            406: "None of the accepted formats.",
            503: "Nobody who has some can give them now.",
        },
        tells=(
            Told("Barco-Lease", "Names all of the answer, to be given back.", (200,)),
            Told(
                "Barco-Held-By",
                "An event that was not acknowledged for so long that those behind it wait.",
                (204,),
            ),
            Told("Retry-After", RETRY_AFTER, (204, 503)),
        ),
        kinds=(NDJSON, JSON, CHUNKS),
        shape="events",
    ),
    Route(
        "POST",
        "/v1/queue/{group}/ack",
        "queues.ack",
        "These events are done. It can be repeated, and come late: who else has one finds it done.",
        "consume",
        (_TOPIC,),
        body=_body({}),
        answers={
            204: "Durably.",
            400: _WRONG,
            404: _NO_QUEUE,
            503: _NOT_NOW,
            504: _PERHAPS,
        },
    ),
    Route(
        "POST",
        "/v1/queue/{group}/nack",
        "queues.nack",
        "These events are not done: give them again.",
        "consume",
        (_TOPIC,),
        body=_body(
            {
                "delayMs": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": DELAY_MS_MAX,
                    "description": "Not before; else as the queue's retryMs says.",
                },
                "reason": {
                    "type": "string",
                    "maxLength": REASON_BYTES_MAX,
                    "description": "A header of the dead letter, if it becomes one.",
                },
            }
        ),
        answers={
            204: "Durably.",
            400: _WRONG,
            404: _NO_QUEUE,
            409: _GONE,
            503: _NOT_NOW,
            504: _PERHAPS,
        },
    ),
    Route(
        "POST",
        "/v1/queue/{group}/extend",
        "queues.extend",
        "These events take longer: leaseMs from now on.",
        "consume",
        (_TOPIC,),
        body=_body(
            {
                "leaseMs": {
                    "type": "integer",
                    "minimum": LEASE_MS_MIN,
                    "description": "The queue's leaseMs at most, and if not given.",
                }
            }
        ),
        answers={204: "They are yours.", 400: _WRONG, 404: _NO_QUEUE, 409: _GONE, 503: _NOT_NOW},
    ),
)
"""Part of ROUTES."""
