"""The control plane of a broker in a cluster: gossip, registrations and topology put together.

Stands where `Control` stands in a single broker: workers ask it and are told the views. What it
learns from other brokers goes to the workers by `send`, whenever it comes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import random
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

import barco
from barco import limits
from barco.cluster.gossip.facts import (
    BROKER,
    CONSUMER,
    LEADER,
    TARGET,
    TOPICS,
    BrokerInfo,
    Fact,
    LeaderInfo,
    TopicsInfo,
    newer,
    next_target_fact,
    target_in,
)
from barco.cluster.gossip.gossip import AckWanted, Changed, Delivered, Effect, Gossip
from barco.cluster.gossip.topology import Topology, broker_to_dict
from barco.cluster.groups.registrations import Registrations
from barco.cluster.ring.aim import Aim
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import Needs
from barco.cluster.ring.heard import HeardRoutes
from barco.cluster.ring.routes import RouteTable, checked_route, unpack_route
from barco.cluster.ring.target import Target, unpack_target
from barco.errors import ProtocolError
from barco.model.options import LOG_FORMATS
from barco.model.placement import ring_slices
from barco.model.ranges import HeldRange, ProcessTable
from barco.mutual import Mutual
from barco.protocol import messages
from barco.protocol.gossip import GOSSIP_OLDEST, Hello
from barco.supervisor import machine
from barco.supervisor.control import PEER, Control, Sends
from barco.supervisor.datadir import Identity
from barco.supervisor.files.notes import log_format
from barco.supervisor.files.routes import store_routes, stored_routes
from barco.supervisor.gossip import GossipNode
from barco.supervisor.listeners import Listeners
from barco.supervisor.sources.plan import ServePlan
from barco.supervisor.wire.changes import home_of, log_change, target_frame, told
from barco.types import Ordinal

log = logging.getLogger("barco.cluster")

FORGET_SECONDS = 10.0
"""How often it is looked for what nobody needs to remember."""


class Cluster:
    """One broker's part in its cluster. To be made within a running event loop.

    addresses: (host, port) of the gossip of every broker that is listed, by ordinal.
    send: takes frames for workers that no call of a worker has asked for. seal: as of `GossipNode`.
    data_dir: where the routes are kept; None: nowhere.
    """

    def __init__(
        self,
        me: BrokerInfo,
        hello: Hello,
        addresses: list[tuple[str, int]],
        *,
        bind: str,
        send: Callable[[Sends], None],
        seal: tuple[bytes, Mutual] | None = None,
        data_dir: Path | None = None,
    ) -> None:
        self._started = started = int(time.time() * 1000)
        self._send = send
        self._topology = Topology()
        self._told: dict[int, int] = {}
        self._receipt = 0
        self._receipts = itertools.count(1)
        self._topics = itertools.count(1)
        self._dirty = self._unstored = False
        self._forget_at = 0.0
        slices = ring_slices(hello.brokers, hello.slices_per_range)
        self._cut = Cut(hello.brokers, hello.slices_per_range)
        self.aim = Aim()
        """The brokers of which the cluster shall consist."""
        self._asked = 0
        self._needs = Needs(Ordinal(hello.ordinal))
        self._registrations = Registrations(
            slices,
            ordinal=hello.ordinal,
            ring=len(addresses),
            counter=started,
            unix_seconds=time.time,
            ranked=self._topology.ranks,
        )
        self._control = Control(self._registrations, self._take_receipt)
        self.pause = self._control.pause
        machine = Gossip(
            me,
            len(addresses),
            random=random.SystemRandom(),
            now=asyncio.get_running_loop().time(),
            most=len(slices),  # Each broker leads one at least.
            accept=self._accept,
        )
        self._ordinal = hello.ordinal
        self._listed = len(addresses)
        self._processes = me.processes
        self._heard = HeardRoutes(self._cut, hello.ordinal, self._is_present)
        self._data_dir, self._uuid = data_dir, hello.cluster_uuid
        self._hints = RouteTable(self._cut)
        if data_dir is not None:
            self._hints = stored_routes(data_dir, self._uuid, self._cut)
            self._heard.recall(self._hints)
        self.node = GossipNode(
            machine,
            hello,
            addresses,
            bind=bind,
            on_effect=self._effect,
            seal=seal,
            most=len(slices),
        )

    async def start(self, listener: socket.socket) -> None:
        """Listen, and look for the others."""
        await self.node.start(listener)

    def depart(self) -> None:
        """Tell the others that this broker is about to stop."""
        self.node.run(self.node.machine.depart(self.node.now()))

    async def close(self) -> None:
        """Take leave, and close all connections."""
        await self.node.close()
        self._store()

    @property
    def routes(self) -> RouteTable:
        """For each slice of the ring the route that counts; another table after each change."""
        return self._heard.routes

    # --- As Control -------------------------------------------------------------------------------

    def worker_ready(self, worker: int) -> Sends:
        """A worker is there: it gets the whole view, and the cluster as it is."""
        self._told[worker] = self._topology.version
        frames: Sends = [(worker, frame) for frame in self._topology.frames(0)]
        frames[-1][1]["hints"] = [route.packed() for route in self._hints]
        if self.aim.target is not None:
            frames.append((worker, target_frame(self.aim.target)))
        return frames + self._control.worker_ready(worker)

    def worker_gone(self, worker: int) -> Sends:
        """A worker died."""
        self._told.pop(worker, None)
        return self._dispatch(self._control.worker_gone(worker))

    def receive(self, worker: int, message: Mapping[str, Any], now: float) -> Sends:
        """A frame of a worker."""
        kind = message.get("type")
        if kind == messages.LEADS:
            self._leads(message)
            return []
        if kind == messages.TARGET:
            self._take_target(message)
            return []
        if kind == messages.TOPICS_DIGEST:
            self._topics_digest(message)
            return []
        if kind == messages.REQUEST and message.get("op") == "cluster":
            result = self.describe()
            reply = {"type": messages.REPLY, "id": message.get("id"), "ok": True, "result": result}
            return [(worker, reply)]
        sends = self._dispatch(self._control.receive(worker, message, now))
        self._publish()
        return sends

    def look(self, now: float) -> Sends:
        """After each `pause`."""
        sends = self._control.tick(now)
        self._publish()
        return self._dispatch(sends)

    def tick(self, now: float) -> Sends:
        """About once a second."""
        sends = self.look(now)
        if self._forget_at <= now:
            self._forget_at = now + FORGET_SECONDS
            for consumer_id in self._registrations.forgotten():
                self.node.machine.forget(CONSUMER, consumer_id)
        self._store()
        self._settle_target()
        return sends

    def renew(self, table: ProcessTable, sessions: Mapping[int, int] | None = None) -> None:
        """This broker's processes are others now, or others are ready: the other brokers are told.
        sessions: of those that are ready, by number."""
        self._processes = told(table, sessions)
        self._unstored |= self._heard.look_again()
        self._renew(self.node.machine.members.me.log)

    def _renew(self, log: tuple[int, int]) -> None:
        self.node.run(self.node.machine.renew(self.node.now(), self._processes, log))

    def note_format(self, noted: int) -> None:
        """The logs here have this format now."""
        read, before = self.node.machine.members.me.log
        if before != noted:
            self._renew((read, noted))

    def formats(self) -> list[tuple[int, int]] | None:
        """As `NotedRing` has it."""
        target, known = self.aim.target, self._topology.brokers
        those = range(self._cut.brokers) if target is None else target.workers
        others = {*those, *(n for n, info in known.items() if info.up)} - {self._ordinal}
        return [known[n].log for n in others] if others <= known.keys() else None

    @property
    def informed(self) -> bool:
        """Whether what is needed is known: the whole ring, and the target, if there is one."""
        return self.routes.is_covering and not self.aim.is_asked_for

    def needed(self) -> list[HeldRange]:
        """The ranges for which this broker needs a process now."""
        heard = self._topology.brokers
        return self._needs.look(
            self.aim.target,
            self.routes,
            ([each for each, info in heard.items() if info.up], heard),
            self._heard.is_home,
            [token for _, token, _ in self._processes],
        )

    # --- What workers tell ------------------------------------------------------------------------

    def _leads(self, message: Mapping[str, Any]) -> None:
        """A process has it in its journal that this generation was decided: so the others are told,
        by whoever has learned it first. It may be no member of it, but of one that was split."""
        packed = message.get("route")
        if not isinstance(packed, bytes):
            raise ProtocolError(f"a {messages.LEADS} frame has no route")
        route = unpack_route(self._cut, packed)
        self._unstored |= self._heard.learn(route)
        fact = LeaderInfo(route).fact()
        known = self.node.machine.store.get(LEADER, route.token)
        if known is None or newer(fact, known):
            self.node.run(self.node.machine.publish(fact, self.node.now()))

    def _take_target(self, message: Mapping[str, Any]) -> None:
        """A process keeps this one, or has asked who does."""
        try:
            target = unpack_target(self._cut, message["target"])
            if message.get("kept"):
                self.aim.kept = target
                if target.version > 0:
                    self._tell_target(target)
            if self.aim.said(target):
                log.info("the target of the cluster is version %d", target.version)
                self._send([(worker, target_frame(target)) for worker in self._told])
        except ProtocolError as error:  # A next worker would find the same in its log.
            log.error("the target can not be told, or is too large for it: %s", error)

    def _tell_target(self, target: Target) -> None:
        fact = next_target_fact(target, self.node.machine.store.get(TARGET, 0))
        self.node.run(self.node.machine.publish(fact, self.node.now()))

    def _settle_target(self) -> None:
        """Who keeps the target denies what gossip tells; others ask there, one process in turn."""
        route = self.routes.at(0)
        leads = route is not None and route.leader == self._ordinal and self._heard.is_home(0)
        if (target := self.aim.denied(leads)) is not None:
            self._tell_target(target)
        elif self.aim.is_asked_for and self._told:
            self._asked += 1
            worker = sorted(self._told)[self._asked % len(self._told)]
            self._send([(worker, {"type": messages.TARGET, "ask": True})])

    def _topics_digest(self, message: Mapping[str, Any]) -> None:
        info = TopicsInfo(
            ordinal=self._ordinal,
            incarnation=self._started,
            counter=next(self._topics),
            digest=str(message.get("digest")),
            count=int(message.get("count", 0)),
        )
        self.node.run(self.node.machine.publish(info.fact(), self.node.now()))

    # --- What the gossip tells --------------------------------------------------------------------

    def _take_receipt(self) -> int:
        self._receipt = next(self._receipts)
        return self._receipt

    def _publish(self) -> None:
        """What workers' requests have changed, to the others; the last one with the receipt."""
        facts = self._registrations.outgoing()
        receipt, self._receipt = self._receipt, 0
        machine, now = self.node.machine, self.node.now()
        for number, fact in enumerate(facts, 1):
            given = receipt if number == len(facts) else 0
            self.node.run(machine.publish(fact, now, receipt=given))
        if receipt and not facts:
            self._send(self._dispatch(self._control.delivered(receipt)))

    def _effect(self, effect: Effect) -> None:
        now = self.node.now()
        if isinstance(effect, Changed):
            self._changed(effect, now)
        elif isinstance(effect, AckWanted):
            self._refresh()
            token = {"ordinal": effect.ordinal, "number": effect.number}
            self._send(self._dispatch(self._control.when_seen(token, now)))
        elif isinstance(effect, Delivered):
            sends = self._control.delivered(effect.receipt, effect.missing)
            self._send(self._dispatch(sends))

    def _accept(self, fact: Fact, teller: int) -> bool:
        """Which processes another broker runs, and where, only that broker says, where each tells
        each other directly: a wrong word of a third one would send what is meant for it elsewhere.
        Their sessions change with each start of one, and third ones pass them on: else who does not
        reach a broker itself would hear no more that it lives. Nor does a third one bring in a
        broker that is not expected. What is said of this broker itself is taken, and denied.

        Routes anybody passes on, in a small ring as well. They are true or not whoever brings them:
        who first told one may have died, or be no member of what follows, and one that has just
        started would wait for each range's members in turn. And nothing is gained by asking who
        tells: a liar names itself a member of what it makes up. What a lie may do is bounded
        elsewhere. Of slices that a process of this broker holds it is not believed (`HeardRoutes`),
        and of all others events go to a process that does not take them.
        """
        if self._small and fact.kind == BROKER and fact.key not in (teller, self._ordinal):
            known, said = self._topology.brokers.get(int(fact.key)), BrokerInfo.of(fact)
            if known is None and not self._is_expected(said.ordinal):
                return False
            if known is not None and home_of(said) != home_of(known):
                return False
        kept = self.node.machine.store.get(fact.kind, fact.key)
        stale = kept is not None and not newer(fact, kept)
        if fact.kind == TARGET and (stale or target_in(self._cut, fact) is None):
            return False
        if fact.kind == LEADER:
            # Also one that is not the newest: if it says otherwise of one epoch, that is a fault.
            route = checked_route(self._cut, LeaderInfo.of(fact).route)
            self._unstored |= self._heard.hear([route])
        return self._registrations.accept(fact, teller)

    @property
    def _small(self) -> bool:
        return max(self._listed, len(self._topology.brokers)) <= limits.GOSSIP_DIRECT_BROKERS

    def _is_expected(self, ordinal: int) -> bool:
        """Whether the configuration lists a broker, a range had it when this one last ran, or it is
        to come. After a start it would else be a stranger until it calls by itself: half a minute
        in which nothing that it leads can be reached from here."""
        target = self.aim.target.brokers if self.aim.target is not None else ()
        wanted = any(each.ordinal == ordinal for each in target)
        return ordinal < self._listed or ordinal in self._hints.members() or wanted

    def _is_present(self, token: int) -> bool:
        return any(held == token and session for _, held, session in self._processes)

    def _store(self) -> None:
        """At most once a second: a hint may be a little late."""
        if self._unstored and self._data_dir is not None:
            self._unstored = False
            store_routes(self._data_dir, self._uuid, self._heard.routes)

    def _changed(self, changed: Changed, now: float) -> None:
        fact = changed.fact
        if fact.kind == CONSUMER:
            if changed.news:
                self._registrations.apply(fact, now)
                self._later()
        elif fact.kind in (BROKER, LEADER):
            if fact.kind == BROKER and fact.key != self._ordinal:
                info = BrokerInfo.of(fact)
                log_change(info, changed.before)
                if info.host:
                    self.node.meet(info.ordinal, info.host)
            self._topology.apply(fact)
            self._later()
        elif fact.kind == TARGET and (target := target_in(self._cut, fact)) != self.aim.heard:
            self.aim.heard = target
            self.node.call_soon(self._settle_target)

    def _later(self) -> None:
        """Tell the workers, once for all that comes in this turn of the loop."""
        if not self._dirty:
            self._dirty = True
            self.node.call_soon(self._refresh)

    def _refresh(self) -> None:
        if not self._dirty:
            return
        self._dirty = False
        sends: Sends = []
        version = self._topology.version
        for worker, since in self._told.items():
            if since < version:
                sends += [(worker, frame) for frame in self._topology.frames(since)]
                self._told[worker] = version
        self._send(self._dispatch(sends + self._control.refresh()))

    def _dispatch(self, sends: Sends) -> Sends:
        """Acknowledgements go to other brokers, everything else to workers."""
        for worker, message in sends:
            if worker == PEER:
                self.node.call_soon(self._acknowledge, message["ordinal"], message["number"])
        return [(worker, message) for worker, message in sends if worker != PEER]

    def _acknowledge(self, ordinal: int, number: int) -> None:
        self.node.run(self.node.machine.acknowledge(ordinal, number, self.node.now()))

    # --- For people -------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Brokers, refusals and figures, for /status and the metrics."""
        machine, node = self.node.machine, self.node
        topics = {int(fact.key): TopicsInfo.of(fact) for fact in machine.store.all(TOPICS)}
        connected = node.connected()
        brokers = []
        for ordinal, info in sorted(self._topology.brokers.items()):
            described = broker_to_dict(info) | {"connected": connected.get(ordinal, True)}
            if (digest := topics.get(ordinal)) is not None:
                described["topics"] = f"{digest.count}:{digest.digest}"
            brokers.append(described)
        counters = asdict(machine.members.counters) | asdict(node.counters)
        counters |= {f"brokers_{state}": n for state, n in self._topology.counts().items()}
        counters |= {"facts": sum(machine.store.count(k) for k in (BROKER, LEADER, CONSUMER))}
        counters |= {"fact_bytes": machine.store.bytes, "local_health": machine.members.health}
        refusals = {str(ordinal): reason for ordinal, reason in node.refusals.items()}
        routes = {"version": self.routes.version, "faults": self._heard.faults()}
        return {"brokers": brokers, "refusals": refusals, "gossip": counters, "routes": routes}


def join(
    plan: ServePlan,
    identity: Identity,
    table: ProcessTable,
    listeners: Listeners,
    send: Callable[[Sends], None],
    key: bytes,
    mutual: Mutual,
) -> Cluster:
    """This broker's part in the cluster that it is configured for."""
    session = random.SystemRandom().getrandbits(63)
    config, brokers = plan.config, plan.config.cluster.brokers
    ports = {
        "gossip": config.ports.gossip,
        "replication": config.ports.replication,
        "shard": config.ports.shard,
    }
    hello = Hello(
        protocol=GOSSIP_OLDEST,
        version=barco.__version__,
        cluster_uuid=identity.cluster_uuid,
        ordinal=identity.ordinal,
        disk_uuid=identity.disk_uuid,
        session=session,
        brokers=identity.ring_size,
        slices_per_range=identity.slices_per_range,
        workers=identity.workers,
        format=identity.format,
        replaces=identity.replaces,
    )
    me = BrokerInfo(
        ordinal=identity.ordinal,
        disk_uuid=identity.disk_uuid,
        session=session,
        address=machine.advertised_by(config),
        ports=tuple(sorted((listeners.ports | ports).items())),
        workers=identity.workers,
        version=barco.__version__,
        host=str(ipaddress.ip_address(brokers[identity.ordinal])),
        processes=told(table),
        log=(LOG_FORMATS[-1], log_format(plan.data_dir)),
        # Likely larger than in an earlier life; if not, the others say so and it is made larger.
        incarnation=int(time.time() * 1000),
    )
    addresses = [(address, config.ports.gossip) for address in brokers]
    seal, data_dir, bind = (key, mutual), plan.data_dir, machine.source_of(config)
    return Cluster(me, hello, addresses, bind=bind, send=send, seal=seal, data_dir=data_dir)
