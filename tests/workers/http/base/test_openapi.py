"""/openapi.json: no shape is empty, and what is answered has the shape that is told.

Every answer of the twin, and of real brokers in tests/integration, is held against the document
(tests/reference/described.py); here is what else has to be so.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from reference.described import described, wrong

from barco.protocol.batch import CONTENT_TYPE
from barco.workers.http.base.openapi import SCHEMAS
from barco.workers.http.table import ROUTES

from ...twin import Broker, run


def schemas(node: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of a document or of a part of it, also those in others, with its place."""
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from schemas(each, f"{where}/{number}")
    if not isinstance(node, dict):
        return
    for name, each in node.items():
        here = f"{where}/{name}"
        holder = where.rpartition("/")[2]
        if (
            name in ("schema", "items", "additionalProperties")
            and isinstance(each, dict)
            or holder in ("properties", "oneOf")
            or where == "/components/schemas"
        ):
            yield here, each
        yield from schemas(each, here)
    for number, each in enumerate(node.get("oneOf", ())):
        yield f"{where}/oneOf/{number}", each


def hollow(schema: dict[str, Any]) -> bool:
    """Whether it says nothing: it allows all there is and has no word for it."""
    if schema.get("type") == "object" and not {"properties", "additionalProperties"} & set(schema):
        return True
    if schema.get("type") == "array" and not schema.get("items"):
        return True
    return not {"type", "$ref", "enum", "oneOf"} & set(schema) and not schema.get("description")


def test_no_shape_is_empty() -> None:
    found = list(schemas(described()))
    assert len(found) > 300
    empty = [where for where, schema in found if hollow(schema)]
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "array"}, {"items": {}}])
def test_an_empty_shape_is_found(schema: dict[str, Any]) -> None:
    assert hollow(schema)


def test_every_shape_is_used_and_every_json_has_one() -> None:
    text = json.dumps(described())
    told = {"Line"}  # Lines of text and server-sent events: their media types have no shapes.
    assert {name for name in SCHEMAS if f"#/components/schemas/{name}" not in text} == told
    shaped = {route.shape[:1].upper() + route.shape[1:] for route in ROUTES if route.shape}
    assert shaped <= SCHEMAS.keys()


def test_an_answer_of_another_shape_is_found() -> None:
    json_, problem = {"content-type": "application/json"}, {"content-type": "text/plain"}
    call = ("GET", "/v1/groups")
    assert not wrong(*call, 200, json_, b'{"groups":[{"group":"g","members":0}]}')
    assert wrong(*call, 200, json_, b'{"groups":[{"group":"g"}]}')
    assert wrong(*call, 200, json_, b'{"groups":[],"more":1}')
    assert wrong(*call, 200, problem, b"{}")
    assert wrong(*call, 201, json_, b'{"groups":[]}'), "no such status"
    assert wrong(*call, 404, json_, b"{}"), "a problem is application/problem+json"
    stored = b'{"topic":"t","count":1}'
    assert not wrong("POST", "/v1/topic/t/messages", 200, json_, stored)
    assert wrong("POST", "/v1/topic/t/messages", 200, json_, b'{"topic":"t"}')
    lines = {"content-type": "application/x-ndjson"}
    assert wrong("POST", "/v1/consumer/poll", 200, lines, b'{"topic":"t"}\n')


@run
async def test_what_had_no_shape_is_answered_in_it() -> None:
    """Each of these answers is looked at by the twin."""
    broker = Broker()
    document = (await broker.request("GET", "/openapi.json")).json
    assert document["components"]["schemas"].keys() == SCHEMAS.keys()
    broker.produce("t", 0, b'{"a":1}', b"2")
    json_ = {"Content-Type": "application/json"}
    lines = {"Content-Type": "application/x-ndjson"}
    to = json.dumps({"topic": "t", "to": "earliest"}).encode()
    commit = {"state": "committed", "attempts": ["a"], "rows": {"t": {"0": 2}}}
    queue = {"type": "queue", "topic": "t", "maxDeliveries": 2}
    staged = {"topic": "t", "slice": 0, "attempt": "a", "seq": 0}
    note = {"state": "prepared", "attempts": [], "rows": {}, "note": "n"}
    calls: list[tuple[str, str, Any, Any, bytes]] = [
        ("GET", "/v1/brokers", (), {}, b""),
        ("GET", "/v1/topic/t/slices", {"splitBytes": 1, "at": "timestamp:1"}, {}, b""),
        ("PUT", "/v1/groups/g/positions", (), json_, to),
        ("PUT", "/v1/groups/q", queue, {}, b""),
        ("GET", "/v1/groups/q", (), {}, b""),
        ("POST", "/v1/queue/q/lease", {"topic": "t", "max": 1}, {"Accept": "*/*"}, b""),
        ("POST", "/v1/queue/q/lease", {"topic": "t"}, {"Accept": "application/json"}, b""),
        ("PUT", "/v1/writes/w/0/staged", staged, lines, b"1\n2\n"),
        ("GET", "/v1/writes/w/0", (), {}, b""),
        ("PUT", "/v1/writes/w/0", (), json_, json.dumps(commit).encode()),
        ("GET", "/v1/writes/w", (), {}, b""),
        ("PUT", "/v1/writes/w/1", (), json_, json.dumps(note).encode()),
        ("GET", "/v1/writes/w", (), {}, b""),
        ("GET", "/v1/users", (), {}, b""),
    ]
    for method, path, query, headers, body in calls:
        answer = await broker.request(method, path, query, headers=headers, body=body, worker=0)
        assert answer.status == 200, (method, path, answer)
    assert (
        CONTENT_TYPE
        in document["paths"]["/v1/writes/{writer}/{batch}/staged"]["put"]["requestBody"]["content"]
    )
