"""Topics whose values are checked against the registry: what is no value of a schema of theirs is
refused, kept aside or told, by every way in."""

import gzip
import json
import socket
from typing import Any

import pytest
import zstandard
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hearing import until
from running import Answer, RunningBroker

import barco
from barco import _native, limits
from barco.errors import UnprocessableError

JSON, NDJSON = "application/json", "application/x-ndjson"
KEYED, BATCH = "application/vnd.barco.events+x-ndjson", "application/vnd.barco.batch"

TRIP: dict[str, Any] = {
    "title": "Trip",
    "type": "object",
    "required": ["km"],
    "properties": {"km": {"type": "number"}, "to": {"items": {"type": "string"}}},
}
AVRO = {"type": "record", "name": "Fee", "fields": [{"name": "euro", "type": "long"}]}
GOOD, BAD = b'{"km": 1}', b'{"km": 1, "to": ["x", 2]}'


def registry(broker: RunningBroker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": f"http://127.0.0.1:{broker.port('discovery')}/registry"})


def checked(broker: RunningBroker, topic: str, level: str = "reject") -> int:
    """The topic, and a JSON Schema for it: its id."""
    answer = broker.request(
        "PUT",
        f"/v1/topics/{topic}",
        body=json.dumps({"schemaCheck": level}).encode(),
        headers={"Content-Type": JSON},
        listener="discovery",
    )
    assert answer.status == 201 and answer.json["schemaCheck"] == level
    return int(registry(broker).register_schema(f"{topic}-value", Schema(json.dumps(TRIP), "JSON")))


def produce(
    broker: RunningBroker, topic: str, body: bytes, kind: str = JSON, query: Any = (), **more: str
) -> Answer:
    headers = {"Content-Type": kind, **more}
    path = f"/v1/topic/{topic}/messages"
    return broker.request("POST", path, query, body=body, headers=headers, listener="produce")


def stored(broker: RunningBroker, topic: str) -> list[bytes | None]:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    return sorted((each.value for each in barco.read(topic, endpoint)), key=str)


def with_id(id: int, value: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + value


def test_one_event(broker: RunningBroker) -> None:
    id = checked(broker, "t")
    assert produce(broker, "t", GOOD).status == 200
    assert produce(broker, "t", with_id(id, GOOD), "application/octet-stream").status == 200
    answer = produce(broker, "t", BAD)
    assert (answer.status, answer.json["line"], answer.json["pointer"]) == (422, 1, "/to/1")
    assert answer.json["refused"] == 1 and "string" in answer.json["detail"]
    answer = produce(broker, "t", with_id(id, BAD), "application/octet-stream")
    assert (answer.status, answer.json["pointer"]) == (422, "/to/1")
    # JSON that does not say that it is, an id of nothing, of another subject, and no id at all.
    other = registry(broker).register_schema("x-value", Schema('{"type": "object"}', "JSON"))
    for body in (GOOD, with_id(99, GOOD), with_id(other, GOOD), b"\0\0\0", b""):
        answer = produce(broker, "t", body, "application/octet-stream")
        assert answer.status == 422 and "pointer" not in answer.json, body
    assert stored(broker, "t") == sorted([GOOD, with_id(id, GOOD)], key=str)


def test_a_schema_that_was_registered_a_moment_ago_counts(broker: RunningBroker) -> None:
    checked(broker, "t")
    assert produce(broker, "t", BAD).status == 422
    for n in range(5):
        loose = {"properties": {"km": {}, f"p{n}": {}}}
        registry(broker).set_compatibility("t-value", "NONE")
        id = registry(broker).register_schema("t-value", Schema(json.dumps(loose), "JSON"))
        for _ in range(4):  # At whichever worker.
            body = with_id(id, BAD)
            assert produce(broker, "t", body, "application/octet-stream").status == 200
            assert produce(broker, "t", BAD).status == 200


def test_lines(broker: RunningBroker) -> None:
    checked(broker, "t")
    lines = [GOOD, b"", BAD, GOOD + b"\r", b"[", b" "]
    answer = produce(broker, "t", b"\n".join(lines), NDJSON, {"partitionKey": "k"})
    assert (answer.status, answer.json["line"], answer.json["pointer"]) == (422, 3, "/to/1")
    assert [each["line"] for each in answer.json["flaws"]] == [3, 5]
    assert stored(broker, "t") == []
    answer = produce(broker, "t", b"\n".join(lines), NDJSON, {"onlyValid": "true"})
    assert answer.status == 200 and (answer.json["count"], answer.json["refused"]) == (2, 2)
    assert stored(broker, "t") == [GOOD, GOOD]
    assert produce(broker, "t", BAD, NDJSON, {"onlyValid": "true"}).status == 422
    assert produce(broker, "t", GOOD, NDJSON, {"onlyValid": "true"}).json["startOffset"]
    assert produce(broker, "t", GOOD, JSON, {"onlyValid": "true"}).status == 400
    assert produce(broker, "t", GOOD, NDJSON, {"onlyValid": "yes"}).status == 400
    assert stored(broker, "t") == [GOOD] * 3


def test_lines_with_keys(broker: RunningBroker) -> None:
    id = checked(broker, "t")
    assert id == 1
    good = b'{"key": "a", "value": {"km": 1}, "headers": {"h": "v"}}'
    bad = b'{"value": {"km": "x"}, "key": "b"}'
    none = b'{"key": "c", "value": null}'
    answer = produce(broker, "t", b"\n".join([good, bad, none]), KEYED)
    assert (answer.status, answer.json["line"], answer.json["pointer"]) == (422, 2, "/km")
    answer = produce(broker, "t", b"\n".join([good, bad, none]), KEYED, {"onlyValid": "true"})
    assert (answer.status, answer.json["count"]) == (200, 2)
    # What is spelt so that the core stores the text is judged as that text.
    sly = b'{"value": {"\\u0062ase64": "AAAAAAF7ImttIjogMX0="}, "key": "b"}'
    assert produce(broker, "t", sly, KEYED).status == 422
    twice = b'{"value": {"base64": "", "base64": "AAAAAAF7ImttIjogMX0="}, "key": "b"}'
    assert produce(broker, "t", twice, KEYED).status == 422
    plain = b'{"value": {"base64": "AAAAAAF7ImttIjogMX0="}, "key": "b"}'
    assert produce(broker, "t", plain, KEYED).status == 200
    big = b'{"key": "d", "value": {"km": 1, "n": %s}}' % (b"9" * 5000)
    assert produce(broker, "t", big, KEYED).status == 422
    fields = {"keyField": "km"}
    assert produce(broker, "t", BAD + b"\n" + GOOD, NDJSON, fields).json["line"] == 1
    assert produce(broker, "t", GOOD, NDJSON, fields).status == 200
    assert len(stored(broker, "t")) == 4


def test_batches_and_the_library(broker: RunningBroker) -> None:
    id = checked(broker, "t")
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    context = SerializationContext("t", MessageField.VALUE)
    write = JSONSerializer(json.dumps(TRIP), registry(broker))
    with barco.Producer(endpoint) as producer:
        for n in range(3):
            producer.send("t", write({"km": n}, context), key=b"k").result(30)
            with pytest.raises(UnprocessableError) as caught:
                producer.send("t", with_id(id, BAD), key=b"k").result(30)
            assert caught.value.fields["pointer"] == "/to/1"
        producer.send("t", None, key=b"k").result(30)
    assert len(stored(broker, "t")) == 4
    values = [with_id(id, GOOD), None, with_id(id, b"{}")]
    body = _native.batch_encode(values, [b"a", b"b", b"c"], {"timestamp": [1, 2, 3]})
    answer = produce(broker, "t", body, BATCH)
    assert (answer.status, answer.json["line"], answer.json["pointer"]) == (422, 3, "")
    assert produce(broker, "t", body[:-1], BATCH).status == 400


def test_avro_and_what_is_only_looked_up(broker: RunningBroker) -> None:
    checked(broker, "t")
    subject = "fees-value"
    client = registry(broker)
    body = {"schemaCheck": "reject"}
    path, headers = "/v1/topics/fees", {"Content-Type": JSON}
    assert broker.request(
        "PUT", path, body=json.dumps(body).encode(), headers=headers, listener="discovery"
    ).status == 201  # fmt: skip
    assert produce(broker, "fees", b"\0\0\0\0\1x", "text/plain").status == 422
    write = AvroSerializer(client, json.dumps(AVRO))
    value = write({"euro": 7}, SerializationContext("fees", MessageField.VALUE))
    assert value is not None and client.get_latest_version(subject).schema_id == value[4]
    assert produce(broker, "fees", value, "text/plain").status == 200
    for wrong in (value + b"x", value[:-1]):
        answer = produce(broker, "fees", wrong, "text/plain")
        assert answer.status == 422 and "pointer" not in answer.json
    assert "no JSON Schema" in produce(broker, "fees", b"{}").json["detail"]


def test_one_connection_keeps_its_order(broker: RunningBroker) -> None:
    """Large and small, one behind the other: sequences of a producer have no gap."""
    checked(broker, "t")
    sent = []
    for n in range(40):
        body = b"\n".join([GOOD] * (2000 if n % 5 == 0 else 1))
        head = (
            f"POST /v1/topic/t/messages?partitionKey=k HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: {NDJSON}\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\n"
            f"Producer-Seq: {n}\r\nPrefer: return=minimal\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        sent.append(head.encode() + body)
    with socket.create_connection(("127.0.0.1", broker.port("produce"))) as connection:
        connection.sendall(b"".join(sent))
        connection.settimeout(60)
        got = b""
        while got.count(b"HTTP/1.1 ") < len(sent):
            more = connection.recv(65536)
            assert more, got[-500:]
            got += more
    assert got.count(b"HTTP/1.1 204 ") == len(sent)
    assert len(stored(broker, "t")) == 8 * 2000 + 32


def test_off_again_and_over_a_restart(broker: RunningBroker) -> None:
    checked(broker, "t")
    broker.kill()
    broker.start()
    assert produce(broker, "t", BAD).status == 422
    for level, status in (("off", 200), ("reject", 422), ("warn", 200)):
        answer = broker.request(
            "PUT",
            "/v1/topics/t",
            body=json.dumps({"schemaCheck": level}).encode(),
            headers={"Content-Type": JSON},
            listener="discovery",
        )
        assert answer.json["schemaCheck"] == level
        assert produce(broker, "t", BAD).status == status
    assert produce(broker, "t", BAD).status == 200
    lines = [
        each for each in broker.log_path.read_text().splitlines() if "not of its schema" in each
    ]
    assert 1 <= len(lines) <= 2 and "/to/1" in lines[0]  # One of each worker's.
    figures = broker.request("GET", "/metrics", listener="discovery").body.decode()
    assert "barco_values_flawed_total" in figures


def letters(broker: RunningBroker, topic: str) -> list[tuple[bytes | None, bytes | None, str]]:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    found = []
    for each in barco.read(topic, endpoint):
        headers = dict(each.headers)
        assert headers["barco-dead-topic"] == b"t"
        found.append((each.key, each.value, headers["barco-dead-reason"].decode()))
    return sorted(found, key=str)


def test_dead_letters(broker: RunningBroker) -> None:
    id = checked(broker, "t", "dead")
    answer = produce(broker, "t", b"\n".join([GOOD, BAD, b"{"]), NDJSON, {"partitionKey": "k"})
    assert (answer.status, answer.json["count"], answer.json["dead"]) == (200, 1, "t.dead")
    assert [each["line"] for each in answer.json["flaws"]] == [2, 3]
    kept = letters(broker, "t.dead")
    assert [key for key, _, _ in kept] == [b"k", b"k"]
    reasons = {value: reason for _, value, reason in kept}
    assert reasons.keys() == {BAD, b"{"}
    assert "string" in reasons[BAD] and "no JSON" in reasons[b"{"]
    # A batch keeps keys and headers; the others of it are stored with theirs.
    values = [with_id(id, GOOD), b"none", None]
    headers = [_native.headers_encode([("n", bytes([at]))]) for at in range(3)]
    body = _native.batch_encode(values, [b"a", b"b", b"c"], headers=headers)
    answer = produce(broker, "t", body, BATCH)
    assert (answer.status, answer.json["count"], answer.json["refused"]) == (200, 2, 1)
    assert (b"b", b"none") in [each[:2] for each in letters(broker, "t.dead")]
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    assert {(e.key, dict(e.headers).get("n")) for e in barco.read("t", endpoint)} == {
        (b"k", None),
        (b"a", b"\0"),
        (b"c", b"\2"),
    }
    assert dict(next(e.headers for e in barco.read("t.dead", endpoint) if e.key == b"b"))["n"] == (
        b"\1"
    )


def test_nothing_is_left_but_a_letter(broker: RunningBroker) -> None:
    """The producer is told, and its sequence goes on where it was."""
    checked(broker, "t", "dead")
    once = {"Producer-Id": "p", "Producer-Epoch": "0", "Barco-Header-h": "v%20w"}
    query = {"partitionKey": "k"}
    answer = produce(broker, "t", BAD, JSON, query, **once, **{"Producer-Seq": "0"})
    assert (answer.status, answer.json["dead"], answer.json["pointer"]) == (422, "t.dead", "/to/1")
    assert produce(broker, "t", GOOD, JSON, query, **once, **{"Producer-Seq": "0"}).status == 200
    assert len(letters(broker, "t.dead")) == 1 and stored(broker, "t") == [GOOD]
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    assert dict(next(iter(barco.read("t.dead", endpoint))).headers)["h"] == b"v w"
    # They are not checked themselves, whatever made them.
    told = broker.request("GET", "/v1/topics/t.dead", listener="discovery").json
    assert told["schemaCheck"] == "off"


def test_staged_and_shipped(broker: RunningBroker) -> None:
    id = checked(broker, "t")
    good, bad = (_native.batch_encode([with_id(id, each)]) for each in (GOOD, BAD))
    path, query = "/v1/writes/w/0/staged", {"attempt": "a", "topic": "t", "slice": 0, "seq": 0}
    for body, kind, status in (
        (good + bad, BATCH, 422),
        (GOOD + b"\n" + BAD, NDJSON, 422),
        (good + good, BATCH, 200),
    ):
        answer = broker.request(
            "PUT", path, query, body=body, headers={"Content-Type": kind}, shard=0
        )
        assert answer.status == status, answer.body
        if status == 422:
            assert answer.json["pointer"] == "/to/1"
    lines = b'{"create":{"_index":"t"}}\n%s\n{"create":{"_index":"u"}}\n{}\n'
    kind = {"Content-Type": NDJSON}
    for each, statuses in ((BAD, [422, 201]), (GOOD, [201, 201])):
        answer = broker.request("POST", "/elastic/_bulk", body=lines % each, headers=kind)
        assert [item["create"]["status"] for item in answer.json["items"]] == statuses
    assert stored(broker, "t") == [GOOD] and len(stored(broker, "u")) == 2


def test_what_is_too_much_is_never_unpacked(broker: RunningBroker) -> None:
    """Few bytes of a batch may be more values than memory has room for."""
    checked(broker, "t")
    most = limits.BATCH_EVENTS_MAX
    many = _native.batch_encode([b""] * (most + 1))
    large = _native.batch_encode([b"\0" * (limits.REQUEST_BYTES_MAX + 1)])
    assert len(many) < 64 * limits.KiB and len(large) < 128 * limits.KiB
    path, query = "/v1/writes/w/0/staged", {"attempt": "a", "topic": "t", "slice": 0, "seq": 0}
    for body in (many, large):
        assert produce(broker, "t", body, BATCH).status == 413
        kind = {"Content-Type": BATCH}
        assert broker.request("PUT", path, query, body=body, headers=kind, shard=0).status == 413
    answer = produce(broker, "t", b"1\n" * (most + 1), NDJSON)
    assert (answer.status, answer.json["type"]) == (413, "urn:barco:problem:body-too-large")
    assert produce(broker, "t", GOOD).status == 200 and stored(broker, "t") == [GOOD]


def test_packed_bodies(broker: RunningBroker) -> None:
    """What is judged is what they unpack to."""
    checked(broker, "t")
    for coding, pack in (("gzip", gzip.compress), ("zstd", zstandard.compress)):
        fields = {"Content-Encoding": coding}
        answer = produce(broker, "t", pack(GOOD + b"\n" + BAD), NDJSON, **fields)
        assert (answer.status, answer.json["line"], answer.json["pointer"]) == (422, 2, "/to/1")
        assert produce(broker, "t", pack(BAD), **fields).status == 422
        assert produce(broker, "t", pack(GOOD), **fields).status == 200
        query = {"onlyValid": "true"}
        answer = produce(broker, "t", pack(GOOD + b"\n" + BAD), NDJSON, query, **fields)
        assert (answer.status, answer.json["count"]) == (200, 1)
    assert stored(broker, "t") == [GOOD] * 4


def test_delayed_events(broker: RunningBroker) -> None:
    """They are looked at when they come, not when they are due."""
    checked(broker, "t")
    soon = {"Barco-Deliver-After": "1ms"}
    assert produce(broker, "t", BAD, **soon).json["pointer"] == "/to/1"
    assert produce(broker, "t", GOOD, **soon).status == 202
    line = b'{"value": %s, "deliverAfter": 1, "key": "k"}'
    answer = produce(broker, "t", b"\n".join([line % BAD, line % GOOD]), KEYED)
    assert (answer.status, answer.json["line"], answer.json["pointer"]) == (422, 1, "/to/1")
    query = {"onlyValid": "true"}
    answer = produce(broker, "t", b"\n".join([line % BAD, line % GOOD]), KEYED, query)
    assert answer.status == 202 and answer.json["refused"] == 1
    assert answer.json["delayed"] and answer.json["count"] == 1
    until(lambda: stored(broker, "t") == [GOOD, GOOD])


@pytest.mark.parametrize("level", ["dead", "reject"])
def test_what_is_left_of_a_body_says_where_it_is(broker: RunningBroker, level: str) -> None:
    checked(broker, "t", level)
    lines = [b'{"value": %s, "key": "k%d"}' % (GOOD, n) for n in range(9)]
    lines += [b'{"value": %s, "key": "a"}' % BAD]
    query = {"onlyValid": "true"}
    answer = produce(broker, "t", b"\n".join(lines), KEYED, query)
    assert (answer.status, answer.json["count"], answer.json["refused"]) == (200, 9, 1)
    assert len(answer.json["slices"]) > 1
    assert sum(each["count"] for each in answer.json["slices"]) == 9
    # Such that wait can be cancelled: they are named.
    later = [line[:-1] + b', "deliverAfter": "1h"}' for line in (lines[0], lines[9])]
    answer = produce(broker, "t", b"\n".join(later), KEYED, query)
    assert (answer.status, answer.json["count"], answer.json["refused"]) == (202, 1, 1)
    assert answer.json.get("dead") == ("t.dead" if level == "dead" else None)
    cancelled = broker.request("DELETE", f"/v1/topic/t/delayed/{answer.json['delayed']}")
    assert cancelled.status == 204
    # Said again by its producer it is the one that is stored.
    named = {"Producer-Id": "p", "Producer-Epoch": "1", "Producer-Seq": "0"}
    body = GOOD + b"\n" + BAD
    keyed = query | {"partitionKey": "k"}
    first, again = (produce(broker, "t", body, NDJSON, keyed, **named) for _ in range(2))
    assert first.status == again.status == 200 and first.json["startOffset"]
    assert "startOffset" not in again.json and again.json["count"] == 1


def test_members_that_are_there_twice(broker: RunningBroker) -> None:
    """The core refuses the line, whichever of them was looked at; nothing is stored."""
    checked(broker, "t")
    good, bad = b'"value": {"km": 1}', b'"value": {"km": "x"}'
    for level in ("reject", "dead", "warn"):
        body = json.dumps({"schemaCheck": level}).encode()
        headers = {"Content-Type": JSON}
        broker.request("PUT", "/v1/topics/t", body=body, headers=headers, listener="discovery")
        for line in (
            b"{%s, %s}" % (good, good),
            b"{%s, %s}" % (bad, good),
            b'{%s, "\\u0076alue": {"km": 1}}' % good,
            b'{"\\u0076alue": {"km": 1}}',
        ):
            for query in ({}, {"onlyValid": "true"}):
                assert produce(broker, "t", line, KEYED, query).status == 400, (level, line)
    assert stored(broker, "t") == []


def test_where_no_line_is_valid_nothing_is_stored(broker: RunningBroker) -> None:
    checked(broker, "t")
    query = {"onlyValid": "true"}
    bad = b'{"value": {"km": "x"}, "key": "k"}'
    for kind, body in ((NDJSON, b"\n".join([BAD] * 3)), (KEYED, b"\n".join([bad] * 3))):
        answer = produce(broker, "t", body, kind, query)
        assert (answer.status, answer.json["refused"], answer.json["line"]) == (422, 3, 1)
    assert stored(broker, "t") == []


def test_a_schema_that_may_take_for_ever_is_only_looked_up(broker: RunningBroker) -> None:
    """And a value that has too many parts for its schema is refused, at once."""
    checked(broker, "t")
    registry(broker).set_compatibility("t-value", "NONE")
    items = {"items": {"$ref": "#"}}
    circles = {"anyOf": [{**items, "maxItems": 3}, items]}
    id = registry(broker).register_schema("t-value", Schema(json.dumps(circles), "JSON"))
    deep = with_id(id, b"[" * 40 + b"]" * 40)
    assert produce(broker, "t", deep, "application/octet-stream").status == 200
    wide = {"items": {"enum": [{"a": n} for n in range(1000)]}}
    id = registry(broker).register_schema("t-value", Schema(json.dumps(wide), "JSON"))
    value = with_id(id, json.dumps([{"a": 999}] * 5000).encode())
    answer = produce(broker, "t", value, "application/octet-stream")
    assert answer.status == 422 and "more parts" in answer.json["detail"]
    assert stored(broker, "t") == [deep]
