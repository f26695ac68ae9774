"""Request heads against a live broker: rows 1 to 9, 17 to 19 and 28 to 31 of the attack list.

The parser's own tests hold every variant; here one of each kind meets real connections.
"""

import pytest
from attacked import AttackedBroker
from wire import Closed, head, produce

EVENTS = "/v1/topic/t/messages"

MALFORMED = {
    "length and chunked": head("POST", EVENTS, ["Content-Length: 3", "Transfer-Encoding: chunked"]),
    "two lengths": head("POST", EVENTS, ["Content-Length: 3", "Content-Length: 4"]),
    "length +5": head("POST", EVENTS, ["Content-Length: +5"]),
    "length 2^64": head("POST", EVENTS, ["Content-Length: 18446744073709551616"]),
    "coding twice": head("POST", EVENTS, ["Transfer-Encoding: chunked, chunked"]),
    "unknown coding": head("POST", EVENTS, ["Transfer-Encoding: xchunked"]),
    "coding in 1.0": head("POST", EVENTS, ["Transfer-Encoding: chunked"], version="HTTP/1.0"),
    "bare LF": b"GET /status HTTP/1.1\nHost: localhost\n\n",
    "folded": head("GET", "/status", ["A: b", " c"]),
    "space before colon": head("GET", "/status", ["A : b"]),
    "NUL in value": head("GET", "/status", ["A: \0"]),
    "no host": b"GET /status HTTP/1.1\r\n\r\n",
    "two hosts": head("GET", "/status", ["Host: y"]),
    "HTTP/0.9": b"GET /status\r\n\r\n",
    "HTTP/2.0": head("GET", "/status", version="HTTP/2.0"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "TLS hello": bytes.fromhex("16030100f5010000f10303") + bytes(200),
    "CONNECT": b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n",
    "bad expectation": head("POST", EVENTS, ["Content-Length: 3", "Expect: the-unexpected"]),
    "garbage": bytes(range(256)) * 20,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_heads_get_a_4xx_or_5xx_and_the_connection_ends(
    attacked: AttackedBroker, name: str
) -> None:
    with attacked.wire() as wire:
        wire.send(MALFORMED[name] + head("GET", "/status"))
        answer = wire.response()
        assert answer.status in (400, 405, 411, 417, 501, 505), answer
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.closes
        with pytest.raises(Closed):
            wire.response()  # What came behind it was not looked at.


def test_a_head_that_is_too_large(attacked: AttackedBroker) -> None:
    many = head("GET", "/status", [f"X{n}: 1" for n in range(10_000)])
    large = head("GET", "/status", ["X: " + "a" * (10 << 20)])
    for bytes_, status in ((many, 431), (large, 431), (head("GET", "/" + "a" * (1 << 20)), 414)):
        assert attacked.exchange(bytes_).status == status
    just = head("GET", "/status", ["X: " + "a" * 30_000])
    assert attacked.exchange(just).status == 200


def test_heads_in_single_bytes_and_blank_lines_before_them(attacked: AttackedBroker) -> None:
    with attacked.wire() as wire:
        for byte in b"\r\n\r\n" + produce("t", b"slow", "partitionKey=a%20b"):
            wire.send(bytes([byte]))
        assert wire.response().status == 200


PATHS = {
    "/../status": 404,
    "/%2e%2e/status": 404,
    "/v1%2ftopics": 404,
    "//status": 404,
    "/status;x=1": 404,
    "/status%00": 404,
    "/%c0%ae%c0%ae/": 404,
    "/" + "a" * 15_000: 404,
    "/status?a=%zz": 400,
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:20])
def test_odd_paths(attacked: AttackedBroker, path: str) -> None:
    answer = attacked.exchange(head("GET", path))
    assert answer.status in (PATHS[path], 200 if "zz" in path else PATHS[path]), answer
    if answer.status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"


TOPICS = {
    "..": 400,
    ".": 400,
    "a" * 127: 200,
    "a" * 128: 400,
    "%C3%A9": 400,
    "a%2fb": 400,
    "a%00b": 400,
    "a%0d%0aX-Split:%201": 400,
    "__offsets": 403,
    "__x": 403,
}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic[:12])
def test_topic_names(attacked: AttackedBroker, topic: str) -> None:
    answer = attacked.exchange(produce(topic, b"x"))
    assert answer.status == TOPICS[topic], answer
    assert "x-split" not in answer.headers
    if not topic.startswith("a" * 127):
        for method in ("PUT", "DELETE"):
            managed = attacked.exchange(head(method, f"/v1/topics/{topic}"))
            assert managed.status in (400, 403, 404), managed
            assert "x-split" not in managed.headers


QUERIES = {
    "&".join(f"k{n}=1" for n in range(1000)): 400,
    "partitionKey=a&partitionKey=b": 400,
    "partitionKey=%zz": 400,
    "partitionKey=%": 400,
    "partitionKey=": 200,
    "partitionKey=%00%ff+%2B": 200,
    "partitionKey=" + "k" * 15_000: 200,
    "timestamp=-1": 400,
    "timestamp=0": 400,
    "timestamp=NaN": 400,
    "timestamp=1e9": 400,
    "timestamp=99999999999999999999": 400,
    "timestamp=9223372036854775807": 400,
    "slice=-1": 400,
    "slice=4294967296": 400,
    "slice=99": 400,
}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:24])
def test_queries_of_a_produce(attacked: AttackedBroker, query: str) -> None:
    assert attacked.exchange(produce("t", b"x", query)).status == QUERIES[query]


NUMBERS = ["-1", "1.5", "NaN", "1e3", "%20", "0x10", "99999999999999999999", "9" * 5000, "%D9%A5"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:10])
def test_numbers_that_are_none(attacked: AttackedBroker, number: str) -> None:
    attacked.produce("t", b"x")
    place = "/v1/topic/t/slices/-9223372036854775808"
    for path in (
        f"{place}/0/events?maxBytes={number}",
        f"{place}/0/events?waitMs={number}",
        *([] if number == "-1" else [f"{place}/0/events?from=timestamp:{number}"]),
        f"{place}/0/events?from={number}",
        f"{place}/{number}/events",
        f"/v1/topic/t/slices/{number}/0/events",
    ):
        answer = attacked.exchange(head("GET", path))
        assert answer.status in (400, 404), (path, answer)


def test_upgrades_are_ignored_and_methods_known(attacked: AttackedBroker) -> None:
    with attacked.wire() as wire:
        for upgrade in ("websocket", "h2c"):
            wire.send(head("GET", "/status", [f"Upgrade: {upgrade}", "Connection: Upgrade"]))
            assert wire.response().status == 200
        wire.send(head("HEAD", "/status"))
        answer = wire.response(head_only=True)
        assert answer.status == 200 and int(answer.headers["content-length"]) > 0
        for method in ("TRACE", "PATCH", "get", "BREW"):
            wire.send(head(method, "/status", ["X-Secret: 1"]))
            answer = wire.response()
            assert answer.status in (405, 501), answer
            assert b"Secret" not in answer.body
            if answer.closes:
                wire = attacked.wire("consume")


def test_keys_cannot_split_responses_and_labels_stay_few(attacked: AttackedBroker) -> None:
    split = "a%0d%0aX-Split:%201%0d%0a%0d%0aHTTP/1.1%20200%20OK"
    with attacked.wire() as wire:
        wire.send(produce("t", b"x", "partitionKey=" + split))
        assert "x-split" not in wire.response().headers
        for path in ("/v1/groups/", "/v1/topics/", "/v1/consumer/poll?consumerId=", "/"):
            wire.send(head("GET", path + split))
            answer = wire.response()
            assert answer.status >= 400 and "x-split" not in answer.headers
        for number in range(0, 1000, 10):  # Metrics must not have a label for each topic.
            wire.send(*(produce(f"bomb-{number + n}", b"x") for n in range(10)))
            assert all(answer.status == 200 for answer in wire.responses(10))
    answer = attacked.request("GET", "/metrics", listener="metrics")
    assert answer.status == 200 and len(answer.body) < 100_000
