"""Processes for ranges that come and go while a broker runs: what a split will use."""

import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import growing
import pytest
from growing import ask, entry, local_cluster
from running import RunningBroker, key_of

from barco.model.placement import Placement
from barco.model.ranges import directory_of, token_of_slice
from barco.workers.storage.files.lineage import Lineage

SCRIPT = Path(growing.__file__)
HALF = token_of_slice(Placement(1, 8), 4)
SECONDS = 120.0


class Growing(RunningBroker):
    program = (str(SCRIPT),)


def until(what: str, holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while not (found := holds()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.05)
    return found


def get(address: str, path: str, method: str = "GET", body: bytes = b"") -> tuple[int, Any]:
    """Status and document."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


def log_of(path: Path) -> list[dict[str, Any]]:
    """Of a log that is being written: its last line may not be whole."""
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


def said(path: Path, message: str, worker: int) -> int:
    """How often that was said of a worker."""
    lines = log_of(path)
    return sum(line["message"] == message and line.get("worker") == worker for line in lines)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path / "data", workers=1)
    made.start()
    yield made
    made.end()


def endpoints(broker: RunningBroker) -> list[str]:
    return list(broker.request("GET", "/v1/brokers", listener="discovery").json["shardEndpoints"])


def knows(address: str, both: list[str]) -> bool:
    """Whether the process behind a shard endpoint has been told of both, and sees them ready."""
    told, shown = get(address, "/v1/brokers")[1], get(address, "/status")[1]
    if told is None or shown is None or told["shardEndpoints"] != both:
        return False
    shards = [(each["worker"], each["ready"]) for each in shown["shards"]]
    return bool(shown["status"] == "ready" and shards == [(0, True), (1, True)])


def listening(broker: RunningBroker) -> set[int]:
    """The sockets that listen on the public port of producers, by their numbers."""
    port = f"{broker.port('produce'):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return {int(row[9]) for row in rows if row[1].endswith(f":{port}") and row[3] == "0A"}


def test_a_process_for_a_range_that_was_not_there(broker: Growing) -> None:
    """It says that it is ready, and holds an empty journal; the others go on."""
    data = broker.data_dir
    broker.produce("t", b"1\n", key=key_of(broker, "t", 5))
    table = ask(data, add=entry(HALF, 4, 4, [0]))
    assert [(each["number"], each["token"]) for each in table] == [(0, str(-(2**63))), (1, "0")]
    assert json.loads((data / "processes.json").read_text())["processes"] == table

    def ready() -> bool:
        """Meanwhile nobody is sent to one that is not."""
        assert broker.request("GET", "/v1/topology").status == 200
        return said(broker.log_path, "worker ready", 1) > 0

    until("it is ready", ready)
    assert len(broker.worker_pids()) == 2
    until("it serves the public ports", lambda: len(listening(broker)) == 2)
    directory = data / directory_of(HALF)
    assert Lineage.load(directory, repair=False).journal == []
    assert not list(directory.glob("gen-*"))
    # The other process has been told of it, and it of the other one.
    both = until("one is told", lambda: len(found := endpoints(broker)) == 2 and found)
    for each in both:  # On the public ports any of them answers.
        until(f"{each} is told", lambda each=each: knows(each, both))
    # Slices 4 to 7 are still in the log that they were in.
    broker.produce("t", b"2\n", key=key_of(broker, "t", 5))
    _, topology = get(both[1], "/v1/topology")
    assert [slice_["worker"] for slice_ in topology["ranges"][0]["slices"]] == [0] * 8
    assert [shard["slices"] for shard in topology["shards"]] == [[0, 7]]
    assert Lineage.load(directory, repair=False).journal == []


def test_it_lives_as_long_as_the_table_has_it(broker: Growing) -> None:
    """Killed it is started again, with a broker too; ended it gives its number back."""
    data = broker.data_dir
    ask(data, add=entry(HALF, 4, 4, [0]))
    until("it is ready", lambda: said(broker.log_path, "worker ready", 1))
    (pid,) = (
        line["pid"]
        for line in log_of(broker.log_path)
        if line["message"] == "worker ready" and line["worker"] == 1
    )
    os.kill(pid, signal.SIGKILL)
    until("it is ready again", lambda: said(broker.log_path, "worker ready", 1) == 2)
    assert broker.stop() == 0
    broker.restart()  # Returns when the broker says that it is ready.
    assert len(broker.ready["workers"]) == 2 and len(broker.ready["shards"]) == 2
    until("both see it", lambda: all(knows(each, endpoints(broker)) for each in endpoints(broker)))
    table = ask(data, end=HALF)
    assert [each["number"] for each in table] == [0]
    assert json.loads((data / "processes.json").read_text())["processes"] == table
    until("nobody calls it", lambda: len(endpoints(broker)) == 1)
    assert len(broker.worker_pids()) == 1 and (data / directory_of(HALF)).is_dir()
    broker.produce("t", b"3\n", key=key_of(broker, "t", 5))
    three = token_of_slice(Placement(1, 8), 6)
    assert [each["number"] for each in ask(data, add=entry(three, 6, 2, [0]))] == [0, 1]


def test_what_can_not_be_added_changes_nothing(broker: Growing) -> None:
    data = broker.data_dir
    before = (data / "processes.json").read_text()
    for asked, words in (
        (entry(-(2**63), 0, 8, [0]), "has a process already"),
        (entry(HALF, 5, 3, [0]), "does not begin with slice 5"),
        (entry(HALF, 4, 4, [1, 2]), "has members"),
        (entry(HALF, 4, 9, [0]), "9 slices"),
    ):
        assert words in ask(data, add=asked)["refused"]
    assert (data / "processes.json").read_text() == before
    assert len(endpoints(broker)) == 1 and len(broker.worker_pids()) == 1
    assert len(listening(broker)) == 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    made = local_cluster(tmp_path, SCRIPT)
    yield made
    made.stop()


def told(cluster: Any, at: int, of: int) -> list[str]:
    """The shard endpoints of a broker, as another one has heard."""
    brokers = get(f"{cluster.hosts[at]}:9250", "/v1/topology")[1]["brokers"]
    return list(brokers[of]["shardEndpoints"])


def test_the_other_brokers_hear_of_it(cluster: Any) -> None:
    """By gossip; it dials and is dialled, and hands on what it does not lead."""
    token = token_of_slice(Placement(3, 8), 4)
    for ordinal in (1, 2):
        table = ask(cluster.data(ordinal), add=entry(token, 4, 4, [1, 2, 0]))
        assert [each["number"] for each in table] == [0, 1, 2, 3]
    new = [f"{cluster.hosts[1]}:{9300 + number}" for number in range(4)]
    for at in range(3):
        until(f"broker {at} has heard of it", lambda at=at: told(cluster, at, 1) == new)
        assert len(told(cluster, at, 0)) == 3
    for ordinal in (1, 2):
        directory = cluster.data(ordinal) / directory_of(token)
        until("it is ready", lambda at=ordinal: said(cluster.log(at), "worker ready", 3))
        assert Lineage.load(directory, repair=False).journal == []
    for ordinal in range(3):
        cluster.wait_in_sync(ordinal)
    until("every slice can be written by it", lambda: get(new[3], "/ready")[0] == 200)
    for number in range(30):
        path = f"/v1/topic/t/messages?partitionKey=k{number}"
        assert get(new[3], path, "POST", b"x")[0] == 200
    shards = get(f"{cluster.hosts[0]}:9250", "/v1/topology")[1]["shards"]
    assert [len(shard["members"]) for shard in shards] == [3, 3, 3]
    # A broker that starts anew has its table, and the others have it from the broker.
    cluster.stop([1])
    cluster.start(1)
    cluster.wait_ready([1])
    cluster.wait_in_sync(1)
    until("it is told again", lambda: told(cluster, 0, 1) == new)
    assert [each["number"] for each in ask(cluster.data(1), end=token)] == [0, 1, 2]
    until("it is told that it ended", lambda: told(cluster, 0, 1) == new[:3])
    # At broker 2 nobody ends it: it holds nothing, and neither target nor routes want it there.
    last = f"{cluster.hosts[2]}:9303"
    assert len(told(cluster, 0, 2)) == 4 and said(cluster.log(2), "worker stopped", 3) == 0
    ask(cluster.data(2), idle=0.5)
    until("it is ended by itself", lambda: said(cluster.log(2), "worker stopped", 3))
    until("others are told", lambda: len(told(cluster, 0, 2)) == 3)
    table = json.loads((cluster.data(2) / "processes.json").read_text())["processes"]
    assert [each["number"] for each in table] == [0, 1, 2] and get(last, "/ready")[0] == 0
    ask(cluster.data(2), idle=300.0)
    assert len(ask(cluster.data(2), add=entry(token, 4, 4, [1, 2, 0]))) == 4, "and it comes back"
    until("it is ready again", lambda: get(last, "/ready")[0] == 200)
