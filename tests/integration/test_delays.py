"""Delayed events over HTTP, against a real broker."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from running import Answer, RunningBroker

import barco
from barco import _native
from barco.errors import BarcoError

MESSAGES = "/v1/topic/t/messages"
SECONDS = 60.0
"""Generous: it only ends what has failed."""


def send(
    broker: RunningBroker, value: bytes, fields: dict[str, str], query: dict[str, Any] | None = None
) -> Answer:
    return broker.request("POST", MESSAGES, query or {}, body=value, headers=fields)


def lines(broker: RunningBroker, topic: str = "t") -> list[dict[str, Any]]:
    """What its topic has now, by slice."""
    found = []
    told = broker.request("GET", f"/v1/topic/{topic}/slices")
    for one in told.json["slices"] if told.status == 200 else []:
        path = f"/v1/topic/{topic}/slices/{one['token']}/{one['index']}/events"
        accept = {"Accept": "application/x-ndjson"}
        answer = broker.request("GET", path, {"maxBytes": 16 << 20}, headers=accept)
        found += [json.loads(line) for line in answer.body.splitlines()]
    return found


def until(broker: RunningBroker, count: int, topic: str = "t") -> list[dict[str, Any]]:
    deadline = time.monotonic() + SECONDS
    while len(found := lines(broker, topic)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def now_us() -> int:
    return time.time_ns() // 1000


def test_an_event_is_there_when_it_is_due(broker: RunningBroker) -> None:
    fields = {"Barco-Deliver-After": "5s", "Barco-Header-Trace": "7"}
    before = now_us()
    answer = send(broker, b'{"n":1}', fields, {"partitionKey": "k"})
    after = now_us()
    assert answer.status == 202, answer
    told = answer.json
    assert told.keys() == {"topic", "token", "rangeIndex", "version", "delayed", "count"}
    assert (told["topic"], told["count"]) == ("t", 1)
    assert told["delayed"] == f"{told['rangeIndex']}.{told['version']}.0"
    assert lines(broker) == []
    [line] = until(broker, 1)
    assert (
        now_us() >= line["timestamp"]
        and before + 5_000_000 <= line["timestamp"] <= after + 5_000_000
    )
    assert (line["key"], line["value"], line["headers"]) == ("k", {"n": 1}, {"trace": "7"})
    assert line["rangeIndex"] == told["rangeIndex"]


def test_times_in_every_form_and_in_their_order(broker: RunningBroker) -> None:
    """Of one slice: by when they are due, not by when they came."""
    start = time.time() + 6.0  # All of them are there by then.
    forms = [
        (datetime.fromtimestamp(start + 0.3, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), b"3"),
        (str(int(start * 1000)), b"1"),
        (datetime.fromtimestamp(start + 0.2, UTC).isoformat(), b"2"),
        (str(int(start * 1000) - 3_600_000), b"0"),  # An hour ago: at once.
    ]
    for at, value in forms:
        assert send(broker, value, {"Barco-Deliver-At": at}, {"slice": 0}).status == 202, at
    plain = send(broker, b"4", {}, {"slice": 0})
    assert plain.status == 200 and plain.json["startOffset"] in ("0", "1")
    found = until(broker, 5)
    assert [line["value"] for line in found if line["value"] != 4] == [0, 1, 2, 3]


def test_what_waits_survives_a_kill(broker: RunningBroker) -> None:
    """What was delivered before is not delivered again, and what was not is."""
    for number in range(40):
        fields = {"Barco-Deliver-After": "50ms" if number % 2 else "4s"}
        answer = send(broker, b"%d" % number, fields, {"partitionKey": f"k{number % 7}"})
        assert answer.status == 202, answer
    until(broker, 20)
    broker.kill()
    broker.start()
    found = [line["value"] for line in until(broker, 40)]
    assert sorted(found) == list(range(40))
    time.sleep(0.3)
    assert len(lines(broker)) == 40


def test_a_repeated_produce_is_one_event(broker: RunningBroker) -> None:
    fields = {"Barco-Deliver-After": "200", "Idempotency-Key": "once"}
    assert send(broker, b"1", fields, {"slice": 2}).status == 202
    again = send(broker, b"1", fields, {"slice": 2})
    assert (again.status, again.headers.get("barco-duplicate")) == (204, "true")
    named = {"Producer-Id": "p", "Producer-Epoch": "0", "Barco-Deliver-After": "200"}
    assert send(broker, b"2", {**named, "Producer-Seq": "0"}, {"slice": 2}).status == 202
    assert send(broker, b"2", {**named, "Producer-Seq": "0"}, {"slice": 2}).status == 204
    assert send(broker, b"3", {**named, "Producer-Seq": "1"}, {"slice": 2}).status == 202
    gap = send(broker, b"5", {**named, "Producer-Seq": "3"}, {"slice": 2})
    assert (gap.status, gap.json["expectedSeq"]) == (409, "2")
    assert [line["value"] for line in until(broker, 3)] == [1, 2, 3]


NO_DELAYS: tuple[dict[str, str], ...] = (
    {"Barco-Deliver-At": "tomorrow"},
    {"Barco-Deliver-At": "2026-11-27T08:30:00"},
    {"Barco-Deliver-At": "1764230400"},  # Seconds.
    {"Barco-Deliver-At": "1764230400000000"},  # Microseconds.
    {"Barco-Deliver-At": ""},
    {"Barco-Deliver-After": "-1"},
    {"Barco-Deliver-After": "1 week"},
    {"Barco-Deliver-After": ""},
    {"Barco-Deliver-After": "1s", "Barco-Deliver-At": "2999-01-01T00:00:00Z"},
    {"Barco-Deliver-After": "1s", "Content-Type": "application/x-ndjson"},
    {"Barco-Deliver-After": "1s", "Content-Type": "application/vnd.barco.events+x-ndjson"},
    {"Barco-Deliver-After": "1s", "Content-Type": "application/vnd.barco.batch"},
)


def test_what_is_no_delay_is_refused(broker: RunningBroker) -> None:
    for fields in NO_DELAYS:
        answer = send(broker, b"{}", fields)
        assert (answer.status, answer.json["type"]) == (400, "urn:barco:problem:invalid-delay"), (
            fields,
            answer,
        )


def test_other_refusals(broker: RunningBroker) -> None:
    for fields in (
        {"Barco-Deliver-At": "2999-01-01T00:00:00Z"},
        {"Barco-Deliver-After": "200h"},
    ):
        answer = send(broker, b"1", fields)
        assert answer.json["type"] == "urn:barco:problem:delay-too-long", answer
        assert answer.status == 400 and answer.json["limit"] <= 168 * 3_600_000
    soon = {"Barco-Deliver-After": "1s"}
    given = send(broker, b"1", soon, {"timestamp": now_us()})
    assert given.json["type"] == "urn:barco:problem:invalid-delay"
    long = broker.request("POST", f"/v1/topic/{'x' * 118}/messages", {}, body=b"1", headers=soon)
    assert long.json["type"] == "urn:barco:problem:invalid-delay"
    for name in ("__delayed.t", "__delays"):
        answer = broker.request("POST", f"/v1/topic/{name}/messages", {}, body=b"1")
        assert answer.status == 403
        assert broker.request("GET", f"/v1/topic/{name}/slices").status in (400, 403, 404)
    assert broker.request("GET", "/v1/topics").json["topics"] == []


def test_a_deleted_topic_takes_what_waits_along(broker: RunningBroker) -> None:
    assert send(broker, b"1", {}, {"slice": 0}).status == 200
    assert send(broker, b"2", {"Barco-Deliver-After": "1s"}, {"slice": 0}).status == 202
    assert broker.request("DELETE", "/v1/topics/t").status < 300
    time.sleep(1.3)
    assert send(broker, b"3", {"Barco-Deliver-After": "1"}, {"slice": 0}).status == 202
    assert [line["value"] for line in until(broker, 1)] == [3]


def test_a_delayed_event_is_cancelled(broker: RunningBroker) -> None:
    """By its id, durably, and only as long as it waits."""

    def cancel(id: str, topic: str = "t") -> int:
        return broker.request("DELETE", f"/v1/topic/{topic}/delayed/{id}").status

    fields = {"Barco-Deliver-After": "15s"}  # They wait still when they are cancelled.
    ids = []
    for number in range(3):
        answer = send(broker, b"%d" % number, fields, {"slice": 1})
        assert answer.status == 202, answer
        ids.append(answer.json["delayed"])
    slice, epoch, offset = ids[1].split(".")
    for wrong in (f"{slice}.{epoch}.9", f"{slice}.{int(epoch) + 1}.{offset}", f"99999.{epoch}.0"):
        assert cancel(wrong) == 404, wrong
    assert (cancel("x"), cancel(ids[1], "other")) == (400, 404)
    assert (cancel(ids[1]), cancel(ids[1])) == (204, 204)
    broker.kill()
    broker.start()
    found = [line["value"] for line in until(broker, 2)]
    assert found == [0, 2]
    time.sleep(0.2)
    assert len(lines(broker)) == 2 and cancel(ids[0]) == 404 and cancel(ids[1]) == 404


def test_the_library_and_the_command(broker: RunningBroker) -> None:
    """Batches whose events are due at their own times; and the ids of what waits."""
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    soon = datetime.now(UTC) + timedelta(seconds=10)  # Behind the cancelling.
    with barco.Producer(endpoint) as producer:
        for wrong in (
            {"deliver_at": soon.replace(tzinfo=None)},
            {"deliver_at": soon, "deliver_after": 1.0},
            {"deliver_after": -1.0},
            {"deliver_after": timedelta(days=8)},
            {"deliver_after": 1.0, "timestamp_us": now_us()},
        ):
            with pytest.raises(ValueError, match="deliver|due"):
                producer.send("t", b"x", **wrong)
        given = [
            producer.send("t", b"%d" % n, f"k{n % 5}", headers={"n": b"%d" % n}, deliver_at=soon)
            for n in range(40)
        ]
        given += [producer.send("t", b"%d" % n, deliver_after=1.5) for n in range(40, 50)]
        plain = producer.send("t", b"50", "k1").result(SECONDS)
        acks = [future.result(SECONDS) for future in given]
    assert plain.offset is not None and plain.delayed is None
    ids = [ack.delayed for ack in acks]
    assert len(set(ids)) == 50 and all(ack.offset is None and ack.topic == "t" for ack in acks)
    with barco.Admin(endpoint) as admin:
        admin.cancel_delayed("t", str(ids[7]))
        with pytest.raises(BarcoError) as refused:
            admin.cancel_delayed("t", "1.1.999")
        assert refused.value.status == 404
    run = [sys.executable, "-m", "barco", "produce", "t", "--endpoint", endpoint]
    told = subprocess.run(
        [*run, "--deliver-after", "1s"], input=b"51\n52\n", capture_output=True, check=False
    )
    assert told.returncode == 0, told.stderr
    for wrong_text in ("1", "soon", "9999999999d", "8d"):
        told = subprocess.run(
            [*run, "--deliver-after", wrong_text], capture_output=True, check=False
        )
        assert told.returncode == 2, wrong_text
    found = until(broker, 52)
    assert sorted(line["value"] for line in found) == sorted({*range(53)} - {7})
    by_value = {line["value"]: line for line in found}
    assert by_value[9]["headers"] == {"n": "9"} and by_value[9]["key"] == "k4"
    assert by_value[9]["timestamp"] == (soon - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


def test_a_batch_is_refused_as_a_whole(broker: RunningBroker) -> None:
    """Without times there is nothing to wait for; one that is too far is too far for all."""
    fields = {"Content-Type": "application/vnd.barco.batch", "Barco-Deliver-At": "timestamp"}
    now = now_us()
    far = now + 169 * 3_600_000_000
    for times, type in (
        (None, "invalid-delay"),
        ([now, far], "delay-too-long"),
        ([now, 5], "invalid-delay"),
    ):
        numbers = None if times is None else {"timestamp": times}
        batch = _native.batch_encode([b"1", b"2"], None, numbers)
        answer = send(broker, batch, fields, {"slice": 0})
        assert (answer.status, answer.json["type"]) == (400, f"urn:barco:problem:{type}"), times
    batch = _native.batch_encode([b"1", b"2"], [b"a", b"b"], {"timestamp": [now + 900_000, now]})
    answer = send(broker, batch, fields)
    assert answer.status == 202, answer
    parts = answer.json.get("slices", [answer.json])
    assert sum(part["count"] for part in parts) == 2 and all("delayed" in part for part in parts)
    assert sorted(line["value"] for line in until(broker, 2)) == [1, 2]
    assert send(broker, b"1", {"Barco-Deliver-At": "timestamp"}).status == 400


def test_a_named_producer_goes_on_with_what_is_delayed(broker: RunningBroker) -> None:
    """Whoever has the name next takes a later epoch of the delayed ones too: or its first event
    would pass for stored."""
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    for number in range(3):
        with barco.Producer(endpoint, producer_id="p") as producer:
            ack = producer.send("t", b"%d" % number, "k", deliver_after=0.3).result(SECONDS)
            assert ack.delayed is not None, "it is a new one"
    path = "/v1/topic/t/producers/p"
    [told] = broker.request("GET", path, {"delayed": "1"}).json["slices"]
    assert (told["epoch"], told["lastSeq"]) == (2, "0")
    assert broker.request("GET", path).json["slices"] == []
    assert broker.request("GET", path, {"delayed": "yes"}).status == 400
    assert [line["value"] for line in until(broker, 3)] == [0, 1, 2]


KEYED = {"Content-Type": "application/vnd.barco.events+x-ndjson"}


def test_lines_say_when_they_are_due(broker: RunningBroker) -> None:
    """Each for itself: in the order of their times within a slice, once, and through a kill."""
    start = now_us() // 1000 + 6000  # Behind the first look.
    soon = datetime.fromtimestamp((start + 200) / 1000, UTC).isoformat()
    events: list[dict[str, Any]] = [
        {"key": "a", "value": 3, "deliverAt": start + 300, "headers": {"n": "3"}},
        {"key": "a", "value": 1, "deliverAt": str(start + 100)},
        {"value": None, "key": "b", "deliverAfter": "6s"},
        {"key": "a", "value": 2, "deliverAt": soon},
        {"key": "a", "value": 4, "deliverAfter": 10_000},
        {"key": "a", "value": 0, "deliverAfter": 0},
        {"key": "a", "value": 5, "deliverAfter": "10s"},  # At the same time, behind the other.
    ]
    body = "\n".join(map(json.dumps, events)).encode()
    before = now_us()
    answer = send(broker, body, KEYED)
    after = now_us()
    assert answer.status == 202, answer
    parts = answer.json.get("slices", [answer.json])
    assert answer.json["topic"] == "t" and sum(part["count"] for part in parts) == 7
    assert all(part["delayed"].startswith(f"{part['rangeIndex']}.") for part in parts)
    assert [line["value"] for line in until(broker, 1)] == [0]
    broker.kill()
    broker.start()
    found = {line["value"]: line for line in until(broker, 7)}
    ordered = [line["value"] for line in lines(broker) if line["key"] == "a"]
    assert ordered == [0, 1, 2, 3, 4, 5] and found[None]["key"] == "b"
    assert found[3]["headers"] == {"n": "3"} and found[3]["timestamp"] == (start + 300) * 1000
    assert found[2]["timestamp"] == (start + 200) * 1000
    due = found[4]["timestamp"]
    assert before + 10_000_000 <= due == found[5]["timestamp"] <= after + 10_000_000
    time.sleep(0.2)
    assert len(lines(broker)) == 7


def test_lines_that_can_not_wait_are_named(broker: RunningBroker) -> None:
    """Nothing of their body is stored: also where others of it could have been."""
    good, plain = b'{"value":1,"deliverAfter":1}\n', b'{"value":1}'
    for body, type, line in (
        (good + b'{"value":1,"deliverAt":"tomorrow"}', "invalid-delay", 2),
        (good * 2 + b'{"value":1,"deliverAt":1764230400}', "invalid-delay", 3),
        (b'{"value":1,"timestamp":5,"deliverAfter":1}', "invalid-delay", 1),
        (good + b'{"value":1,"deliverAfter":"200h"}', "delay-too-long", 2),
        (good + plain, "malformed-line", 2),
        (plain + b"\n" + good, "malformed-line", 2),
        (good + b'{"value":1,"deliverAfter":1', "malformed-line", 2),
    ):
        answer = send(broker, body, KEYED)
        assert (answer.status, answer.json["type"]) == (400, f"urn:barco:problem:{type}"), body
        assert answer.json["line"] == line, body
    assert send(broker, good, KEYED, {"slice": 0}).status == 202
    for fields, query in (({"Barco-Deliver-After": "1s"}, {}), ({}, {"timestamp": now_us()})):
        answer = send(broker, good, {**KEYED, **fields}, query)
        assert answer.json["type"] == "urn:barco:problem:invalid-delay"
        assert "line" not in answer.json
    path = f"/v1/topic/{'x' * 118}/messages"
    answer = broker.request("POST", path, {}, body=good, headers=KEYED)
    assert answer.json["type"] == "urn:barco:problem:invalid-delay"
    assert [line["value"] for line in until(broker, 1)] == [1]
    time.sleep(0.2)
    assert len(lines(broker)) == 1


def test_repeated_lines_are_one_body(broker: RunningBroker) -> None:
    """With a sequence of their own, beside that of what is not delayed."""
    named = {**KEYED, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    delayed = b'{"key":"k","value":1,"deliverAfter":100}\n{"key":"k","value":2,"deliverAfter":90}'
    assert send(broker, delayed, named).status == 202
    assert send(broker, delayed, named).status == 204
    assert send(broker, b'{"key":"k","value":0}', named).status == 200
    found = [line["value"] for line in until(broker, 3)]
    assert sorted(found) == [0, 1, 2] and found.index(2) < found.index(1)


def test_what_was_accepted_is_delivered_whatever_the_limit_is_by_then(
    broker: RunningBroker,
) -> None:
    """A smaller one, since: what is due behind it does not wait for somebody to raise it."""
    large = json.dumps("x" * 600_000).encode()
    for value, after in ((large, "4s"), (b"1", "4001ms")):
        assert send(broker, value, {"Barco-Deliver-After": after}, {"slice": 0}).status == 202
    broker.stop()
    broker.settings |= {"limits_event_bytes_max": 65_536, "limits_request_bytes_max": 65_536}
    broker.start()
    assert send(broker, large, {"Barco-Deliver-After": "1s"}, {"slice": 0}).status == 413
    assert [line["value"] for line in until(broker, 2)] == ["x" * 600_000, 1]
