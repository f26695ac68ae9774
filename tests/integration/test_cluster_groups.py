"""A group in a cluster of three real brokers: registered at one, known to all, through a crash."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barco
from barco.errors import BarcoError, NotFoundError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three, undisturbed

SECONDS = 90.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if condition():
                return
        except BarcoError:
            pass
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def state(cluster: LocalCluster, at: int, about: int) -> str:
    peers = cluster.status(at).get("peers", [])
    return next((peer["state"] for peer in peers if peer["ordinal"] == about), "unknown")


def members(cluster: LocalCluster, at: int, group: str = "g") -> list[str]:
    with barco.Admin(cluster.endpoints[at], timeout_s=30) as admin:
        return [member["consumerId"] for member in admin.group(group)["members"]]


def drain(consumer: barco.Consumer, wanted: set[bytes]) -> None:
    """Polls until all of these have come, in whatever number."""
    deadline = time.monotonic() + SECONDS
    left = set(wanted)
    while left:
        assert time.monotonic() < deadline, f"{len(left)} events have not come"
        left -= {event.value for event in consumer.poll(1.0)}


def test_a_group_through_the_crash_of_a_broker(cluster: LocalCluster) -> None:
    for at, about in ((0, 1), (0, 2), (1, 0)):
        until(lambda at=at, about=about: state(cluster, at, about) == "alive")
    endpoints = cluster.endpoints
    with (
        barco.Producer(endpoints) as producer,
        barco.Consumer(
            "t", group="g", endpoint=endpoints, start="earliest", consumer_id="ann"
        ) as consumer,
    ):
        for at in range(3):
            until(lambda at=at: members(cluster, at) == ["ann"])
        first = {b"first %d" % number for number in range(60)}
        producer.send_many("t", sorted(first), [value[-3:] for value in sorted(first)]).result(60)
        drain(consumer, first)
        cluster.kill(1)
        second = {b"second %d" % number for number in range(60)}
        producer.send_many("t", sorted(second), [v[-3:] for v in sorted(second)]).result(60)
        drain(consumer, second)
        until(lambda: state(cluster, 0, 1) == "down")
        until(lambda: not {1, None} & {each["ordinal"] for each in cluster.topology()["shards"]})
        cluster.start(1)
        until(lambda: state(cluster, 0, 1) == "alive")
        until(lambda: members(cluster, 1) == ["ann"])
        third = {b"third %d" % number for number in range(60)}
        producer.send_many("t", sorted(third), [v[-3:] for v in sorted(third)]).result(60)
        drain(consumer, third)
    until(lambda: members_left(cluster) == [])


def members_left(cluster: LocalCluster) -> list[str]:
    """Who is still registered, at any broker."""
    left: list[str] = []
    for at in range(3):
        try:
            left += members(cluster, at)
        except NotFoundError:
            pass
    return left


def ask(cluster: LocalCluster, at: int, what: str, query: str = "", body: Any = None) -> Any:
    """One request of a consumer named ann: (status, answer as JSON)."""
    request = urllib.request.Request(
        f"http://{cluster.endpoints[at]}/v1/consumer/{what}?consumerId=ann{query}",
        b"" if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in (b"[", b"{") else None
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_positions_are_committed_at_any_broker_and_kept_through_a_crash(
    cluster: LocalCluster,
) -> None:
    """Each slice's by whoever leads it; what is behind or was not delivered is named."""
    endpoints = cluster.endpoints
    values = [b"%d" % number for number in range(120)]
    given: list[Any] = []
    undisturbed(cluster, lambda topic: commit_the_middle(cluster, topic, values, given))
    topic = given[0]["topic"]
    done = {str(v) for part in given for v in part["values"][: len(part["values"]) // 2]}
    cluster.kill(2)
    with barco.Consumer(topic, group=f"g-{topic}", endpoint=endpoints, consumer_id="ann") as again:
        got: list[str] = []
        until(lambda: len(take(again, got)) >= 120 - len(done))
    assert sorted(got) == sorted({value.decode() for value in values} - done)


def commit_the_middle(
    cluster: LocalCluster, topic: str, values: list[bytes], given: list[Any]
) -> None:
    """Of what each broker has given, which is told."""
    with barco.Producer(cluster.endpoints) as producer:
        producer.send_many(topic, values, values).result(60)
    group = f"g-{topic}"
    query = f"&group={group}&topic={topic}&onNewGroup=startFromEarliest"
    assert ask(cluster, 0, "register", query)[0] == 200
    until(lambda: members(cluster, 1, group) == members(cluster, 2, group) == ["ann"])
    given[:] = [
        part
        for at in range(3)
        for part in ask(cluster, at, "poll", "&waitMs=9000&scope=broker")[1] or []
    ]
    assert sum(len(part["values"]) for part in given) == 120
    assert len({part["token"] for part in given}) == 3, "each broker has given what it leads"
    middle = [
        {
            "topic": topic,
            "token": part["token"],
            "slice": part["rangeIndex"],
            "offset": len(part["values"]) // 2,
        }
        for part in given
    ]
    for at in range(3):
        assert ask(cluster, at, "commit", body={"positions": middle}) == (204, None), "or again"
    largest = max(middle, key=lambda each: each["offset"])
    wrong = [largest | {"offset": largest["offset"] - 1}], [middle[0] | {"offset": 10_000}]
    for positions in wrong:
        status, problem = ask(cluster, 1, "commit", body={"positions": positions})
        assert (status, len(problem["slices"])) == (409, 1)


def take(consumer: barco.Consumer, got: list[str]) -> list[str]:
    got += [str(event.value, "ascii") for event in consumer.poll(1.0)]
    return got


def test_the_lag_of_a_group_is_among_the_metrics(cluster: LocalCluster) -> None:
    """Of each broker what it leads, and all of it at some broker."""
    values = [b"%d" % number for number in range(60)]
    with barco.Producer(cluster.endpoints) as producer:
        producer.send_many("t", values, values).result(60)
    barco.Consumer("t", group='g"', endpoint=cluster.endpoints, start="earliest").close()

    def lag() -> int:
        found = 0
        for endpoint in cluster.endpoints:
            with barco.Admin(endpoint) as admin:
                for line in admin.metrics().splitlines():
                    if line.startswith('barco_group_lag_events{group="g\\"",topic="t",'):
                        found += int(line.rpartition(" ")[2])
        return found

    until(lambda: lag() == 60)
