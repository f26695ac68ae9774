"""A broker that leaves: copies of what it holds come to be elsewhere before it may go."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import splitting
from growing import ask, entry
from joining import JoinedCluster, barco, told_what_to_do, until
from splitting import tell

import barco as client
from barco.errors import BarcoError
from barco.model.placement import Placement
from barco.model.ranges import directory_of, token_of_slice
from barco.model.token import token_of
from barco.workers.storage.files.lineage import Lineage

CUT = Placement(3, 8)
OLD, NEW, END = (token_of_slice(CUT, at) for at in (0, 4, 8))
RATE = 192 * 1024
"""A copy takes 12 s: what is looked at while it goes on is looked at in time."""
EVENTS, EVENT_BYTES = 24, 100_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    """Three brokers, and one more that has joined and waits; workers do what a test says."""
    more = f"\n[drain]\nbytes_per_second = {RATE}\n"
    yield from told_what_to_do(tmp_path, Path(splitting.__file__), more)


def number_of(cluster: JoinedCluster, ordinal: int) -> int:
    """Of a broker's process for the range that is made."""
    told = json.loads((cluster.data(ordinal) / "processes.json").read_text())["processes"]
    return next(each["number"] for each in told if each["token"] == str(NEW))


def said(cluster: JoinedCluster, ordinal: int) -> Any:
    """(session, disk, role) of a broker's process for that range."""
    return tell(cluster.data(ordinal), number_of(cluster, ordinal))


def child(
    cluster: JoinedCluster, token: int, end: int, members: tuple[int, ...], *, first: bool
) -> dict[str, Any]:
    of = {at: tell(cluster.data(at), at) if first else said(cluster, at) for at in members}
    assert all(of.values()), of
    return {
        "token": token,
        "end": end,
        "leader": [0, of[members[0]][0]],
        "members": [[at, of[at][1]] for at in members],
    }


def leads(cluster: JoinedCluster, ordinal: int) -> None:
    until(f"broker {ordinal} leads", lambda: (said(cluster, ordinal) or (0, 0, 0))[2] == "leader")


def make(cluster: JoinedCluster) -> None:
    """Slices 4 to 7 of broker 0's range become one of their own, of brokers 3, 1 and 2."""
    for at in (3, 1, 2):
        ask(cluster.data(at), add=entry(NEW, 4, 4, [3, 1, 2]))
        until("it waits", lambda at=at: said(cluster, at))
    children = [
        child(cluster, OLD, NEW, (0, 1, 2), first=True),
        child(cluster, NEW, END, (3, 1, 2), first=False),
    ]
    until("it is led", lambda: (tell(cluster.data(0), 0) or (0, 0, 0))[2] == "leader")
    tell(cluster.data(0), 0, split=children)
    leads(cluster, 3)


def move(cluster: JoinedCluster, *members: int) -> None:
    """And then one of these: what it had until then is history."""
    moved = child(cluster, NEW, END, members, first=False)
    tell(cluster.data(3), number_of(cluster, 3), move=moved)
    leads(cluster, members[0])


def key() -> str:
    keys = (str(number) for number in range(100_000))
    return next(each for each in keys if CUT.locate(token_of(each.encode())) == (0, 5))


def produce(cluster: JoinedCluster, values: list[bytes]) -> None:
    connection = http.client.HTTPConnection(cluster.hosts[0], 9251, timeout=30)
    for value in values:
        connection.request("POST", f"/v1/topic/t/messages?partitionKey={key()}", value)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
    connection.close()


def leaves(cluster: JoinedCluster, at: int = 1) -> dict[str, Any]:
    """What broker `at` tells of broker 3; nothing as long as it does not."""
    try:
        with client.Admin(cluster.endpoints[at], timeout_s=20.0) as admin:
            told = admin.drains()["brokers"]
    except BarcoError:
        return {}
    return next((each for each in told if each["ordinal"] == 3), {})


def copied(cluster: JoinedCluster, ordinal: int) -> list[int]:
    """Epochs of the range that a broker holds as a depot, sealed."""
    lineage = Lineage.load(cluster.data(ordinal) / directory_of(NEW), repair=False)
    return [each.epoch for each in lineage.generations() if each.lodged and each.sealed]


def files(cluster: JoinedCluster, ordinal: int, epoch: int) -> list[bytes]:
    directory = cluster.data(ordinal) / directory_of(NEW) / f"gen-{epoch:010d}"
    return [path.read_bytes().rstrip(b"\0") for path in sorted(directory.glob("*.log"))]


@pytest.mark.chaos  # A ring that grows and shrinks: 45 s.
def test_a_broker_leaves_while_another_is_down(cluster: JoinedCluster) -> None:
    """Two members stay and one of them is down, so another copies; killed in the middle it goes on.
    Only then the broker may go."""
    make(cluster)
    values = [b"%d %s" % (number, os.urandom(EVENT_BYTES // 2).hex().encode())
              for number in range(EVENTS)]  # fmt: skip
    produce(cluster, values)
    ask(cluster.data(0), add=entry(NEW, 4, 4, [1, 2, 0]))
    until("it waits", lambda: said(cluster, 0))
    move(cluster, 1, 2, 0)
    # No target has named broker 3, so broker 0 does not count its word (`Voices`) until its journal
    # does; and of those that tell what was decided only brokers 1 and 3 are left from here on.
    until("it knows", lambda: said(cluster, 0)[2] == "follower")
    cluster.kill(2)
    at = cluster.endpoints[1]
    began = until(
        "it is copied", lambda: (told := leaves(cluster)).get("bytesLeft", 0) > 1 and told
    )
    assert not began["drained"] and began["up"] and began["copies"] >= 1

    def part() -> int:
        """What is left, when a third is there; of one answer, for files become shorter as well."""
        told = leaves(cluster)
        left: int = told.get("bytesLeft", 0)
        return left if 0 < 3 * left < 2 * told.get("bytesAll", 0) else 0

    before = until("a part is there", part)
    (pid,) = {
        line["pid"]
        for line in map(json.loads, cluster.log(0).read_text().splitlines())
        if line.get("message") == "worker ready" and line.get("worker") == number_of(cluster, 0)
    }
    os.kill(pid, signal.SIGKILL)
    status = until("it says so itself", lambda: cluster.status(3).get("leaves"))
    assert not status["drained"] and status["ordinal"] == 3
    again = until("it goes on", lambda: (told := leaves(cluster)) and not told["waits"] and told)
    assert again["bytesLeft"] <= before, "what was there is not copied again"
    done = barco("drain", 3, "--timeout", 180, "--endpoint", at)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left to copy" in done.stdout
    assert "broker 3 is drained: it may be stopped and removed" in done.stdout
    for epoch in (epochs := copied(cluster, 0)):
        assert files(cluster, 0, epoch) == files(cluster, 1, epoch) == files(cluster, 3, epoch)
    assert len(epochs) == began["copies"]
    shown = barco("status", "--endpoint", cluster.endpoints[3])
    assert "leaves   drained: it may be stopped and removed" in shown.stdout
    cluster.stop([3])
    read = barco("consume", "t", "--from", "earliest", "--values", "--endpoint", at)
    assert read.stdout.splitlines() == [value.decode() for value in values]


@pytest.mark.chaos
def test_a_broker_that_has_no_process_for_a_range_gets_one_as_its_depot(
    cluster: JoinedCluster,
) -> None:
    make(cluster)
    produce(cluster, [b"%d" % number for number in range(10)])
    move(cluster, 1, 3, 2)
    cluster.kill(2)
    until("it is started", lambda: (cluster.data(0) / directory_of(NEW)).exists()
          and said(cluster, 0))  # fmt: skip
    tell(cluster.data(0), number_of(cluster, 0), known=3)  # No target has named it here.
    until("it has a copy", lambda: (cluster.data(0) / directory_of(NEW)).exists()
          and copied(cluster, 0))  # fmt: skip
    until("it counts", lambda: (told := leaves(cluster)).get("bytesLeft") == 0 and told["copies"])
    for epoch in copied(cluster, 0):
        assert files(cluster, 0, epoch) == files(cluster, 1, epoch) != []
    # Its machine votes on nothing, and the core has nothing of it.
    assert said(cluster, 0)[2] not in ("leader", "follower")
    cluster.wait_ready([0])
