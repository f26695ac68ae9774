"""The OpenAPI 3.1 document, made from the table of routes."""

import re
from typing import Any

from barco.log import GIVEN_ID_BYTES_MAX
from barco.workers.http.base.arrow import ARROW
from barco.workers.http.base.messages import EVENT_STREAM, JSON, NDJSON, PROBLEM
from barco.workers.http.base.render import CHUNKS, POLAR
from barco.workers.http.base.routes import Parameter, Route
from barco.workers.http.shapes import events, groups, others, shippers, status, topology

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

SCHEMAS = {
    "Problem": _PROBLEM_SCHEMA,
    "Stored": events.STORED,
    "Events": events.EVENTS,
    "Line": events.LINE,
    "Slices": events.SLICES,
    "Producer": events.PRODUCER,
    "Status": status.STATUS,
    "Ready": status.READY,
    "Health": status.HEALTH,
    "Figures": status.FIGURES,
    "Hour": status.HOUR,
    "Topics": status.TOPICS,
    "Topic": status.TOPIC,
    "Brokers": others.BROKERS,
    "Topology": topology.TOPOLOGY,
    "Target": topology.TARGET,
    "Drains": topology.DRAINS,
    "Groups": groups.GROUPS,
    "Group": groups.GROUP,
    "Audit": others.AUDIT,
    "Jobs": others.JOBS,
    "Letters": groups.LETTERS,
    "Assignment": groups.ASSIGNMENT,
    "Positions": groups.POSITIONS,
    "Queue": groups.QUEUE,
    "Staged": others.STAGED,
    "Write": others.WRITE,
    "Note": others.NOTE,
    "Users": others.USERS,
    "User": others.USER,
    "Me": others.ME,
    "Openapi": others.OPENAPI,
    "GivenSchema": others.GIVEN_SCHEMA,
    "GivenLevel": others.GIVEN_LEVEL,
    "GivenMode": others.GIVEN_MODE,
    "Elastic": shippers.ELASTIC,
    "Bulk": shippers.BULK,
    "Collected": shippers.COLLECTED,
    "Acks": shippers.ACKS,
    "Logs": shippers.LOGS,
}
"""By name; a route's shape is one of them, with a small letter."""

_TEXTS = {
    NDJSON: "One event a line, each as `Line`.",
    EVENT_STREAM: "Server-sent events; the data of each is as `Line`.",
    "text/plain": "A line or more.",
    "application/openmetrics-text": "OpenMetrics 1.0.",
    "text/html": "A page.",
    "text/javascript": "A program.",
    "text/css": "A style sheet.",
    "image/svg+xml": "A picture.",
}

_BYTES = {
    POLAR: "PolarStreams' consumer message.",
    CHUNKS: "Stored chunks as they are.",
    ARROW: "A stream of Arrow's record batches.",
    "application/x-protobuf": "The protocol's message.",
}

_REQUEST_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "required": False,
    "description": "What the client calls this request: the answer says it as Barco-Request-Id, "
    "and lines of the log about it have it. Without it the trace of a traceparent is taken. What "
    "has other characters, or too many, is passed over.",
    "schema": {"type": "string", "pattern": f"^[A-Za-z0-9._~+/=:@-]{{1,{GIVEN_ID_BYTES_MAX}}}$"},
}
_ANSWERED_ID = {
    "description": "The request's id: the client's own, or else one that the broker has made. Of "
    "every answer of 400 and above; of others where the client has given one.",
    "schema": {"type": "string"},
}
_NAMES_REQUEST = {"Barco-Request-Id": {"$ref": "#/components/headers/RequestId"}}

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
            "schemas": SCHEMAS,
            "parameters": {"RequestId": _REQUEST_ID},
            "headers": {"RequestId": _ANSWERED_ID},
            "responses": {
                "Problem": {
                    "description": "What is wrong, and with what.",
                    "headers": _NAMES_REQUEST,
                    "content": {PROBLEM: {"schema": _named("Problem")}},
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
    parameters.append({"$ref": "#/components/parameters/RequestId"})
    words = re.findall(r"[A-Za-z]+|[0-9.]+$|/$", route.path.removeprefix("/v1"))
    words = ["V" + word.partition(".")[0] if word[0].isdigit() else word for word in words]
    words = ["Root" if word == "/" else word for word in words]
    operation: dict[str, Any] = {
        "operationId": route.method.lower() + "".join(word.capitalize() for word in words),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": parameters,
        "responses": {str(status): _answer(route, status) for status in sorted(route.answers)}
        | {"default": {"$ref": "#/components/responses/Problem"}},
    }
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
        answer["content"] = {PROBLEM: {"schema": _named("Problem")}}
        if route.refused:
            answer["content"] |= {kind: {"schema": route.refused} for kind in route.kinds}
        if route.shape in ("status", "ready"):  # They say why not, in the same form.
            answer["content"][JSON] = {"schema": _schema(JSON, route)}
    elif status in (200, 201, 202) and route.kinds:
        answer["content"] = {kind: {"schema": _schema(kind, route)} for kind in route.kinds}
    told = {header.name: header for header in route.tells if status in header.statuses}
    headers = {
        name: {"description": header.description, "schema": {"type": "string"}}
        for name, header in told.items()
    }
    if headers or status >= 400:
        answer["headers"] = headers | (_NAMES_REQUEST if status >= 400 else {})
    return answer


def _schema(kind: str, route: Route) -> dict[str, Any]:
    """Of an answer in one media type."""
    if route.schema:
        return dict(route.schema)
    if kind in _TEXTS:
        return {"type": "string", "description": _TEXTS[kind]}
    if kind in _BYTES:
        return {"type": "string", "format": "binary", "description": _BYTES[kind]}
    assert kind == JSON, f"{kind} is described nowhere"
    return _named(route.shape[:1].upper() + route.shape[1:])


def _named(name: str) -> dict[str, Any]:
    assert name in SCHEMAS, f"there is no shape {name!r}"
    return {"$ref": f"#/components/schemas/{name}"}
