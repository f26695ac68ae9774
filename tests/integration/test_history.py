"""A range that was split off, led by a process that never had a group of its parent: three real
brokers, and what the new leader has of its parent by asking those who hold it."""

import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import splitting
from growing import ask, entry, local_cluster
from splitting import tell

from barco.model.placement import Placement
from barco.model.ranges import token_of_slice
from barco.model.token import token_of

CUT = Placement(3, 8)
OLD, NEW = token_of_slice(CUT, 0), token_of_slice(CUT, 4)
END = token_of_slice(CUT, 8)
SECONDS = 30.0


def until(what: str, holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while not (found := holds()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.05)
    return found


def key_of(slice_: int) -> str:
    """Of a slice of broker 0's range."""
    keys = (str(number) for number in range(100_000))
    return next(key for key in keys if CUT.locate(token_of(key.encode())) == (0, slice_))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    made = local_cluster(tmp_path, Path(splitting.__file__).resolve())
    for ordinal in range(3):
        made.wait_in_sync(ordinal)
    yield made
    made.stop()


def produce(cluster: Any, slice_: int, values: list[bytes]) -> None:
    connection = http.client.HTTPConnection(cluster.hosts[0], 9251, timeout=30)
    path = f"/v1/topic/t/messages?partitionKey={key_of(slice_)}"
    for value in values:
        connection.request("POST", path, value)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
    connection.close()


def split(cluster: Any, members: tuple[int, ...] = (1, 2, 0)) -> None:
    """Slices 4 to 7 of broker 0's range become one of their own, led by the first of members."""
    for ordinal in members:
        ask(cluster.data(ordinal), add=entry(NEW, 4, 4, list(members)))

    def said(ordinal: int, worker: int) -> Any:
        return tell(cluster.data(ordinal), worker)

    old = [said(ordinal, ordinal) for ordinal in range(3)]
    new = {at: until("it is there", lambda at=at: said(at, 3)) for at in members}
    disks = [disk for _, disk, _ in old]
    assert old[0][2] == "leader"
    children = [
        {
            "token": OLD,
            "end": NEW,
            "leader": [0, old[0][0]],
            "members": [[at, disks[at]] for at in range(3)],
        },
        {
            "token": NEW,
            "end": END,
            "leader": [0, new[members[0]][0]],
            "members": [[at, disks[at]] for at in members],
        },
    ]
    tell(cluster.data(0), 0, split=children)
    until("the new range is led", lambda: said(members[0], 3)[2] == "leader")
    for at in members[1:]:
        until("the new range is followed", lambda at=at: said(at, 3)[2] == "follower")


def operation(cluster: Any, ordinal: int, op: str, **args: Any) -> Any:
    answer = tell(cluster.data(ordinal), 3, op=op, args=args)
    assert not (isinstance(answer, dict) and "refused" in answer), answer
    return answer


def test_its_leader_begins_with_the_state_of_its_parent(cluster: Any) -> None:
    """Offsets go on where they were; other slices are not in it."""
    produce(cluster, 5, [b"%d" % number for number in range(40)])
    produce(cluster, 1, [b"x"])
    split(cluster)
    described = operation(cluster, 1, "topics", topic="t")["t"]["streams"]
    assert [(stream[0], stream[2]) for stream in described] == [(5, 40)]
