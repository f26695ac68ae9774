"""Producers' timestamps far from now are refused, unless the topic takes any."""

import json
import random
import time

import pytest
from running import RunningBroker
from test_http_contract import BATCH, NDJSON, PROBLEM, STAMP, events, numbered, send

import barco
from barco import _native
from barco.errors import RequestError

DAY_US = 86_400_000_000


def set_times(broker: RunningBroker, topic: str, which: str) -> None:
    body = json.dumps({"timestamps": which}).encode()
    headers = {"Content-Type": "application/json"}
    answer = broker.request("PUT", f"/v1/topics/{topic}", body=body, headers=headers)
    assert answer.status in (200, 201) and answer.json["timestamps"] == which


def test_timestamps_far_from_now_are_refused_with_the_unit(broker: RunningBroker) -> None:
    now = time.time_ns() // 1000
    units = {now // 10**6: "seconds", now // 1000: "milliseconds", now * 1000: "nanoseconds"}
    for far in (*units, now - 3655 * DAY_US, now + DAY_US + 60_000_000):
        looks = f"this looks like {units[far]}" if far in units else "are expected; the topic"
        for kind, body in (("", b"1"), (NDJSON, b"1\n2\n"), (BATCH, batch_of([far] * 9))):
            more = {} if kind == BATCH else {"timestamp": far}
            answer = send(broker, "far", body, kind, **more)
            assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM), answer
            problem = answer.json
            assert problem["type"] == "urn:barco:problem:implausible-timestamp"
            assert str(far) in problem["detail"] and looks in problem["detail"], problem
    gone = broker.request("GET", "/v1/topic/far/slices")
    assert gone.status == 404, "a refused produce makes no topic"
    for near in (now - 3650 * DAY_US, now + DAY_US - 60_000_000):
        assert send(broker, "near", b"1", timestamp=near).status == 200
        assert send(broker, "near", batch_of([near] * 9), BATCH).status == 200
    assert sum(event["timestamp"] in (near, now - 3650 * DAY_US) for event in
               events(broker, "near")) == 20  # fmt: skip
    with pytest.raises(RequestError, match="this looks like milliseconds"):
        endpoint = f"127.0.0.1:{broker.port('discovery')}"
        with barco.Producer(endpoint) as producer:
            producer.send("far", b"v", timestamp_us=now // 1000).result(30)


def batch_of(stamps: list[int]) -> bytes:
    """Keys of all slices."""
    words = [b"%d" % n for n in range(len(stamps))]
    return _native.batch_encode(words, words, {"timestamp": stamps})


def test_of_a_batch_all_slices_are_refused_for_one_timestamp(broker: RunningBroker) -> None:
    """However it is cut, nothing of it is stored."""
    edge = time.time_ns() // 1000 + DAY_US
    stamps = [edge - 1_800_000_000] * 400
    assert send(broker, "all", batch_of(stamps), BATCH).status == 200
    for at in (0, 7, 399):
        late = [*stamps]
        late[at] = edge + 1_800_000_000
        assert send(broker, "all", batch_of(late), BATCH).status == 400
        old = [stamp - 3654 * DAY_US for stamp in stamps]
        old[at] -= 3_000_000_000
        assert send(broker, "all", batch_of(old), BATCH).status == 400
    assert len(events(broker, "all")) == 400


@pytest.mark.parametrize("kind", ["sealed", "cut by slices", "large"])
def test_times_that_are_years_apart_in_one_batch(broker: RunningBroker, kind: str) -> None:
    """Stored as it came, and as rows of several groups; a chunk is not made of each event."""
    count = 70_000 if kind == "large" else 3_000
    chance, now = random.Random(kind), time.time_ns() // 1000
    stamps = [now - chance.randrange(9 * 365 * DAY_US) for _ in range(count)]
    words = [b"%d" % n for n in range(count)]
    body = _native.batch_encode(
        words, words if kind == "cut by slices" else None, {"timestamp": stamps}
    )
    assert send(broker, "years", body, BATCH).status == 200
    chunks = chunks_of(broker, "years")
    stored = [event for chunk in chunks for event in _native.chunk_events(chunk)]
    wanted = dict(enumerate(stamps))
    assert {int(value): time_us for _, time_us, _, value in stored} == wanted
    assert len(chunks) < 40
    if kind != "large":
        found = events(broker, "years")
        assert {int(each["value"]): each["timestamp"] for each in found} == wanted
    for at, far in ((0, now + 2 * DAY_US), (count - 1, now - 4000 * DAY_US)):
        wrong = [*stamps]
        wrong[at] = far
        answer = send(
            broker, "years", _native.batch_encode(words, None, {"timestamp": wrong}), BATCH
        )
        assert answer.status == 400 and str(far) in answer.json["detail"]


def chunks_of(broker: RunningBroker, topic: str) -> list[bytes]:
    """As they are stored."""
    found: list[bytes] = []
    for each in broker.request("GET", f"/v1/topic/{topic}/slices").json["slices"]:
        path = f"/v1/topic/{topic}/slices/{each['token']}/{each['index']}/events"
        headers = {"Accept": "application/vnd.barco.chunks"}
        answer = broker.request("GET", f"{path}?maxBytes=16777216", headers=headers)
        body = answer.body if answer.status == 200 else b""
        found += [body[each[0] : each[0] + each[1]] for each in _native.chunks_scan(body)]
    return found


def test_a_topic_may_take_any_timestamps(broker: RunningBroker) -> None:
    assert send(broker, "any", b"1", timestamp=5).status == 400
    set_times(broker, "any", "any")
    for _ in range(8):  # Taken in by both workers.
        assert send(broker, "any", b"1", timestamp=5).status == 200
    assert send(broker, "any", batch_of([7] * 100), BATCH).status == 200
    assert len(events(broker, "any")) == 108
    headers = numbered("p", 0, 0)
    assert send(broker, "any", b"1", headers=headers, timestamp=5).status == 200
    set_times(broker, "any", "plausible")
    # Stored is stored: a repetition is none that was refused.
    assert send(broker, "any", b"1", headers=headers, timestamp=5).status == 204
    # What is refused takes no number.
    following = numbered("p", 0, 1)
    assert send(broker, "any", b"1", headers=following, timestamp=5).status == 400
    assert send(broker, "any", b"1", headers=following, timestamp=STAMP).status == 200
    new = numbered("q", 0, 0)
    assert send(broker, "any", b"1", headers=new, timestamp=5).status == 400
    assert send(broker, "any", b"1", headers=new, timestamp=STAMP).status == 200
    assert len(events(broker, "any")) == 111
