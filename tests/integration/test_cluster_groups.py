"""A group in a cluster of three real brokers: registered at one, known to all, through a crash."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barco
from barco.errors import BarcoError, NotFoundError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

SECONDS = 90.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    found = LocalCluster(
        tmp_path,
        hosts=tuple(f"{net}.{number + 1}" for number in range(3)),
        tied=True,
    )
    found.write()
    try:
        for ordinal in range(3):
            found.start(ordinal)
        found.wait_ready()
        yield found
    finally:
        for ordinal in range(3):
            found.kill(ordinal)


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


def members(cluster: LocalCluster, at: int) -> list[str]:
    with barco.Admin(cluster.endpoints[at], timeout_s=10) as admin:
        return [member["consumerId"] for member in admin.group("g")["members"]]


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
            assert members(cluster, at) == ["ann"]
        first = {b"first %d" % number for number in range(60)}
        producer.send_many("t", sorted(first), [value[-3:] for value in sorted(first)]).result(60)
        drain(consumer, first)
        cluster.kill(1)
        second = {b"second %d" % number for number in range(60)}
        producer.send_many("t", sorted(second), [v[-3:] for v in sorted(second)]).result(60)
        drain(consumer, second)
        until(lambda: state(cluster, 0, 1) == "down")
        leaders = {shard["ordinal"] for shard in cluster.topology()["shards"]}
        assert 1 not in leaders and None not in leaders
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
