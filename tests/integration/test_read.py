"""Reads without a group and administration, against real brokers."""

import json
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from running import Answer, RunningBroker, key_of
from schema import wrong

from barco import _native

TOKEN = "-9223372036854775808"


def events(broker: RunningBroker, slice_: int, *, accept: str = "", **query: Any) -> Answer:
    if "from_" in query:
        query["from"] = query.pop("from_")
    headers = {"Accept": accept} if accept else {}
    path = f"/v1/topic/t/slices/{TOKEN}/{slice_}/events"
    return broker.request("GET", path, query, headers=headers)


def read_all(broker: RunningBroker, slice_: int, start: str, **query: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        answer = events(broker, slice_, from_=start, **query)
        if answer.status == 204:
            return found
        assert answer.status == 200, answer
        found += [value for item in answer.json for value in item["values"]]
        start = answer.headers["barco-next-cursor"]


def test_cursors_lead_through_every_generation(broker: RunningBroker) -> None:
    key = key_of(broker, "t", 5)
    for generation in range(3):
        for number in range(20):
            broker.produce("t", f"{generation * 20 + number}\n".encode(), key=key)
        broker.kill()
        broker.restart()
    assert read_all(broker, 5, "earliest", maxBytes=20) == list(range(60))
    answer = events(broker, 5)
    assert [item["version"] for item in answer.json] == [2, 3, 4]
    slices = broker.request("GET", "/v1/topic/t/slices").json["slices"]
    assert slices[5]["endOffset"] == "60" and slices[4]["endOffset"] == "0"
    assert read_all(broker, 5, slices[5]["start"]) == list(range(60))
    answer = events(broker, 5, from_="latest", waitMs=100)
    assert answer.status == 204 and answer.headers["barco-next-cursor"] == slices[5]["end"]


def test_some_columns_up_to_a_place(broker: RunningBroker) -> None:
    key = key_of(broker, "t", 5)
    for number in range(8):
        broker.produce("t", f"{number}\n{number + 10}\n".encode(), key=key)
    accept = "application/vnd.barco.chunks"

    def both(to: int) -> tuple[bytes, bytes]:
        place = {"from_": "earliest", "to": f"00000002-{to:016x}"}
        cut = events(broker, 5, accept=accept, columns="value", **place)
        whole = events(broker, 5, accept=accept, **place)
        assert whole.headers["barco-next-cursor"] == cut.headers["barco-next-cursor"]
        assert cut.headers["barco-next-cursor"].endswith(f"-{min(to, 16):016x}")
        return whole.body, cut.body

    before = [both(to) for to in (1, 7, 8, 16)]
    broker.kill()
    broker.restart()  # What was in memory is read from the disk now.
    for (whole, cut), again in zip(before, (both(to) for to in (1, 7, 8, 16)), strict=True):
        assert cut == _native.chunks_project(whole, _native.COLUMNS["value"])
        assert len(whole) > len(cut) and (whole, cut) == again
    ends = [sum(chunk[6] for chunk in _native.chunks_scan(whole)) for whole, _ in before]
    assert ends == [2, 8, 8, 16]


def test_replay_is_immutable(broker: RunningBroker) -> None:
    key = key_of(broker, "t", 0)
    for number in range(50):
        broker.produce("t", f"{number}\n".encode(), key=key)
    chunks = "application/vnd.barco.chunks"
    before = events(broker, 0, accept=chunks)
    broker.kill()
    broker.restart()
    assert events(broker, 0, accept=chunks).body == before.body


def test_timestamps(broker: RunningBroker) -> None:
    key = key_of(broker, "t", 3)
    stamps = []
    for number in range(5):
        stamps.append(time.time_ns() // 1000)
        broker.produce("t", f"{number}\n".encode(), key=key)
        time.sleep(0.02)
    for number, stamp in enumerate(stamps):
        assert read_all(broker, 3, f"timestamp:{stamp}") == list(range(number, 5))
    broker.kill()
    broker.restart()
    for number, stamp in enumerate(stamps):
        assert read_all(broker, 3, f"timestamp:{stamp}") == list(range(number, 5))
    assert read_all(broker, 3, f"timestamp:{2**60}") == []


def test_a_slice_can_be_followed(broker: RunningBroker) -> None:
    key = key_of(broker, "t", 6)
    broker.produce("t", b"0\n", key=key)
    place = events(broker, 6).headers["barco-next-cursor"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(events, broker, 6, from_=place, waitMs=20_000)
        time.sleep(0.1)
        broker.produce("t", b"1\n", key=key)
        assert waiting.result(30).json[0]["values"] == [1]


def test_a_topic_with_more_events_than_memory(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker(
        workers=1,
        limits_memory_bytes=32 << 20,
        limits_request_bytes_max=1 << 20,
        limits_event_bytes_max=1 << 20,
        storage_segment_bytes=8 << 20,
    )
    key = key_of(broker, "t", 2)
    for number in range(80):
        body = f"{number:04d}".encode() + os.urandom(500_000)
        broker.produce("t", body, key=key, kind="application/octet-stream")
    seen: list[int] = []
    place = "earliest"
    while True:
        answer = events(
            broker, 2, from_=place, maxBytes=4 << 20, accept="application/vnd.barco.chunks"
        )
        if answer.status == 204:
            break
        assert answer.status == 200, answer.body
        place = answer.headers["barco-next-cursor"]
        for at, *_ in _native.chunks_scan(answer.body):
            seen += [int(value[:4]) for _, _, _, value in _native.chunk_events(answer.body, at)]
    assert seen == list(range(80))


def test_what_is_in_memory_is_not_read_from_disk(
    start_broker: Callable[..., RunningBroker],
) -> None:
    """Not when its segment is sealed, either."""
    broker = start_broker(
        workers=1,
        limits_memory_bytes=32 << 20,
        limits_request_bytes_max=1 << 20,
        limits_event_bytes_max=1 << 20,
        storage_segment_bytes=4 << 20,
    )
    key = key_of(broker, "t", 2)
    for _ in range(12):
        broker.produce("t", os.urandom(500_000), key=key, kind="application/octet-stream")

    def figure(name: str) -> int:
        lines = broker.request("GET", "/metrics").body.decode().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(name))

    deadline = time.monotonic() + 60
    while not figure("barco_storage_sealed_segments"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = figure("barco_storage_read_bytes_total")
    place, count = "earliest", 0
    while count < 12:
        answer = events(
            broker, 2, from_=place, maxBytes=4 << 20, accept="application/vnd.barco.chunks"
        )
        count += sum(row[6] for row in _native.chunks_scan(answer.body))
        place = answer.headers["barco-next-cursor"]
    assert figure("barco_storage_read_bytes_total") == before


def test_topics_live_and_die(broker: RunningBroker) -> None:
    body = json.dumps({"retentionHours": 5}).encode()
    assert broker.request("PUT", "/v1/topics/t", body=body).status == 201
    assert broker.request("GET", "/v1/topics/t").json["retentionHours"] == 5
    broker.produce("t", b"1\n2\n", key="x")
    broker.produce("auto", b"1\n")
    broker.kill()
    broker.restart()
    topics = broker.request("GET", "/v1/topics").json["topics"]
    assert [(t["topic"], t["retentionHours"], t["events"]) for t in topics] == [
        ("auto", 168, 1),
        ("t", 5, 2),
    ]
    assert broker.request("DELETE", "/v1/topics/t").status == 204
    assert broker.request("GET", "/v1/topics/t").status == 404
    broker.register("c", "t")
    assert broker.values("c") == []
    broker.kill()
    broker.restart()
    assert broker.request("DELETE", "/v1/topics/t").status == 404
    assert broker.request("PUT", "/v1/topics/__x").status == 400
    broker.produce("t", b"3\n", key="x")
    broker.register("c", "t")
    assert broker.values("c", waitMs=1000) == [3]


def test_groups_are_moved_durably(broker: RunningBroker) -> None:
    for slice_ in range(8):
        broker.produce("t", b"1\n", key=key_of(broker, "t", slice_))
    broker.register("c", "t")
    assert len(broker.values("c")) == 8
    assert broker.commit("c").status == 204
    assert broker.request("GET", "/v1/groups/g").json["lag"] == 0
    body = json.dumps({"topic": "t", "to": "earliest"}).encode()
    answer = broker.request("PUT", "/v1/groups/g/positions", body=body)
    assert answer.status == 200
    broker.kill()
    broker.restart()
    group = broker.request("GET", "/v1/groups/g").json
    assert group["lag"] == 8 and group["members"] == []
    broker.register("c", "t")
    assert len(broker.values("c")) == 8
    broker.goodbye("c")
    assert broker.request("DELETE", "/v1/groups/g").status == 204
    assert broker.request("GET", "/v1/groups/g").status == 404


@pytest.mark.parametrize("listener", ["discovery", "produce", "consume", "metrics"])
def test_every_listener_answers_for_everything(broker: RunningBroker, listener: str) -> None:
    for path in ("/status", "/v1/brokers", "/v1/topology", "/v1/topics", "/v1/groups"):
        answer = broker.request("GET", path, listener=listener)
        assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert broker.request("GET", "/openapi.json", listener=listener).json["openapi"] == "3.1.0"
    text = broker.request("GET", "/metrics", listener=listener).body.decode()
    assert "\nbarco_workers_up 2\n" in text
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line[0] != "#"]
    assert len(series) == len(set(series))


def test_the_status_is_what_openapi_says(broker: RunningBroker) -> None:
    schemas = broker.request("GET", "/openapi.json").json["components"]["schemas"]
    status = broker.request("GET", "/status").json
    assert not wrong(status, schemas["Status"])
    assert status["shards"][0]["storage"]["setAside"] == 0
    for path in ("/ready", "/ready?insync"):
        assert not wrong(broker.request("GET", path).json, schemas["Ready"])
    for name in ("news", "ready"):
        assert wrong(status | {name: True}, schemas["Status"]), "the check finds nothing"
    del status["shards"][0]["storage"]["setAside"]
    assert wrong(status, schemas["Status"]) == [".shards[].storage.setAside is missing"]


def test_shapes_on_the_wire(broker: RunningBroker) -> None:
    head = broker.request("HEAD", "/v1/topics")
    get = broker.request("GET", "/v1/topics")
    assert head.body == b"" and head.headers["content-length"] == get.headers["content-length"]
    answer = broker.request("GET", "/v1/topic/t/messages")
    assert answer.status == 405 and "POST" in answer.headers["allow"]
    answer = broker.request("OPTIONS", "/v1/consumer/poll")
    assert answer.status == 204 and answer.headers["allow"] == "OPTIONS, POST"
    assert broker.request("DELETE", "/status").headers["allow"] == "GET, HEAD, OPTIONS"
    assert broker.request("GET", "/nowhere").status == 404
    with socket.create_connection(("127.0.0.1", broker.port())) as raw:
        raw.settimeout(60)
        raw.sendall(
            b"HEAD /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"
            b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        received = b""
        while b"not-found" not in received:
            data = raw.recv(65_536)
            assert data, received
            received += data
    assert received.count(b"HTTP/1.1 ") == 2 and b"HTTP/1.1 404 Not Found" in received
