"""The router, the documents about the broker itself, and what every route has in common."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from twin import Broker, run

from barco.workers.http.base.render import CONSUME_FORMATS
from barco.workers.http.table import ROUTES


@run
async def test_status_of_a_ready_broker_on_every_worker() -> None:
    broker = Broker()
    for worker in (0, 1):
        answer = await broker.request("GET", "/status", worker=worker)
        assert answer.status == 200
        assert (answer.json["status"], answer.json["engine"]) == ("ready", "memory")


@run
async def test_status_says_which_worker_is_missing() -> None:
    broker = Broker()
    broker.kill(1)
    answer = await broker.request("GET", "/status")
    assert answer.status == 503 and answer.headers["retry-after"] == "1"
    assert "Worker 1" in answer.json["reason"]


@run
async def test_before_the_shard_is_open_only_the_broker_itself_is_answered_for() -> None:
    broker = Broker(workers=1)
    app = broker.apps[0]
    assert app is not None
    app.close("Recovering segment 3 of 9.")
    answer = await broker.request("GET", "/status")
    assert answer.status == 503 and answer.json["reason"] == "Recovering segment 3 of 9."
    answer = await broker.request("GET", "/v1/topics")
    assert answer.status == 503 and answer.headers["barco-outcome"] == "not-written"
    assert (await broker.request("GET", "/v1/brokers")).status == 200
    assert (await broker.request("GET", "/metrics")).status == 200


@run
async def test_brokers_as_polar_says_it() -> None:
    brokers = (await Broker().request("GET", "/v1/brokers")).json
    assert (brokers["length"], brokers["names"]) == (1, ["127.0.0.1"])
    assert (brokers["producerPort"], brokers["consumerPort"]) == (9251, 9252)


@run
async def test_topology_names_an_endpoint_for_every_slice() -> None:
    topology = (await Broker().request("GET", "/v1/topology")).json
    (ring,) = topology["ranges"]
    assert [s["index"] for s in ring["slices"]] == list(range(8))
    assert {s["endpoint"] for s in ring["slices"][:4]} == {"127.0.0.1:9300"}
    assert {s["endpoint"] for s in ring["slices"][4:]} == {"127.0.0.1:9301"}
    assert [(r["first"], r["slices"], r["leader"]) for r in topology["routes"]] == [
        (0, 4, 0), (4, 4, 0)
    ]  # fmt: skip
    answer = await Broker().request("GET", "/v1/topology", "copies")
    copies = answer.json
    assert copies["version"] == topology["version"] and len(copies["version"]) == 16
    assert [route["followers"] for route in copies["routes"]] == [[], []]


@run
async def test_topology_with_a_worker_down() -> None:
    broker = Broker()
    broker.kill(1)
    topology = (await broker.request("GET", "/v1/topology")).json
    assert [shard["up"] for shard in topology["shards"]] == [True, False]


@run
async def test_metrics_are_sums_over_all_workers() -> None:
    broker = Broker()
    await broker.register("c", "t")
    answer = await broker.request("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(
        line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if line[0] != "#"
    )
    assert lines["barco_workers"] == lines["barco_workers_up"] == "2"
    assert lines["barco_appended_events_total"] == "8"
    assert lines["barco_consumers_registered"] == "1"
    assert lines["barco_group_offsets"] == "8"


@run
async def test_metrics_in_the_format_that_is_accepted() -> None:
    broker = Broker()
    for accept, kind, ending in (
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "openmetrics", b"# EOF\n"),
        ("text/plain;version=0.0.4,application/openmetrics-text;q=0.5", "plain", b"\n"),
        ("application/json", "plain", b"\n"),
        ("*/*", "plain", b"\n"),
    ):
        answer = await broker.request("GET", "/metrics", headers={"Accept": accept})
        assert answer.status == 200 and kind in answer.headers["content-type"], accept
        assert answer.body.endswith(ending) and (kind == "openmetrics") == (b"EOF" in answer.body)


@run
async def test_openapi_has_every_route() -> None:
    broker = Broker()
    document = (await broker.request("GET", "/openapi.json")).json
    assert document["openapi"].startswith("3.1")
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["summary"] and operation["responses"]
    assert "/v1/topic/{topic}/messages" in document["paths"]
    names = [o["operationId"] for p in document["paths"].values() for o in p.values()]
    assert len(names) == len(set(names))


@run
async def test_answers_have_the_shapes_that_are_told() -> None:
    """With every field that is told, and no other."""
    broker = Broker()
    document = (await broker.request("GET", "/openapi.json")).json
    broker.produce("t", 0, b"1", b"2")
    await broker.register("c", "t")
    await broker.values("c")
    await broker.commit("c")
    broker.produce("t", 0, b"3")
    recent = {"write": (5, [0, 3]), "whole": (0, [])}
    broker.reactors[0].stats = lambda: {"events": 1, "stages_recent": recent}  # type: ignore
    for path, template in (
        ("/v1/health", "/v1/health"),
        ("/v1/figures", "/v1/figures"),
        ("/v1/topics", "/v1/topics"),
        ("/v1/topics/t", "/v1/topics/{topic}"),
        ("/v1/groups", "/v1/groups"),
        ("/v1/groups/g", "/v1/groups/{group}"),
    ):
        answer = await broker.request("GET", path)
        told = document["paths"][template]["get"]["responses"]["200"]["content"]
        shape = told["application/json"]["schema"]["$ref"].removeprefix("#/components/schemas/")
        jsonschema.validate(answer.json, closed(document["components"]["schemas"][shape]))
        assert any(answer.json.values()), path


def closed(schema: Any) -> Any:
    """The same, of objects that have no other fields."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made["additionalProperties"] = False
        made["required"] = sorted(set(schema.get("required", ())) & set(schema["properties"]))
    return made


@run
async def test_openapi_is_sound() -> None:
    document = (await Broker().request("GET", "/openapi.json")).json
    assert {"openapi", "info", "paths", "components"} <= document.keys()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert method in ("get", "put", "post", "delete"), where
            parameters = [p for p in operation["parameters"] if "$ref" not in p]
            assert len(parameters) == len(operation["parameters"]) - 1, "all have an id"
            places = {p["name"] for p in parameters if p["in"] == "path"}
            assert places == set(re.findall(r"{(\w+)}", path)), where
            names = [(p["in"], p["name"].lower()) for p in parameters]
            assert len(names) == len(set(names)), where
            for parameter in parameters:
                assert parameter["in"] in ("path", "query", "header"), where
                assert parameter["description"] and parameter["schema"]["type"], where
                assert parameter["required"] or parameter["in"] != "path", where
            assert all(re.fullmatch("[2-5][0-9][0-9]|default", s) for s in operation["responses"])
            for answer in operation["responses"].values():
                assert "$ref" in answer or answer["description"], where
            assert operation["tags"][0] in {tag["name"] for tag in document["tags"]}, where
    for reference in re.findall(r'"\$ref": "(.*?)"', json.dumps(document)):
        node = document
        for name in reference.removeprefix("#/").split("/"):
            node = node[name]
        assert node


@run
async def test_openapi_tells_all_of_produce_and_poll() -> None:
    paths = (await Broker().request("GET", "/openapi.json")).json["paths"]
    produce = paths["/v1/topic/{topic}/messages"]["post"]
    given = {(p["in"], p["name"]) for p in produce["parameters"] if "$ref" not in p}
    query = {"partitionKey", "keyField", "timestamp", "slice", "token"}
    headers = {"Prefer", "Content-Encoding"}
    headers |= {"Producer-Id", "Producer-Epoch", "Producer-Seq", "Idempotency-Key"}
    headers |= {"Barco-No-Forward"}
    assert given >= {("query", name) for name in query} | {("header", name) for name in headers}
    lines = ("x-ndjson", "vnd.barco.events+x-ndjson")
    cloud = ("cloudevents+json", "cloudevents-batch+json")
    kinds = ("json", *lines, "octet-stream", "vnd.barco.batch", *cloud)
    assert set(produce["requestBody"]["content"]) == {f"application/{kind}" for kind in kinds}
    core = (Path(__file__).parents[3] / "native" / "broker" / "answer.c").read_text("utf-8")
    statuses = set(re.findall(r"\[PROBLEM_\w+\] =\s*{(\d+),", core)) - {"405", "501", "505"}
    assert len(statuses) > 12, "the table of problems is not where it was"
    assert statuses | {"200", "204"} <= produce["responses"].keys()
    assert "Retry-After" in produce["responses"]["507"]["headers"]

    poll = paths["/v1/consumer/poll"]["post"]
    given = {(p["in"], p["name"]) for p in poll["parameters"] if "$ref" not in p}
    names = {"consumerId", "waitMs", "maxBytes", "delivery", "scope", "placement", "paused"}
    assert given == {("query", name) for name in names}
    assert set(poll["responses"]["200"]["headers"]) == {
        "Barco-Delivery",
        "Barco-Owners",
        "Barco-Placement",
        "Barco-Start",
        "Barco-Unavailable-Slices",
    }
    assert set(poll["responses"]["200"]["content"]) == set(CONSUME_FORMATS)
    read = paths["/v1/topic/{topic}/slices/{token}/{index}/events"]["get"]
    assert "Barco-Next-Cursor" in read["responses"]["200"]["headers"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/topic/t/messages", "OPTIONS, POST"),
        ("DELETE", "/v1/topic/t/messages", "OPTIONS, POST"),
        ("POST", "/status", "GET, HEAD, OPTIONS"),
        ("TRACE", "/status", "GET, HEAD, OPTIONS"),
        ("get", "/status", "GET, HEAD, OPTIONS"),
        ("PATCH", "/v1/topics/t", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("GET", "/v1/consumer/poll", "OPTIONS, POST"),
    ],
)
def test_405_says_what_is_allowed(method: str, path: str, allow: str) -> None:
    @run
    async def scenario() -> None:
        answer = await Broker().request(method, path)
        assert (answer.status, answer.headers["allow"]) == (405, allow)
        assert answer.json["type"] == "urn:barco:problem:method-not-allowed"
        assert "allow" not in answer.json

    scenario()


@run
async def test_options() -> None:
    answer = await Broker().request("OPTIONS", "/v1/consumer/register")
    assert (answer.status, answer.headers["allow"]) == (204, "OPTIONS, POST, PUT")
    answer = await Broker().request("OPTIONS", "/v1/topic/t/messages")
    assert (answer.status, answer.headers["allow"]) == (204, "OPTIONS, POST")


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/", "//status", "/status/", "/v1/../status", "/%2e%2e/status", "/v1//topics",
     "/v1/topics;x=1", "/v1/topics/", "/V1/topics", "/" + "a/" * 10_000, "/" + "x" * 65_536,
     "/%00", "/status%00", "/status%2f", "/v1/topics/a/b"],
)  # fmt: skip
def test_unknown_paths_are_4xx_problems(path: str) -> None:
    @run
    async def scenario() -> None:
        answer = await Broker().request("GET", path)
        assert answer.status in (400, 404)
        assert answer.headers["content-type"] == "application/problem+json"

    scenario()


@pytest.mark.parametrize("query", ["&".join("a=1" for _ in range(100_000)), "%", "a=%f", "a=%zz"])
def test_bad_queries_are_400(query: str) -> None:
    @run
    async def scenario() -> None:
        assert (await Broker().request("GET", "/status", query)).status == 400

    scenario()


@run
async def test_a_name_with_a_line_end_never_reaches_a_header() -> None:
    broker = Broker()
    for path in ("/v1/topics/%0d%0aX-Bad:1", "/v1/groups/%0d%0aX-Bad:1", "/v1/%0d%0aX-Bad:1"):
        for method in ("GET", "PUT", "DELETE", "BAD\r\nX: 1"):
            answer = await broker.request(method, path)
            assert 400 <= answer.status < 500
            assert all("\n" not in value for value in answer.headers.values())


@run
async def test_a_bug_is_a_500_without_details() -> None:
    broker = Broker(workers=1)

    def broken() -> dict[str, int]:
        raise RuntimeError("the secret")

    broker.reactors[0].stats = broken  # type: ignore[method-assign]
    answer = await broker.request("GET", "/metrics")
    assert answer.status == 500 and b"secret" not in answer.body
    assert json.loads(answer.body)["type"] == "urn:barco:problem:internal"
