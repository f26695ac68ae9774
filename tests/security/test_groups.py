"""Consumers and groups: rows 22, 23, 25 and 32 of the attack list."""

import json
import time

import pytest
from attacked import AttackedBroker
from wire import head

from barco.workers.groups.offsets import LAGS_MAX


def consumer(verb: str, query: str, method: str = "POST") -> bytes:
    return head(method, f"/v1/consumer/{verb}?{query}")


def register(name: str, group: str, topic: str = "t", more: str = "") -> bytes:
    return consumer("register", f"consumerId={name}&group={group}&topic={topic}{more}", "PUT")


IDS = {
    "1 MiB": "a" * 15_000,
    "129 bytes": "a" * 129,
    "line end": "a%0d%0ab",
    "NUL": "a%00",
    "not UTF-8": "%ff%fe",
    "empty": "",
    "bad escape": "%zz",
}


@pytest.mark.parametrize("name", IDS)
def test_odd_consumers_and_groups(attacked: AttackedBroker, name: str) -> None:
    for request in (
        register(IDS[name], "g"),
        register("c", IDS[name]) if name != "empty" else register("", "g"),
        consumer("poll", f"consumerId={IDS[name]}"),
        consumer("commit", f"consumerId={IDS[name]}"),
        consumer("goodbye", f"consumerId={IDS[name]}"),
        head("GET", f"/v1/groups/{IDS[name]}x%0a"),
    ):
        answer = attacked.exchange(request)
        assert 400 <= answer.status < 500, (request, answer)
        assert answer.headers["content-type"] == "application/problem+json"
        json.loads(answer.body)


def test_odd_bodies_of_a_registration(attacked: AttackedBroker) -> None:
    for body in (
        b"[" * 15_000,
        b'{"id":1e999}',
        b'{"id":"c","topics":"t"}',
        b'{"id":"c","topics":[1]}',
        b'{"id":"c","topics":["t"],"onNewGroup":[]}',
        b'{"id":"c","topics":["t"],"group":{"a":1}}',
        b'{"id":"' + b"9" * 4000 + b'","topics":["t"]}',
        b'{"id":' + b"9" * 5000 + b',"topics":["t"]}',
        b"\xff\xfe",
        b'{"id":"\\ud800","topics":["t"]}',
        b'{"id":"c","topics":' + json.dumps([f"t{n}" for n in range(1000)]).encode() + b"}",
    ):
        head_ = head(
            "PUT",
            "/v1/consumer/register",
            ["Content-Type: application/json", f"Content-Length: {len(body)}"],
        )
        answer = attacked.exchange(head_, body)
        assert 400 <= answer.status < 500, (body[:80], answer)


def test_many_registrations_at_once(attacked: AttackedBroker) -> None:
    """The bounds themselves are the group machine's tests: reaching them takes minutes here."""
    with attacked.wire() as wire:
        wire.send(*(register(f"m{n}", "crowd") for n in range(100)))
        assert {answer.status for answer in wire.responses(100)} == {200}
        wire.send(*(register(f"g{n}", f"group-{n}") for n in range(100)))
        assert {answer.status for answer in wire.responses(100)} == {200}
        many = "".join(f"&topic=t{n}" for n in range(65))
        wire.send(register("wide", "wide", "t", many))
        assert wire.response().status in (400, 429)
        wire.send(*(consumer("goodbye", f"consumerId=m{n}") for n in range(100)))
        assert {answer.status for answer in wire.responses(100)} == {200}


def test_one_consumer_cannot_take_from_another(attacked: AttackedBroker) -> None:
    attacked.produce("private", b"1\n2\n3\n", key="k")
    start = "&onNewGroup=startFromEarliest"
    assert attacked.exchange(register("mine", "ours", "private", start)).status == 200
    assert attacked.exchange(consumer("poll", "consumerId=stranger")).status == 409
    assert attacked.exchange(consumer("commit", "consumerId=stranger")).status == 409
    assert attacked.exchange(consumer("goodbye", "consumerId=stranger")).status == 409
    assert attacked.drain("mine", 3) == [1, 2, 3]
    # Another group, and a consumer of it that gives the first group's name when it commits.
    assert attacked.exchange(register("other", "theirs", "private", start)).status == 200
    assert attacked.exchange(consumer("commit", "consumerId=other&group=ours")).status < 500
    assert attacked.exchange(consumer("commit", "consumerId=mine")).status == 204
    assert attacked.drain("other", 3) == [1, 2, 3], "its own group's positions"
    # The same name in another group takes the name over: the old registration is void or refused.
    answer = attacked.exchange(register("mine", "theirs", "private", start))
    assert answer.status in (200, 409), answer


def test_two_polls_of_one_consumer_at_once(attacked: AttackedBroker) -> None:
    attacked.produce("one", b"0", key="k", kind="application/json")
    start = "&onNewGroup=startFromLatest"
    assert attacked.exchange(register("twice", "twice", "one", start)).status == 200
    with attacked.wire() as first, attacked.wire() as second:
        first.send(consumer("poll", "consumerId=twice&waitMs=5000"))
        time.sleep(0.3)
        second.send(consumer("poll", "consumerId=twice&waitMs=5000"))
        time.sleep(0.3)
        attacked.produce("one", b"1", key="k", kind="application/json")
        answers = [wire.response() for wire in (second, first)]
        values = [
            v for a in answers if a.status == 200 for i in json.loads(a.body) for v in i["values"]
        ]
        assert values == [1], answers


def test_metrics_stay_small(attacked: AttackedBroker) -> None:
    answer = attacked.request("GET", "/metrics", listener="metrics")
    lines = answer.body.splitlines(keepends=True)
    lags = [line for line in lines if line.startswith(b"barco_group_lag_events{")]
    rest = b"".join(line for line in lines if line not in lags)
    assert answer.status == 200 and len(rest) < 100_000
    assert b"crowd" not in rest and b"private" not in rest
    # Groups and topics have names that anybody invents: of so many positions only, each so long.
    assert 0 < len(lags) <= LAGS_MAX and max(map(len, lags)) < 1_000
