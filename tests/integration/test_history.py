"""A range that was split off, led by a process that never had a group of its parent: three real
brokers, and what the new leader has of its parent by asking those who hold it."""

import base64
import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import splitting
from growing import ask, entry, local_cluster
from splitting import tell

from barco._native import chunk_events, chunks_scan
from barco.model.placement import Placement
from barco.model.ranges import token_of_slice
from barco.model.token import token_of

CUT = Placement(3, 8)
OLD, NEW = token_of_slice(CUT, 0), token_of_slice(CUT, 4)
END = token_of_slice(CUT, 8)
SECONDS = 120.0
"""Generous: it only ends what has failed."""

PLACE = {"topic": "t", "slice": 5, "budget": 1 << 20, "stored": True, "frame": 0}


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
    connection = http.client.HTTPConnection(cluster.hosts[0], 9251, timeout=60)
    path = f"/v1/topic/t/messages?partitionKey={key_of(slice_)}"

    def stored(value: bytes) -> bool:
        """Once, though its leader may change meanwhile and what came of it is not known then."""
        headers = {"Idempotency-Key": f"{slice_} {value.decode()}"}
        connection.request("POST", path, value, headers)
        response = connection.getresponse()
        response.read()
        return response.status in (200, 204)

    for value in values:
        until("it is stored", lambda value=value: stored(value))
    connection.close()


def split(cluster: Any, members: tuple[int, ...] = (1, 2, 0)) -> None:
    """Slices 4 to 7 of broker 0's range become one of their own, led by the first of members."""
    for ordinal in members:
        ask(cluster.data(ordinal), add=entry(NEW, 4, 4, list(members)))

    def said(ordinal: int, worker: int) -> Any:
        return tell(cluster.data(ordinal), worker)

    until("its owner leads it", lambda: said(0, 0)[2] == "leader")
    old = [said(ordinal, ordinal) for ordinal in range(3)]
    new = {at: until("it is there", lambda at=at: said(at, 3)) for at in members}
    disks = [disk for _, disk, _ in old]
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
    topics = {"op": "topics", "args": {"topic": "t"}}
    until("it is open", lambda: "refused" not in tell(cluster.data(members[0]), 3, **topics))
    for at in members[1:]:
        until("the new range is followed", lambda at=at: said(at, 3)[2] == "follower")


def operation(cluster: Any, ordinal: int, op: str, **args: Any) -> Any:
    answer = tell(cluster.data(ordinal), 3, op=op, args=args)
    assert not (isinstance(answer, dict) and "refused" in answer), answer
    return answer


def read(cluster: Any, ordinal: int, **args: Any) -> tuple[list[tuple[int, bytes]], int, Any]:
    """Events of slice 5 with their offsets, where they end, and the answer."""
    answer = operation(cluster, ordinal, "read", **{**PLACE, **args})
    if answer["extent"] is None:
        return [], answer["offset"], answer
    _, _, start, end, _, chunks, *_ = answer["extent"]
    events = list[tuple[int, bytes]]()
    for piece in map(base64.b64decode, chunks):
        for at, *_ in chunks_scan(piece):
            events += [(offset, value) for offset, _, _, value in chunk_events(piece, at)]
    return [each for each in events if start <= each[0] < end], end, answer


def read_all(cluster: Any, ordinal: int, **args: Any) -> list[tuple[int, bytes]]:
    """Of slice 5, from its first event to its end."""
    found, at = list[tuple[int, bytes]](), 0
    while True:
        events, end, _ = read(cluster, ordinal, **{"from": at, **args})
        if not events:
            return found
        assert end > at
        found, at = found + events, end


def test_its_leader_begins_with_the_state_of_its_parent(cluster: Any) -> None:
    """Offsets go on where they were; other slices are not in it."""
    produce(cluster, 5, [b"%d" % number for number in range(40)])
    produce(cluster, 1, [b"x"])
    split(cluster)
    described = operation(cluster, 1, "topics", topic="t")["t"]["streams"]
    assert [(stream[0], stream[2]) for stream in described] == [(5, 40)]


def test_a_slice_is_read_from_its_first_event_on(cluster: Any) -> None:
    """The parent's events come first, from who holds them, then those that were written since; by
    the leader and by who follows, in large answers and in small ones, also if a holder is gone."""
    old = [b"old %d" % number for number in range(300)]
    produce(cluster, 5, old)
    middle = time.time_ns() // 1000
    split(cluster)
    new = [f"new {number}" for number in range(20)]
    assert tell(cluster.data(1), 3, append=["t", 5], values=new) == list(range(300, 320))
    wanted = list(enumerate([*old, *(value.encode() for value in new)]))
    for ordinal in (1, 2, 0):
        until("it has all", lambda at=ordinal: len(read_all(cluster, at)) == 320)
        assert read_all(cluster, ordinal) == wanted
    assert read_all(cluster, 1, budget=900) == wanted
    assert read_all(cluster, 1, budget=900, stored=False, frame=10) == wanted
    ends, at = [], 0
    while at < 320:
        extent = operation(cluster, 1, "read", **PLACE, columns=1, stop=310, **{"from": at})[
            "extent"
        ]
        assert extent[2] == at < extent[3] and extent[7] == 1
        ends.append(at := extent[3])
    assert ends[-1] == 320 and 300 < ends[0] <= 320, "of one answer, parent and child"
    # Places: what was first, what a time says, and what a cursor of before said.
    assert read(cluster, 1, **{"from": "earliest"})[2]["offset"] == 0
    assert read(cluster, 1, **{"from": "0"})[2]["offset"] == 0
    assert read(cluster, 1, **{"from": str(middle)})[2]["offset"] == 300
    assert read(cluster, 1, **{"from": 123}, budget=1)[0][0] == wanted[123]
    # Where history can be cut for Spark; retention by time looks at all of it.
    plan = operation(cluster, 1, "plan", topic="t", piece_bytes=1 << 30, at_us=None)["5"]
    sizes = [operation(cluster, 1, "plan", topic="t", piece_bytes=n, at_us=None)["5"] for n in (1,)]
    assert [cut[0] for cut in plan["splits"]] == [300] and sizes[0]["splits"][0][0] < 300
    assert sum(size for _, size in sizes[0]["splits"]) <= plan["bytes"] == sizes[0]["bytes"]
    # And what it is made of is told.
    line = operation(cluster, 1, "ping")["lineage"]
    told = [(each["token"], each["members"]) for each in line]
    assert [each for at, each in enumerate(told) if each not in told[:at]] == [
        (str(OLD), [0, 1, 2]),
        (str(NEW), [1, 2, 0]),
    ], "whoever led them: a busy machine changes leaders"
    assert line[0]["tail"] > 0 and line[1]["tail"] == -1
    cluster.kill(2)
    assert read_all(cluster, 1) == wanted
    # A start has forgotten nothing of it.
    cluster.start(2)
    cluster.wait_ready([2])
    until("it follows again", lambda: (tell(cluster.data(2), 3) or [0, 0, ""])[2] == "follower")
    until("it has all", lambda: tell(cluster.data(2), 3, op="ping", args={})["epoch"] > 0)
    until("it reads", lambda: readable(cluster, 2))
    assert read_all(cluster, 2) == wanted


def readable(cluster: Any, ordinal: int) -> bool:
    answer = tell(cluster.data(ordinal), 3, op="read", args={**PLACE, "from": 0})
    return isinstance(answer, dict) and "refused" not in answer


def http_get(cluster: Any, ordinal: int, port: int, method: str, path: str, accept: str) -> Any:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection(cluster.hosts[ordinal], port, timeout=30)
    connection.request(method, path, headers={"Accept": accept})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), body


def test_clients_notice_nothing(cluster: Any) -> None:
    """Events of before and after go by any broker: to producers, groups and plain readers."""
    produce(cluster, 5, [b"%d" % number for number in range(200)])
    split(cluster)
    until(
        "it is known who leads",
        lambda: '"endpoint":"' + cluster.hosts[1] + ":9303" in _slices(cluster),
    )
    produce(cluster, 5, [b"%d" % number for number in range(200, 240)])
    path, token = "/v1/topic/t/slices", str(OLD)
    place, found = "earliest", list[int]()
    while len(found) < 240:
        status, headers, body = http_get(
            cluster, 2, 9252, "GET", f"{path}/{token}/5/events?from={place}", "application/x-ndjson"
        )
        assert status == 200, body
        found += [int(json.loads(line)["value"]) for line in body.splitlines()]
        place = headers["Barco-Next-Cursor"]
    assert found == list(range(240))
    query = "consumerId=c&group=g&topic=t&onNewGroup=startFromEarliest"
    assert http_get(cluster, 0, 9252, "PUT", f"/v1/consumer/register?{query}", "*/*")[0] == 200
    polled = list[int]()
    until("all of it is polled", lambda: len(_polled(cluster, polled)) >= 240)
    assert polled == list(range(240))


def _slices(cluster: Any) -> str:
    _, _, body = http_get(cluster, 0, 9252, "GET", "/v1/topic/t/slices", "application/json")
    return str(body.decode())


def _polled(cluster: Any, polled: list[int]) -> list[int]:
    path = "/v1/consumer/poll?consumerId=c&waitMs=200&maxBytes=3000"
    for ordinal in range(3):  # Each gives out what it leads.
        status, _, body = http_get(cluster, ordinal, 9252, "POST", path, "application/x-ndjson")
        if status == 200:
            polled += [int(json.loads(line)["value"]) for line in body.splitlines()]
    return polled
