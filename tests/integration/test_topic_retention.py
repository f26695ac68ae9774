"""A topic's own retention on a running broker: enforced at the start, and every minute."""

import random
import time

from barco import _native

HOUR_US = 3600 * 1_000_000
SETTINGS = {"aged": b'{"retentionHours": 2}', "sized": b'{"retentionBytes": 400000}', "kept": b"{}"}


def wait_for(condition, seconds=20):
    """Retention runs beside the first requests."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


def test_time_and_size_are_enforced(broker):
    now_us = time.time_ns() // 1000
    json = {"Content-Type": "application/json"}
    for topic, settings in SETTINGS.items():
        answer = broker.request("PUT", f"/v1/topics/{topic}", body=settings, headers=json)
        assert answer.status == 201, answer
    stored = {}
    for topic in SETTINGS:
        first = b"old\n" * 100
        stored[topic] = broker.produce(topic, first, key="k", timestamp=now_us - 3 * HOUR_US)
    for topic in ("aged", "kept"):
        broker.produce(topic, b"new\n" * 10, key="k", timestamp=now_us - HOUR_US)
    rng = random.Random(5)
    for _ in range(20):
        broker.produce("sized", rng.randbytes(9000), key="k", kind="application/octet-stream")
    sizes_before = chunk_bytes(broker, stored["sized"])

    assert broker.stop() == 0
    broker.restart()
    limit = 400_000 // 8
    fitting = 0
    while fitting < len(sizes_before) and sum(sizes_before[-fitting - 1 :]) <= limit:
        fitting += 1
    assert 0 < fitting < len(sizes_before)
    wait_for(lambda: len(chunk_bytes(broker, stored["sized"])) == fitting)

    # Age is the time since the append: a client may give its events any timestamps.
    for topic in ("aged", "kept"):
        assert events(broker, stored[topic]).json[0]["startOffset"] == "0"
        assert len(events(broker, stored[topic]).json[0]["values"]) == 110

    first = events(broker, stored["sized"]).json[0]["startOffset"]
    gone = events(broker, stored["sized"], place="00000000-0000000000000000")
    assert gone.status == 410, gone
    again = events(broker, stored["sized"], place=gone.json["earliest"])
    assert again.json[0]["startOffset"] == first != "0"
    slices = broker.request("GET", "/v1/topic/sized/slices").json["slices"]
    assert slices[stored["sized"]["rangeIndex"]]["startOffset"] == first

    # What was removed stays so, whatever the log still has.
    broker.kill()
    broker.restart()
    wait_for(lambda: events(broker, stored["sized"]).json[0]["startOffset"] == first)


def events(broker, where, place="earliest", accept="application/json"):
    path = f"/v1/topic/{where['topic']}/slices/{where['token']}/{where['rangeIndex']}/events"
    query = {"from": place, "maxBytes": 16 << 20}
    return broker.request("GET", path, query, headers={"Accept": accept})


def chunk_bytes(broker, where):
    """The stored sizes of a slice's chunks, oldest first."""
    answer = events(broker, where, accept="application/vnd.barco.chunks")
    assert answer.status == 200, answer
    return [row[1] for row in _native.chunks_scan(answer.body)]
