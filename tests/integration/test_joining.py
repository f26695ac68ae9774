"""A broker that joins a ring of three, which runs on with its own list."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joining import JoinedCluster, barco, three, until

import barco as client
from barco.errors import BarcoError
from barco.workers.storage.files.lineage import Lineage


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def next_host(cluster: JoinedCluster) -> str:
    net, _, last = cluster.hosts[-1].rpartition(".")
    return f"{net}.{int(last) + 1}"


def brokers(cluster: JoinedCluster, at: int) -> dict[int, dict[str, Any]]:
    """As one of them has heard."""
    try:
        with client.Admin(cluster.endpoints[at], timeout_s=20.0) as admin:
            return {each["ordinal"]: each for each in admin.brokers()["brokers"]}
    except BarcoError:
        return {}


def heard(cluster: JoinedCluster, at: int, of: int) -> bool:
    told = brokers(cluster, at).get(of, {})
    return told.get("state") == "alive" and len(told["shardEndpoints"]) == 3


def test_a_fourth_broker_joins_and_waits(cluster: JoinedCluster) -> None:
    """It says that it is ready and waits; all hear of it, though their lists have three."""
    fourth = cluster.join(next_host(cluster))
    cluster.wait_ready([fourth])
    for at in range(4):
        until(f"broker {at} hears of it", lambda at=at: heard(cluster, at, fourth))
    identity = json.loads((cluster.data(fourth) / "broker.json").read_text())
    first = json.loads((cluster.data(0) / "broker.json").read_text())
    for same in ("cluster_uuid", "ring_size", "slices_per_range", "workers"):
        assert identity[same] == first[same]
    table = json.loads((cluster.data(fourth) / "processes.json").read_text())["processes"]
    assert [(each["first"], each["slices"], each["members"]) for each in table] == [
        (4, 4, [3, 1, 2]),
        (0, 4, [0, 3, 1]),
        (16, 8, [2, 0, 3]),
    ]
    # Nobody waits for these processes, so that it is ready before they have all begun.
    until("it says that it waits", lambda: cluster.status(fourth).get("waits") is True)

    def all_wait() -> bool:
        status = cluster.status(fourth)
        shards = [each.get("waits") for each in status.get("shards", [])]
        return status.get("inSync") is True and shards == [True] * 3

    until("all of it waits", all_wait)
    assert "waits" not in cluster.status(0)
    assert "waits until barco scale" in barco("status", "--endpoint", cluster.endpoints[3]).stdout
    with client.Admin(cluster.endpoints[fourth]) as admin:
        ring = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
        until(
            "it has heard who leads what",
            lambda: [each["members"] for each in admin.topology()["routes"]] == ring,
        )
    # What it does not lead it hands on: to brokers that it reaches, and that take it for one.
    with client.Producer(cluster.endpoints[fourth]) as producer:
        for number in range(50):
            producer.send("t", b"x", key=f"k{number}").result(30)
    for directory in cluster.data(fourth).glob("range-*"):
        assert Lineage.load(directory, repair=False).journal == []


def test_each_hears_of_it_again(cluster: JoinedCluster) -> None:
    """A broker with the short list that is started anew, and the one that joined."""
    fourth = cluster.join(next_host(cluster))
    cluster.wait_ready([fourth])
    for again in (0, fourth):
        cluster.kill(again)
        cluster.start(again)
        cluster.wait_ready([again])
        for at in range(4):
            until(f"broker {at} hears of it", lambda at=at: heard(cluster, at, fourth))
            until(f"broker {at} hears of 0", lambda at=at: heard(cluster, at, 0))
    for ordinal in range(4):
        cluster.wait_in_sync(ordinal)


def test_who_may_not_join(cluster: JoinedCluster) -> None:
    host = next_host(cluster)

    def refused(words: str, command: str = "format", *more: str, **changes: Any) -> None:
        ordinal = cluster.list_new(host, **changes)
        said = barco(command, "--config", cluster.config(ordinal), *more)
        assert (said.returncode, words in said.stderr) == (78, True), said
        assert not (cluster.data(ordinal) / "broker.json").exists()

    refused("is of another cluster", "format", "--join", uuid="f" * 32)
    refused("cluster.brokers lists 4", "format")
    refused("barco format --join", "serve")
    cluster.kill(2)
    refused("formatted with: it does not join", "format", "--join", ordinal=2)
    # Whoever has the ordinal keeps it.
    fourth = cluster.join(host)
    until("broker 0 hears of it", lambda: heard(cluster, 0, fourth))
    cluster.stop([fourth])
    cluster.data(fourth).rename(cluster.data(fourth).with_name("moved"))
    cluster.hosts = cluster.hosts[:3]
    refused("known with disk", "format", "--join")
    cluster.stop()
    refused("no other broker of cluster.brokers answers", "format", "--join")


def processes(cluster: JoinedCluster, at: int) -> list[tuple[int, int]]:
    """First slice and how many, of each process."""
    table = json.loads((cluster.data(at) / "processes.json").read_text())["processes"]
    return [(each["first"], each["slices"]) for each in table]


def waits(cluster: JoinedCluster, at: int) -> bool:
    """Whether the fourth process of a broker is ready, and has no range yet."""
    shards = cluster.status(at).get("shards", [])
    return len(shards) == 4 and shards[3].get("waits") is True


def test_processes_are_started_for_what_the_target_wants(cluster: JoinedCluster) -> None:
    """Of whoever shall be a member; the fourth was heard of and is away, so no step is taken."""
    fourth = cluster.join(next_host(cluster))
    for at in range(3):
        until(f"broker {at} hears of it", lambda at=at: heard(cluster, at, fourth))
    cluster.stop([fourth])
    with client.Admin(cluster.endpoints[2]) as admin:
        seen = admin.topology()
        brokers = [{"ordinal": each, "workers": 1} for each in range(4)]
        admin.set_target({"cluster": seen["cluster"], "version": 0, "brokers": brokers})
    for at, wanted in ((0, []), (1, [(4, 4)]), (2, [(4, 4)])):
        until(
            f"broker {at} has its processes",
            lambda at=at, wanted=wanted: processes(cluster, at)[3:] == wanted,
        )
    for at in (1, 2):
        until(
            "it is ready",
            lambda at=at: (got := cluster.status(at).get("shards", []))[3:] and got[3].get("waits"),
        )
    for at in range(3):
        cluster.wait_in_sync(at)
    # A broker that starts anew has its table; nothing is there twice.
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_ready([1])
    assert len(processes(cluster, 1)) == 4
