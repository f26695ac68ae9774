"""The part of the table of the API that consumers know: members of groups, and what they get."""

from dataclasses import replace

from barco.model.queues import DELIVERIES_MAX, REASON_BYTES_MAX
from barco.workers.http.base.render import CONSUME_FORMATS
from barco.workers.http.base.routes import Parameter, Route, Told
from barco.workers.http.consuming.positions import COMMIT_POSITIONS_MAX
from barco.workers.http.consuming.rejects import REJECTED_MAX
from barco.workers.http.table_events import MAX_BYTES, MISSING_TOPICS, RETRY_AFTER, START, WAIT

_CONSUMER = Parameter(
    "consumerId",
    "Name of the consumer: 1 to 128 characters.",
    required=True,
    older=("consumer_id",),  # PolarStreams' first name of it.
)
_DELIVERY = Parameter(
    "delivery",
    "Barco-Delivery of the last answer that arrived (empty: none did). What was in a later one is "
    "not committed, and sent again.",
)
_PLACE = {
    "type": "object",
    "required": ["topic", "slice"],
    "properties": {
        "topic": {"type": "string"},
        "token": {"type": "string", "description": "Of the token range."},
        "slice": {
            "type": "integer",
            "description": "Its index in the token range; without a token, its number in the ring.",
        },
        "cursor": {"type": "string"},
        "offset": {"type": "string", "description": "Of the event."},
    },
}
_REJECTED = {
    "application/json": {
        "type": "object",
        "required": ["events"],
        "properties": {
            "events": {
                "type": "array",
                "description": "Each by its own cursor, or offset; one of a slice.",
                "minItems": 1,
                "maxItems": REJECTED_MAX,
                "items": _PLACE,
            },
            "reason": {
                "type": "string",
                "maxLength": REASON_BYTES_MAX,
                "description": "A header of the dead letter.",
            },
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": DELIVERIES_MAX,
                "description": "How often it was tried; 1 if not given. A header as well.",
            },
            "dead": {
                "type": "string",
                "description": "The topic of dead letters; else TOPIC.dead.",
            },
        },
    }
}
_POSITIONS = {
    "application/json": {
        "type": "object",
        "required": ["positions"],
        "properties": {
            "positions": {
                "type": "array",
                "description": "Of each slice where to go on: the next event to read.",
                "minItems": 1,
                "maxItems": COMMIT_POSITIONS_MAX,
                "items": _PLACE,
            }
        },
    }
}

_REGISTRATION = {
    "application/json": {
        "type": "object",
        "description": "Instead of the parameters, as PolarStreams' clients send it.",
        "required": ["id", "topics"],
        "properties": {
            "id": {"type": "string", "description": "Name of the consumer."},
            "group": {"type": "string", "description": "Else `default`."},
            "topics": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            "onNewGroup": {
                "description": "0 (else) and 1 are the two names.",
                "oneOf": [
                    {"type": "integer", "enum": [0, 1]},
                    {"type": "string", "enum": ["startFromLatest", "startFromEarliest"]},
                ],
            },
            "sessionMs": {"type": "integer"},
        },
    }
}

_REGISTER = Route(
    "PUT",
    "/v1/consumer/register",
    "consume.register",
    "Join a group. A new group starts at the latest event, or at the earliest.",
    "consume",
    (
        _CONSUMER,
        Parameter("group", "Name of the group; else `default`."),
        Parameter("topic", "A topic to read; several are allowed.", required=True, repeated=True),
        Parameter("onNewGroup", "startFromLatest (else) or startFromEarliest."),
        Parameter(
            "sessionMs",
            "For how long the consumer may be silent: 5,000 to 600,000, else 30,000. Then its "
            "slices go to others. A poll that waits is not silent.",
            "integer",
        ),
        Parameter(
            "weight",
            "1 to 100, else 1: of two consumers the one of twice the weight gets twice as many "
            "slices.",
            "integer",
        ),
    ),
    body=_REGISTRATION,
    answers={
        200: "Registered: OK, or Already registered.",
        400: "A parameter is wrong.",
        409: "Registered with other parameters.",
        429: "Too many consumers or groups.",
        503: "A worker is restarting: register again.",
    },
    tells=(MISSING_TOPICS,),
    kinds=("text/plain",),
)

CONSUMER_ROUTES = (
    _REGISTER,
    replace(_REGISTER, method="POST"),
    Route(
        "POST",
        "/v1/consumer/poll",
        "consume.poll",
        "Commit what the last poll returned, if that arrived, and return what follows.",
        "consume",
        (
            _CONSUMER,
            MAX_BYTES,
            WAIT,
            _DELIVERY,
            Parameter(
                "scope",
                "broker: only what this broker leads, for a client that asks each of them.",
                values=("broker",),
            ),
            Parameter(
                "paused",
                "TOPIC/N,N,…: these slices, by their numbers in the ring, stay with the consumer, "
                "which wants nothing of them now; of each topic.",
                repeated=True,
            ),
            Parameter(
                "placement",
                "For a consumer that wants to hear of slices that become another's before they do: "
                "the Barco-Placement that it has acted on. Another one is answered at once.",
            ),
        ),
        answers={
            200: "Events.",
            204: "None yet.",
            400: "A parameter is wrong.",
            406: "None of the accepted formats.",
            409: "Not registered, or fenced.",
            503: "The broker is starting or stopping.",
        },
        tells=(
            Told("Barco-Delivery", "Names the answer, for the next poll's `delivery`.", (200,)),
            START,
            Told(
                "Barco-Unavailable-Slices",
                "Indexes of slices of the consumer whose owner did not answer, by commas.",
                (200, 204),
            ),
            Told(
                "Barco-Owners",
                "Of the consumer's slices that other brokers lead: endpoint=first-last of each "
                "range, by commas. Asked there, with scope=broker, they are a hop nearer.",
                (200, 204),
            ),
            Told("Barco-Placement", "What it is to read now, if it asks by placement.", (200, 204)),
            Told("Retry-After", RETRY_AFTER, (204, 503)),
        ),
        kinds=CONSUME_FORMATS,
        shape="events",
    ),
    Route(
        "POST",
        "/v1/consumer/commit",
        "consume.commit",
        "Commit what the last poll returned or, with a body, up to these positions.",
        "consume",
        (_CONSUMER, _DELIVERY),
        body=_POSITIONS,
        answers={
            204: "Committed, durably.",
            400: "A parameter is wrong, or the body.",
            409: "Not registered; or of these slices nothing is committed, but of all others: they "
            "have moved or have another leader, or the position is behind, or was not delivered.",
            503: "A worker is restarting.",
        },
    ),
    Route(
        "GET",
        "/v1/consumer/assignment",
        "consume.assignment",
        "The slices that the consumer is to read, and a name for them: the `placement` of polls.",
        "consume",
        (_CONSUMER,),
        answers={200: "Slices.", 400: "A parameter is wrong.", 409: "Not registered."},
        shape="assignment",
    ),
    Route(
        "POST",
        "/v1/consumer/reject",
        "consume.reject",
        "Give events up that can not be processed: each goes to the dead letters, and all up to it "
        "is committed, in one step.",
        "consume",
        (_CONSUMER,),
        body=_REJECTED,
        answers={
            204: "Done, durably. It can be repeated.",
            400: "A parameter is wrong, or the body.",
            403: "The topic of dead letters is made, or is another one, by who may produce there.",
            409: "Not registered; or of these slices nothing is done, but of all others: they have "
            "moved, or the event was not delivered.",
            503: "A worker is restarting, or has no room; nothing is changed.",
        },
    ),
    Route(
        "POST",
        "/v1/consumer/heartbeat",
        "consume.heartbeat",
        "Say that the consumer is alive, and busy: polls and commits say so, too.",
        "consume",
        (_CONSUMER,),
        answers={204: "Heard.", 400: "A parameter is wrong.", 409: "Not registered."},
    ),
    Route(
        "POST",
        "/v1/consumer/goodbye",
        "consume.goodbye",
        "Commit, and leave the group.",
        "consume",
        (_CONSUMER, _DELIVERY, Parameter("commit", "false: leave without committing.", "boolean")),
        answers={200: "Gone.", 400: "A parameter is wrong.", 409: "Not registered."},
        kinds=("text/plain",),
    ),
)
"""Part of ROUTES."""
