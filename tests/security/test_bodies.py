"""Request bodies: rows 12, 14 to 16 and 20 to 21 of the attack list."""

import json
import random
import time

import pytest
from attacked import REQUEST_BYTES_MAX, AttackedBroker, MiB
from wire import Closed, chunked, head, produce

from barco import _native

EVENTS = "/v1/topic/t/messages"
NDJSON = "application/x-ndjson"
BATCH = "application/vnd.barco.batch"


# --- Expect: 100-continue ----------------------------------------------


def test_a_client_that_waits_is_asked_for_its_body(attacked: AttackedBroker) -> None:
    expecting = ["Content-Length: 5", "Expect: 100-continue"]
    with attacked.wire(timeout=30) as wire:
        for _ in range(3):
            wire.send(head("POST", EVENTS, expecting))
            assert wire.head()[0] == 100
            wire.send(b"hello")
            assert wire.response().status == 200
        wire.send(head("POST", EVENTS, ["Transfer-Encoding: chunked", "Expect: 100-Continue"]))
        assert wire.head()[0] == 100
        wire.send(chunked(b"hel", b"lo"))
        assert wire.response().status == 200
        # Whoever does not wait need not be asked, and whoever has no body is not.
        wire.send(head("POST", EVENTS, expecting) + b"hello")
        assert wire.response().status == 200
        wire.send(head("GET", "/status", ["Expect: 100-continue"]))
        assert wire.response().status == 200


def test_expectations_behind_other_requests_keep_their_turn(attacked: AttackedBroker) -> None:
    wait = head(
        "GET", "/v1/topic/honest/slices/-9223372036854775808/0/events?from=latest&waitMs=300"
    )
    with attacked.wire(timeout=30) as wire:
        began = time.monotonic()
        wire.send(wait, head("POST", EVENTS, ["Content-Length: 5", "Expect: 100-continue"]))
        assert wire.response().status == 204
        assert time.monotonic() - began > 0.2
        assert wire.head()[0] == 100
        wire.send(b"hello")
        assert wire.response().status == 200


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        (EVENTS, f"Content-Length: {REQUEST_BYTES_MAX + 1}", 413),
        ("/v1/topic/../messages", "Content-Length: 5", 400),
        (EVENTS, "Content-Length: 5\r\nContent-Encoding: br", 415),
        (EVENTS + "?timestamp=x", "Transfer-Encoding: chunked", 400),
    ],
)
def test_a_refused_expectation_gets_the_final_status(
    attacked: AttackedBroker, target: str, header: str, status: int
) -> None:
    with attacked.wire(timeout=30) as wire:
        wire.send(head("POST", target, [header, "Expect: 100-continue"]))
        answer = wire.response()
        assert answer.status == status and answer.closes
        assert wire.ended(30)


# --- Size ----------------------------------------------


def test_bodies_around_the_limits(attacked: AttackedBroker) -> None:
    most = MiB  # limits.event_bytes_max
    with attacked.wire() as wire:
        wire.send(produce("t", b"x" * most))
        assert wire.response().status == 200
        wire.send(produce("t", b"x" * (most + 1)))
        answer = wire.response()
        assert (answer.status, json.loads(answer.body)["limit"]) == (413, most)
        line = b"y" * (MiB // 2 - 1) + b"\n"
        whole = line * (REQUEST_BYTES_MAX // len(line))
        wire.send(produce("t", whole, kind=NDJSON))
        assert wire.response().status == 200
        wire.send(head("POST", EVENTS, ["Transfer-Encoding: chunked", f"Content-Type: {NDJSON}"]))
        wire.send(chunked(*(whole[at : at + 1000] for at in range(0, len(whole), 1000))))
        assert wire.response().status == 200
        wire.send(produce("t", whole + b"\n", kind=NDJSON))
        answer = wire.response()
        assert (answer.status, json.loads(answer.body)["limit"]) == (413, REQUEST_BYTES_MAX)


@pytest.mark.parametrize("framing", [f"Content-Length: {10**9}", "Transfer-Encoding: chunked"])
def test_far_too_much_is_refused_early_and_the_answer_arrives(
    attacked: AttackedBroker, framing: str
) -> None:
    piece = b"%x\r\n%b\r\n" % (MiB, bytes(MiB)) if "chunked" in framing else bytes(MiB)
    for keeps_sending in (True, False):
        with attacked.wire() as wire:
            wire.send(head("POST", EVENTS, [framing, f"Content-Type: {NDJSON}"]))
            wire.send(*([piece] * (24 if keeps_sending else REQUEST_BYTES_MAX // MiB + 1)))
            answer = wire.response()
            assert answer.status == 413 and answer.closes
            assert wire.ended()
    attacked.check_memory()


def test_a_small_refused_body_is_read_over(attacked: AttackedBroker) -> None:
    with attacked.wire() as wire:
        for size in (0, 1, 1000, 200_000):
            wire.send(produce("..", b"GET /evil HTTP/1.1\r\n\r\n" * size))
            answer = wire.response()
            assert answer.status == 400
            if answer.closes:
                break
            wire.send(produce("t", b"good"))
            assert wire.response().status == 200


def test_control_requests_take_small_bodies_only(attacked: AttackedBroker) -> None:
    for method, size, status in (
        ("POST", 20_000, 413),
        ("GET", 20_000, 413),
        ("PUT", MiB + 1, 413),
    ):
        request = head(method, "/v1/groups/g/positions", [f"Content-Length: {size}"])
        answer = attacked.exchange(request, bytes(size))
        assert answer.status == status, answer
        assert json.loads(answer.body)["limit"] in (16 << 10, MiB)


def test_what_is_small_as_a_body_and_huge_as_events(attacked: AttackedBroker) -> None:
    """Short lines with a long key, millions of events, rows of a batch that weigh more than it."""
    lines = b"a\n" * 500_000
    assert (
        attacked.exchange(produce("t", lines, "partitionKey=" + "k" * 15_000, (), NDJSON)).status
        == 413
    )
    assert attacked.exchange(produce("t", b"a\n" * (4 * MiB), kind=NDJSON)).status == 413
    assert attacked.exchange(produce("t", lines, kind=NDJSON)).status == 200
    count = 200_000
    keys = [b"%d" % n for n in range(count)]
    for stamps in (range(count), range(count, 0, -1)):  # Falling ones cut chunks.
        batch = _native.batch_encode(
            [b"v"] * count, keys, {"timestamp": [17 * 10**14 + n for n in stamps]}
        )
        answer = attacked.exchange(produce("rows", batch, kind=BATCH))
        assert answer.status in (200, 413), answer
        if answer.status == 200:
            assert json.loads(answer.body)["count"] == count


def test_other_content_codings_are_refused(attacked: AttackedBroker) -> None:
    for coding in ("compress", "br", "deflate", "gzip, identity"):
        answer = attacked.exchange(produce("t", b"x", headers=[f"Content-Encoding: {coding}"]))
        assert answer.status == 415, answer
    assert (
        attacked.exchange(produce("t", b"x", headers=["Content-Encoding: identity"])).status == 200
    )


# --- Interruption ----------------------------------------------


def test_resets_at_every_place_of_a_request(attacked: AttackedBroker) -> None:
    generator = random.Random(15)
    whole = produce("cut", b"event\n" * 20_000, "partitionKey=k", kind=NDJSON)
    start = whole.index(b"\r\n\r\n") + 4
    places = [*range(1, start + 8, 3), *(generator.randrange(start, len(whole)) for _ in range(60))]
    for number, place in enumerate(places):
        wire = attacked.wire()
        wire.send(whole[:place])
        if number % 3 == 0:
            wire.reset()
        else:
            wire.sock.close()
    assert attacked.exchange(whole).status == 200
    described = attacked.request("GET", "/v1/topic/cut/slices").json["slices"]
    ends = [int(one["endOffset"]) for one in described]
    assert sum(ends) == 20_000, "only the whole request was stored"


def test_a_half_closed_client_gets_its_answers(attacked: AttackedBroker) -> None:
    with attacked.wire() as wire:
        wire.send(produce("t", b"1") * 50 + head("GET", "/v1/topics"))
        wire.sock.shutdown(1)
        assert [answer.status for answer in wire.responses(51)] == [200] * 51
        assert wire.ended(30)
    with attacked.wire() as wire:
        wire.send(produce("t", b"1" * 100)[:-1])
        wire.sock.shutdown(1)
        with pytest.raises(Closed):
            wire.response()


# --- JSON and lines ----------------------------------------------

DOCUMENTS = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "number": b"9" * MiB,
    "nan": b"NaN",
    "twice": b'{"a":1,"a":2}',
    "surrogate": b'"\\ud800"',
    "bom": b"\xef\xbb\xbf{}",
    "utf-16": '{"a":1}'.encode("utf-16"),
    "cut": b'{"a":',
    "control": b'"\n\x00"',
    "not utf-8": b"\xff\xfe\x00",
    "closing": b'1],"values":[2',
    "comma": b"1,2",
    "blank": b"  ",
    "good": b'{"good":true}',
}


def test_documents_are_stored_as_they_are_and_never_break_a_reader(
    attacked: AttackedBroker,
) -> None:
    register = (
        "/v1/consumer/register?consumerId=docs&group=docs&topic=docs&onNewGroup=startFromEarliest"
    )
    assert attacked.request("PUT", register).status == 200
    for body in DOCUMENTS.values():
        assert attacked.exchange(produce("docs", body, "partitionKey=k")).status == 200
    values = attacked.drain("docs", len(DOCUMENTS))
    assert len(values) == len(DOCUMENTS), "json.loads took every answer"
    by_name = dict(zip(DOCUMENTS, values, strict=True))
    assert by_name["good"] == {"good": True}
    assert by_name["closing"] == '1],"values":[2'
    assert by_name["comma"] == "1,2"
    assert set(by_name["not utf-8"]) == {"base64"}
    assert attacked.exchange(produce("docs", b"")).status == 400
    for line in attacked.stored("docs"):
        json.loads(line) if len(line) < 1000 else None


def test_lines(attacked: AttackedBroker) -> None:
    def count(body: bytes) -> int:
        answer = attacked.exchange(produce("lines", body, kind=NDJSON))
        assert answer.status == 200, answer
        return int(json.loads(answer.body)["count"])

    assert count(b"1\r\n2\r\n\r\n \r\n\t\n3") == 3
    assert count(b"\n" * 1_000_000 + b"1\n") == 1
    assert count(b"1") == 1
    for empty in (b"\n" * 1_000_000, b"\r\n", b" \n\t\n"):
        assert attacked.exchange(produce("lines", empty, kind=NDJSON)).status == 400
    before = len(attacked.stored("lines"))
    bad = b"1\n2\n" + b"x" * (MiB + 1) + b"\n3\n"
    answer = attacked.exchange(produce("lines", bad, kind=NDJSON))
    assert (answer.status, json.loads(answer.body)["line"]) == (413, 3)
    assert len(attacked.stored("lines")) == before, "all or nothing"


BATCHES = {
    "empty": b"",
    "short": b"BBAT",
    "zeros": bytes(4096),
    "random": random.Random(1).randbytes(100_000),
    "bomb": _native.batch_encode([bytes(MiB)] * 12, None, None),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_that_are_none(attacked: AttackedBroker, name: str) -> None:
    answer = attacked.exchange(produce("t", BATCHES[name], kind=BATCH))
    assert answer.status in (400, 413), answer


def test_batches_with_a_bit_flipped(attacked: AttackedBroker) -> None:
    generator = random.Random(20)
    values = [generator.randbytes(generator.randrange(50)) for _ in range(300)]
    good = _native.batch_encode(
        values, [b"k"] * 300, {"timestamp": [17 * 10**14 + n for n in range(300)]}
    )
    with attacked.wire() as wire:
        for _ in range(300):
            bad = bytearray(good)
            bad[generator.randrange(min(len(bad), 200))] ^= 1 << generator.randrange(8)
            wire.send(produce("flips", bytes(bad), kind=BATCH))
            answer = wire.response()
            assert answer.status in (200, 400, 413), answer
        wire.send(produce("flips", good, kind=BATCH))
        assert wire.response().status == 200
    for _ in attacked.stored("flips"):
        pass
