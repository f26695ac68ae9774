"""What a segment opens with is bounded: more topics, producers and offsets are refused, clearly."""

import http.client
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from running import RunningBroker

SMALL = {
    "limits_memory_bytes": 32 << 20,
    "limits_request_bytes_max": 1 << 19,
    "limits_event_bytes_max": 1 << 16,
    "storage_segment_bytes": 2 << 20,
}
TOPICS_MORE_THAN_FIT = 8_000
CLIENTS = 16


def fill(broker: RunningBroker) -> int:
    """Produces to new topics with long names until they are refused; how many there are."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        stored = sum(pool.map(lambda client: fill_some(broker, client), range(CLIENTS)))
    assert 1_000 < stored < TOPICS_MORE_THAN_FIT, "nothing was refused"
    return stored


def fill_some(broker: RunningBroker, client: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", broker.port("produce"), timeout=60)
    stored = 0
    try:
        for number in range(client, TOPICS_MORE_THAN_FIT, CLIENTS):
            connection.request("POST", f"/v1/topic/{number:0120}/messages", b"x")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                assert answer.status == 503 and b"too-many-topics" in body, body
                assert answer.headers["Barco-Outcome"] == "not-written"
                break
            stored += 1
    finally:
        connection.close()
    return stored


def test_a_state_that_would_not_fit_is_refused_and_the_rest_goes_on(
    start_broker: Callable[..., RunningBroker],
) -> None:
    broker = start_broker(workers=1, **SMALL)
    broker.register("early", f"{0:0120}")
    fill(broker)
    kinds = {"kind": "application/octet-stream"}
    for number in range(100):  # Three segments, each opened with all of it.
        broker.produce(f"{number:0120}", bytes(60_000), **kinds)
    refused = broker.register("late", f"{1:0120}", group="new")
    assert refused.status == 429 and b"group offsets" in refused.body, refused
    assert broker.poll("early").status == 200
    broker.kill()
    broker.restart()
    for number in range(100):
        broker.produce(f"{number:0120}", bytes(60_000), **kinds)
    described = broker.request("GET", f"/v1/topic/{7:0120}/slices").json["slices"]
    assert sum(int(one["endOffset"]) for one in described) == 3


def test_limits_that_are_too_small_for_what_is_there(
    start_broker: Callable[..., RunningBroker],
) -> None:
    broker = start_broker(workers=1, **(SMALL | {"storage_segment_bytes": 4 << 20}))
    fill(broker)
    assert broker.stop() == 0
    broker.settings |= SMALL
    with pytest.raises(AssertionError, match=r"raise limits\.memory_bytes .* to what they were"):
        broker.restart()
    broker.settings |= {"storage_segment_bytes": 4 << 20}
    broker.restart()
    broker.produce(f"{7:0120}", b"x")
