"""Queues at one real broker with two workers: leases, acknowledgements, kills."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from running import Answer, RunningBroker, key_of

QUEUE = "/v1/queue/q"

LEASE_MS = 10_000
"""Far longer than what a test does with what it has leased, on a busy machine too."""


def lines(*values: object) -> bytes:
    return "".join(f"{value}\n" for value in values).encode()


def make(broker: RunningBroker, **settings: Any) -> Any:
    answer = broker.request("PUT", "/v1/groups/q", {"type": "queue", "topic": "t", **settings})
    assert answer.status == 200, answer
    return answer.json


def lease(broker: RunningBroker, most: int = 100, **query: Any) -> list[dict[str, Any]]:
    answer = broker.request("POST", f"{QUEUE}/lease", {"topic": "t", "max": most, **query})
    assert answer.status in (200, 204), answer
    found = [json.loads(line) for line in answer.body.splitlines()]
    if found:
        assert named(answer.headers["barco-lease"]) == [each["id"] for each in found]
    return found


def named(lease: str) -> list[str]:
    """Each id in the name of a lease."""
    found = []
    for part in lease.split(","):
        index, epoch, start, count, *more = map(int, part.split("."))
        ids = range(start, start + (more[0] if more else 1))
        found += [f"{index}.{epoch}.{at}.{count}" for at in ids]
    return found


def every(
    broker: RunningBroker, seconds: float = 0, wanted: int = 0, **query: Any
) -> list[dict[str, Any]]:
    """All that there is: each worker has its part; and what comes in time, until there are as many
    as are wanted."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    while True:
        got = [each for _ in range(2) for each in lease(broker, **query)]
        found += got
        if (not got and time.monotonic() >= end) or 0 < wanted <= len(found):
            return found
        time.sleep(0 if got else 0.02)


def tell(broker: RunningBroker, what: str, ids: Iterable[str], **more: Any) -> Answer:
    body = json.dumps({"events": list(ids), **more}).encode()
    return broker.request("POST", f"{QUEUE}/{what}", {"topic": "t"}, body=body)


def test_what_is_acknowledged_does_not_come_again_and_all_else_does(
    broker: RunningBroker,
) -> None:
    make(broker, leaseMs=LEASE_MS)
    for slice_ in range(8):
        broker.produce("t", lines(*range(10)), key=key_of(broker, "t", slice_))
    got = every(broker)
    assert len(got) == len({each["id"] for each in got}) == 80
    assert {each["deliveries"] for each in got} == {1}
    done, left = got[::2], got[1::2]
    assert every(broker) == [], "they are leased"
    assert tell(broker, "ack", (each["id"] for each in done)).status == 204
    broker.kill()  # At once: what is answered is stable.
    broker.restart()
    again = every(broker, seconds=60, wanted=40)
    assert places(again) == places(left)
    whole = broker.request(
        "POST",
        f"{QUEUE}/ack",
        {"topic": "t"},
        body=json.dumps({"events": [each["id"] for each in again]}).encode(),
    )
    assert whole.status == 204
    assert broker.stop() == 0
    broker.restart()
    assert every(broker, seconds=1.5) == []
    group = broker.request("GET", "/v1/groups/q").json
    assert group["lag"] == 0 and group["queues"]["t"]["leaseMs"] == LEASE_MS


def places(events: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((each["rangeIndex"], int(each["offset"])) for each in events)


def test_given_back_extended_expired(broker: RunningBroker) -> None:
    make(broker, leaseMs=LEASE_MS, maxInFlight=5)
    key = key_of(broker, "t", 3)
    broker.produce("t", lines(*range(5)), key=key)
    first = every(broker)
    assert [each["value"] for each in first] == [0, 1, 2, 3, 4]
    assert tell(broker, "nack", [first[0]["id"]]).status == 204
    (again,) = every(broker)
    assert (again["value"], again["deliveries"]) == (0, 2)
    began = time.monotonic()  # The delay begins when it is asked for, not when that is answered.
    late = tell(broker, "nack", [first[0]["id"], first[1]["id"]], delayMs=100)
    assert late.status == 409 and late.json["events"] == [first[0]["id"]]
    (later,) = lease(broker, waitMs=20_000)
    assert later["value"] == 1 and 0.05 < time.monotonic() - began < 10
    assert tell(broker, "extend", [each["id"] for each in first[2:5]]).status == 204
    for short in (0, 999):
        assert tell(broker, "extend", [first[2]["id"]], leaseMs=short).status == 400, short
    ended = every(broker, seconds=60, wanted=5)
    assert {each["value"] for each in ended} == {0, 1, 2, 3, 4}
    assert tell(broker, "extend", [first[2]["id"]]).status == 409
    assert tell(broker, "ack", [first[2]["id"]]).status == 204, "late, and done all the same"
    everything = f"3.{first[0]['version']}.0.1.5"
    assert tell(broker, "ack", [everything]).status == 204
    assert every(broker, seconds=1.5) == []
    broker.produce("t", lines(*range(8)), key=key)
    assert [each["value"] for each in every(broker)] == [0, 1, 2, 3, 4], "maxInFlight"


def test_a_topic_whose_dead_letters_have_no_name_is_told_why(broker: RunningBroker) -> None:
    long = "t" * 123
    query = {"type": "queue", "topic": long, "maxDeliveries": 1}
    refused = broker.request("PUT", "/v1/groups/q", query)
    assert refused.status == 400 and f"{long}.dead" in refused.json["detail"]
    assert broker.request("PUT", "/v1/groups/q", query | {"dead": "t.dead"}).status == 200
    assert broker.request("PUT", "/v1/groups/p", query | {"topic": "t" * 122}).status == 200


def test_a_long_poll_is_woken_wherever_the_event_lands(broker: RunningBroker) -> None:
    make(broker)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        for slice_ in range(0, 8, 3):
            waiting = pool.submit(lease, broker, waitMs=20_000)
            time.sleep(0.1)
            broker.produce("t", lines(slice_), key=key_of(broker, "t", slice_))
            (event,) = waiting.result(30)
            assert event["value"] == slice_
    began = time.monotonic()
    assert lease(broker, waitMs=300) == [] and time.monotonic() - began > 0.25


def test_ordered_by_key(broker: RunningBroker) -> None:
    make(broker, ordered="key")
    for number in range(6):
        for key in ("a", "b", "c"):
            broker.produce("t", lines(number), key=key)
    served: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    while got := every(broker):
        assert len({each["key"] for each in got}) == len(got), "one of a key at a time"
        for each in got:
            served[each["key"]].append(each["value"])
            if each["key"] != "c" or each["value"] != 2:
                assert tell(broker, "ack", [each["id"]]).status == 204
    assert served == {"a": list(range(6)), "b": list(range(6)), "c": [0, 1, 2]}


def test_dead_letters(broker: RunningBroker) -> None:
    make(broker, maxDeliveries=2, leaseMs=LEASE_MS)
    key = key_of(broker, "t", 5)
    broker.produce("t", lines('{"n":1}', '{"n":2}'), key=key)
    for _ in range(2):
        got = every(broker)
        assert len(got) == 2
        assert tell(broker, "nack", (e["id"] for e in got), reason="no such bank").status == 204
    assert every(broker) == []
    dead = [
        json.loads(line)
        for line in broker.request(
            "GET",
            f"/v1/topic/t.dead/slices/{got[0]['token']}/5/events",
            headers={"Accept": "application/x-ndjson"},
        ).body.splitlines()
    ]
    assert [each["value"] for each in dead] == [{"n": 1}, {"n": 2}]
    assert [each["key"] for each in dead] == [key, key]
    assert [each["timestamp"] for each in dead] == [each["timestamp"] for each in got]
    headers = dead[0]["headers"]
    assert headers["barco-dead-reason"] == "no such bank" and headers["barco-dead-count"] == "2"
    assert headers["barco-dead-topic"] == "t" and headers["barco-dead-slice"] == "5"
    broker.kill()
    broker.restart()
    assert every(broker, seconds=1.5) == []
    assert broker.request("GET", "/v1/topics/t.dead").json["events"] == 2


def test_what_was_accepted_becomes_a_letter_whatever_the_limit_is_by_then(
    broker: RunningBroker,
) -> None:
    make(broker, maxDeliveries=1)
    broker.produce("t", lines(json.dumps("x" * 600_000)), key=key_of(broker, "t", 5))
    broker.stop()
    broker.settings |= {"limits_event_bytes_max": 65_536, "limits_request_bytes_max": 65_536}
    broker.start()
    [event] = every(broker, 30, 1)
    assert tell(broker, "nack", [event["id"]]).status == 204
    end = time.monotonic() + 30
    while broker.request("GET", "/v1/topics/t.dead").json.get("events") != 1:
        assert time.monotonic() < end and every(broker) == []
        time.sleep(0.05)


def test_acks_all_over_a_window_where_events_are_small(
    start_broker: Callable[..., RunningBroker],
) -> None:
    """What a queue keeps of a slice may be longer than any event that clients may send."""
    broker = start_broker(workers=1, limits_event_bytes_max=1024)
    make(broker, maxInFlight=10_000)
    broker.produce("t", lines(*range(9500)), key=key_of(broker, "t", 0))
    got: list[dict[str, Any]] = []
    while some := lease(broker, 1000):
        got += some
    assert len(got) == 9500
    done = [each["id"] for each in got[1::2]]
    assert tell(broker, "ack", done).status == 204
    broker.kill()
    broker.restart()
    positions = broker.request("GET", "/v1/groups/q").json["positions"]
    assert sum(each["queue"]["acknowledged"] for each in positions) == len(done)


def test_refusals(broker: RunningBroker) -> None:
    def put(**query: Any) -> int:
        given = {"type": "queue", "topic": "t"} | query
        return broker.request("PUT", "/v1/groups/q", given).status

    assert broker.request("POST", f"{QUEUE}/lease", {"topic": "t"}).status == 404
    assert put(type="log") == put(topic="") == put(leaseMs=1) == put(ordered="yes") == 400
    assert put(maxInFlight=0) == put(maxInFlight=10_001) == put(dead="x") == 400
    assert put(dead="t", maxDeliveries=1) == put(onNewGroup="x") == put(maxinflight=1) == 400
    broker.register("c", "t", group="q")
    assert put() == 409, "it has a member"
    assert broker.goodbye("c").status == 200
    assert put() == 409, "it has positions"
    assert broker.request("DELETE", "/v1/groups/q").status == 204
    assert put() == put() == 200
    assert broker.register("c", "t", group="q").status == 409
    assert broker.poll("c").status == 409
    for wrong in ({"max": 0}, {"leaseMs": 0}, {"leaseMs": 999}):
        refused = broker.request("POST", f"{QUEUE}/lease", {"topic": "t"} | wrong)
        assert refused.status == 400 and next(iter(wrong)) in refused.json["detail"], wrong
    broker.produce("t", lines(1))
    body = json.dumps({"topic": "t", "to": "latest"}).encode()
    assert broker.request("PUT", "/v1/groups/q/positions", body=body).status == 409
    for bad in (
        {},
        {"events": []},
        {"events": ["x"]},
        {"lease": "1.2"},
        {"lease": 1},
        {"event": []},
    ):
        answer = broker.request(
            "POST", f"{QUEUE}/ack", {"topic": "t"}, body=json.dumps(bad).encode()
        )
        assert answer.status == 400, bad
    assert tell(broker, "ack", ["99.1.0.1"]).status == 400, "no such slice"
    assert tell(broker, "ack", ["0.1.77.1"]).status == 204, (
        "nothing of it is known, and it changes nothing"
    )
    assert tell(broker, "nack", ["0.1.77.1"]).status == 409
    assert broker.request("DELETE", "/v1/groups/q").status == 204
    assert broker.request("POST", f"{QUEUE}/lease", {"topic": "t"}).status == 404
