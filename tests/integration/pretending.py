"""Who comes to the ports between brokers, and says that it is broker 2 of a ring that runs."""

import asyncio
import json
import random
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from barco import __version__
from barco import config as configuration
from barco.cluster.gossip.facts import BrokerInfo
from barco.cluster.gossip.gossip import AckWanted, Effect, Gossip
from barco.errors import BarcoError
from barco.mutual import Mutual, Session
from barco.protocol.door import link_key
from barco.protocol.gossip import GOSSIP_VERSION
from barco.protocol.gossip import Hello as GossipHello
from barco.protocol.link import Hello
from barco.supervisor import datadir
from barco.supervisor.gossip import GossipNode
from barco.supervisor.secret import read_secret
from barco.workers.peers import links
from barco.workers.peers.links import End

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

ME = 2
REPLICATION_PORT, GOSSIP_PORT = 9256, 9255


def key_of(cluster: LocalCluster) -> tuple[str, bytes]:
    """The cluster's uuid, and what who knows the secret makes of both."""
    config = configuration.resolved(configuration.load(cluster.config(ME)))
    uuid = configuration.cluster_uuid(config)
    return uuid, link_key(read_secret(config), uuid)


def hello(cluster: LocalCluster, kind: str, uuid: str) -> Hello:
    """As the first process of broker 2 would say it."""
    identity = json.loads((cluster.data(ME) / "broker.json").read_text())
    return Hello(
        kind=kind,
        cluster_uuid=uuid,
        ordinal=ME,
        disk_uuid=identity["disk_uuid"],
        worker=0,
        token=0,
        session=time.time_ns(),
        ring_size=3,
        workers=1,
        slices_per_range=8,
    )


async def calls(
    cluster: LocalCluster, kind: str, mutual: Mutual, *, key: bytes = b"", process: int = 0
) -> str:
    """Broker 2 calls a process of broker 0; "" if it is let in. key: instead of the secret's."""
    uuid, known = key_of(cluster)
    end = End(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    loop = asyncio.get_running_loop()
    try:
        end.bind((cluster.hosts[ME], 0))
        await loop.sock_connect(end, (cluster.hosts[0], REPLICATION_PORT + process))
        greeting = hello(cluster, kind, uuid)
        said = await links._say_hello(end, greeting, key or known, mutual.tls)
        if not mutual.is_on:
            return ""
        session = Session(False, said[1], 0)
        if kind == "rpc":
            end.transport = await mutual.transport(end, session)
            lost = asyncio.Event()
            end.transport.set_protocol(Told(lost))
            end.transport.resume_reading()
            await asyncio.wait_for(lost.wait(), 5)
            return "closed"
        end.seal = await mutual.shake(end, session)
        return "" if await still_open(end) else "closed"
    except (BarcoError, OSError) as error:
        return str(error) or repr(error)
    finally:
        end.drop()


class Told(asyncio.Protocol):
    """Hears of the end."""

    def __init__(self, lost: asyncio.Event) -> None:
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()


async def still_open(end: End) -> bool:
    """Whether the other end has nothing against it."""
    try:
        async with asyncio.timeout(0.3):
            return bool(await asyncio.get_running_loop().sock_recv(end, 100))
    except TimeoutError:
        return True
    except OSError:
        return False


async def gossips(
    cluster: LocalCluster,
    mutual: Mutual,
    seen: Callable[[], bool],
    seconds: float,
    key: bytes = b"",
) -> bool:
    """Broker 2's supervisor looks for the others, for so long at most, or until they have `seen`
    it; whether they have. key: instead of the secret's."""
    uuid, known = key_of(cluster)
    identity = datadir.load(cluster.data(ME))
    assert identity is not None
    session = random.getrandbits(62)
    greeting = GossipHello(
        protocol=GOSSIP_VERSION,
        version=__version__,
        cluster_uuid=uuid,
        ordinal=ME,
        disk_uuid=identity.disk_uuid,
        session=session,
        brokers=identity.ring_size,
        slices_per_range=identity.slices_per_range,
        workers=identity.workers,
        format=identity.format,
    )
    me = BrokerInfo(
        ordinal=ME,
        disk_uuid=identity.disk_uuid,
        session=session,
        address=cluster.hosts[ME],
        ports=(("gossip", GOSSIP_PORT),),
        workers=identity.workers,
        version=__version__,
        incarnation=int(time.time() * 1000),
    )
    loop = asyncio.get_running_loop()

    def on_effect(effect: Effect) -> None:
        if isinstance(effect, AckWanted):
            loop.call_soon(node.run, machine.acknowledge(effect.ordinal, effect.number, node.now()))

    machine = Gossip(me, len(cluster.hosts), random=random.Random(), now=loop.time())
    addresses = [(host, GOSSIP_PORT) for host in cluster.hosts]
    seal = (key or known, mutual)
    node = GossipNode(
        machine, greeting, addresses, bind=cluster.hosts[ME], on_effect=on_effect, seal=seal
    )
    await node.start(socket.create_server(addresses[ME]))
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await asyncio.to_thread(seen):
                return True
            await asyncio.sleep(0.05)
        return False
    finally:
        await node.close(depart=False)
