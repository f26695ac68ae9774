"""Spans of traced requests at a collector: whose, from when to when, and that nobody waits for
one that takes nothing."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from collecting import Collector
from running import RunningBroker

import barco
from barco import _native

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

PRODUCE = "POST /v1/topic/{topic}/messages"
STAGES = ("receive", "gather", "write", "answer")
PARENT = "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


def traceparent(flags: str = "01") -> tuple[str, dict[str, str]]:
    trace = secrets.token_hex(16)
    return trace, {"traceparent": f"00-{trace}-{PARENT}-{flags}"}


def told(span: Any) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def parts_of(collector: Collector, whole: Any) -> dict[str, Any]:
    """By their names, the first one first."""
    found = collector.of(whole.trace_id.hex())
    return {span.name: span for span in found if span.parent_span_id == whole.span_id}


def whole_of(collector: Collector, trace: str) -> Any:
    """The request, once all that its process tells of it is there."""

    def found() -> Any:
        whole = [span for span in collector.of(trace) if span.name == PRODUCE]
        return whole[0] if whole and "answer" in parts_of(collector, whole[0]) else None

    collector.until(found)
    return found()


def handed_in(collector: Collector, trace: str) -> tuple[Any, Any] | None:
    """A hand-off, and what the process at its other end tells of it; None: nothing yet."""
    whole = whole_of(collector, trace)
    hand_off = parts_of(collector, whole).get("hand-off")
    over = parts_of(collector, hand_off).get("handed in") if hand_off else None
    return (hand_off, over) if over else None


def check_handed_in(collector: Collector, trace: str, request: str) -> None:
    """It has what its hand-off had, within that, stage by stage."""
    collector.until(lambda: handed_in(collector, trace))
    hand_off, over = handed_in(collector, trace) or (None, None)
    assert hand_off.kind == hand_off.SPAN_KIND_CLIENT and over.kind == over.SPAN_KIND_SERVER
    assert told(over)["http.response.status_code"] == 200
    assert told(over)["messaging.destination.name"] == "t"
    assert told(over)["messaging.batch.message_count"] == 1
    assert told(over)["barco.request.id"] == request
    parts = parts_of(collector, over)
    assert set(parts) >= {"gather", "write", "answer"}
    slack_ns = 10**6  # Each process sets its wall clock against the monotonic one by itself.
    assert hand_off.start_time_unix_nano <= over.start_time_unix_nano + slack_ns
    assert over.end_time_unix_nano <= hand_off.end_time_unix_nano + slack_ns
    at_ns = over.start_time_unix_nano
    for name in ("gather", "write"):
        assert at_ns <= parts[name].start_time_unix_nano <= parts[name].end_time_unix_nano
        at_ns = parts[name].start_time_unix_nano
    assert parts["answer"].end_time_unix_nano == over.end_time_unix_nano


def produce(broker: RunningBroker, key: str, headers: dict[str, str], body: bytes = b"1") -> int:
    path, query = "/v1/topic/t/messages", {"partitionKey": key}
    return broker.request("POST", path, query, body=body, headers=headers, shard=0).status


def test_a_produce_and_a_poll(
    start_broker: Callable[..., RunningBroker], collector: Collector
) -> None:
    broker = start_broker(trace_endpoint=collector.endpoint, workers=2)
    before_ns = time.time_ns()
    traces = []
    for each in range(40):  # Half of the keys are the other worker's.
        trace, headers = traceparent()
        assert produce(broker, f"k{each}", headers) == 200
        traces.append(trace)
        assert produce(broker, f"k{each}", {}) == produce(broker, "k", traceparent("00")[1]) == 200
    bad, headers = traceparent()
    headers["Content-Type"] = "application/vnd.barco.batch"
    answer = broker.request("POST", "/v1/topic/t/messages", body=b"{", headers=headers, shard=0)
    assert answer.status == 400
    register = {"consumerId": "c", "group": "g", "topic": "t", "onNewGroup": "startFromEarliest"}
    assert broker.request("PUT", "/v1/consumer/register", register).status == 200
    poll, headers = traceparent()
    answer = broker.request("POST", "/v1/consumer/poll", {"consumerId": "c"}, headers=headers)
    assert answer.status == 200
    wrong, headers = traceparent()
    assert broker.request("GET", "/v1/nothing/secret", headers=headers).status == 404
    expected = {*traces, bad, poll, wrong}
    collector.until(lambda: {span.trace_id.hex() for span in collector.spans} >= expected)
    names = set()
    for trace in traces:
        whole = whole_of(collector, trace)
        parts = parts_of(collector, whole)
        assert whole.parent_span_id.hex() == PARENT and whole.kind == whole.SPAN_KIND_SERVER
        assert told(whole)["messaging.destination.name"] == "t"
        assert told(whole)["messaging.batch.message_count"] == 1
        assert told(whole)["http.response.status_code"] == 200
        names.add(tuple(parts))
        at_ns = whole.start_time_unix_nano
        assert before_ns - 10**6 <= at_ns <= whole.end_time_unix_nano <= time.time_ns()
        for part in parts.values():  # One after the other, from the beginning to the end.
            assert part.parent_span_id == whole.span_id != part.span_id
            assert at_ns <= part.start_time_unix_nano <= part.end_time_unix_nano
            at_ns = part.end_time_unix_nano
        assert at_ns == whole.end_time_unix_nano
        spent = sum(p.end_time_unix_nano - p.start_time_unix_nano for p in parts.values())
        assert spent == whole.end_time_unix_nano - whole.start_time_unix_nano
        if "write" in parts:  # A write to a disk takes a while.
            assert parts["write"].end_time_unix_nano > parts["write"].start_time_unix_nano
    assert names == {STAGES, ("receive", "hand-off", "answer")}
    for each in range(20):
        trace, headers = traceparent()
        assert produce(broker, f"k{each}", headers | {"X-Request-Id": f"mine-{each}"}) == 200
        whole = whole_of(collector, trace)
        assert told(whole)["barco.request.id"] == f"mine-{each}"
        if "hand-off" in parts_of(collector, whole):
            check_handed_in(collector, trace, f"mine-{each}")
        expected.add(trace)
    (whole,) = (span for span in collector.of(bad) if span.name == PRODUCE)
    assert told(whole)["http.response.status_code"] == 400
    (whole,) = collector.of(poll)
    assert whole.name == "POST /v1/consumer/poll" and whole.parent_span_id.hex() == PARENT
    (whole,) = collector.of(wrong)
    assert whole.name == "GET none" and "secret" not in str(whole)
    assert {span.trace_id.hex() for span in collector.spans} == expected, "others said no"
    assert {each["service.name"] for each in collector.resources} == {"barco"}
    metrics = broker.request("GET", "/metrics").body.decode()
    assert "barco_spans_lost_total 0" in metrics


def test_a_checked_topic(start_broker: Callable[..., RunningBroker], collector: Collector) -> None:
    """Who looks at values answers in place of the core: the span has what was answered."""
    broker = start_broker(trace_endpoint=collector.endpoint, workers=1)
    settings = broker.request("PUT", "/v1/topics/t", body=b'{"schemaCheck": "reject"}')
    assert settings.status == 201
    none, headers = traceparent()  # Without an id, and the subject has no version.
    assert produce(broker, "k", headers | {"Content-Type": "application/json"}) == 422
    some, headers = traceparent()
    body = _native.batch_encode([None, b"x", None])
    headers["Content-Type"] = "application/vnd.barco.batch"
    assert broker.request("PUT", "/v1/topics/t", body=b'{"schemaCheck": "dead"}').status == 200
    path = "/v1/topic/t/messages"
    assert broker.request("POST", path, body=body, headers=headers, shard=0).status == 200
    for trace, status, count in ((none, 422, 0), (some, 200, 2)):
        collector.until(lambda trace=trace: collector.of(trace))
        (whole,) = (each for each in collector.of(trace) if each.name == PRODUCE)
        assert told(whole)["http.response.status_code"] == status
        assert told(whole)["messaging.batch.message_count"] == count


def test_one_in_some_where_nothing_is_said(
    start_broker: Callable[..., RunningBroker], collector: Collector
) -> None:
    broker = start_broker(trace_endpoint=collector.endpoint, trace_one_in=4, workers=1)
    for _ in range(400):
        assert produce(broker, "k", {}) == 200
        assert produce(broker, "k", traceparent("00")[1]) == 200
    last, headers = traceparent()
    assert produce(broker, "k", headers) == 200
    collector.until(lambda: collector.of(last))
    drawn = [span for span in collector.spans if span.name == PRODUCE and not span.parent_span_id]
    assert 40 < len(drawn) < 200, "100 are expected, and three in a million are out of this"
    assert len({span.trace_id for span in drawn}) == len(drawn)
    assert all(any(span.trace_id) and len(span.trace_id) == 16 for span in drawn)


def test_nobody_waits_for_a_collector(
    start_broker: Callable[..., RunningBroker], collector: Collector
) -> None:
    collector.status = 503
    broker = start_broker(trace_endpoint=collector.endpoint, workers=1)
    first, headers = traceparent()
    assert produce(broker, "k", headers) == 200
    collector.until(lambda: collector.posts >= 2)  # It is sent again,
    link = barco.Producer(f"127.0.0.1:{broker.port()}")
    link.send_many("t", [b"x"] * 100).result(60)
    link.close()
    collector.status = 200
    collector.until(lambda: collector.of(first))  # and was kept meanwhile.
    collector.close()
    for each in range(20):
        assert produce(broker, f"k{each}", traceparent()[1]) == 200
    assert broker.stop() == 0
    assert "takes no spans" in broker.log_path.read_text()


def test_off_there_are_none(broker: RunningBroker) -> None:
    assert produce(broker, "k", traceparent()[1]) == 200
    assert "barco_spans_exported_total" not in broker.request("GET", "/metrics").body.decode()


def test_a_ring_tells_when_a_follower_had_it(tmp_path: Path, collector: Collector) -> None:
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    ring = LocalCluster(tmp_path, hosts=tuple(f"{net}.{n + 1}" for n in range(3)), tied=True)
    ring.write()
    try:
        for ordinal in range(3):
            with ring.config(ordinal).open("a") as file:
                file.write(f'\n[trace]\nendpoint = "{collector.endpoint}"\none_in = 1\n')
            ring.start(ordinal)
        ring.wait_ready()
        with barco.Producer(f"{net}.1:9250") as producer:
            for each in range(100):
                producer.send("t", b"x", key=f"k{each}".encode()).result(60)
        collector.until(
            lambda: {"replicate", "write"} <= {span.name for span in list(collector.spans)}
        )
        found = [span for span in collector.spans if span.name == "replicate"]
        for span in found:
            parts = {each.name: each for each in collector.of(span.trace_id.hex())}
            if "write" not in parts or "answer" not in parts:
                continue  # The rest of it is still to come.
            write, answer = parts["write"], parts["answer"]
            assert span.start_time_unix_nano == write.start_time_unix_nano
            assert answer.start_time_unix_nano >= span.end_time_unix_nano
        assert len({each["service.instance.id"] for each in collector.resources}) > 1
    finally:
        for ordinal in range(3):
            ring.kill(ordinal)
