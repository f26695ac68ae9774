"""A hostile member's gossip against whole brokers: two honest ones serve on, whatever it says.

Broker 2 of a ring of three is killed, and its gossip is played from its address, with its secret
and its disk's name. One writes and one consumes beside.
"""

import asyncio
import itertools
import os
import random
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from test_gossip_member import LAST, frames
from test_member import gap_max, least_of

import barco
from barco.cluster.gossip.facts import (
    DOWN,
    LEFT,
    BrokerInfo,
    ConsumerInfo,
    Fact,
    LeaderInfo,
    TopicsInfo,
)
from barco.cluster.gossip.gossip import Gossip
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute
from barco.config import load as load_config
from barco.errors import BarcoError
from barco.mutual import Mutual
from barco.protocol import frame
from barco.protocol.door import link_key
from barco.protocol.gossip import GOSSIP_VERSION, Hello, Push, to_frame
from barco.supervisor.datadir import load
from barco.supervisor.gossip import GossipNode
from barco.supervisor.secret import read_secret

PORT = 9255
CUT = Cut(3, 8)
SECONDS = 30.0
"""Generous: it only ends what has failed."""

TAIL = 50
"""Of what is acknowledged, the last so many may still be on their way to the consumer."""


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
        yield made
    finally:
        for ordinal in range(3):
            made.kill(ordinal)


class Users:
    """One writer and one consumer at the honest brokers, each in a thread of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.acknowledged: list[bytes] = []
        self.at: list[float] = []
        """When each was, on the monotonic clock, in seconds."""
        self.received: set[bytes] = set()
        self.refused: list[str] = []
        self._endpoints = cluster.endpoints[:2]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]

    def start(self) -> None:
        """Both."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Both; returns when they have ended."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def longest(self, since: float) -> float:
        """The longest time without an acknowledgement, in seconds, since then."""
        times = [since, *(at for at in list(self.at) if at > since), time.monotonic()]
        return max(after - before for before, after in itertools.pairwise(times))

    def _write(self) -> None:
        with barco.Producer(self._endpoints) as producer:
            for number in itertools.count():
                if self._ended.is_set():
                    return
                value = b"%d" % number
                try:
                    producer.send("t", value, key=b"%d" % (number % 97)).result(SECONDS)
                except BarcoError as error:
                    self.refused.append(f"write: {error}")
                    continue
                self.acknowledged.append(value)
                self.at.append(time.monotonic())

    def _read(self) -> None:
        while not self._ended.is_set():
            try:
                with barco.Consumer(
                    "t", group="g", endpoint=self._endpoints, start="earliest", consumer_id="ann"
                ) as consumer:
                    while not self._ended.is_set():
                        self.received |= {bytes(event.value) for event in consumer.poll(0.2)}
            except BarcoError as error:  # Said to have ended, say: an application begins anew.
                self.refused.append(f"poll: {error}")
                self._ended.wait(0.1)


def facts(rng: random.Random, known: Gossip) -> Iterator[Fact]:
    """What would do most harm, about all that the liar knows."""
    numbers = (0, 1, 2**63 - 1, 2**63, LAST - 1, LAST)
    while True:
        about = known.store.get("broker", rng.randrange(2))
        if about is not None:
            info = BrokerInfo.of(about)
            given = rng.choice((*numbers, (info.incarnation + rng.choice((1, 2**63 - 1))) % 2**64))
            lie = replace(info, incarnation=given, state=rng.choice((0, DOWN, LEFT)))
            yield replace(lie, address=rng.choice((info.address, "127.0.0.9")), session=7).fact()
        for leader in list(known.store.all("leader")):
            led = LeaderInfo.of(leader).route
            epoch = rng.choice((led.epoch + 1, led.epoch, 2**63 - 1))
            yield LeaderInfo(led._replace(epoch=min(epoch, 2**63 - 1), leader=2)).fact()
            wide = RangeRoute(1, 23, CUT.token(1), 2**63 - 1, 2, (2,))
            yield LeaderInfo(rng.choice((wide, wide._replace(handed=True)))).fact()
        now = int(time.time() * 1000)
        for said in list(known.store.all("consumer")):
            consumer = ConsumerInfo.of(said)
            counter = rng.choice((consumer.counter, now + 2**40, 2**47, 2**48 - 1))
            removed = rng.choice((0, 0, 0, now // 1000, 2**40 - 1))
            ended = replace(consumer, counter=counter, removed_at=removed)
            yield replace(ended, heard=rng.choice(numbers)).fact()
        yield TopicsInfo(ordinal=0, incarnation=LAST, counter=LAST, digest="x", count=1).fact()


def liar(cluster: LocalCluster, seed: int) -> GossipNode:
    """Broker 2's gossip: real, and let in like any other."""
    identity = load(cluster.data(2))
    assert identity is not None
    hello = Hello(
        protocol=GOSSIP_VERSION,
        version=barco.__version__,
        cluster_uuid=identity.cluster_uuid,
        ordinal=2,
        disk_uuid=identity.disk_uuid,
        session=seed + 1,
        brokers=3,
        slices_per_range=identity.slices_per_range,
        workers=identity.workers,
        format=identity.format,
        replaces=identity.replaces,
    )
    me = BrokerInfo(
        ordinal=2,
        disk_uuid=identity.disk_uuid,
        session=seed + 1,
        address=cluster.hosts[2],
        ports=(("gossip", PORT),),
        workers=identity.workers,
        version=barco.__version__,
        incarnation=int(time.time() * 1000),
    )
    now = asyncio.get_running_loop().time()
    return GossipNode(
        Gossip(me, 3, random=random.Random(seed), now=now),
        hello,
        [(host, PORT) for host in cluster.hosts],
        bind=cluster.hosts[2],
        on_effect=lambda effect: None,
        seal=(
            link_key(read_secret(load_config(cluster.config(2))), identity.cluster_uuid),
            Mutual(identity.cluster_uuid, {}),
        ),
    )


async def lie(cluster: LocalCluster, seed: int, seconds: float) -> dict[int, int]:
    """To both, a fact each 10 ms and wrong frames in between; how much was said to each."""
    rng, node = random.Random(seed), liar(cluster, seed)
    await node.start(socket.create_server((cluster.hosts[2], PORT)))
    said, lies = {0: 0, 1: 0}, facts(rng, node.machine)
    wrong = itertools.cycle(frames(rng, 40))
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for victim in said:
                # Whoever hears what cannot be hangs up, and is dialled again.
                for link in node._peers[victim].links[-1:]:
                    if not link.writer.transport.is_closing():
                        told = frame.encode(to_frame(Push(facts=(next(lies).packed,))))
                        link.writer.write(told if rng.random() < 0.9 else next(wrong))
                        said[victim] += 1
            await asyncio.sleep(0.01)
    finally:
        await node.close(depart=False)
    return said


def attacked(cluster: LocalCluster, seed: int, seconds: float) -> None:
    """Two brokers live on with all that they acknowledged; all is well once the liar is gone."""
    users = Users(cluster)
    users.start()
    try:
        until("writes", lambda: len(users.acknowledged) > TAIL and bool(users.received))
        cluster.kill(2)
        before = len(users.acknowledged)
        until("writes without it", lambda: len(users.acknowledged) > before + TAIL)
        since = time.monotonic()
        time.sleep(1.0)
        quiet = users.longest(since)
        pids = [cluster.pid(ordinal) for ordinal in (0, 1)]
        said: dict[int, int] = {}

        def paused() -> float:
            since = time.monotonic()
            said.update(asyncio.run(lie(cluster, seed, seconds)))
            return users.longest(since)

        longest = least_of(quiet, paused)
        print(f"seed {seed}: {said} frames; longest without an acknowledged write {longest:.3f} s")
        print(f"(quiet {quiet:.3f} s); refused: {users.refused[:5]} of {len(users.refused)}")
        assert min(said.values()) > 20 * seconds, said
        assert longest < gap_max(quiet), (longest, quiet)
        until("two that see each other", lambda: seen(cluster, 0, 1) and seen(cluster, 1, 0))
        cluster.start(2)
        cluster.wait_ready()
        until("one view", lambda: agreed(cluster))
        acknowledged = set(users.acknowledged)
        until("the consumer", lambda: users.received >= acknowledged)
        assert [cluster.pid(ordinal) for ordinal in (0, 1)] == pids
    finally:
        users.stop()
    for ordinal in (0, 1):
        log = cluster.log(ordinal).read_text()
        for complaint in ("Traceback", "worker ended", '"critical"'):
            assert complaint not in log, log[max(log.index(complaint) - 1500, 0) :][:4000]
    missing = set(users.acknowledged) - everything(cluster)
    assert not missing, sorted(missing)[:10]


def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)


def peers(cluster: LocalCluster, at: int) -> dict[int, dict[str, Any]]:
    """How one broker sees the others."""
    return {peer["ordinal"]: peer for peer in cluster.status(at).get("peers", [])}


def seen(cluster: LocalCluster, at: int, about: int) -> bool:
    """Whether one broker holds another to be alive, where it is."""
    peer = peers(cluster, at).get(about, {})
    return (peer.get("state"), peer.get("address")) == ("alive", cluster.hosts[about])


def agreed(cluster: LocalCluster) -> bool:
    """All see all alive, in the same incarnation; and the same consumers."""
    views = [peers(cluster, at) for at in range(3)]
    if not all(seen(cluster, at, about) for at in range(3) for about in range(3) if at != about):
        return False
    for about in range(3):
        if len({view[about]["incarnation"] for view in views if about in view}) != 1:
            return False
    return consumers(cluster, 0) == consumers(cluster, 1) == consumers(cluster, 2) == ["ann"]


def consumers(cluster: LocalCluster, at: int) -> list[str]:
    """Members of the consumer's group, in one broker's view."""
    try:
        with barco.Admin(cluster.endpoints[at], timeout_s=5.0) as admin:
            return [each["consumerId"] for each in admin.group("g")["members"]]
    except BarcoError:
        return []


def everything(cluster: LocalCluster) -> set[bytes]:
    """All events of the topic, by a consumer of its own."""
    found: set[bytes] = set()
    with barco.Consumer("t", group="all", endpoint=cluster.endpoints, start="earliest") as reader:
        idle = 0
        while idle < 6:
            events = list(reader.poll(0.5))
            found |= {bytes(event.value) for event in events}
            idle = 0 if events else idle + 1
    return found


def test_the_gossip_of_a_hostile_member_to_whole_brokers(cluster: LocalCluster) -> None:
    attacked(cluster, 7, 6.0)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_the_gossip_of_a_hostile_member_for_long(cluster: LocalCluster) -> None:
    """`make hostile`: for BARCO_HOSTILE_SECONDS from BARCO_HOSTILE_SEED."""
    seconds = float(os.environ.get("BARCO_HOSTILE_SECONDS", "600"))
    attacked(cluster, int(os.environ.get("BARCO_HOSTILE_SEED", "100")), seconds)
