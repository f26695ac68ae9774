"""The public HTTP contract of produce, against real brokers on both engines."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest
from running import Answer, RunningBroker, key_of

from barco import _native

TOKEN = "-9223372036854775808"
NDJSON = "application/x-ndjson"
BATCH = "application/vnd.barco.batch"
PROBLEM = "application/problem+json"
STAMP = 1_700_000_000_000_000


@pytest.fixture(scope="module", params=["io_uring", "epoll"])
def contract(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A broker with two workers for the whole module: every test has topics of its own."""
    broker = RunningBroker(tmp_path_factory.mktemp("contract") / "data", engine=request.param)
    broker.start()
    yield broker
    broker.end()


def send(broker: RunningBroker, topic: str, body: bytes, kind: str = "", **more: Any) -> Answer:
    headers = dict(more.pop("headers", {}))
    if kind:
        headers["Content-Type"] = kind
    path = f"/v1/topic/{topic}/messages"
    listener = more.pop("listener", "produce")
    return broker.request("POST", path, more, body=body, headers=headers, listener=listener)


def events(broker: RunningBroker, topic: str) -> list[dict[str, Any]]:
    """Every event of a topic, slice by slice."""
    found = []
    for one in broker.request("GET", f"/v1/topic/{topic}/slices").json["slices"]:
        path = f"/v1/topic/{topic}/slices/{one['token']}/{one['index']}/events"
        answer = broker.request("GET", path, headers={"Accept": NDJSON})
        assert answer.status in (200, 204), answer
        found += [json.loads(line) for line in answer.body.splitlines()]
    return found


def values(broker: RunningBroker, topic: str) -> list[Any]:
    return [event["value"] for event in events(broker, topic)]


# --- Content types ----------------------------------------------


def test_the_answer_of_a_produce(contract: RunningBroker) -> None:
    answer = send(contract, "answer", b'{"a":1}', "application/json", partitionKey="k")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"topic", "token", "rangeIndex", "version", "startOffset", "count"}
    assert answer.json["topic"] == "answer" and answer.json["token"] == TOKEN
    assert (answer.json["startOffset"], answer.json["count"]) == ("0", 1)
    assert send(contract, "answer", b"2", partitionKey="k").json["startOffset"] == "1"
    for preference in ("return=minimal", "Return=Minimal"):
        answer = send(contract, "answer", b"3", headers={"Prefer": preference})
        assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize(
    ("kind", "body", "stored"),
    [
        ("application/json", b'{"a": 1}\n', [{"a": 1}]),
        ("application/json; charset=utf-8", b"[1,2]", [[1, 2]]),
        (NDJSON, b"1\n2\n3", [1, 2, 3]),
        (NDJSON + "; charset=utf-8", b"1\r\n\r\n2\r\n", [1, 2]),
        ("APPLICATION/X-NDJSON ;charset=UTF-8", b"1\n2", [1, 2]),
        ("application/octet-stream", b"1\n2\n", ["1\n2\n"]),
        ("text/plain", "grüß".encode(), ["grüß"]),
        ("application/octet-stream", b"\xff\x00", [{"base64": "/wA="}]),
        ("", b"bare", ["bare"]),
    ],
)
def test_content_types(contract: RunningBroker, kind: str, body: bytes, stored: list[Any]) -> None:
    topic = f"kind-{abs(hash((kind, body, contract.engine)))}"
    answer = send(contract, topic, body, kind, partitionKey="k")
    assert (answer.status, answer.json["count"]) == (200, len(stored))
    assert values(contract, topic) == stored


def test_batches(contract: RunningBroker) -> None:
    words = [b"%d" % n for n in range(1000)]
    answer = send(contract, "batch", _native.batch_encode(words, None, None), BATCH)
    assert (answer.status, answer.json["count"]) == (200, 1000)
    assert values(contract, "batch") == list(range(1000))
    keys = [b"k%d" % (n % 50) for n in range(1000)]
    stamps = [1_700_000_000_000_000 + n for n in range(1000)]
    answer = send(
        contract, "keyed", _native.batch_encode(words, keys, {"timestamp": stamps}), BATCH
    )
    assert answer.status == 200 and answer.json["count"] == 1000
    assert len(answer.json["slices"]) == 8
    assert sum(part["count"] for part in answer.json["slices"]) == 1000
    found = events(contract, "keyed")
    assert {e["value"]: (e["key"], e["timestamp"]) for e in found} == {
        n: (f"k{n % 50}", 1_700_000_000_000_000 + n) for n in range(1000)
    }
    by_key: dict[str, list[int]] = {}
    for event in found:
        by_key.setdefault(event["key"], []).append(event["value"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    one = [key_of(contract, "keyed", 6).encode()] * 1000
    answer = send(contract, "whole", _native.batch_encode(words, one, None), BATCH)
    assert (answer.json["rangeIndex"], answer.json["count"]) == (6, 1000)
    assert send(contract, "whole", b"BBAT" + bytes(40), BATCH).status == 400


def test_timestamps_out_of_order_keep_the_order_of_events(contract: RunningBroker) -> None:
    stamps = [1_700_000_000_000_000 + (n * 7919) % 1000 for n in range(1000)]
    words = [b"%d" % n for n in range(1000)]
    keys = [b"%d" % (n % 20) for n in range(1000)]
    assert (
        send(
            contract, "order", _native.batch_encode(words, keys, {"timestamp": stamps}), BATCH
        ).status
        == 200
    )
    found = {event["value"]: event for event in events(contract, "order")}
    assert [found[n]["timestamp"] for n in range(1000)] == stamps


def test_keys_and_timestamps(contract: RunningBroker) -> None:
    cases = {"a+b": "a b", "a%20b": "a b", "a%2Bb": "a+b", "%C3%A9": "é", "": "", "%00": "\0"}
    for number, raw in enumerate(cases):
        path = f"/v1/topic/keys/messages?partitionKey={raw}&timestamp={STAMP + number}"
        answer = contract.request("POST", path, body=b"%d" % number, listener="produce")
        assert answer.status == 200, answer
    found = {event["value"]: event for event in events(contract, "keys")}
    assert [found[n]["key"] for n in range(len(cases))] == list(cases.values())
    assert [found[n]["timestamp"] for n in range(len(cases))] == [STAMP + n for n in range(6)]
    assert send(contract, "keys", b"x", partitionKey=b"\xff").status == 200
    before = time.time_ns() // 1000
    send(contract, "clock", b"1")
    assert before <= events(contract, "clock")[0]["timestamp"] <= time.time_ns() // 1000
    for wrong in ("0", "-1", "x", "1.5", str(2**63)):
        answer = send(contract, "keys", b"x", timestamp=wrong)
        assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM)


# --- Idempotence ----------------------------------------------


def numbered(name: str, epoch: int, seq: int) -> dict[str, str]:
    return {"Producer-Id": name, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


def test_producers(start_broker: Callable[..., RunningBroker]) -> None:
    """200 new, 204 duplicate, 403 stale epoch, 409 gap; on every worker, and after kill -9."""
    broker = start_broker()

    def put(name: str, epoch: int, seq: int, shard: int, **query: str) -> Answer:
        body = f"{name}/{epoch}/{seq}".encode()
        path = "/v1/topic/once/messages"
        return broker.request(
            "POST", path, query, body=body, headers=numbered(name, epoch, seq), shard=shard
        )

    for name in ("a", "b", "c", "d"):
        assert put(name, 0, 5, 0).status == 409
        for seq in range(4):
            assert put(name, 0, seq, seq % 2).status == 200
            assert put(name, 0, seq, (seq + 1) % 2).status == 204
        gap = put(name, 0, 9, 1)
        assert (gap.status, gap.json["expectedSeq"]) == (409, "4")
        assert put(name, 1, 0, 0).status == 200
        assert put(name, 0, 4, 1).status == 403
    broker.kill()
    broker.restart()
    for shard in (0, 1):
        for name in ("a", "b", "c", "d"):
            assert put(name, 1, 0, shard).status == 204, "remembered"
            assert put(name, 0, 4, shard).status == 403
    assert put("a", 1, 1, 0).status == 200
    assert len(events(broker, "once")) == 4 * 5 + 1


def test_duplicates_in_flight(contract: RunningBroker) -> None:
    """The same event many times at once over both workers: stored once, and 200 once."""

    def put(number: int) -> int:
        headers = numbered(f"p{number // 16}", 0, 0)
        path = "/v1/topic/flight/messages"
        answer = contract.request(
            "POST", path, body=b"%d" % (number // 16), headers=headers, shard=number % 2
        )
        return answer.status

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(put, range(320)))
    assert sorted(set(statuses)) == [200, 204] and statuses.count(200) == 20
    assert sorted(values(contract, "flight")) == list(range(20))


def test_idempotency_keys(contract: RunningBroker) -> None:
    key = {"Idempotency-Key": "order-17"}
    assert send(contract, "shots", b"1", headers=key).status == 200
    duplicate = send(contract, "shots", b"1", headers=key)
    assert (duplicate.status, duplicate.body) == (204, b"")
    # A producer that happens to be called so is somebody else.
    assert send(contract, "shots", b"2", headers=numbered("order-17", 0, 0)).status == 200
    assert send(contract, "shots", b"3", headers={"Idempotency-Key": "order-18"}).status == 200
    assert sorted(values(contract, "shots")) == [1, 2, 3]


@pytest.mark.parametrize(
    "headers",
    [
        {"Producer-Id": "p"},
        {"Producer-Epoch": "0", "Producer-Seq": "0"},
        numbered("p", 0, 0) | {"Producer-Seq": "-1"},
        numbered("p", 0, 0) | {"Producer-Epoch": "4294967296"},
        numbered("p" * 65, 0, 0),
        numbered("p", 0, 0) | {"Idempotency-Key": "k"},
        {"Idempotency-Key": "k" * 65},
    ],
)
def test_half_a_producer_is_refused(contract: RunningBroker, headers: dict[str, str]) -> None:
    answer = send(contract, "half", b"x", headers=headers)
    assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM)


# --- Workers ----------------------------------------------


def test_no_forward_names_the_owner_who_takes_it(contract: RunningBroker) -> None:
    for slice_ in range(8):
        key, owner = key_of(contract, "direct", slice_), slice_ // 4
        path = "/v1/topic/direct/messages"
        query, headers = {"partitionKey": key}, {"Barco-No-Forward": "1"}
        answer = contract.request("POST", path, query, body=b"1", headers=headers, shard=1 - owner)
        assert answer.status == 421 and answer.headers["barco-outcome"] == "not-written"
        assert answer.json["owner"] == contract.ready["shards"][owner]
        answer = contract.request("POST", path, query, body=b"1", headers=headers, shard=owner)
        assert (answer.status, answer.json["rangeIndex"]) == (200, slice_)
    spread = _native.batch_encode([b"1"] * 100, [b"%d" % n for n in range(100)], None)
    headers = {"Barco-No-Forward": "1", "Content-Type": BATCH}
    answer = contract.request(
        "POST", "/v1/topic/direct/messages", body=spread, headers=headers, shard=0
    )
    assert answer.status == 421
    assert len(events(contract, "direct")) == 8, "nothing of what was refused is stored"


def test_every_listener_takes_everything(contract: RunningBroker) -> None:
    for listener in ("discovery", "produce", "consume", "metrics"):
        for number in range(4):
            assert send(contract, "any", b"%d" % number, listener=listener).status == 200
        assert contract.request("GET", "/status", listener=listener).status == 200
    assert len(events(contract, "any")) == 16


# --- HTTP ----------------------------------------------


class Raw:
    """Bytes in, responses out."""

    def __init__(self, broker: RunningBroker, shard: int = 0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port(shard=shard)), 20)
        self.file = self.sock.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.sock.close()

    def answer(self, *, no_body: bool = False) -> Answer:
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().rstrip(b"\r\n").decode():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        size = 0 if no_body else int(headers.get("content-length", 0))
        return Answer(status, headers, self.file.read(size))

    @property
    def ended(self) -> bool:
        return self.file.read(1) == b""


def raw_produce(topic: str, body: bytes, query: str = "", more: str = "") -> bytes:
    return (
        f"POST /v1/topic/{topic}/messages{query} HTTP/1.1\r\nHost: localhost\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def test_keep_alive_close_and_http_1_0(contract: RunningBroker) -> None:
    with Raw(contract) as raw:
        for _ in range(3):
            raw.sock.sendall(raw_produce("alive", b"x"))
            answer = raw.answer()
            assert answer.status == 200 and "connection" not in answer.headers
            assert answer.headers["date"].endswith(" GMT")
        raw.sock.sendall(raw_produce("alive", b"x", more="Connection: close\r\n"))
        assert raw.answer().headers["connection"] == "close" and raw.ended
    with Raw(contract) as raw:
        raw.sock.sendall(b"GET /status HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert raw.answer().headers["connection"] == "keep-alive"
        raw.sock.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        assert raw.answer().headers["connection"] == "close" and raw.ended


def test_chunked_bodies(contract: RunningBroker) -> None:
    head = b"POST /v1/topic/chunked/messages HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    with Raw(contract) as raw:
        raw.sock.sendall(head + b"3\r\n123\r\n2;ext=1\r\n45\r\n0\r\nTrailer: x\r\n\r\n")
        assert raw.answer().status == 200
        raw.sock.sendall(head)
        for byte in b"a\r\n0123456789\r\n00\r\n\r\n":
            raw.sock.sendall(bytes([byte]))
        assert raw.answer().status == 200
        raw.sock.sendall(head + b"3\r\n123XX0\r\n\r\n")
        answer = raw.answer()
        assert answer.status == 400 and answer.headers["connection"] == "close" and raw.ended
    assert sorted(map(str, values(contract, "chunked"))) == ["0123456789", "12345"]


def test_methods_and_unknown_paths(contract: RunningBroker) -> None:
    with Raw(contract) as raw:
        raw.sock.sendall(b"HEAD /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = raw.answer(no_body=True)
        assert answer.status == 200 and int(answer.headers["content-length"]) > 0
        raw.sock.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.answer().status == 200, "HEAD sent no body"
    for path in ("/v1/topic/t/messages", "/status", "/v1/consumer/poll", "/v1/topics/t"):
        answer = contract.request("OPTIONS", path)
        assert answer.status in (200, 204) and answer.headers["allow"], answer
        allowed = answer.headers["allow"]
        answer = contract.request("PATCH", path)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)
        assert answer.headers["content-type"] == PROBLEM
    for path in ("//", "/v2", "/v1/topic", "/v1/topic/t", "/v1/topic/a/b/messages", "/statusx"):
        answer = contract.request("GET", path)
        assert (answer.status, answer.headers["content-type"]) == (404, PROBLEM), path
        assert {"type", "title", "status"} <= set(answer.json)


def test_refused_topics(contract: RunningBroker) -> None:
    for topic, status in (("__offsets", 403), ("__mine", 403), (".", 400), ("a" * 128, 400)):
        answer = send(contract, topic, b"x")
        assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM), topic
        assert answer.json["status"] == status and answer.json["type"].startswith("urn:barco:")
    for body, kind in ((b"", ""), (b"\n\n", NDJSON), (b"", BATCH)):
        assert send(contract, "none", body, kind).status == 400
    with Raw(contract) as raw:
        raw.sock.sendall(b"POST /v1/topic/t/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.answer().status == 411


def test_topics_that_have_to_be_made(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker(topics_auto_create="false")
    for shard in (0, 1):
        for number in range(4):
            path = "/v1/topic/unknown/messages"
            answer = broker.request("POST", path, {"partitionKey": number}, body=b"1", shard=shard)
            assert (answer.status, answer.headers["content-type"]) == (404, PROBLEM)
    query = {"consumerId": "c", "group": "g", "topic": "unknown"}
    assert broker.request("PUT", "/v1/consumer/register", query).status == 404
    assert broker.request("PUT", "/v1/topics/known").status in (200, 201)
    query["topic"] = "known"
    assert broker.request("PUT", "/v1/consumer/register", query).status == 200
    for shard in (0, 1):
        for number in range(4):
            path = "/v1/topic/known/messages"
            answer = broker.request("POST", path, {"partitionKey": number}, body=b"1", shard=shard)
            assert answer.status == 200, answer


def test_a_pipeline_of_everything_is_answered_in_order(contract: RunningBroker) -> None:
    """Own slices, hand-offs, answers of Python and refusals, interleaved."""
    own, other = key_of(contract, "mixed", 0), key_of(contract, "mixed", 7)
    expected: list[tuple[str, Any]] = []
    requests = []
    for number in range(100):
        for key, slice_ in ((own, 0), (other, 7)):
            requests.append(raw_produce("mixed", b"%d" % number, f"?partitionKey={key}"))
            expected.append(("produce", (slice_, str(number))))
        requests.append(b"GET /v1/topics/nope%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number)
        expected.append(("problem", 404))
        requests.append(raw_produce("..", b"x" * number))
        expected.append(("problem", 400))
        if number % 10 == 0:
            requests.append(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            expected.append(("status", "ready"))
    with Raw(contract) as raw, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(raw.sock.sendall, b"".join(requests))
        for what, which in expected:
            answer = raw.answer()
            if what == "produce":
                assert (answer.json["rangeIndex"], answer.json["startOffset"]) == which
            elif what == "problem":
                assert answer.status == which
            else:
                assert answer.json["status"] == which
        sending.result()
    assert values(contract, "mixed") == [*range(100), *range(100)]


def test_a_snapshot_never_claims_what_was_lost(tmp_path: Path) -> None:
    """Small segments under idempotent load, killed: what is retried is stored, exactly once."""
    broker = RunningBroker(
        tmp_path / "data",
        storage_segment_bytes=1 << 20,
        limits_request_bytes_max=256 << 10,
        limits_event_bytes_max=128 << 10,
    )
    broker.start()
    try:
        acknowledged: dict[int, int] = {}

        def load(producer: int, rounds: int) -> None:
            while rounds:
                seq = acknowledged.get(producer, 0)
                body = b"%d" % seq + b" " * 50_000
                headers = numbered(f"p{producer}", 0, seq)
                try:
                    path = "/v1/topic/rolls/messages"
                    status = broker.request("POST", path, body=body, headers=headers).status
                except OSError:
                    return
                if status in (200, 204):
                    acknowledged[producer] = seq + 1
                    rounds -= 1
                else:
                    assert status == 503

        for _ in range(3):
            with ThreadPoolExecutor(12) as pool:
                running = [pool.submit(load, producer, 10_000) for producer in range(12)]
                time.sleep(0.7)
                broker.kill()
                for one in running:
                    one.result()
            broker.restart()
            with ThreadPoolExecutor(12) as pool:
                for one in [pool.submit(load, producer, 1) for producer in range(12)]:
                    one.result()
        described = broker.request("GET", "/v1/topic/rolls/slices").json["slices"]
        stored = sum(int(one["endOffset"]) for one in described)
        assert stored == sum(acknowledged.values())
        assert stored > 12
    finally:
        broker.end()
