"""Lines that bring a key each, as whoever speaks HTTP sends them, against real brokers."""

import base64
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from running import Answer, RunningBroker, key_of

EVENTS = "application/vnd.barco.events+x-ndjson"
NDJSON = "application/x-ndjson"
STAMP = 1_700_000_000_000_000
SLICES = 8


@pytest.fixture
def pair(start_broker: Callable[..., RunningBroker]) -> RunningBroker:
    """A broker whose slices two workers lead: half of what comes is another's."""
    return start_broker(workers=2)


def send(broker: RunningBroker, body: bytes, kind: str, topic: str = "t", **query: Any) -> Answer:
    headers = {"Content-Type": kind, **query.pop("headers", {})}
    path = f"/v1/topic/{topic}/messages"
    listener = query.pop("listener", "produce")
    return broker.request("POST", path, query, body=body, headers=headers, listener=listener)


def lines(*events: Any) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in events)


def stored(broker: RunningBroker, topic: str = "t") -> list[tuple[int, dict[str, Any]]]:
    """(slice, event), slice by slice."""
    found = []
    for one in broker.request("GET", f"/v1/topic/{topic}/slices").json["slices"]:
        path = f"/v1/topic/{topic}/slices/{one['token']}/{one['index']}/events"
        answer = broker.request("GET", path, headers={"Accept": NDJSON})
        assert answer.status in (200, 204), answer
        found += [(one["index"], json.loads(line)) for line in answer.body.splitlines()]
    return found


def test_each_line_goes_to_the_slice_of_its_key(pair: RunningBroker) -> None:
    keys = [f"k{number % 200}" for number in range(1000)]
    given = [{"value": {"n": n}, "key": key} for n, key in enumerate(keys)]
    answer = send(pair, lines(*given), EVENTS)
    assert answer.status == 200, answer
    assert sum(part["count"] for part in answer.json["slices"]) == 1000
    assert len(answer.json["slices"]) == SLICES
    found = stored(pair)
    assert sorted(event["value"]["n"] for _, event in found) == list(range(1000))
    # A key's events have the slice of the same key sent alone, and their order.
    for key in ("k0", "k1", "k17"):
        alone = send(pair, b"1", "application/json", "alone", partitionKey=key).json
        of_key = [(slice_, e["value"]["n"]) for slice_, e in found if e["key"] == key]
        assert {slice_ for slice_, _ in of_key} == {alone["rangeIndex"]}
        assert [n for _, n in of_key] == [n for n, each in enumerate(keys) if each == key]


def test_keys_values_and_times_come_back(pair: RunningBroker) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    body = (
        b'{"key":"caf\\u00e9 \\ud83d\\ude00","timestamp":%d,"value":{"a" : [1, "}" ]}}\r\n\r\n'
        b'{"timestamp":%d,"value":"text","key":{"base64":"%s"}}\n'
        b'{"timestamp":%d,"value":{"base64":"%s"}}'
    ) % (STAMP, STAMP + 10**13, raw.encode(), STAMP + 1, raw.encode())
    assert send(pair, body, EVENTS).status == 200
    found = sorted((event["timestamp"], event["key"], event["value"]) for _, event in stored(pair))
    assert [list(each) for each in found] == [
        [STAMP, "café 😀", {"a": [1, "}"]}],
        [STAMP + 1, None, {"base64": raw}],
        [STAMP + 10**13, {"base64": raw}, "text"],
    ]


def test_a_member_of_the_line_is_its_key(pair: RunningBroker) -> None:
    body = b'{"id": "a\\u0041", "n":1}\n{"n":2,"id":7}\n{"id":true}\n'
    answer = send(pair, body, NDJSON, keyField="id")
    assert answer.status == 200, answer
    found = {event["key"]: event["value"] for _, event in stored(pair)}
    assert found == {"aA": {"id": "aA", "n": 1}, "7": {"n": 2, "id": 7}, "true": {"id": True}}
    answer = send(pair, b'{"id":1}\n{"n":2}', NDJSON, keyField="id")
    assert (answer.status, answer.json["line"]) == (400, 2)
    assert len(stored(pair)) == 3


def test_times_of_one_key_may_be_far_from_each_other(pair: RunningBroker) -> None:
    """Months apart, in any order: more than 32 bits of microseconds, in one slice."""
    times = [STAMP + 10**13, STAMP, STAMP + 5]
    given = [{"key": "k", "value": n, "timestamp": time} for n, time in enumerate(times)]
    assert send(pair, lines(*given), EVENTS).status == 200
    assert [event["timestamp"] for _, event in stored(pair)] == times
    # In every slice: some are led by who takes it in, and some are not.
    for n in range(SLICES):
        key = key_of(pair, "t", n)
        one = lines(*({"key": key, "value": 1, "timestamp": time} for time in times))
        assert send(pair, one, EVENTS, f"t{n}").status == 200
        assert [event["timestamp"] for _, event in stored(pair, f"t{n}")] == times


def test_the_field_is_kept_while_the_body_comes(pair: RunningBroker) -> None:
    """Other requests come in between, with keys of their own."""
    body = b'{"id":"a"}\n{"id":"b"}'
    head = (
        f"POST /v1/topic/t/messages?keyField=id HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {NDJSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    port = pair.port(shard=0)
    with socket.create_connection(("127.0.0.1", port), 10) as slow:
        slow.sendall(head + body[:5])
        for n in range(3):  # Each on a connection of its own, when the slow one's head is read.
            query = {"partitionKey": "x" * (n + 2)}
            answer = pair.request("POST", "/v1/topic/o/messages", query, body=b"1", shard=0)
            assert answer.status == 200
        slow.sendall(body[5:])
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
    assert sorted(event["key"] for _, event in stored(pair)) == ["a", "b"]


def test_values_that_lie_about_and_in_rows_are_gathered_into_the_same_chunks(
    start_broker: Callable[..., RunningBroker],
) -> None:
    """Requests in one piece, so that groups have several: of one key, sorted out of other lines or
    not, and more of them than one chunk takes."""
    broker, requests, count = start_broker(workers=1), bytearray(), 0
    for number in range(12):
        some = [{"n": count + n, "x": "y" * (40 + 300 * (n % 3))} for n in range(100)]
        count += len(some)
        path, kind, body = "/v1/topic/g/messages?partitionKey=k", NDJSON, lines(*some)
        if number % 3:
            path, kind = "/v1/topic/g/messages", EVENTS
            told = [{"key": "k", "value": each} for each in some]
            others = [{"key": f"o{n}", "value": 0} for n in range(len(some))]
            body = lines(*(each for pair in zip(told, others, strict=True) for each in pair))
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        requests += f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", broker.port("produce")), 30) as link:
        link.sendall(requests)
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 12:
            piece = link.recv(1 << 16)
            assert piece, answers[-500:]
            answers += piece
    assert answers.count(b"HTTP/1.1 200") == 12, answers[-500:]
    found = [event for _, event in stored(broker, "g") if event["key"] == "k"]
    assert [event["value"]["n"] for event in found] == list(range(count))
    assert all(len(e["value"]["x"]) == 40 + 300 * (e["value"]["n"] % 100 % 3) for e in found)


def test_what_is_flawed_is_refused_whole_and_says_where(pair: RunningBroker) -> None:
    good = lines({"key": "a", "value": 1}, {"key": "b", "value": 2})
    for line, type_ in (
        (b'{"key":"c","value":3,"other":1}', "malformed-line"),
        (b'{"key":"c"}', "malformed-line"),
        (b'{"key":"c","value":3', "malformed-line"),
        (b'{"value":3,"timestamp":%d}' % STAMP, "malformed-line"),
        (b'{"value":"%s"}' % (b"x" * (1 << 20)), "event-too-large"),
    ):
        answer = send(pair, good + b"\n" + line, EVENTS)
        assert answer.json["type"] == f"urn:barco:problem:{type_}", answer
        assert answer.json["line"] == 3 and answer.status in (400, 413)
    stale = lines({"key": "a", "value": 1, "timestamp": STAMP}, {"value": 2, "timestamp": 5})
    assert send(pair, stale, EVENTS).json["type"] == "urn:barco:problem:implausible-timestamp"
    assert send(pair, b" \n\r\n", EVENTS).json["type"] == "urn:barco:problem:no-events"
    assert send(pair, b"", EVENTS).json["type"] == "urn:barco:problem:no-events"
    many = b'{"value":1}\n' * ((1 << 18) + 1)
    assert send(pair, many, EVENTS).status == 413
    for kind, query in (
        (EVENTS, {"partitionKey": "k"}),
        (EVENTS, {"keyField": "id"}),
        (NDJSON, {"keyField": "id", "partitionKey": "k"}),
        (NDJSON, {"keyField": ""}),
        ("application/json", {"keyField": "id"}),
    ):
        assert send(pair, good, kind, **query).status == 400, (kind, query)
    assert pair.request("GET", "/v1/topics/t").status == 404, "nothing was made of it"


def test_one_slice_with_a_producer_or_none_to_hand_on(pair: RunningBroker) -> None:
    here, there = key_of(pair, "t", 0), key_of(pair, "t", SLICES - 1)
    both = lines({"key": here, "value": 1}, {"key": there, "value": 2})
    one = lines({"key": here, "value": 1}, {"key": here, "value": 2})
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    answer = send(pair, both, EVENTS, headers=producer)
    assert answer.json["type"] == "urn:barco:problem:producer-needs-one-slice"
    answer = send(pair, one, EVENTS, headers=producer)
    assert (answer.status, answer.json["count"]) == (200, 2)
    assert send(pair, one, EVENTS, headers=producer).status == 204
    path = "/v1/topic/t/messages"
    headers = {"Content-Type": EVENTS, "Barco-No-Forward": "1"}
    answer = pair.request("POST", path, body=both, headers=headers, shard=0)
    assert answer.status == 421 and answer.json["owner"], answer
    assert pair.request("POST", path, body=one, headers=headers, shard=0).status == 200
    assert send(pair, one, EVENTS, slice=1).json["type"] == "urn:barco:problem:invalid-slice"
    assert [event["value"] for _, event in stored(pair)] == [1, 2, 1, 2]
