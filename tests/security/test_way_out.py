"""What /status tells an operator to do when a liar has taken both followers' votes, followed."""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from hostile import FAR, exactly

import barco
from barco.config import load as load_config
from barco.errors import BarcoError
from barco.model.generation import Gid
from barco.model.placement import Placement
from barco.protocol import door, frame
from barco.protocol import replication as r
from barco.protocol.link import REPLICATION, RPC, Hello
from barco.supervisor.datadir import load
from barco.supervisor.secret import read_secret
from barco.workers.replication import wire

SECONDS = 60.0
"""Generous: it only ends what has failed."""

SHARD = 2
"""Of broker 2's own range; brokers 0 and 1 follow it with their processes 1 and 2."""


@pytest.fixture(autouse=True)
def _unharmed() -> None:
    """No broker of the neighbours' is needed here."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    made = LocalCluster(tmp_path, hosts=hosts, tied=True)
    made.write()
    try:
        for ordinal in range(3):
            made.start(ordinal)
        made.wait_ready()
        made.wait_in_sync(0)
        yield made
    finally:
        for ordinal in range(3):
            made.kill(ordinal)


def until(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def dial(
    cluster: LocalCluster,
    sender: tuple[int, int],
    to: tuple[int, int],
    kind: str,
    session: int,
    first: bytes = b"",
) -> tuple[socket.socket, int]:
    """A proved link between these processes, on which that was said at once; and the session of the
    one that was dialled."""
    identity, config = load(cluster.data(sender[0])), load_config(cluster.config(sender[0]))
    assert identity is not None
    hello = Hello(
        kind=kind,
        cluster_uuid=identity.cluster_uuid,
        ordinal=sender[0],
        disk_uuid=identity.disk_uuid,
        worker=sender[1],
        token=Placement(3, 8).token(sender[0]),  # Each sender here leads its own range.
        session=session,
        ring_size=3,
        workers=identity.workers,
        slices_per_range=identity.slices_per_range,
    )
    end = socket.create_connection(
        (cluster.hosts[to[0]], config.ports.replication + to[1]),
        timeout=10.0,
        source_address=(cluster.hosts[sender[0]], 0),
    )
    mine = frame.encode(hello.to_message() | {door.NONCE: os.urandom(door.NONCE_BYTES)})
    end.sendall(mine)
    stream = end.makefile("rb", buffering=0)
    theirs = exactly(stream, *frame.LENGTH.unpack(exactly(stream, 4)))
    answer = frame.decode(theirs)
    assert "refused" not in answer, answer
    exactly(stream, *frame.LENGTH.unpack(exactly(stream, 4)))
    key = door.link_key(read_secret(config), identity.cluster_uuid)
    proof = {door.PROOF: door.proof(key, door.CALLER, mine[4:], theirs)}
    end.sendall(frame.encode(proof) + first)
    return end, int(answer["session"])


def slander(cluster: LocalCluster) -> None:
    """In the name of the process that leads it: both followers' logs have lost their ends."""
    other, session = dial(cluster, (0, 0), (2, 0), RPC, 7)
    other.close()
    ends: list[socket.socket] = []

    def lie(follower: tuple[int, int], gid: Gid) -> None:
        word = wire.encode(r.Shrunk(gid, FAR))
        ends.append(dial(cluster, (2, 0), follower, REPLICATION, session, word)[0])

    def both() -> bool:
        """Both are told at once: one of them alone would be over with the next generation. And
        again: the true leader dials anew, and nothing is read any more of who dialled before."""
        gid = Gid(Placement(3, 8).token(SHARD), cluster.topology()["shards"][SHARD]["version"])
        threads = [threading.Thread(target=lie, args=(each, gid)) for each in ((0, 1), (1, 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(0.3)
        return bool(own(cluster, 0) and own(cluster, 1))

    until("that both say so", both)
    for end in ends:
        end.close()


def written(cluster: LocalCluster, numbers: range, seconds: float) -> list[int]:
    """Those that were acknowledged; keys of all ranges."""
    with barco.Producer(cluster.endpoints, delivery_timeout_s=seconds) as producer:
        sent = [(n, producer.send("t", b"%d" % n, key=b"k%d" % n)) for n in numbers]
        found = []
        for number, future in sent:
            try:
                future.result(seconds + 5)
                found.append(number)
            except BarcoError:
                pass
    return found


def own(cluster: LocalCluster, ordinal: int) -> list[str]:
    """Why a copy of this broker has no vote, as it says."""
    told = cluster.status(ordinal).get("degraded", [])
    return [each for each in told if each.startswith(f"broker {ordinal} has no vote")]


def barco_says(*command: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "barco", *command]
    return subprocess.run(line, check=False, capture_output=True, text=True)


def stored(cluster: LocalCluster) -> list[int]:
    return sorted(int(event.value) for event in barco.read("t", cluster.endpoints))


def behind(cluster: LocalCluster) -> list[str]:
    """In what broker 2 lacks something, but for the shard that nobody leads."""
    told = cluster.status(2).get("degraded", ["it does not answer"])
    nobody = f"broker 2 is behind (shard {SHARD})"
    return [each for each in told if each.startswith("broker 2 is behind") and each != nobody]


def replaced(cluster: LocalCluster, ordinal: int) -> str:
    """The new disk; the directory of the old one is moved aside."""
    cluster.data(ordinal).rename(cluster.root / f"aside-{ordinal}")
    done = barco_says("replace", "--config", str(cluster.config(ordinal)), "--json")
    assert done.returncode == 0, done
    return str(json.loads(done.stdout)["disk_uuid"])


def test_two_that_have_no_vote_on_a_lie(cluster: LocalCluster) -> None:
    """Followed as docs/operations.md has it, "Two copies without a vote"."""
    acknowledged = written(cluster, range(300), SECONDS)
    assert acknowledged == list(range(300))
    slander(cluster)
    for ordinal in (0, 1):
        (told,) = own(cluster, ordinal)
        assert "says broker 2" in told and "Two copies without a vote" in told
    assert not own(cluster, 2), "the one to keep"
    acknowledged += written(cluster, range(300, 400), 3.0)
    assert 300 < len(acknowledged) < 400, "the other ranges go on, this one stands still"
    cluster.kill(2)
    cluster.start(2)
    until("its answer", lambda: cluster.status(2))
    time.sleep(5.0)
    assert cluster.status(2)["status"] != "ready", "no start helps"

    cluster.stop([0])
    until("that broker 2 lacks nothing", lambda: not behind(cluster))
    cluster.stop([1])
    disks = [f"{ordinal}={replaced(cluster, ordinal)}" for ordinal in (0, 1)]
    cluster.stop([2])
    known = [str(cluster.data(2)), *(part for disk in disks for part in ("--disk", disk))]
    told = barco_says("recover", *known)
    assert told.returncode == 1, told
    done = barco_says("recover", *known, "--accept-data-loss")
    assert done.returncode == 0, done
    for ordinal in range(3):
        cluster.start(ordinal)
    cluster.wait_ready()
    assert written(cluster, range(400, 500), SECONDS) == list(range(400, 500))
    found = stored(cluster)
    assert set(acknowledged) <= set(found), "nothing that was acknowledged is lost"
    assert len(found) == len(set(found))
    cluster.wait_in_sync(2)
