"""CloudEvents over HTTP, against a real broker: in binary, structured and batch mode, sent by the
official SDK and by hand, what is stored is the same."""

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hearing import until
from running import Answer, RunningBroker
from test_checked import checked
from test_http_contract import PROBLEM, events, numbered, send
from test_timestamps import set_times

EVENT, MANY = "application/cloudevents+json", "application/cloudevents-batch+json"
NEAR = datetime.now(UTC).replace(microsecond=250000) - timedelta(days=30)
PLAIN: dict[str, Any] = {"id": "1", "source": "/s", "specversion": "1.0", "type": "t"}


def now_us() -> int:
    return time.time_ns() // 1000


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def put(broker: RunningBroker, topic: str, message: HTTPMessage, **query: Any) -> Answer:
    return send(broker, topic, message.body, headers=message.headers, **query)


def one(broker: RunningBroker, topic: str, event: dict[str, Any], **query: Any) -> Answer:
    return send(broker, topic, json.dumps(event).encode(), EVENT, **query)


def many(broker: RunningBroker, topic: str, given: list[Any], **query: Any) -> Answer:
    return send(broker, topic, json.dumps(given).encode(), MANY, **query)


def stored(broker: RunningBroker, topic: str) -> list[dict[str, Any]]:
    """Without what two events never share."""
    own = ("topic", "token", "rangeIndex", "version", "offset")
    return [
        {name: each for name, each in event.items() if name not in own}
        for event in events(broker, topic)
    ]


def test_the_sdk_is_stored_alike_in_all_modes(broker: RunningBroker) -> None:
    """Attributes as headers, data as the value, the extension partitionkey as key, and the time."""
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"datacontenttype": "application/json"}, {"n": [1, "}"], "text": "ä\n"}),
        ({"datacontenttype": "text/plain; charset=utf-8"}, 'plain "text" ☃'),
        ({"datacontenttype": "application/octet-stream"}, bytes(range(256))),
        ({"datacontenttype": "application/json", "subject": 'a "b" %20 é'}, {"x": None}),
        ({"subject": "without data"}, None),
    ]
    for number, (more, data) in enumerate(cases):
        key = f"k{number}"
        attributes = {
            "id": f"e-{number}", "source": "/sdk", "type": "com.example.made",
            "time": NEAR + timedelta(seconds=number), "partitionkey": key, **more,
        }  # fmt: skip
        event = CloudEvent(attributes, data)
        assert put(broker, "binary", to_binary_event(event)).status == 200
        structured = to_structured_event(event)
        assert put(broker, "structured", structured).status == 200
        listed = b"[" + structured.body + b"]"
        assert send(broker, "batch", listed, f"{MANY}; charset=utf-8").status == 200
    by_key = {
        topic: {each["key"]: each for each in stored(broker, topic)}
        for topic in ("binary", "structured", "batch")
    }
    assert len(by_key["binary"]) == len(cases)
    for topic in by_key.values():  # The order of headers is theirs who sent them.
        assert topic == by_key["binary"]
    first, binary, empty = (by_key["batch"][key] for key in ("k0", "k2", "k4"))
    assert first["value"] == {"n": [1, "}"], "text": "ä\n"} and first["timestamp"] == us(NEAR)
    assert first["headers"] == {
        "ce-id": "e-0",
        "ce-source": "/sdk",
        "ce-type": "com.example.made",
        "ce-specversion": "1.0",
        "ce-time": NEAR.isoformat().replace("+00:00", "Z"),
        "ce-partitionkey": "k0",
        "content-type": "application/json",
    }
    assert base64.b64decode(binary["value"]["base64"]) == bytes(range(256))
    assert empty["value"] is None and empty["headers"]["ce-subject"] == "without data"


def test_what_the_request_says_comes_first(broker: RunningBroker) -> None:
    event = {**PLAIN, "time": NEAR.isoformat(), "partitionkey": "inside", "data": 1}
    stamp = us(NEAR) - 5
    for number, given in enumerate((event, [event])):
        put_ = one if isinstance(given, dict) else many
        topic = f"said-{number}"
        assert put_(broker, topic, given, timestamp=stamp).status == 200  # type: ignore[operator]
        assert put_(broker, topic, given, slice=3).status == 200  # type: ignore[operator]
        first, second = sorted(events(broker, topic), key=lambda each: each["timestamp"])
        assert (first["timestamp"], first["key"]) == (stamp, "inside")
        assert (second["timestamp"], second["key"]) == (us(NEAR), None)
        assert second["rangeIndex"] == 3
    assert one(broker, "keyed", event, partitionKey="outside").status == 200
    answer = many(broker, "keyed", [event], partitionKey="outside")
    assert answer.status == 400, "in a batch keys are inside"
    assert [each["key"] for each in events(broker, "keyed")] == ["outside"]


def test_data_of_no_bytes_are_no_value(broker: RunningBroker) -> None:
    """As in binary mode, where nobody can tell them from none."""
    empty = [
        {**PLAIN, "datacontenttype": "text/plain", "data": ""},
        {**PLAIN, "data_base64": ""},
        {**PLAIN, "data": None},
        PLAIN,
    ]
    fields = {f"ce-{name}": each for name, each in PLAIN.items()}
    assert send(broker, "empty", b"", headers=fields).status == 200
    for each in empty:
        assert one(broker, "empty", each).status == 200
    assert many(broker, "empty", empty).status == 200
    assert [each["value"] for each in events(broker, "empty")] == [None] * 9
    assert one(broker, "text", {**PLAIN, "data": ""}).status == 200, "JSON of two bytes"
    assert [each["value"] for each in events(broker, "text")] == [""]


@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_a_time_is_taken_where_the_topic_takes_it(broker: RunningBroker, mode: str) -> None:
    """Elsewhere it is a header, and nobody is refused for it."""
    times = {
        "1969-12-31T23:59:59.999999Z": -1,
        "1970-01-01T00:00:00Z": 0,
        "1970-01-01T01:00:00+01:00": 0,
        "0001-01-01T00:00:00Z": -62135596800000000,
        "9999-12-31T23:59:59Z": 253402300799000000,
        "1987-06-05T04:03:02.5-08:00": 549892982500000,
    }
    out_of_range = "0001-01-01T00:00:00+01:00"
    set_times(broker, "any", "any")
    began = now_us()
    for topic in ("any", "near"):
        for text in (*times, out_of_range):
            event = {**PLAIN, "time": text, "data": text}
            if mode == "binary":
                fields = {f"ce-{name}": each for name, each in event.items() if name != "data"}
                fields["Content-Type"] = "application/json"
                answer = send(broker, topic, json.dumps(text).encode(), headers=fields)
            else:
                answer = (one if mode == "structured" else many)(  # type: ignore[operator]
                    broker, topic, event if mode == "structured" else [event]
                )
            assert answer.status == 200, (text, answer)
    found = {each["value"]: each["timestamp"] for each in events(broker, "any")}
    assert found.pop(out_of_range) >= began - 1_000_000
    assert found == times
    near = events(broker, "near")
    assert len(near) == 7 and all(each["timestamp"] >= began - 1_000_000 for each in near)
    assert {each["headers"]["ce-time"] for each in near} == {*times, out_of_range}


def test_a_batch_of_all_kinds_of_times(broker: RunningBroker) -> None:
    """Who says none was now."""
    set_times(broker, "any", "any")
    began = now_us()
    given = [
        {**PLAIN, "id": str(n), "partitionkey": f"k{n % 9}", "data": n}
        | ({"time": f"19{n:02}-01-01T00:00:00Z"} if n % 3 else {})
        for n in range(1, 100)
    ]
    answer = many(broker, "any", given)
    assert (answer.status, answer.json["count"]) == (200, 99)
    assert len(answer.json["slices"]) > 1
    found = {each["value"]: each for each in events(broker, "any")}
    assert len(found) == 99
    for n, event in found.items():
        assert event["key"] == f"k{n % 9}" and event["headers"]["ce-id"] == str(n)
        if n % 3:
            assert event["timestamp"] == us(datetime(1900 + n, 1, 1, tzinfo=UTC))
        else:
            assert event["timestamp"] >= began - 1_000_000


WRONG: list[tuple[Any, str]] = [
    ({}, "id, source, specversion and type"),
    ({**PLAIN, "id": ""}, "a name of a-z"),
    ({**PLAIN, "id": 5}, "a name of a-z"),
    ({**PLAIN, "source": None}, "id, source, specversion and type"),
    ({**PLAIN, "specversion": "0.3"}, "specversion is 1.0"),
    ({**PLAIN, "Subject": "x"}, "a name of a-z"),
    ({**PLAIN, "x": {}}, "a name of a-z"),
    ({**PLAIN, "x" * 126: "1"}, "a name of a-z"),
    ({**PLAIN, "time": "yesterday"}, "RFC 3339"),
    ({**PLAIN, "time": 5}, "RFC 3339"),
    ({**PLAIN, "data": 1, "data_base64": ""}, "data and data_base64"),
    ({**PLAIN, "data_base64": "====" * 1000}, "data and data_base64"),
    ({**PLAIN, "data_base64": "aGk"}, "data and data_base64"),
    ({**PLAIN, "data": {}, "datacontenttype": "text/plain"}, "data and data_base64"),
    ({**PLAIN, "x": "y" * (16 << 10)}, "16 KiB"),
    ({**PLAIN, **{f"x{n}": n for n in range(61)}}, "64"),
    (5, "a JSON object"),
]


def test_what_is_malformed_is_refused_in_words(broker: RunningBroker) -> None:
    def told(answer: Answer, line: int, words: str) -> None:
        assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM), answer
        assert answer.json["type"] == "urn:barco:problem:malformed-cloudevent"
        assert answer.json["line"] == line and words in answer.json["detail"], answer.json

    good = {**PLAIN, "partitionkey": "k", "data": 1}
    for wrong, words in WRONG:
        told(one(broker, "t", wrong), 1, words)
        told(many(broker, "t", [good, good, wrong, good]), 3, words)
    twice = json.dumps(PLAIN)[:-1]
    for member in ('"id":"2"', '"type":"t"', '"x":"1","x":"2"', '"\\u0069d":"1"'):
        told(send(broker, "t", f"{twice},{member}}}".encode(), EVENT), 1, "a name of a-z")
    whole = "one event is a JSON object"
    bomb = b'{"data":' + b"[" * 100_000
    nested = json.dumps(PLAIN)[:-1].encode() + b',"data":' + b"[" * 600 + b"]" * 600 + b"}"
    for body in (b"{", b"[]", bomb, nested, b"\xff", b'{"id":"\xff"}', twice.encode() + b"}x",
                 twice.encode() + b',"data":1e}', twice.encode() + b',"x":"\\ud800"}'):  # fmt: skip
        told(send(broker, "t", body, EVENT), 1, whole)
        told(send(broker, "t", b"[" + body, MANY), 1, whole)
    told(send(broker, "t", b"{}", MANY), 1, whole)
    for body in (b"[]", b" [ ] "):
        assert send(broker, "t", body, MANY).json["type"].endswith(":no-events")
    for kind in (EVENT, MANY):
        assert send(broker, "t", b"", kind).json["type"].endswith(":no-events")
        refused = send(broker, "t", b"{}", kind, headers={"Barco-Null": "1"})
        assert refused.json["type"].endswith(":invalid-header")
    large = {**PLAIN, "data": "x" * (1 << 20)}
    assert one(broker, "t", large).json["type"].endswith(":event-too-large")
    answer = many(broker, "t", [good, large])
    assert answer.json["type"].endswith(":event-too-large") and answer.json["line"] == 2
    assert broker.request("GET", "/v1/topic/t/slices").status == 404, "nothing is stored"


def test_with_all_else_that_a_produce_may_be(broker: RunningBroker) -> None:
    event = {**PLAIN, "partitionkey": "k", "time": NEAR.isoformat(), "data": {"km": 1}}
    fields = {"Barco-Header-own": "x", "ce-id": "of HTTP", "traceparent": "00-" + "1" * 32 + "-" +
              "2" * 16 + "-01"}  # fmt: skip
    assert one(broker, "more", event, headers=fields).status == 200
    [found] = events(broker, "more")
    assert found["headers"]["own"] == "x" and found["headers"]["ce-id"] == "1"
    assert found["headers"]["traceparent"] == fields["traceparent"]
    # Sent again it is there once.
    for status in (200, 204):
        assert one(broker, "once", event, headers={"Idempotency-Key": "a"}).status == status
        assert many(broker, "once", [event], headers=numbered("p", 0, 0)).status == status
    assert len(events(broker, "once")) == 2
    # Delayed, its time is when it is due, or its own.
    assert one(broker, "later", event, headers={"Barco-Deliver-After": "1ms"}).status == 202
    due = us(datetime.now(UTC)) + 200_000
    soon = {**event, "time": datetime.fromtimestamp(due / 1e6, UTC).isoformat()}
    answer = many(broker, "later", [soon], headers={"Barco-Deliver-At": "timestamp"})
    assert answer.status == 202, answer
    until(lambda: len(later(broker)) == 2)
    found_later = later(broker)
    assert found_later[1]["timestamp"] == us(datetime.fromisoformat(soon["time"]))
    assert all(each["headers"]["ce-id"] == "1" for each in found_later)
    # Checked is the value alone.
    checked(broker, "checked")
    assert one(broker, "checked", event).status == 200
    assert many(broker, "checked", [event, event]).status == 200
    bad = {**event, "data": {"km": "far"}}
    assert one(broker, "checked", bad).status == 422
    answer = many(broker, "checked", [event, bad])
    assert (answer.status, answer.json["line"]) == (422, 2)
    assert [each["value"] for each in events(broker, "checked")] == [{"km": 1}] * 3
    assert all(each["timestamp"] == us(NEAR) for each in events(broker, "checked"))


def later(broker: RunningBroker) -> list[dict[str, Any]]:
    """What was delayed and has come, in the order in which it is of its slice."""
    if broker.request("GET", "/v1/topic/later/slices").status != 200:
        return []
    return sorted(events(broker, "later"), key=lambda each: int(each["offset"]))
