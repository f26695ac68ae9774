"""The table of the API."""

from dataclasses import replace

from barco.model.options import COMPRESSIONS, TIMESTAMPS
from barco.model.queues import DELIVERIES_MAX, REASON_BYTES_MAX
from barco.workers.http.base.render import CONSUME_FORMATS
from barco.workers.http.base.routes import Parameter, Route, Told
from barco.workers.http.consuming.positions import COMMIT_POSITIONS_MAX
from barco.workers.http.consuming.rejects import REJECTED_MAX
from barco.workers.http.schemas.table import SCHEMA_ROUTES
from barco.workers.http.table_console import CONSOLE_ROUTES
from barco.workers.http.table_events import (
    EVENT_ROUTES,
    MAX_BYTES,
    RETRY_AFTER,
    START,
    WAIT,
)
from barco.workers.http.table_growing import GROWING_ROUTES
from barco.workers.http.table_produce import CANCEL, PRODUCE
from barco.workers.http.table_queues import QUEUE_ROUTES
from barco.workers.http.table_shippers import SHIPPER_ROUTES
from barco.workers.http.table_users import USER_ROUTES
from barco.workers.http.table_writes import WRITE_ROUTES

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
    kinds=("text/plain",),
)

_TOPICS = (
    Route(
        "GET",
        "/v1/topic/{topic}/producers/{id}",
        "topics.producer",
        "What was taken last of a Producer-Id, in each slice that knows it: epoch and sequence. "
        "Ids belong to the user who made them.",
        "produce",
        (
            Parameter(
                "delayed", "Of its delayed events, whose sequence is their own.", values=("1",)
            ),
        ),
        answers={200: "Epochs and sequences.", 400: "Malformed.", 503: "Not now."},
        shape="producer",
    ),
    Route(
        "GET",
        "/v1/topics",
        "topics.every",
        "All topics.",
        "administration",
        answers={200: "Topics."},
        shape="topics",
    ),
    Route(
        "GET",
        "/v1/topics/{topic}",
        "topics.get",
        "One topic with its slices.",
        "administration",
        answers={200: "The topic.", 404: "No such topic."},
        shape="topic",
    ),
    Route(
        "PUT",
        "/v1/topics/{topic}",
        "topics.put",
        "Create a topic, or change its settings; what is not named stays.",
        "administration",
        body={
            "application/json": {
                "type": "object",
                "properties": {
                    "retentionHours": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Hours since the append after which events may go. "
                        "0: as long as the broker's own retention lets them stay.",
                    },
                    "retentionBytes": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Stored bytes of the whole topic, shared evenly by its "
                        "slices; the newest are kept. 0: no limit of its own.",
                    },
                    "compression": {
                        "type": "string",
                        "enum": list(COMPRESSIONS),
                        "description": "Of what the broker packs from now on; batches stay as "
                        "clients packed them. Not set: as configured for the broker.",
                    },
                    "timestamps": {
                        "type": "string",
                        "enum": list(TIMESTAMPS),
                        "description": "plausible (not set): producers' timestamps of more than "
                        "10 years ago or a day ahead are refused. any: they are taken.",
                    },
                },
            }
        },
        answers={
            200: "Changed.",
            201: "Created.",
            400: "A setting is wrong.",
            415: "The body is not JSON.",
            503: "A worker is restarting.",
        },
        shape="topic",
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}",
        "topics.delete",
        "Delete a topic and its events.",
        "administration",
        answers={204: "Deleted.", 404: "No such topic.", 503: "A worker is restarting."},
    ),
)

_GROUPS = (
    Route(
        "GET",
        "/v1/groups",
        "groups.every",
        "All groups.",
        "administration",
        answers={200: "Groups."},
        shape="groups",
    ),
    Route(
        "GET",
        "/v1/groups/{group}",
        "groups.get",
        "Members, positions and lag of a group.",
        "administration",
        answers={200: "The group.", 404: "No such group."},
        shape="group",
    ),
    Route(
        "DELETE",
        "/v1/groups/{group}",
        "groups.delete",
        "Forget the positions of a group without members.",
        "administration",
        answers={204: "Forgotten.", 404: "No such group.", 409: "It has members."},
    ),
    Route(
        "PUT",
        "/v1/groups/{group}/positions",
        "groups.seek",
        "Move a group's positions on a topic, also back.",
        "administration",
        body={
            "application/json": {
                "type": "object",
                "required": ["topic", "to"],
                "properties": {
                    "topic": {"type": "string"},
                    "to": {
                        "description": "earliest, latest, timestamp:<µs>, a time, or cursors.",
                        "oneOf": [
                            {"type": "string"},
                            {
                                "type": "object",
                                "required": ["slices"],
                                "properties": {
                                    "slices": {
                                        "type": "object",
                                        "additionalProperties": {"type": "string"},
                                    }
                                },
                            },
                        ],
                    },
                },
            }
        },
        answers={
            200: "The new positions, durable.",
            400: "The body is wrong.",
            404: "No such topic.",
            415: "The body is not JSON.",
        },
        shape="positions",
    ),
)

ROUTES = (
    Route(
        "GET",
        "/status",
        "status.status",
        "Whether the broker serves, and why not if not; its I/O engine, priority and peers; "
        "what is damaged on its disk, and how far the search for that is.",
        "administration",
        answers={200: "Ready: every slice can be written through it.", 503: "Not yet."},
        shape="status",
    ),
    Route(
        "GET",
        "/ready",
        "status.ready",
        "Whether every slice can be written through the broker; with insync, also whether all "
        "copies of what it holds are there and whole, so that another broker may be stopped.",
        "administration",
        (Parameter("insync", "Given without a value, or true: also wait for the copies."),),
        answers={200: "Yes.", 503: "Not yet; reason says why."},
        shape="ready",
    ),
    Route(
        "GET",
        "/v1/brokers",
        "status.brokers",
        "The brokers and their ports, as PolarStreams says it; in a cluster with their state.",
        "administration",
        answers={200: "Brokers."},
        shape="brokers",
    ),
    Route(
        "GET",
        "/v1/topology",
        "status.topology",
        "The ring, its slices, their owners and generations; with copies, how each is copied.",
        "administration",
        (Parameter("copies", "Given without a value, or true: the leaders are asked."),),
        answers={200: "Topology."},
        shape="topology",
    ),
    PRODUCE,
    CANCEL,
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
    Route(
        "GET",
        "/v1/topic/{topic}/slices",
        "read.slices",
        "The slices of a topic: owner, generations, first and end positions.",
        "read",
        (
            Parameter(
                "splitBytes",
                "For readers of everything: also bytes (stored, about) of each slice, and splits, "
                "offsets that cut it into pieces of about so many bytes (1,024 at most).",
                "integer",
            ),
            Parameter("at", "timestamp:<µs>: also at, where that time begins in each slice."),
        ),
        answers={
            200: "Slices.",
            400: "A parameter is wrong.",
            404: "No such topic.",
            503: "A worker is restarting.",
        },
        shape="slices",
    ),
    *EVENT_ROUTES,
    *_TOPICS,
    *_GROUPS,
    *QUEUE_ROUTES,
    Route(
        "GET",
        "/metrics",
        "status.metrics",
        "Counters and histograms for Prometheus, of the whole broker.",
        "administration",
        (
            Parameter("topics", "Also events of these topics: names, or beginnings before a *."),
            Parameter("groups", "Also the lag of these consumer groups, in the same way."),
            Parameter("slices", "Those by slice.", "boolean"),
            Parameter("workers", "Counters of each process by itself.", "boolean"),
        ),
        answers={200: "Text exposition 0.0.4, or OpenMetrics 1.0 where that is accepted."},
        kinds=("text/plain", "application/openmetrics-text"),
    ),
    Route(
        "GET",
        "/openapi.json",
        "status.openapi",
        "This document.",
        "administration",
        answers={200: "OpenAPI 3.1."},
        shape="openapi",
    ),
    *CONSOLE_ROUTES,
    *GROWING_ROUTES,
    *WRITE_ROUTES,
    *USER_ROUTES,
    *SCHEMA_ROUTES,
    *SHIPPER_ROUTES,
)
