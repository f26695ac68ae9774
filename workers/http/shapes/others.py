"""Writes, users and what PolarStreams' clients ask first, as JSON Schemas."""

from barco.model.access import QUOTAS
from barco.workers.http.shapes.status import list_of, object_of, told
from barco.workers.http.shapes.topology import BROKER

BROKERS = object_of(
    "length names producerPort consumerPort discoveryPort metricsPort cluster version workers "
    "slicesPerRange shardEndpoints",
    length=told("integer", "How many brokers the ring was cut for."),
    names=list_of({"type": "string"}) | {"description": "Their addresses, by ordinal."},
    producerPort={"type": ["integer", "null"]},
    consumerPort={"type": ["integer", "null"]},
    producerBinaryPort=told("integer", "Only where PolarStreams' frames are spoken."),
    discoveryPort={"type": ["integer", "null"]},
    metricsPort={"type": ["integer", "null"]},
    cluster=told("string", "Names the cluster; PUT /v1/topology wants it."),
    version="string",
    workers=told("integer", "Shards of this broker's own range."),
    slicesPerRange="integer",
    shardEndpoints=list_of({"type": "string"}) | {"description": "Of this broker's processes."},
    restored=told("boolean", "It was restored from a backup, and this is the first start since."),
    brokers=list_of(BROKER) | {"description": "Only in a cluster."},
)

STAGED = object_of(
    "rows duplicate slice",
    rows=told("integer", "Events that were not here before."),
    duplicate=told("boolean", "All of it was here before."),
    slice=told("integer", "The slice's index in the token range."),
)

_COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}

WRITE = object_of(
    "writer batch state",
    writer="string",
    batch="string",
    state={"type": "string", "enum": ["staged", "prepared", "committed"]},
    stagedRows="integer",
    stagedBytes="integer",
    committed={
        "type": "object",
        "description": "By topic and slice how many events are visible.",
        "additionalProperties": _COUNTS,
    },
    begun=told("boolean", "Some slices have it: it can only be committed."),
    laterBatches={
        "type": "object",
        "description": "By topic a later batch of the writer that is visible.",
        "additionalProperties": {"type": "string"},
    },
) | {"description": "With a note alone, no more than the first three."}

NOTE = object_of(
    "writer batch note",
    writer="string",
    batch={"type": ["string", "null"]},
    note={"type": ["string", "null"]},
    decidedAt=told("integer", "Microseconds since 1970; only with a note."),
)

USERS = object_of(
    "version users",
    version=told("integer", "Grows with each change."),
    users=list_of(
        object_of(
            f"name tokens grants {' '.join(QUOTAS)}",
            name="string",
            tokens=told("integer", "How many it has: two while one is replaced."),
            grants=list_of({"type": "string"}),
            **{name: told("integer", "0: without end.") for name in QUOTAS},
        )
    ),
)

AUDIT = object_of(
    "audited silent lines",
    audited=told("boolean", "Whether users need a token here: else nothing is told."),
    silent=told("integer", "Processes that did not answer."),
    lines=list_of(
        object_of(
            "broker at what request user method path status",
            broker="integer",
            at=told("integer", "Microseconds since 1970."),
            what={"type": "string", "enum": ["refused", "administered"]},
            request=told("string", "The id that the answer had, too."),
            user=told("string", "Empty: who showed no user's token."),
            method="string",
            path="string",
            status="integer",
            why="string",
            topic=told("string", "Of what was refused in part."),
            events=told("integer", "Of what was refused in part."),
            **{"from": told("string", "An address, where the core has refused.")},
        )
    ),
)

_TOPICS = list_of({"type": "string"})

JOBS = object_of(
    "writers readers silent",
    silent=told("integer", "Processes that did not answer."),
    writers=list_of(
        object_of(
            "writer batch state rows topics",
            writer="string",
            batch="string",
            state={"type": "string", "enum": ["staged", "prepared", "committed"]},
            rows=told("integer", "Staged by all attempts, or committed of the last batch."),
            bytes=told("integer", "Of what is staged."),
            attempts=told("integer", "Of tasks, of what is staged."),
            topics=_TOPICS,
            idleSeconds=told("number", "Since somebody did something for what is staged."),
            at=told("integer", "Committed then: microseconds since 1970."),
        )
    ),
    readers=list_of(
        object_of(
            "reader topic batch rows total at",
            reader="string",
            topic="string",
            batch=told("string", "The last one; empty: it has none."),
            rows=told("integer", "Events that it was given in that batch."),
            total=told("integer", "Since processes have known it."),
            at=told("integer", "Read last then: microseconds since 1970."),
        )
    ),
)

ME = object_of(
    "name everybody grants",
    name=told("string", "Empty where nobody needs a token."),
    everybody=told("boolean", "Nobody needs a token: all is granted."),
    grants=list_of({"type": "string"}),
)

USER = object_of("name created", name="string", created="boolean")

OPENAPI = {
    "type": "object",
    "description": "An OpenAPI document.",
    "required": ["openapi", "info", "paths", "components"],
    "properties": {"openapi": {"type": "string"}},
    "additionalProperties": {"description": "As OpenAPI 3.1 says."},
}

GIVEN_SCHEMA = {
    "type": "object",
    "description": "What is given to the registry of schemas.",
    "required": ["schema"],
    "properties": {
        "schema": {"type": "string", "description": "Its text."},
        "schemaType": {"enum": ["AVRO", "JSON", "PROTOBUF"], "description": "AVRO if not said."},
        "references": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "subject", "version"],
                "properties": {
                    "name": {"type": "string"},
                    "subject": {"type": "string"},
                    "version": {"type": "integer"},
                },
            },
        },
    },
}

GIVEN_LEVEL = {
    "type": "object",
    "required": ["compatibility"],
    "properties": {
        "compatibility": {
            "enum": [
                "NONE",
                *("BACKWARD", "BACKWARD_TRANSITIVE"),
                *("FORWARD", "FORWARD_TRANSITIVE"),
                *("FULL", "FULL_TRANSITIVE"),
            ]
        }
    },
}

GIVEN_MODE = {
    "type": "object",
    "required": ["mode"],
    "properties": {"mode": {"enum": ["READWRITE", "READONLY"]}},
}
