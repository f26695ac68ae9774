"""Names that there are not, and topics that nobody made: what is refused is refused in words, and
leaves nothing behind. Against real brokers, both engines where the core answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from running import Answer, RunningBroker

from barco.types import MiB

NDJSON = "application/x-ndjson"
BATCH = "application/vnd.barco.batch"


@pytest.fixture(scope="module", params=["io_uring", "epoll"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """One for the whole module: every test has topics of its own."""
    broker = RunningBroker(tmp_path_factory.mktemp("names") / "data", engine=request.param)
    broker.start()
    yield broker
    broker.end()


def send(broker: RunningBroker, topic: str, body: bytes, kind: str = "", **more: Any) -> Answer:
    headers = dict(more.pop("headers", {})) | ({"Content-Type": kind} if kind else {})
    return broker.request("POST", f"/v1/topic/{topic}/messages", more, body=body, headers=headers)


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PUT", "/v1/consumer/register?consumerId=c&topic=t&sessionms=5000", None, "sessionMs?"),
        ("PUT", "/v1/consumer/register?consumerId=c&topics=t", None, "did you mean topic?"),
        ("POST", "/v1/consumer/poll?consumerId=c&wait_ms=1", None, "did you mean waitMs?"),
        ("POST", "/v1/consumer/poll?consumerId=c&zzz=1", None, "there are consumerId, delivery, m"),
        ("POST", "/v1/consumer/commit?consumer-id=c", None, "did you mean consumerId?"),
        ("GET", "/v1/topics?limit=5", None, "none is taken here"),
        ("GET", "/v1/topic/t/slices?splitbytes=1", None, "did you mean splitBytes?"),
        ("GET", "/ready?insynch", None, "did you mean insync?"),
        ("GET", "/status?" + "a" * 5_000, None, "none is taken here"),
        (
            "PUT",
            "/v1/consumer/register",
            {"id": "c", "topics": ["t"], "sessionms": 5000},
            "did you mean sessionMs?",
        ),
        ("PUT", "/v1/topics/t-misspelt", {"retention": 5}, "did you mean retention"),
        ("PUT", "/v1/topics/t-misspelt", {"Compression": "lz4"}, "did you mean compression?"),
        ("PUT", "/v1/groups/g/positions", {"topics": "t", "to": "latest"}, "did you mean topic?"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_misspelt_names(
    broker: RunningBroker, method: str, path: str, body: Any, words: str
) -> None:
    """Passed over in silence they would be settings that nobody has."""
    given = json.dumps(body).encode() if body is not None else b""
    headers = {"Content-Type": "application/json"} if given else {}
    answer = broker.request(method, path, body=given, headers=headers)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json"), (
        answer
    )
    assert answer.json["type"] == "urn:barco:problem:unknown-name" and len(answer.body) < 500
    assert words in answer.json["detail"]


def test_a_body_where_there_is_none(broker: RunningBroker) -> None:
    """A queue made by parameters, of which a body was to say the rest, would retry for ever."""
    path, settings = "/v1/groups/by-hand?type=queue&topic=by-hand", b'{"maxDeliveries": 3}'
    kind = {"Content-Type": "application/json"}
    answer = broker.request("PUT", path, body=settings, headers=kind)
    assert (answer.status, answer.json["type"]) == (400, "urn:barco:problem:bad-request")
    assert "takes no body" in answer.json["detail"] and "maxDeliveries" in answer.json["detail"]
    assert broker.request("GET", "/v1/groups/by-hand").status == 404
    assert broker.request("PUT", path, body=b" \r\n", headers=kind).status == 200


@pytest.mark.parametrize("query", ["partitonKey=k", "partitionkey=k", "slice=0&tocken=1", "a", "%"])
def test_misspelt_names_of_a_produce(broker: RunningBroker, query: str) -> None:
    """A key that is none would be events in no order."""
    answer = broker.request("POST", f"/v1/topic/misspelt/messages?{query}", body=b"x")
    assert (answer.status, answer.json["type"]) == (400, "urn:barco:problem:unknown-name")
    assert "partitionKey, keyField, timestamp, slice, token and onlyValid" in answer.json["title"]
    wrong = query.rpartition("&")[2].partition("=")[0]
    assert answer.json["detail"] == f"{wrong} is none of them"
    assert broker.request("GET", "/v1/topics/misspelt").status == 404


def test_names_that_are_taken(broker: RunningBroker) -> None:
    """PolarStreams' older name, pairs without a name, and headers that nobody knows."""
    assert send(broker, "named", b"x", headers={"X-Whatever": "1"}).status == 200
    for query in ("?&&slice=1&", "?slice=1&=x", "?partition%4bey=a&timestamp="):
        path = "/v1/topic/named/messages" + query
        wanted = 400 if query.endswith("timestamp=") else 200
        answer = broker.request("POST", path, body=b"x")
        assert answer.status == wanted and "unknown-name" not in answer.body.decode()
    path = "/v1/consumer/register?consumer_id=older&topic=named&"
    assert broker.request("PUT", path, listener="consume").status == 200


def test_what_was_refused_makes_no_topic(broker: RunningBroker) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "1", "Producer-Seq": "7"}
    refused = [
        send(broker, "never-0", b"x", timestamp=5),
        send(broker, "never-1", b"1\n2\n", NDJSON, timestamp=5),
        send(broker, "never-2", b"x", slice=1, headers=producer),
        send(broker, "never-3", b"x", slice=99),
        send(broker, "never-4", b"\n", NDJSON),
        send(broker, "never-5", b"x" * (MiB + 1)),
        send(broker, "never-6", b"junk", BATCH),
    ]
    assert [answer.status for answer in refused] == [400, 400, 409, 400, 400, 413, 400]
    listed = [topic["topic"] for topic in broker.request("GET", "/v1/topics").json["topics"]]
    assert not [topic for topic in listed if topic.startswith("never-")]
    for number in range(7):
        assert broker.request("GET", f"/v1/topics/never-{number}").status == 404
        assert broker.request("GET", f"/v1/topic/never-{number}/slices").status == 404
