"""A process that dies before it knows what its range came of is told by whoever is left."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import splitting
from joining import JoinedCluster, barco, told_what_to_do, until
from splitting import tell

import barco as client
from barco.errors import BarcoError
from barco.model.placement import Placement
from barco.model.ranges import token_of_slice
from barco.model.token import token_of

CUT = Placement(3, 8)
FIRST = 16
RANGE = token_of_slice(CUT, FIRST)
MEMBERS = [2, 0, 3]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    """Three brokers, and one more that has joined and waits; workers do what a test says."""
    yield from told_what_to_do(tmp_path, Path(splitting.__file__))


def number_of(cluster: JoinedCluster, ordinal: int) -> int | None:
    """Of a broker's process for the range."""
    told = json.loads((cluster.data(ordinal) / "processes.json").read_text())["processes"]
    return next((each["number"] for each in told if each["token"] == str(RANGE)), None)


def role(cluster: JoinedCluster, ordinal: int) -> str:
    number = number_of(cluster, ordinal)
    answer = tell(cluster.data(ordinal), number) if number is not None else None
    return str(answer[2]) if answer else ""


def members(cluster: JoinedCluster, at: int) -> list[int]:
    """Of the range, as a broker has heard."""
    try:
        with client.Admin(cluster.endpoints[at], timeout_s=20.0) as admin:
            routes = admin.topology()["routes"]
    except BarcoError:
        return []
    return next((each["members"] for each in routes if each["first"] == FIRST), [])


def key() -> str:
    keys = (str(number) for number in range(100_000))
    return next(each for each in keys if CUT.locate(token_of(each.encode()))[0] == 2)


def test_who_was_killed_before_it_knew_is_told_by_the_two_that_are_left(
    cluster: JoinedCluster,
) -> None:
    """A range gets a new member, which is killed before it has heard of that; and another member
    is down. The new one is needed, and hears it from the leader and from whom it stands in for."""
    until("it waits", lambda: role(cluster, 3) == "starting")
    number = number_of(cluster, 3)
    assert number is not None
    tell(cluster.data(3), number, deaf=True)
    at = cluster.endpoints[1]
    assert barco("scale", "--to", 4, "--no-wait", "--endpoint", at).returncode == 0
    until("it is a member", lambda: members(cluster, 2) == members(cluster, 1) == MEMBERS)
    cluster.kill(0)
    assert role(cluster, 3) == "starting", "it was not to know"
    (pid,) = {
        line["pid"]
        for line in map(json.loads, cluster.log(3).read_text().splitlines())
        if line.get("message") == "worker ready" and line.get("worker") == number
    }
    os.kill(pid, signal.SIGKILL)
    until("it follows", lambda: role(cluster, 3) == "follower")
    with client.Producer(cluster.endpoints[1:3]) as producer:
        producer.send("t", b"acknowledged by two", key=key()).result(60)
