"""Bodies with a Content-Encoding, against a real broker."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest
import zstandard
from running import Answer, RunningBroker

from barco import _native

EVENTS = "application/vnd.barco.events+x-ndjson"
NDJSON = "application/x-ndjson"
BATCH = "application/vnd.barco.batch"
MIB = 1 << 20
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstandard.compress,
}


def send(broker: RunningBroker, body: bytes, coding: str, kind: str = NDJSON) -> Answer:
    headers = {"Content-Type": kind, "Content-Encoding": coding}
    return broker.request("POST", "/v1/topic/t/messages", body=body, headers=headers)


def values(broker: RunningBroker) -> list[Any]:
    found = []
    for one in broker.request("GET", "/v1/topic/t/slices").json["slices"]:
        path = f"/v1/topic/t/slices/{one['token']}/{one['index']}/events"
        answer = broker.request("GET", path, {"maxBytes": 16 * MIB}, headers={"Accept": NDJSON})
        found += [json.loads(line)["value"] for line in answer.body.splitlines()]
    return found


@pytest.mark.parametrize("coding", sorted(PACKERS))
def test_every_kind_of_body(broker: RunningBroker, coding: str) -> None:
    pack = PACKERS[coding]
    for body, kind, count in (
        (b'{"one":1}', "application/json", 1),
        (b"1\n2\n", NDJSON, 2),
        (b'{"key":"a","value":3}\n{"key":"b","value":4}', EVENTS, 2),
        (_native.batch_encode([b"5", b"6"], [b"k", b"k"], None), BATCH, 2),
        (b"7\n" * 100_000, NDJSON, 100_000),
    ):
        answer = send(broker, pack(body), coding, kind)
        assert (answer.status, answer.json["count"]) == (200, count), answer
    found = values(broker)
    assert sorted(each for each in found if each != 7 and each != {"one": 1}) == [1, 2, 3, 4, 5, 6]
    assert found.count({"one": 1}) == 1 and found.count(7) > 1000


@pytest.mark.parametrize("coding", sorted(PACKERS))
def test_what_is_spoilt_or_far_too_much(broker: RunningBroker, coding: str) -> None:
    pack = PACKERS[coding]
    good = pack(b"1\n" * 1000)
    for body in (b"", b"plain", good[:-5], good + b"x", good[:20] + b"xxxx" + good[24:]):
        answer = send(broker, body, coding)
        assert answer.json["type"] == "urn:barco:problem:malformed-encoding", body[:50]
        assert answer.status == 400
    bomb = pack(b"\0" * (64 * MIB))
    unsaid = pack(b"\0" * (16 * MIB)) + pack(b"\0" * 100)  # Its end says that it is small.
    for body in (bomb, unsaid):
        assert len(body) < MIB
        answer = send(broker, body, coding, "application/json")
        assert (answer.status, answer.json["type"]) == (413, "urn:barco:problem:body-too-large")
        assert answer.json["limit"] == 16 * MIB
    assert broker.request("GET", "/v1/topics/t").status == 404


def test_zstd_as_it_comes_from_a_stream(broker: RunningBroker) -> None:
    """Its length is not said, its window is what it is packed with, and it is in several frames."""

    def packed(body: bytes, window: int) -> bytes:
        parameters = zstandard.ZstdCompressionParameters(window_log=window, write_checksum=1)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return stream.compress(body) + stream.flush()

    skipped = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    body = skipped + packed(b"1\n2", 23) + skipped + packed(b"\n3\n", 10)
    answer = send(broker, body, "zstd")
    assert (answer.status, answer.json["count"]) == (200, 3)
    assert sorted(values(broker)) == [1, 2, 3]
    for wrong in (packed(b"4\n", 24), body[:-1], body + skipped[:-1], body[:20]):
        answer = send(broker, wrong, "zstd")
        assert (answer.status, answer.json["type"]) == (400, "urn:barco:problem:malformed-encoding")
    bomb = packed(b"\0" * (64 * MIB), 20)
    assert len(bomb) < MIB // 16
    assert send(broker, bomb, "zstd", "application/json").status == 413
    assert sorted(values(broker)) == [1, 2, 3]


def test_codings_that_are_not_taken(broker: RunningBroker) -> None:
    for coding in ("compress", "br", "deflate", "gzip, gzip", "gzip;q=1"):
        answer = send(broker, b"x", coding)
        assert answer.status == 415 and answer.headers["accept-encoding"] == "gzip, lz4, zstd"
    assert send(broker, b"1", "identity").status == 200
    assert send(broker, gzip.compress(b"1"), "X-GZIP").status == 200
