"""Who left a range keeps its events until retention is done with them, and then neither its files
nor its process: real brokers, and a clock that says that everything is old."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import splitting
from growing import ask
from joining import JoinedCluster, barco, told_what_to_do, until
from splitting import tell
from test_growth import FOUR, THREE, routes

import barco as client
from barco.model.placement import Placement
from barco.model.ranges import directory_of, token_of_slice

OLD = token_of_slice(Placement(3, 8), 0)
"""The range of broker 0, which broker 2 is a member of until there are four."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    """Three brokers, and one more that has joined and waits; workers do what a test says."""
    yield from told_what_to_do(tmp_path, Path(splitting.__file__))


def processes(cluster: JoinedCluster, ordinal: int) -> dict[int, int]:
    """Numbers of a broker's processes, by the tokens of their ranges."""
    told = json.loads((cluster.data(ordinal) / "processes.json").read_text())["processes"]
    return {int(each["token"]): each["number"] for each in told}


def produce(cluster: JoinedCluster, name: str) -> None:
    with client.Producer(cluster.endpoints[1]) as producer:
        sent = [producer.send("t", f"{name} {key}".encode(), key=f"k{key}") for key in range(200)]
        for each in sent:
            each.result(60)


def retain(cluster: JoinedCluster) -> None:
    for ordinal in range(4):
        for number in processes(cluster, ordinal).values():
            tell(cluster.data(ordinal), number, retain=True)


def read(cluster: JoinedCluster, ordinal: int) -> set[str]:
    """By name what is read through a broker, from the first event that is left."""
    endpoint = cluster.endpoints[ordinal]
    done = barco("consume", "t", "--from", "earliest", "--values", "--endpoint", endpoint)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(set(lines)) == len(lines), "each once"
    return {line.split()[0] for line in lines if lines.count(line) == 1}


def renew(cluster: JoinedCluster) -> None:
    """Every generation that is open ends: what came before is history."""
    for ordinal in range(4):
        for number in processes(cluster, ordinal).values():
            tell(cluster.data(ordinal), number, renew=True)
    for ordinal in range(4):
        cluster.wait_in_sync(ordinal)


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_what_was_left_goes_and_its_process_and_comes_back(cluster: JoinedCluster) -> None:
    produce(cluster, "first")
    for ordinal in range(4):
        ask(cluster.data(ordinal), idle=1.0)
    grown = barco("scale", "--to", 4, "--timeout", 90, "--endpoint", cluster.endpoints[1])
    assert grown.returncode == 0, grown.stdout + grown.stderr
    for ordinal in range(4):
        until("all see it", lambda at=ordinal: routes(cluster, at) == FOUR)
        cluster.wait_in_sync(ordinal)
    produce(cluster, "second")
    assert read(cluster, 3) == {"first", "second"}
    left = processes(cluster, 2)[OLD]
    files = cluster.data(2) / directory_of(OLD)
    assert list(files.glob("*/*.log")), "it has left, and keeps what it had"
    tell(cluster.data(2), left, retain=True)
    assert OLD in processes(cluster, 2), "the others have all of it"

    renew(cluster)
    produce(cluster, "third")

    def ended() -> bool:
        retain(cluster)
        return OLD not in processes(cluster, 2)

    until("its process has ended", ended)
    assert not list(files.glob("*/*.log")), "nothing of it is left"
    for ordinal in range(4):
        assert "third" in read(cluster, ordinal), "nobody waits for who has had what came before"

    # Three again: it is a member of that range once more, and remembers what it had promised.
    drained = barco("drain", 3, "--timeout", 120, "--endpoint", cluster.endpoints[1])
    assert drained.returncode == 0, drained.stdout + drained.stderr
    for ordinal in range(3):
        until("all see it", lambda at=ordinal: routes(cluster, at) == THREE)
        cluster.wait_in_sync(ordinal)
    assert OLD in processes(cluster, 2)
    produce(cluster, "fourth")
    assert {"third", "fourth"} <= read(cluster, 2)
