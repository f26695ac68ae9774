"""The OpenAPI 3.1 document, made from the table of routes."""

import re
from typing import Any

from barco.workers.http.base.routes import Parameter, Route
from barco.workers.http.base.status_schema import (
    ASSIGNMENT,
    FIGURES,
    GROUP,
    GROUPS,
    HEALTH,
    READY,
    STATUS,
    TOPIC,
    TOPICS,
)
from barco.workers.http.base.topology_schema import DRAINS, TARGET, TOPOLOGY

_PLACE = re.compile(r"\{([a-z]+)\}")

_PLACES = {
    "id": "The Producer-Id.",
    "topic": "The name of a topic: 1 to 127 of a-z, A-Z, 0-9, '_', '.', '-'.",
    "token": "The start of the token range, a signed 64-bit integer.",
    "index": "The slice's index in its token range.",
    "group": "The name of a group.",
    "user": "The name of a user: 1 to 32 of a-z, A-Z, 0-9, '_', '-'.",
    "file": "The name of one of the console's files.",
    "writer": "The id of a query or job: 1 to 128 of a-z, A-Z, 0-9, '_', '.', ':', '-'.",
    "subject": "The name of a subject.",
    "number": "The id of a schema.",
    "version": "The number of a version, or latest.",
    "batch": "The number of the write among those of its writer; later ones are larger.",
}

_PROBLEM_SCHEMA = {
    "type": "object",
    "description": "A problem document (RFC 9457).",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": ["urn:barco:problem:not-found"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}

_STORED_SCHEMA = {
    "type": "object",
    "description": "Where events were stored; 64-bit integers are strings. Of one that waits until "
    "it is due, delayed instead of startOffset: its id.",
    "required": ["topic", "token", "rangeIndex", "version", "count"],
    "properties": {
        "topic": {"type": "string"},
        "token": {"type": "string"},
        "rangeIndex": {"type": "integer"},
        "version": {"type": "integer"},
        "startOffset": {"type": "string"},
        "delayed": {"type": "string"},
        "count": {"type": "integer"},
    },
}

_EVENTS_SCHEMA = {
    "type": "array",
    "description": "Consecutive events of one slice and generation each.",
    "items": {
        "type": "object",
        "required": ["topic", "token", "rangeIndex", "version", "startOffset", "values"],
        "properties": {
            "topic": {"type": "string"},
            "token": {"type": "string"},
            "rangeIndex": {"type": "integer"},
            "version": {"type": "integer"},
            "startOffset": {"type": "string"},
            "values": {"type": "array"},
        },
    },
}

_KINDS = {
    "stored": {"$ref": "#/components/schemas/Stored"},
    "events": {"$ref": "#/components/schemas/Events"},
    "status": {"$ref": "#/components/schemas/Status"},
    "ready": {"$ref": "#/components/schemas/Ready"},
    "topology": {"$ref": "#/components/schemas/Topology"},
    "target": {"$ref": "#/components/schemas/Target"},
    "drains": {"$ref": "#/components/schemas/Drains"},
    "health": {"$ref": "#/components/schemas/Health"},
    "figures": {"$ref": "#/components/schemas/Figures"},
    "topics": {"$ref": "#/components/schemas/Topics"},
    "topic": {"$ref": "#/components/schemas/Topic"},
    "groups": {"$ref": "#/components/schemas/Groups"},
    "group": {"$ref": "#/components/schemas/Group"},
    "assignment": {"$ref": "#/components/schemas/Assignment"},
}

_TAGS = {
    "produce": "Storing events.",
    "consume": "Reading in a group: the broker decides who reads what.",
    "read": "Reading without a group, from any place.",
    "write": "Many events from many tasks, at once or not at all: Spark's sink. At the shard "
    "endpoints of the slices' owners.",
    "shippers": "What shippers of logs speak, at the paths that they know.",
    "administration": "Topics, groups, the broker itself.",
    "schemas": "The registry of schemas, as Avro's users' clients speak to it.",
}


def document(routes: tuple[Route, ...], version: str) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "barco",
            "version": version,
            "summary": "An event-streaming broker: durable before it answers.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {
                "Problem": _PROBLEM_SCHEMA,
                "Stored": _STORED_SCHEMA,
                "Events": _EVENTS_SCHEMA,
                "Status": STATUS,
                "Ready": READY,
                "Topology": TOPOLOGY,
                "Target": TARGET,
                "Drains": DRAINS,
                "Health": HEALTH,
                "Figures": FIGURES,
                "Topics": TOPICS,
                "Topic": TOPIC,
                "Groups": GROUPS,
                "Group": GROUP,
                "Assignment": ASSIGNMENT,
            },
            "responses": {
                "Problem": {
                    "description": "What is wrong, and with what.",
                    "content": {
                        "application/problem+json": {
                            "schema": {"$ref": "#/components/schemas/Problem"}
                        }
                    },
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PLACES[name],
            "schema": {"type": "string"},
        }
        for name in _PLACE.findall(route.path)
    ]
    parameters += [_parameter(parameter) for parameter in route.parameters]
    words = re.findall(r"[A-Za-z]+", route.path.removeprefix("/v1"))
    operation: dict[str, Any] = {
        "operationId": route.method.lower() + "".join(word.capitalize() for word in words),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": {str(status): _answer(route, status) for status in sorted(route.answers)}
        | {"default": {"$ref": "#/components/responses/Problem"}},
    }
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {
            "content": {kind: {"schema": schema} for kind, schema in route.body.items()}
        }
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.values:
        schema["enum"] = list(parameter.values)
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "header" if parameter.header else "query",
        "required": parameter.required,
        "description": parameter.description,
        "schema": schema,
    }


def _answer(route: Route, status: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.answers[status]}
    if status >= 400:
        if route.refused:
            answer["content"] = {kind: {"schema": route.refused} for kind in route.kinds}
        elif route.shape in ("status", "ready"):  # They say why not, in the same form.
            answer["content"] = {"application/json": {"schema": _KINDS[route.shape]}}
        else:
            answer["content"] = {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            }
    elif status in (200, 201) and route.schema:
        answer["content"] = {kind: {"schema": route.schema} for kind in route.kinds}
    elif status in (200, 201) and route.kinds:
        schema = _KINDS.get(route.shape, {})
        answer["content"] = {
            kind: {"schema": schema if kind == "application/json" else {}} for kind in route.kinds
        }
    told = {header.name: header for header in route.tells if status in header.statuses}
    if told:
        answer["headers"] = {
            name: {"description": header.description, "schema": {"type": "string"}}
            for name, header in told.items()
        }
    return answer
