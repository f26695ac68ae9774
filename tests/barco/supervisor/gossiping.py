"""Real gossip nodes on 127.0.0.x, in the event loop of a test."""

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from barco.cluster.gossip.facts import BROKER, BrokerInfo
from barco.cluster.gossip.gossip import AckWanted, Effect, Gossip
from barco.mutual import Mutual
from barco.protocol.gossip import GOSSIP_VERSION, Hello
from barco.supervisor.gossip import GossipNode

CLUSTER = "c" * 32


def host(ordinal: int) -> str:
    """One loopback address each: a broker binds its outgoing sockets to its own."""
    return f"127.0.0.{ordinal + 1}"


def hello(ordinal: int, brokers: int, **changes: Any) -> Hello:
    """A greeting as a broker's configuration would make it."""
    made = Hello(
        protocol=GOSSIP_VERSION,
        version="0.1.0",
        cluster_uuid=CLUSTER,
        ordinal=ordinal,
        disk_uuid=f"{ordinal:032x}",
        session=random.getrandbits(63),
        brokers=brokers,
        slices_per_range=8,
        workers=2,
        format=1,
    )
    return replace(made, **changes)


class Lab:
    """Some brokers' gossip, with listeners of their own."""

    def __init__(self, brokers: int) -> None:
        self.brokers = brokers
        self.listeners = {o: socket.create_server((host(o), 0)) for o in range(brokers)}
        self.addresses = [listener.getsockname()[:2] for listener in self.listeners.values()]
        self.nodes: dict[int, GossipNode] = {}
        self.effects: dict[int, list[Effect]] = {}
        self.incarnation = 0
        self.keys: dict[int, bytes] = {}
        self.mutual: dict[int, Mutual] = {}

    async def start(
        self, ordinal: int, *, listed: int | None = None, most: int | None = None, **changes: Any
    ) -> GossipNode:
        """Start one, with some of its greeting changed. listed: how many its configuration has, of
        at most so many."""
        self.incarnation += 1
        listed = listed or self.brokers
        greeting = hello(ordinal, self.brokers, **changes)
        me = BrokerInfo(
            ordinal=ordinal,
            disk_uuid=greeting.disk_uuid,
            session=greeting.session,
            address=host(ordinal),
            ports=(("gossip", self.addresses[ordinal][1]),),
            workers=2,
            version="0.1.0",
            incarnation=self.incarnation,
        )
        loop = asyncio.get_running_loop()
        effects = self.effects[ordinal] = []

        def on_effect(effect: Effect) -> None:
            effects.append(effect)
            if isinstance(effect, AckWanted):
                more = node.machine.acknowledge(effect.ordinal, effect.number, node.now())
                loop.call_soon(node.run, more)

        machine = Gossip(me, listed, random=random.Random(), now=loop.time(), most=most)
        node = self.nodes[ordinal] = GossipNode(
            machine,
            greeting,
            self.addresses[:listed],
            bind=host(ordinal),
            on_effect=on_effect,
            seal=(self.keys.get(ordinal, b""), self.mutual.get(ordinal, Mutual(CLUSTER, {}))),
            most=most,
        )
        listener = self.listeners.pop(ordinal, None)
        await node.start(listener or socket.create_server(self.addresses[ordinal]))
        return node

    async def crash(self, ordinal: int) -> None:
        """As a SIGKILL does: every socket is closed by the kernel, nobody takes leave."""
        await self.nodes.pop(ordinal).close(depart=False)

    def state(self, at: int, about: int) -> str | None:
        """How one sees another."""
        fact = self.nodes[at].machine.store.get(BROKER, about)
        return None if fact is None else BrokerInfo.of(fact).state_name

    def all_see(self, about: int, *states: str) -> bool:
        """Whether all others see it so."""
        return all(self.state(at, about) in states for at in self.nodes if at != about)

    def whole(self) -> bool:
        """Everybody sees everybody alive."""
        return all(self.all_see(about, "alive") for about in self.nodes)

    async def close(self) -> None:
        """Stop all."""
        for node in self.nodes.values():
            await node.close(depart=False)
        for listener in self.listeners.values():
            listener.close()


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for it; the bound is generous, it only ends a test that has failed."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
