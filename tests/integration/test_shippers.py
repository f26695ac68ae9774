"""What shippers of logs send, in their own protocols, against real brokers."""

import base64
import gzip
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from running import Answer, RunningBroker

import barco
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

MIB = 1 << 20
NDJSON = "application/x-ndjson"
HEC = "/services/collector/event"


@pytest.fixture
def pair(start_broker: Callable[..., RunningBroker]) -> RunningBroker:
    """A broker whose slices two workers lead: half of what comes is another's."""
    return start_broker(workers=2, limits_event_bytes_max=MIB, limits_request_bytes_max=4 * MIB)


def send(broker: RunningBroker, path: str, body: bytes, query: Any = (), **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return broker.request("POST", path, query, body=body, headers=names, listener="produce")


def stored(broker: RunningBroker, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in broker.request("GET", f"/v1/topic/{topic}/slices").json["slices"]:
        path = f"/v1/topic/{topic}/slices/{one['token']}/{one['index']}/events"
        answer = broker.request("GET", path, {"maxBytes": 16 * MIB}, headers={"Accept": NDJSON})
        assert answer.status in (200, 204), answer
        found += [json.loads(line) for line in answer.body.splitlines()]
    return found


def values(broker: RunningBroker, topic: str) -> list[Any]:
    return [event["value"] for event in stored(broker, topic)]


def bulk(*items: tuple[dict[str, Any], Any]) -> bytes:
    lines = [line for item in items for line in item if line is not None]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


# --- Elasticsearch --------------------------------------------------------------------------------


def test_bulk_says_of_each_document_what_became_of_it(pair: RunningBroker) -> None:
    body = bulk(
        ({"index": {"_index": "a", "_id": "1"}}, {"n": 1}),
        ({"create": {}}, {"n": 2}),
        ({"delete": {"_index": "a", "_id": "1"}}, None),
        ({"update": {"_index": "a", "_id": "1"}}, {"doc": {}}),
        ({"index": {"_index": "__offsets"}}, {"n": 3}),
        ({"index": {"_index": "no topic"}}, {"n": 4}),
        ({"index": {"_index": "a", "routing": "r"}}, {"n": 5}),
        ({"index": {"_index": "a"}}, [6]),
    )
    answer = send(pair, "/elastic/b/_bulk", body, {"refresh": "wait_for"}, Content_Type=NDJSON)
    assert answer.status == 200 and answer.headers["x-elastic-product"] == "Elasticsearch"
    assert answer.json["errors"] is True
    items = [next(iter(item.items())) for item in answer.json["items"]]
    assert [(op, item["_index"], item["status"]) for op, item in items] == [
        ("index", "a", 201),
        ("create", "b", 201),
        ("delete", "a", 400),
        ("update", "a", 400),
        ("index", "__offsets", 400),
        ("index", "no topic", 400),
        ("index", "a", 201),
        ("index", "a", 400),
    ]
    assert [item.get("_id") for _, item in items] == ["1", None, "1", "1", *[None] * 4]
    assert items[2][1]["error"]["type"] == "illegal_argument_exception"
    assert items[4][1]["error"]["type"] == "invalid_index_name_exception"
    assert {event["key"]: event["value"] for event in stored(pair, "a")} == {
        "1": {"n": 1},
        "r": {"n": 5},
    }
    assert values(pair, "b") == [{"n": 2}]
    topics = [each["topic"] for each in pair.request("GET", "/v1/topics").json["topics"]]
    assert sorted(topics) == ["a", "b"]


def test_bulk_that_is_none_stores_nothing(pair: RunningBroker) -> None:
    good = bulk(({"index": {"_index": "a"}}, {"n": 1}))
    for body in (b"", b"\n", good + b"{}\n{}\n", good + b'{"index":{}}\n', good + b"x\n{}\n"):
        answer = send(pair, "/elastic/_bulk", body)
        assert answer.status == 400 and answer.json["status"] == 400, body
        assert answer.json["error"]["type"] == "illegal_argument_exception"
    lacking = send(pair, "/elastic/_bulk", bulk(({"index": {}}, {"n": 1}))).json["items"][0]
    assert lacking["index"]["status"] == 400 and lacking["index"]["_index"] is None
    assert pair.request("GET", "/v1/topics").json["topics"] == []


def test_a_name_that_no_topic_can_have_is_not_told_of_each_document(pair: RunningBroker) -> None:
    body = b'{"delete":{}}\n' * 1000
    answer = send(pair, f"/elastic/{'a' * 4000}/_bulk", body, Content_Type=NDJSON)
    assert answer.status == 400 and len(answer.body) < 8000
    answer = send(pair, "/elastic/t/_bulk", body, Content_Type=NDJSON)
    assert answer.status == 200 and len(answer.json["items"]) == 1000


def test_an_event_may_be_as_large_as_a_request(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker(limits_event_bytes_max=MIB, limits_request_bytes_max=MIB)
    assert send(broker, HEC, b'{"event":1}').status == 200
    assert values(broker, "main") == [1]


def test_a_large_bulk_is_stored_once_and_packed(pair: RunningBroker) -> None:
    """Of many keys, so that each slice of both workers has a share of it."""
    items = [({"create": {"_id": f"k{n}"}}, {"n": n, "text": "x" * 20}) for n in range(30_000)]
    body = bulk(*items)
    answer = send(pair, "/elastic/logs/_bulk", gzip.compress(body), Content_Encoding="gzip")
    assert answer.status == 200 and answer.json["errors"] is False
    assert len(answer.json["items"]) == 30_000
    assert answer.json["items"][-1]["create"]["_id"] == "k29999"
    found = stored(pair, "logs")
    assert sorted(event["value"]["n"] for event in found) == list(range(30_000))
    assert all(event["key"] == f"k{event['value']['n']}" for event in found)
    told = pair.request("GET", "/v1/topic/logs/slices", {"splitBytes": MIB}).json["slices"]
    assert sum(int(one["endOffset"]) for one in told) == 30_000
    assert all(int(one["endOffset"]) > 0 for one in told)
    # Gathered into chunks and packed, as lines are; not stored as the batch that it was on its way.
    assert sum(int(one["bytes"]) for one in told) < len(body) / 4


def test_events_over_their_limit_are_refused_alone(pair: RunningBroker) -> None:
    large = {"text": "x" * MIB}
    body = bulk(({"index": {"_index": "a"}}, large), ({"index": {"_index": "a"}}, {"n": 1}))
    answer = send(pair, "/elastic/_bulk", body)
    assert [item["index"]["status"] for item in answer.json["items"]] == [400, 201]
    assert values(pair, "a") == [{"n": 1}]
    answer = send(pair, HEC, json.dumps({"event": large}).encode(), {"index": "a"})
    assert (answer.status, answer.json["invalid-event-number"]) == (400, 0)


def test_what_goes_beyond_the_limits_is_refused_before_it_is_taken(pair: RunningBroker) -> None:
    answer = send(pair, HEC, gzip.compress(b" " * 64 * MIB), Content_Encoding="gzip")
    assert answer.status == 413
    assert send(pair, HEC, b"x" * (4 * MIB + 1)).status == 413
    assert send(pair, HEC, b"{}", Content_Encoding="br").status == 415
    assert send(pair, HEC, b"{}", Content_Encoding="gzip").status == 400
    # Few bytes each, and a header for every one: together they are over a request's limit.
    host = json.dumps({"event": 1, "host": "h" * 10_000}).encode()
    assert send(pair, HEC, host * 399).status == 200
    lines = send(pair, "/services/collector/raw", b"a\n" * 1000, {"host": "h" * 10_000})
    assert lines.status == 413, lines
    assert len(values(pair, "main")) == 399


# --- Splunk ---------------------------------------------------------------------------------------


def test_hec_events_with_what_is_said_of_them(pair: RunningBroker) -> None:
    now = time.time()
    body = (
        json.dumps({"event": 'a "line"', "time": round(now, 3), "host": "h", "source": "s"})
        + json.dumps({"event": {"n": 1}, "sourcetype": "t", "fields": {"a": "b"}})
        + "\n\n"
        + json.dumps({"event": "there", "index": "other", "time": 5})
    )
    answer = send(pair, HEC, body.encode(), {"index": "here"}, X_Splunk_Request_Channel="c")
    assert answer.status == 200 and answer.json["text"] == "Success"
    one, two = sorted(stored(pair, "here"), key=lambda event: event["value"] == {"n": 1})
    assert one["value"] == 'a "line"' and one["headers"] == {"host": "h", "source": "s"}
    assert one["timestamp"] == round(round(now, 3) * 1_000_000)
    assert two["headers"] == {"sourcetype": "t", "fields": '{"a": "b"}'}
    (other,) = stored(pair, "other")
    assert other["value"] == "there" and abs(other["timestamp"] / 1e6 - now) < 60
    assert "headers" not in other
    # What was answered is durable: so is every ack that was given.
    ids = [answer.json["ackId"], 5]
    acks = send(
        pair, "/services/collector/ack", json.dumps({"acks": ids}).encode(), {"channel": "c"}
    )
    assert acks.json == {"acks": {str(each): True for each in ids}}
    assert send(pair, "/services/collector/ack", b'{"acks":[1]}').json["code"] == 10
    form = {"Content_Type": "application/x-www-form-urlencoded"}  # As curl says of -d.
    acks = send(pair, "/services/collector/ack", b'{"acks":[7]}', {"channel": "c"}, **form)
    assert acks.json == {"acks": {"7": True}}
    assert "ackId" not in send(pair, HEC, b'{"event":1}').json


def test_hec_is_all_or_nothing(pair: RunningBroker) -> None:
    good = b'{"event":1,"index":"t"}'
    for body, code, number in (
        (good + b'{"time":1}', 12, 1),
        (good + good + b'{"event":""}', 13, 2),
        (good + b'{"event":1,"time":"soon"}', 6, 1),
        (good + b"[1]", 6, 1),
        (good + b'{"event":', 6, 1),
        (b"", 5, None),
        (good + b'{"event":1,"index":"__x"}', 7, None),
        (good + b'{"event":1,"index":"a b"}', 7, None),
    ):
        answer = send(pair, HEC, body)
        assert answer.status == 400 and answer.json["code"] == code, body
        assert answer.json.get("invalid-event-number") == number
    assert pair.request("GET", "/v1/topics").json["topics"] == []
    health = pair.request("GET", "/services/collector/health")
    assert (health.status, health.json["code"]) == (200, 17)


def test_hec_raw_lines(pair: RunningBroker) -> None:
    query = {"index": "raw", "host": "h", "sourcetype": "syslog", "channel": "c"}
    answer = send(pair, "/services/collector/raw", b'one\r\n\n{"n":2}\nthree', query)
    assert answer.status == 200 and answer.json["ackId"] >= 0
    found = stored(pair, "raw")
    assert [event["value"] for event in found] == ["one", {"n": 2}, "three"]
    assert all(e["headers"] == {"host": "h", "sourcetype": "syslog"} for e in found)


# --- OpenTelemetry --------------------------------------------------------------------------------


def otlp(*records: dict[str, Any], host: str = "h") -> bytes:
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": host}}]}
    scope = {"scope": {"name": "app"}, "logRecords": records}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}).encode()


def message(number: int, content: bytes) -> bytes:
    """A field that is a message or a string, of less than 16 KiB."""
    assert number < 16 and len(content) < 1 << 14
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def test_records_are_the_same_however_they_came(pair: RunningBroker) -> None:
    now = time.time_ns()
    record = {
        "timeUnixNano": str(now),
        "severityText": "INFO",
        "body": {"stringValue": 'a "line"'},
        "attributes": [{"key": "k", "value": {"intValue": "-1"}}],
    }
    answer = send(pair, "/v1/logs", otlp(record), {"topic": "o"}, Content_Type="application/json")
    assert (answer.status, answer.json) == (200, {})
    value = message(2, b"\x18" + b"\xff" * 9 + b"\x01")
    packed = b"\x09" + now.to_bytes(8, "little") + message(3, b"INFO")
    packed += message(5, message(1, b'a "line"')) + message(6, message(1, b"k") + value)
    resource = message(1, message(1, message(1, b"host.name") + message(2, message(1, b"h"))))
    scope = message(2, message(1, message(1, b"app")) + message(2, packed))
    body = message(1, resource + scope)
    for coding, pack in {"gzip": gzip.compress, "zstd": zstandard.compress}.items():
        kinds = {"Content_Type": "application/x-protobuf", "Content_Encoding": coding}
        answer = send(pair, "/v1/logs", pack(body), {"topic": "o"}, **kinds)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["content-type"] == "application/x-protobuf"
    events = stored(pair, "o")
    assert len(events) == 3 and all(event["value"] == record for event in events)
    for event in events:
        assert event["timestamp"] == now // 1000
        told = {name: json.loads(text) for name, text in event["headers"].items()}
        assert told == {
            "otel-resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "h"}}]},
            "otel-scope": {"name": "app"},
        }


def test_records_that_can_not_be_stored_are_counted(pair: RunningBroker) -> None:
    large = {"body": {"stringValue": "x" * MIB}}
    kind = "application/json"
    answer = send(pair, "/v1/logs", otlp({}, large, {}), Content_Type=kind)
    partial = answer.json["partialSuccess"]
    assert answer.status == 200 and partial["rejectedLogRecords"] == "1"
    assert "event_bytes_max" in partial["errorMessage"]
    assert values(pair, "otel-logs") == [{}, {}]
    one = message(1, message(2, b""))
    for body, given, status in (
        (b"{", kind, 400),
        (otlp({})[:-1], kind, 400),
        (one[:-1] + b"\xff", "application/x-protobuf", 400),
        (one, "text/plain", 415),
        (b"", kind, 400),
    ):
        answer = send(pair, "/v1/logs", body, {"topic": "none"}, Content_Type=given)
        assert answer.status == status, body
    assert send(pair, "/v1/logs", otlp({}), {"topic": "a b"}, Content_Type=kind).status == 400
    assert send(pair, "/v1/logs", b"{}", {"topic": "none"}, Content_Type=kind).json == {}
    topics = [each["topic"] for each in pair.request("GET", "/v1/topics").json["topics"]]
    assert topics == ["otel-logs"]


# --- Loki and Prometheus --------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def snappy(body: bytes) -> bytes:
    """Packed as literals alone."""
    pieces = [body[at : at + 60] for at in range(0, len(body), 60)]
    return varint(len(body)) + b"".join(bytes([len(each) - 1 << 2]) + each for each in pieces)


PROTOBUF = {"Content_Type": "application/x-protobuf", "Content_Encoding": "snappy"}


def test_lines_are_pushed_as_to_loki(pair: RunningBroker) -> None:
    now = time.time_ns()
    stream = {"app": "web", "level": "info"}
    entries = [[str(now), 'a "line"'], [str(now + 5000), "b", {"trace": "1"}]]
    body = json.dumps({"streams": [{"stream": stream, "values": entries}]}).encode()
    kind = "application/json"
    assert send(pair, "/loki/api/v1/push", body, Content_Type=kind).status == 204
    labels = '{app="web", level="info"}'
    stamp = b"\x08" + varint(now // 10**9) + b"\x10" + varint(now % 10**9)
    entry = message(2, message(1, stamp) + message(2, b"c"))
    push = message(1, message(1, labels.encode()) + entry)
    assert send(pair, "/loki/api/v1/push", snappy(push), **PROTOBUF).status == 204
    found = sorted(stored(pair, "loki"), key=lambda event: str(event["value"]))
    assert [event["value"] for event in found] == ['a "line"', "b", "c"]
    assert {event["key"] for event in found} == {labels}
    assert [event["timestamp"] - now // 1000 for event in found] == [0, 5, 0]
    assert found[0]["headers"] == found[2]["headers"] == {"loki-labels": labels}
    assert found[1]["headers"] == {"loki-labels": labels, "loki-metadata": '{"trace": "1"}'}
    for given, headers in ((body[:-1], {"Content_Type": kind}), (push, PROTOBUF)):
        answer = send(pair, "/loki/api/v1/push", given, {"topic": "none"}, **headers)
        assert answer.status == 400, answer
    bomb = varint(64 * MIB) + b"\x00a" + b"\xfe\x01\x00" * MIB
    assert send(pair, "/loki/api/v1/push", bomb, **PROTOBUF).status == 413
    assert [each["topic"] for each in pair.request("GET", "/v1/topics").json["topics"]] == ["loki"]


def test_samples_are_written_as_to_prometheus(pair: RunningBroker) -> None:
    now = time.time_ns() // 10**6
    label = message(1, message(1, b"__name__") + message(2, b"up"))
    sample = message(2, b"\x09" + bytes.fromhex("000000000000f83f") + b"\x10" + varint(now))
    body = snappy(message(1, label + sample) * 3)
    assert send(pair, "/api/v1/write", body, {"topic": "m"}, **PROTOBUF).status == 204
    found = stored(pair, "m")
    assert [event["value"] for event in found] == [
        {"labels": {"__name__": "up"}, "timestamp": now, "value": 1.5}
    ] * 3
    assert {(event["key"], event["timestamp"]) for event in found} == {
        ('{"__name__":"up"}', now * 1000)
    }
    headers = PROTOBUF | {
        "Content_Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"
    }
    assert send(pair, "/api/v1/write", body, **headers).status == 415  # And it sends 1.0 then.
    answer = send(pair, "/api/v1/write", snappy(message(1, label + message(4, b""))), **PROTOBUF)
    assert answer.status == 400 and "histograms" in answer.json["detail"]


# --- What all have --------------------------------------------------------------------------------


def test_what_was_answered_is_there_after_a_kill(pair: RunningBroker) -> None:
    assert send(pair, "/elastic/t/_bulk", bulk(({"index": {}}, {"n": 1}))).status == 200
    assert send(pair, HEC, b'{"event":2,"index":"t"}').status == 200
    pair.kill()
    pair.restart()
    assert sorted(map(str, values(pair, "t"))) == ["2", "{'n': 1}"]


def test_requests_one_behind_the_other_are_answered_in_order(pair: RunningBroker) -> None:
    """Among them a produce, which the core answers alone."""
    bodies = [
        (HEC + "?index=p", b'{"event":1}'),
        ("/v1/topic/p/messages", b"2"),
        ("/elastic/p/_bulk", bulk(({"index": {}}, {"n": 3}))),
        (HEC, b'{"event":""}'),
        (HEC + "?index=p", b'{"event":4}'),
    ]
    with socket.create_connection(("127.0.0.1", pair.port("produce")), timeout=30) as client:
        for path, body in bodies:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
        client.shutdown(socket.SHUT_WR)  # Who has said all still hears the answers.
        said = b""
        while more := client.recv(65536):
            said += more
    statuses = [int(each[:3]) for each in said.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 200, 200, 400, 200], said
    assert sorted(map(str, values(pair, "p"))) == ["1", "2", "4", "{'n': 3}"]


def test_whoever_hangs_up_leaves_nothing_behind(pair: RunningBroker) -> None:
    for _ in range(20):
        client = socket.create_connection(("127.0.0.1", pair.port("produce")), timeout=30)
        body = b'{"event":1,"index":"gone"}' * 1000
        head = f"POST {HEC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        client.close()
    assert send(pair, HEC, b'{"event":1}').status == 200
    assert pair.stop() == 0  # A request that nobody answers would hold it up, and fail.
    pair.restart()


@pytest.fixture
def closed(tmp_path: Path, start_broker: Callable[..., RunningBroker]) -> RunningBroker:
    data_dir = tmp_path / "data-0"
    data_dir.mkdir(mode=0o700)
    add(data_dir / NAME, "root", hash_of("root-token").hex())
    broker = start_broker(access_required=True)
    with barco.Admin(f"127.0.0.1:{broker.port()}", token="root-token") as root:
        root.set_user("ship", token="ship-token", grants=["produce:logs.*"])
        root.set_user("long", token="l" * 128, grants=["produce:logs.*"])
    for token in ("ship-token", "l" * 128):
        broker.knows(f"Bearer {token}")
    return broker


def named(name: str, token: str) -> str:
    return base64.b64encode(f"{name}:{token}".encode()).decode()


def test_a_token_is_shown_as_shippers_show_it(closed: RunningBroker) -> None:
    body = b'{"event":1,"index":"logs.a"}'
    for given, status in (
        ("Bearer ship-token", 200),
        ("Splunk ship-token", 200),
        ("splunk ship-token", 200),
        (f"Basic {named('ship', 'ship-token')}", 200),
        (f"Basic {named('whoever', 'ship-token')}", 401),
        (f"ApiKey {named('id', 'ship-token')}", 200),
        (f"Basic {named('long', 'l' * 128)}", 200),
        (f"Basic {named('long', 'l' * 129)}", 401),
        (f"ApiKey {named('n' * 64, 'l' * 128)}", 200),
        (f"Splunk {'l' * 128}", 200),
        (f"Splunk {'l' * 129}", 401),
        (f"Basic {named('ship', 'other')}", 401),
        (f"Basic {base64.b64encode(b'ship-token').decode()}", 401),
        ("Basic ship-token", 401),
        ("Splunk ", 401),
        ("Token ship-token", 401),
    ):
        for shard in range(closed.workers):
            answer = closed.request(
                "POST", HEC, body=body, headers={"Authorization": given}, shard=shard
            )
            assert answer.status == status, (given, answer)
    for path in ("/v1/topic/logs.a/messages", "/services/collectors", "/elasticity"):
        headers = {"Authorization": "Splunk ship-token"}
        answer = closed.request("POST", path, body=b"1", headers=headers)
        assert answer.status == 401, path  # Elsewhere it is said as it always was.


def test_each_topic_within_has_to_be_granted(closed: RunningBroker) -> None:
    headers = {"Authorization": "Bearer ship-token"}
    items = [({"index": {"_index": name}}, {}) for name in ("logs.a", "other", "other")]
    answer = closed.request("POST", "/elastic/_bulk", body=bulk(*items), headers=headers)
    assert [item["index"]["status"] for item in answer.json["items"]] == [201, 403, 403]
    assert answer.json["items"][1]["index"]["error"]["type"] == "security_exception"
    body = b'{"event":1,"index":"logs.a"}{"event":1,"index":"other"}'
    answer = closed.request("POST", HEC, body=body, headers=headers)
    assert answer.status == 403
    assert closed.line_about(answer.headers["barco-request-id"])["user"] == "ship"
    with barco.Admin(f"127.0.0.1:{closed.port()}", token="root-token") as root:
        assert [each["topic"] for each in root.topics()] == ["logs.a"]


def test_a_user_whose_topics_are_counted_makes_none(closed: RunningBroker) -> None:
    with barco.Admin(f"127.0.0.1:{closed.port()}", token="root-token") as root:
        root.set_user("ship", topics=1)
        deadline = time.monotonic() + 30
        headers = {"Authorization": "Bearer ship-token"}
        body = bulk(({"index": {"_index": f"logs.{time.monotonic_ns()}"}}, {}))
        while True:
            answer = closed.request("POST", "/elastic/_bulk", body=body, headers=headers)
            if answer.json["items"][0]["index"]["status"] == 403:
                assert closed.line_about(answer.headers["barco-request-id"])["events"] == 1
                break
            body = bulk(({"index": {"_index": f"logs.{time.monotonic_ns()}"}}, {}))
            assert time.monotonic() < deadline, answer


def test_what_little_becomes_is_charged_to_who_sent_it(closed: RunningBroker) -> None:
    """Labels are stored with each of their samples: of 8 KiB come some 600."""
    with barco.Admin(f"127.0.0.1:{closed.port()}", token="root-token") as root:
        root.set_user("ship", bytes_per_second=50_000)
    label = message(1, message(1, b"name") + message(2, b"v" * 1000))
    now = time.time_ns() // 10**6
    body = snappy(message(1, label + message(2, b"\x10" + varint(now)) * 300))
    assert len(body) < 10_000
    headers = PROTOBUF | {"Authorization": "Bearer ship-token"}
    told: list[int] = []
    while 429 not in told and len(told) < 60:
        answer = send(closed, "/api/v1/write", body, {"topic": "logs.m"}, **headers)
        told.append(answer.status)
        time.sleep(0.5)  # As fast as 8 KiB twice a second may be sent.
    assert set(told) <= {204, 429} and told[-1] == 429, "it is the events that are charged"
