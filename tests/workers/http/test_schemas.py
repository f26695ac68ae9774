"""The registry over HTTP, in a twin of a broker with two workers: every route, every code."""

import asyncio
import base64
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from barco.model.access import Grant

from ..twin import Answer, Broker
from .test_needs import Closed

KIND = "application/vnd.schemaregistry.v1+json"


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


ONE = record({"name": "a", "type": "int"})
TWO = record({"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0})
BAD = record({"name": "a", "type": "string"})


class Registry(Broker):
    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        headers = {} if body is None else {"Content-Type": KIND}
        given = b"" if body is None else json.dumps(body).encode()
        return await self.request(
            method, f"/registry{path}", query, headers=headers, body=given, worker=1
        )

    async def told(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = await self.ask(method, path, body, **query)
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == KIND
        return answer.json

    async def refused(self, code: int, method: str, path: str, body: Any = None, **q: Any) -> str:
        answer = await self.ask(method, path, body, **q)
        assert answer.json["error_code"] == code, answer
        assert answer.status == int(str(code)[:3]) and answer.headers["content-type"] == KIND
        return str(answer.json["message"])


def run(test: Callable[[Registry], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def inner() -> None:
        asyncio.run(test(Registry()))

    del inner.__wrapped__  # type: ignore[attr-defined]
    return inner


@run
async def test_subjects_versions_and_ids(r: Registry) -> None:
    assert await r.told("GET", "") == {}
    assert await r.told("GET", "/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]
    assert await r.told("GET", "/subjects") == []
    path = "/subjects/t-value"
    assert (await r.told("POST", f"{path}/versions", {"schema": ONE}))["id"] == 1
    spaced = {"schema": json.dumps(json.loads(ONE), indent=2), "references": [], "metadata": None}
    assert (await r.told("POST", f"{path}/versions", spaced, normalize="false"))["id"] == 1
    assert (await r.told("POST", f"{path}/versions", {"schema": TWO}))["id"] == 2
    assert (await r.told("POST", "/subjects/a%2Fb/versions", {"schema": TWO}))["id"] == 2
    assert await r.told("GET", "/subjects") == ["a/b", "t-value"]
    assert await r.told("GET", "/subjects", subjectPrefix="t") == ["t-value"]
    assert await r.told("GET", "/subjects", offset=1) == ["t-value"]
    assert await r.told("GET", f"{path}/versions") == [1, 2]
    latest = {"subject": "t-value", "version": 2, "id": 2, "schema": TWO}
    for version in ("latest", "-1", "2"):
        assert await r.told("GET", f"{path}/versions/{version}") == latest
    assert (await r.ask("GET", f"{path}/versions/1/schema")).body == ONE.encode()
    assert await r.told("POST", path, {"schema": TWO}) == latest
    assert await r.told("GET", "/schemas/ids/1") == {"schema": ONE}
    assert await r.told("GET", "/schemas/ids/1", fetchMaxId="true") == {"schema": ONE, "maxId": 2}
    assert (await r.ask("GET", "/schemas/ids/1/schema")).body == ONE.encode()
    assert await r.told("GET", "/schemas/ids/2/subjects") == ["a/b", "t-value"]
    placed = [{"subject": "a/b", "version": 1}, {"subject": "t-value", "version": 2}]
    assert await r.told("GET", "/schemas/ids/2/versions") == placed
    assert [s["id"] for s in await r.told("GET", "/schemas", latestOnly="true")] == [2, 2]
    await r.refused(40401, "GET", "/subjects/n/versions")
    await r.refused(40401, "POST", "/subjects/n", {"schema": ONE})
    await r.refused(40402, "GET", f"{path}/versions/3")
    await r.refused(40403, "GET", "/schemas/ids/9")
    await r.refused(40403, "POST", path, {"schema": '"int"'})
    await r.refused(42202, "GET", f"{path}/versions/0")
    await r.refused(42202, "GET", f"{path}/versions/x")


@run
async def test_compatibility(r: Registry) -> None:
    path, asked = "/subjects/t-value/versions", "/compatibility/subjects/t-value/versions"
    await r.told("POST", path, {"schema": ONE})
    assert "t-value" in await r.refused(409, "POST", path, {"schema": BAD})
    assert await r.told("POST", asked + "/latest", {"schema": TWO}) == {"is_compatible": True}
    told = await r.told("POST", asked, {"schema": BAD}, verbose="true")
    assert not told["is_compatible"] and "/a" in told["messages"][0]
    await r.refused(40402, "POST", asked + "/7", {"schema": BAD})
    assert await r.told("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    await r.refused(40408, "GET", "/config/t-value")
    holds = await r.told("GET", "/config/t-value", defaultToGlobal="true")
    assert holds == {"compatibilityLevel": "BACKWARD"}
    await r.told("PUT", "/config/t-value", {"compatibility": "none"})
    assert await r.told("GET", "/config/t-value") == {"compatibilityLevel": "NONE"}
    assert (await r.told("POST", path, {"schema": BAD}))["version"] == 2
    await r.told("PUT", "/config/t-value", {"compatibility": "FULL_TRANSITIVE"})
    assert "version 1" in await r.refused(409, "POST", path, {"schema": '"bytes"'})
    assert await r.told("DELETE", "/config/t-value") == {"compatibilityLevel": "FULL_TRANSITIVE"}
    await r.refused(40408, "DELETE", "/config/t-value")
    await r.refused(42203, "PUT", "/config", {"compatibility": "SOME"})
    await r.told("PUT", "/config", {"compatibility": "FORWARD"})
    assert await r.told("GET", "/config") == {"compatibilityLevel": "FORWARD"}
    await r.told("PUT", "/mode/t-value", {"mode": "READONLY"})
    await r.refused(42205, "POST", path, {"schema": '"bytes"'})
    await r.refused(42205, "DELETE", "/subjects/t-value")
    await r.refused(42204, "PUT", "/mode", {"mode": "IMPORT"})
    assert await r.told("GET", "/mode") == {"mode": "READWRITE"}
    assert await r.told("DELETE", "/mode/t-value") == {"mode": "READONLY"}


@run
async def test_more_versions_than_can_be_compared(r: Registry) -> None:
    path = "/subjects/t-value/versions"
    await r.told("PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})
    texts = [json.dumps({"type": "string", "doc": f"{each}" * 250_000}) for each in range(10)]
    for text in texts[:9]:
        await r.told("POST", path, {"schema": text})
    text = texts[9]
    assert "delete old ones" in await r.refused(42201, "POST", path, {"schema": text})
    await r.told("PUT", "/config", {"compatibility": "FULL"})
    await r.told("POST", path, {"schema": text})


@run
async def test_deletions(r: Registry) -> None:
    path = "/subjects/t-value"
    for text in (ONE, TWO):
        await r.told("POST", f"{path}/versions", {"schema": text})
    await r.refused(40407, "DELETE", f"{path}/versions/1", permanent="true")
    assert await r.told("DELETE", f"{path}/versions/1") == 1
    await r.refused(40406, "DELETE", f"{path}/versions/1")
    await r.refused(40402, "GET", f"{path}/versions/1")
    assert (await r.told("GET", f"{path}/versions/1", deleted="true"))["id"] == 1
    assert await r.told("GET", f"{path}/versions", deleted="true") == [1, 2]
    assert await r.told("GET", f"{path}/versions", deletedOnly="true") == [1]
    assert await r.told("GET", "/schemas/ids/1") == {"schema": ONE}
    assert await r.told("GET", "/schemas/ids/1/versions") == []
    await r.refused(40405, "DELETE", path, permanent="true")
    assert await r.told("DELETE", path) == [2]
    await r.refused(40404, "DELETE", path)
    assert await r.told("GET", "/subjects") == []
    assert await r.told("GET", "/subjects", deleted="true") == ["t-value"]
    assert await r.told("DELETE", path, permanent="true") == [1, 2]
    await r.refused(40403, "GET", "/schemas/ids/1")
    assert (await r.told("POST", f"{path}/versions", {"schema": ONE}))["id"] == 3


@run
async def test_references(r: Registry) -> None:
    inner = {"type": "record", "name": "n.In", "fields": [{"name": "x", "type": "int"}]}
    await r.told("POST", "/subjects/in/versions", {"schema": json.dumps(inner)})
    outer = record({"name": "i", "type": "n.In"})
    await r.refused(42201, "POST", "/subjects/out/versions", {"schema": outer})
    named = [{"name": "n.In", "subject": "in", "version": 1}]
    given = {"schema": outer, "references": named}
    assert (await r.told("POST", "/subjects/out/versions", given))["id"] == 2
    assert await r.told("GET", "/schemas/ids/2") == given
    assert await r.told("GET", "/subjects/in/versions/1/referencedby") == [2]
    await r.refused(42206, "DELETE", "/subjects/in")
    lost = [{"name": "n.In", "subject": "gone", "version": 1}]
    message = await r.refused(42201, "POST", "/subjects/o/versions", given | {"references": lost})
    assert "'gone'" in message


@run
async def test_other_kinds(r: Registry) -> None:
    text = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    given = {"schema": text, "schemaType": "JSON"}
    assert (await r.told("POST", "/subjects/j/versions", given))["id"] == 1
    assert await r.told("GET", "/schemas/ids/1") == given
    narrower = {"schema": text.replace("integer", "string"), "schemaType": "JSON"}
    assert "/a" in await r.refused(409, "POST", "/subjects/j/versions", narrower)
    await r.refused(409, "POST", "/subjects/j/versions", {"schema": ONE})
    proto = {"schema": 'syntax = "proto3"; message M { int32 a = 1; }', "schemaType": "PROTOBUF"}
    assert (await r.told("POST", "/subjects/p/versions", proto))["id"] == 2

    def packed(kind: int) -> dict[str, str]:
        found = FileDescriptorProto(name="f.proto")
        field = found.message_type.add(name="M").field.add(name="a", number=1, label=1)
        field.type = kind
        text = base64.b64encode(found.SerializeToString()).decode()
        return {"schema": text, "schemaType": "PROTOBUF"}

    assert (await r.told("POST", "/subjects/d/versions", packed(3)))["id"] == 3
    assert (await r.told("POST", "/subjects/d/versions", packed(5)))["id"] == 4
    assert "/M/a" in await r.refused(409, "POST", "/subjects/d/versions", packed(9))
    assert await r.told("GET", "/subjects/p/versions/1") == proto | {
        "subject": "p",
        "version": 1,
        "id": 2,
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schema": "{"}, 42201),
        ({"schema": '{"type": "nothing"}'}, 42201),
        ({"schema": record({"name": "a", "type": "Unknown"})}, 42201),
        ({"schema": record({"name": "a", "type": "int", "default": "x"})}, 42201),
        ({"schema": "[" * 100 + "]" * 100}, 42201),
        ({"schema": "[" * 100_000}, 42201),
        ({"schema": 7}, 42201),
        ({"schema": ONE, "schemaType": "XML"}, 42201),
        ({"schema": ONE, "ruleSet": {"domainRules": []}}, 42201),
        ({"schema": ONE, "id": 7}, 42205),
        ({"schema": '{"type": "nothing"}', "schemaType": "JSON"}, 42201),
        ({"schema": '{"$ref": "http://127.0.0.1:1/x"}', "schemaType": "JSON"}, 42201),
        ({"schema": '{"$ref": "file:///etc/hostname"}', "schemaType": "JSON"}, 42201),
        ({"schema": base64.b64encode(b"\xff\xff").decode(), "schemaType": "PROTOBUF"}, 42201),
        ({"schema": '"' + "x" * (300 << 10) + '"'}, 413),
        ({"schema": ONE, "references": [{"name": "x"}]}, 42201),
        ({"schema": ONE, "references": 5}, 42201),
        ({"schema": ONE, "references": True}, 42201),
        ({"schema": ONE, "references": [{"name": "x", "subject": "x", "version": 2**80}]}, 42201),
        # Half of a surrogate pair is no text: nobody could store it.
        ({"schema": '{"type": "string", "doc": "\ud800"}'}, 400),
        ({"schema": "\ud800", "schemaType": "PROTOBUF"}, 400),
        ([], 400),
    ],
)
def test_what_is_no_schema(body: Any, code: int) -> None:
    async def main() -> None:
        r = Registry()
        await r.refused(code, "POST", "/subjects/t-value/versions", body)
        assert await r.told("GET", "/subjects") == []

    asyncio.run(main())


@run
async def test_what_is_no_version(r: Registry) -> None:
    await r.told("POST", "/subjects/t-value/versions", {"schema": ONE})
    for given in ("0", "1e3", "2147483648", "9" * 30, "0" * 12 + "1" * 5_000, "%D9%A3"):
        await r.refused(42202, "GET", f"/subjects/t-value/versions/{given}")


@run
async def test_what_is_no_json_of_this_api(r: Registry) -> None:
    path = "/registry/subjects/t-value/versions"
    answer = await r.request("POST", path, headers={"Content-Type": "text/plain"}, body=b"{}")
    assert (answer.status, answer.json["error_code"]) == (415, 415)
    answer = await r.request("POST", path, headers={"Content-Type": KIND}, body=b"{")
    assert (answer.status, answer.json["error_code"]) == (400, 400)


@run
async def test_a_worker_that_begins_to_lead_knows_what_the_log_has(r: Registry) -> None:
    path = "/subjects/t-value/versions"
    await r.told("POST", path, {"schema": ONE})
    service = r.services[0]
    assert service is not None
    service.schemas.close()
    service.schemas.open()
    assert await r.told("GET", path) == [1]
    assert (await r.told("POST", path, {"schema": TWO}))["id"] == 2
    r.reactors[0].kept["__schemas", b"i/9"] = b"of a later version"
    service.schemas.open()
    assert (await r.told("POST", "/subjects/u/versions", {"schema": BAD}))["id"] == 10


def test_ids_show_only_what_is_of_subjects_that_one_may_read() -> None:
    async def main() -> None:
        broker = Closed()
        users = {
            "writes": ["produce:t*", "admin:*"],
            "reads": ["consume:t"],
            "other": ["consume:u"],
            "names": ["metrics"],
        }
        broker.know({name: tuple(map(Grant.parse, each)) for name, each in users.items()})
        body = {"schema": ONE}
        for subject in ("t-value", "t2-value"):
            path = f"/registry/subjects/{subject}/versions"
            assert (await broker.ask("writes", "POST", path, "", body)).status == 200
        for who, status in (("reads", 200), ("other", 404), ("names", 403)):
            answer = await broker.ask(who, "GET", "/registry/schemas/ids/1")
            assert answer.status == status, who
        told = (await broker.ask("reads", "GET", "/registry/schemas/ids/1/subjects")).json
        assert told == ["t-value"]
        for who, seen in (
            ("reads", ["t-value"]),
            ("other", []),
            ("names", ["t-value", "t2-value"]),
        ):
            for path in ("subjects", "schemas"):
                told = (await broker.ask(who, "GET", f"/registry/{path}")).json
                found = [each if isinstance(each, str) else each["subject"] for each in told]
                assert sorted(found, key=len) == seen, (who, path)
        body["references"] = [{"name": "R", "subject": "t2-value", "version": 1}]  # type: ignore
        broker.know({"reads": (Grant.parse("produce:t"),), "writes": ()})
        answer = await broker.ask("reads", "POST", "/registry/subjects/t-value/versions", "", body)
        assert answer.status == 403 and answer.json["topic"] == "t2"

    asyncio.run(main())
