"""The table of the API."""

from barco.model.options import CHECKS, COMPRESSIONS, TIMESTAMPS
from barco.workers.http.base.routes import RECENT, Parameter, Route
from barco.workers.http.schemas.table import SCHEMA_ROUTES
from barco.workers.http.table_console import CONSOLE_ROUTES
from barco.workers.http.table_consumers import CONSUMER_ROUTES
from barco.workers.http.table_events import (
    EVENT_ROUTES,
)
from barco.workers.http.table_growing import GROWING_ROUTES
from barco.workers.http.table_letters import LETTER_ROUTES
from barco.workers.http.table_produce import CANCEL, PRODUCE
from barco.workers.http.table_queues import QUEUE_ROUTES
from barco.workers.http.table_shippers import SHIPPER_ROUTES
from barco.workers.http.table_users import USER_ROUTES
from barco.workers.http.table_writes import WRITE_ROUTES

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
        (RECENT,),
        answers={200: "Topics."},
        shape="topics",
        shared=True,
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
                    "schemaCheck": {
                        "type": "string",
                        "enum": list(CHECKS),
                        "description": "Of values that are not of a schema of TOPIC-value: off "
                        "(not set): they are not looked at; warn: they are logged; reject: 422; "
                        "dead: they go to TOPIC.dead.",
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
        (RECENT,),
        answers={200: "Groups."},
        shape="groups",
        shared=True,
    ),
    Route(
        "GET",
        "/v1/groups/{group}",
        "groups.get",
        "Members, positions and lag of a group.",
        "administration",
        (RECENT,),
        answers={200: "The group.", 404: "No such group."},
        shape="group",
        shared=True,
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
                        "description": "earliest, latest, timestamp:<µs>, a time; or one of these, "
                        "or a cursor, for each of some slices.",
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
        (Parameter("copies", "Given without a value, or true: the leaders are asked."), RECENT),
        answers={200: "Topology."},
        shape="topology",
        shared=True,
    ),
    PRODUCE,
    CANCEL,
    *CONSUMER_ROUTES,
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
            RECENT,
        ),
        answers={
            200: "Slices.",
            400: "A parameter is wrong.",
            404: "No such topic.",
            503: "A worker is restarting.",
        },
        shape="slices",
        shared=True,
    ),
    *EVENT_ROUTES,
    *_TOPICS,
    *_GROUPS,
    *QUEUE_ROUTES,
    *LETTER_ROUTES,
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
