"""Events with headers or without a value, against a real broker."""

import json
import socket
import subprocess
import sys
from typing import Any

import pytest
from reference.chunk import decode_chunks
from running import Answer, RunningBroker

import barco as library
from barco import _native

NDJSON = "application/x-ndjson"
BATCH = "application/vnd.barco.batch"
CHUNKS = "application/vnd.barco.chunks"
EVENTS = "application/vnd.barco.events+x-ndjson"
KIB = 1 << 10


def send(
    broker: RunningBroker, body: bytes, fields: dict[str, str], query: dict[str, Any] | None = None
) -> Answer:
    return broker.request("POST", "/v1/topic/t/messages", query or {}, body=body, headers=fields)


def read(broker: RunningBroker, accept: str = NDJSON) -> list[bytes]:
    """The answers of all slices that have events."""
    found = []
    for one in broker.request("GET", "/v1/topic/t/slices").json["slices"]:
        path = f"/v1/topic/t/slices/{one['token']}/{one['index']}/events"
        answer = broker.request("GET", path, {"maxBytes": 16 << 20}, headers={"Accept": accept})
        found += [answer.body] if answer.body else []
    return found


def lines(broker: RunningBroker) -> list[dict[str, Any]]:
    return [json.loads(line) for body in read(broker) for line in body.splitlines()]


def versions(broker: RunningBroker) -> set[int]:
    """Of the chunks that are stored."""
    found = set()
    for body in read(broker, CHUNKS):
        for at, *_ in _native.chunks_scan(body):
            found.add(body[at + 4])
    return found


def test_one_event_with_headers(broker: RunningBroker) -> None:
    fields = {
        "Barco-Header-Trace-Id": "4%3Af%C3%A9%00",
        "barco-header-X": "",
        "Barco-Header-raw": "%FF%fe",
        "ce-id": "7",
        "CE-Source": "/a%20b",
    }
    answer = send(broker, b'{"n":1}', fields, {"partitionKey": "k"})
    assert (answer.status, answer.json["count"]) == (200, 1), answer
    [line] = lines(broker)
    assert line["headers"] == {
        "trace-id": "4:f\u00e9\0",
        "x": "",
        "raw": {"base64": "//4="},
        "ce-id": "7",
        "ce-source": "/a b",
    }
    assert (line["key"], line["value"]) == ("k", {"n": 1}) and list(line)[-1] == "headers"
    [chunk] = [each for body in read(broker, CHUNKS) for each in decode_chunks(body)]
    assert dict(chunk.headers()[0])["raw"] == b"\xff\xfe"


def test_no_value_is_stored_as_none(broker: RunningBroker) -> None:
    assert send(broker, b"", {"Barco-Null": "1"}, {"partitionKey": "gone"}).status == 200
    fields = {"Barco-Null": "1", "Barco-Header-why": "asked"}
    assert send(broker, b"", fields, {"partitionKey": "gone"}).status == 200
    first, second = lines(broker)
    assert first["value"] is None and first["key"] == "gone" and "headers" not in first
    assert second["value"] is None and second["headers"] == {"why": "asked"}
    [answer] = map(json.loads, read(broker, "application/json"))
    assert answer[0]["values"] == [None, None]
    assert versions(broker) == {2}


def test_without_any_nothing_is_another(broker: RunningBroker) -> None:
    """Not a word in answers, and chunks of the version that was there before."""
    assert send(broker, b"1", {}, {"partitionKey": "k"}).status == 200
    for fields in ({"ce-id": "7"}, {"ce-id": "100%"}, {"ce-" + "n" * 200: "x"}):
        assert send(broker, b"2\n3", {"Content-Type": NDJSON, **fields}).status == 200
    body = _native.batch_encode([b"4", b"5"], [b"a", b"b"])
    assert send(broker, body, {"Content-Type": BATCH}).status == 200
    assert len(lines(broker)) == 9 and not any("headers" in line for line in lines(broker))
    assert versions(broker) == {1}


LONG = "x" * 16


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"1", {"Barco-Header-a": "%zz"}),
        (b"1", {"ce-id": "100%"}),
        (b"1", {"ce-" + "n" * 200: "x"}),
        (b"1", {"Barco-Header-a": "%4"}),
        (b"1", {"Barco-Header-": "x"}),
        (b"1", {"Barco-Header-" + "n" * 129: "x"}),
        (b"1", {"Barco-Header-a": "x" * (16 * KIB)}),
        (b"1", {"Barco-Header-a": "x" * (8 * KIB), "Barco-Header-b": "x" * (8 * KIB)}),
        (b"1", {"Barco-Null": "1"}),
        (b"", {"Barco-Null": "2"}),
        (b"", {"Barco-Null": "true"}),
        (b"1\n2", {"Content-Type": NDJSON, "Barco-Header-a": "x"}),
        (b"", {"Content-Type": NDJSON, "Barco-Null": "1"}),
        (_native.batch_encode([b"1"]), {"Content-Type": BATCH, "Barco-Header-a": "x"}),
    ],
)
def test_what_no_event_can_have(broker: RunningBroker, body: bytes, fields: dict[str, str]) -> None:
    answer = send(broker, body, fields)
    assert (answer.status, answer.json["type"]) == (400, "urn:barco:problem:invalid-header")
    assert broker.request("GET", "/v1/topics/t").status == 404
    assert send(broker, b"", {"Barco-Header-a": "x"}).json["type"].endswith(":no-events")


def test_as_many_as_there_may_be(broker: RunningBroker) -> None:
    """16 KiB of them; 65 are more fields than a request has, and more than a batch takes."""
    name = "barco-header-" + "n" * 128
    assert send(broker, b"1", {name: "x" * (16 * KIB - 128)}).status == 200
    assert send(broker, b"1", {name: "x" * (16 * KIB - 127)}).status == 400
    assert send(broker, b"1", {f"barco-header-{n}": "" for n in range(65)}).status == 431
    assert send(broker, b"1", {f"barco-header-{n}": "" for n in range(50)}).status == 200
    many = tuple((f"h{n}", b"") for n in range(64))
    body = _native.batch_encode([b"1"], headers=[_native.headers_encode(many)])
    assert send(broker, body, {"Content-Type": BATCH}).status == 200
    assert sorted(len(line["headers"]) for line in lines(broker)) == [1, 50, 64]


def test_a_body_that_comes_later(broker: RunningBroker) -> None:
    """Headers are kept, as the key is, until the body is there."""
    body = b"x" * (3 << 20)
    fields = {"Barco-Header-a": "1", "Transfer-Encoding": "chunked"}
    for extra in ({}, {"Barco-Header-b": "2"}):
        answer = send(broker, body[: 1 << 19], {"Barco-Header-a": "1"} | extra, {"slice": 0})
        assert answer.status == 200, (answer, fields)
    found = [line["headers"] for line in lines(broker)]
    assert found == [{"a": "1"}, {"a": "1", "b": "2"}]


def test_an_event_is_stored_once(broker: RunningBroker) -> None:
    """A producer's number, or an idempotency key, counts with headers as without."""
    fields = {"Producer-Id": "p", "Producer-Epoch": "1", "Barco-Header-a": "x"}
    for number in ("0", "0", "1", "1"):
        answer = send(broker, b"1", fields | {"Producer-Seq": number}, {"partitionKey": "k"})
        assert answer.status in (200, 204), answer
    fields = {"Idempotency-Key": "i", "Barco-Null": "1"}
    for _ in range(2):
        assert send(broker, b"", fields, {"partitionKey": "k"}).status in (200, 204)
    assert [line["value"] for line in lines(broker)] == [1, 1, None]


def test_batches_are_cut_and_gathered(broker: RunningBroker) -> None:
    """Headers and missing values come back with their events, whatever slice they go to."""
    count = 3000
    keys: list[bytes | None] = [b"%d" % n for n in range(count)]
    values = [None if n % 7 == 0 else b"%d" % n for n in range(count)]
    packed = [
        _native.headers_encode([("n", b"%d" % n), ("n", b"last")]) if n % 5 == 0 else None
        for n in range(count)
    ]
    times = {"timestamp": [17 * 10**14 + n for n in range(count)]}
    body = _native.batch_encode(values, keys, times, True, packed)
    answer = send(broker, body, {"Content-Type": BATCH})
    assert answer.status == 200 and answer.json["count"] == count
    found = {line["key"]: line for line in lines(broker)}
    assert len(found) == count
    for n in range(count):
        line = found[str(n)]
        assert line["value"] == (None if n % 7 == 0 else n)
        assert line.get("headers") == ({"n": "last"} if n % 5 == 0 else None)
    stored = [event for body in read(broker, CHUNKS) for chunk in decode_chunks(body)
              for event in zip(chunk.events(), chunk.headers(), strict=True)]  # fmt: skip
    pairs = {event.key: headers for event, headers in stored}
    assert pairs[b"5"] == (("n", b"5"), ("n", b"last")) and pairs[b"6"] == ()
    broker.kill()
    broker.start()
    assert len(lines(broker)) == count and found == {line["key"]: line for line in lines(broker)}


def test_a_lying_batch_is_refused(broker: RunningBroker) -> None:
    good = _native.batch_encode([b"1", None], None, None, False, [b"\1\1\0a", None])
    assert send(broker, good, {"Content-Type": BATCH}).status == 200
    as_plain = bytes([*good[:4], 1, *good[5:]])
    later = bytes([*good[:4], 3, *good[5:]])
    for wrong in (as_plain, later, good.replace(b"\1\1\0a", b"\1\1\0A")):
        answer = send(broker, wrong, {"Content-Type": BATCH})
        assert (answer.status, answer.json["type"]) == (400, "urn:barco:problem:malformed-batch")


def test_lines_with_keys(broker: RunningBroker) -> None:
    """headers and a null value in lines, each in its slice; two workers, so some go by batch."""
    given = [
        {"key": f"k{n}", "value": None if n % 3 == 0 else {"n": n}}
        | ({"headers": {"n": f"{n}", "raw": {"base64": "/w=="}}} if n % 2 == 0 else {})
        for n in range(300)
    ]
    body = b"\n".join(json.dumps(each).encode() for each in given)
    answer = send(broker, body, {"Content-Type": EVENTS})
    assert answer.status == 200 and answer.json["count"] == 300, answer
    found = {line["key"]: line for line in lines(broker)}
    for each in given:
        stored = found[each["key"]]
        assert {name: stored[name] for name in each} == each
        assert set(stored) - {"topic", "token", "rangeIndex", "version", "offset", "timestamp"} == (
            set(each)
        )


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ({"value": 1, "headers": {f"h{n}": "" for n in range(64)}}, 200),
        ({"value": 1, "headers": {f"h{n}": "" for n in range(65)}}, 400),
        ({"value": 1, "headers": {"a": "x" * (16 * KIB - 1)}}, 200),
        ({"value": 1, "headers": {"a": "x" * (16 * KIB)}}, 400),
        ({"value": 1, "headers": {"A": "x"}}, 400),
        ({"value": 1, "headers": {"a": 5}}, 400),
        ({"value": 1, "headers": ["a"]}, 400),
        ({"headers": {"a": "x"}}, 400),
    ],
)
def test_lines_at_their_limits(broker: RunningBroker, line: Any, status: int) -> None:
    good = json.dumps({"value": 0})
    answer = send(broker, f"{good}\n{json.dumps(line)}\n".encode(), {"Content-Type": EVENTS})
    assert answer.status == status, answer
    if status == 400:
        assert answer.json["type"].endswith(":malformed-line") and answer.json["line"] == 2
        assert broker.request("GET", "/v1/topics/t").status == 404


def test_the_library_and_the_commands(broker: RunningBroker) -> None:
    """What one sends the other shows."""
    endpoint = f"127.0.0.1:{broker.port('discovery')}"

    def barco(*words: str, given: str = "") -> str:
        line = [sys.executable, "-P", "-m", "barco", *words, "--endpoint", endpoint]
        done = subprocess.run(
            line, input=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with library.Producer(endpoint) as producer:
        producer.send("t", None, "k", headers=[("n", "1"), ("n", "2")]).result(20)
    barco("produce", "t", "--key", "k", "--header", "Type=a=b", given='{"x":1}\n')
    barco("produce", "t", "--key", "k", "--null")
    assert [(event.value, event.headers) for event in library.read("t", endpoint)] == [
        (None, (("n", b"1"), ("n", b"2"))),
        (b'{"x":1}', (("type", b"a=b"),)),
        (None, ()),
    ]
    told = barco("consume", "t", "--json", "--count", "3").splitlines()
    shown = [json.loads(line) for line in told]
    assert [(each["value"], each.get("headers")) for each in shown] == [
        (None, {"n": "2"}),
        ({"x": 1}, {"type": "a=b"}),
        (None, None),
    ]
    assert "n=1  n=2" in barco("consume", "t", "--count", "3")


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = TRACE.replace("b7ad", "c7ad")


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"traceparent": TRACE}, {"traceparent": TRACE}),
        ({"Traceparent": TRACE, "TraceState": "a=1"}, {"traceparent": TRACE, "tracestate": "a=1"}),
        ({"traceparent": TRACE, "tracestate": "a" * 513}, {"traceparent": TRACE}),
        ({"traceparent": TRACE, "Barco-Header-a": "b"}, {"a": "b", "traceparent": TRACE}),
        ({"traceparent": TRACE, "Barco-Header-Traceparent": OTHER}, {"traceparent": OTHER}),
        ({"traceparent": TRACE[:-1]}, None),
        ({"traceparent": TRACE.upper()}, None),
        ({"tracestate": "a=1"}, None),
        ({"traceparent": TRACE, "Content-Type": NDJSON}, None),
        ({"Barco-Header-a": "x" * (16 * KIB - 11), "traceparent": TRACE}, {"a": "x" * 16_373}),
    ],
)
def test_the_trace_of_a_request(
    broker: RunningBroker, fields: dict[str, str], kept: dict[str, str] | None
) -> None:
    """It is kept with an event of its own; what is wrong with it refuses nobody."""
    assert send(broker, b"1", fields).status == 200
    [line] = lines(broker)
    assert line.get("headers") == kept


def test_two_traces_are_none(broker: RunningBroker) -> None:
    head = "POST /v1/topic/t/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += f"traceparent: {TRACE}\r\ntraceparent: {OTHER}\r\nContent-Length: 1\r\n\r\n1"
    with socket.create_connection(("127.0.0.1", broker.port("produce")), timeout=10) as link:
        link.sendall(head.encode())
        assert link.recv(64).startswith(b"HTTP/1.1 200 ")
    [line] = lines(broker)
    assert "headers" not in line
