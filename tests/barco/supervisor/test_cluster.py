"""The control planes of three brokers, with workers that are lists of frames."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gossiping import CLUSTER, hello, host, until
from msgspec.structs import replace

from barco.cluster.gossip.facts import BROKER, DOWN, BrokerInfo, LeaderInfo, TargetInfo
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, RouteTable, unpack_route
from barco.cluster.ring.target import Target, first_target
from barco.errors import ProtocolError
from barco.model.placement import Placement, ring_slices
from barco.model.ranges import first_table
from barco.model.replicas import Replicas
from barco.protocol.gossip import Push
from barco.supervisor.cluster import Cluster
from barco.supervisor.control import Sends
from barco.supervisor.files.routes import store_routes, stored_routes
from barco.supervisor.wire.changes import told
from barco.types import Ordinal

CUT = Cut(3, 8)
TABLES = [first_table(Replicas(Placement(3, 8), 1), Ordinal(ordinal)) for ordinal in range(3)]


def leads(route: RangeRoute) -> dict[str, Any]:
    """What a worker says of a generation that is in its journal."""
    return {"type": "leads", "route": route.packed()}


class Site:
    """One broker: its control plane and what its two workers were sent."""

    def __init__(
        self,
        ordinal: int,
        addresses: list[tuple[str, int]],
        incarnation: int,
        data_dir: Path | None = None,
    ) -> None:
        greeting = hello(ordinal, len(addresses))
        me = BrokerInfo(
            ordinal=ordinal,
            disk_uuid=greeting.disk_uuid,
            session=greeting.session,
            address=host(ordinal),
            ports=(("discovery", 9250), ("gossip", addresses[ordinal][1])),
            workers=2,
            version="0.1.0",
            processes=told(TABLES[ordinal]),
            incarnation=incarnation,
        )
        self.sent: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
        self.deaf: set[int] = set()
        self.cluster = Cluster(
            me, greeting, addresses, bind=host(ordinal), send=self.take, data_dir=data_dir
        )
        self._id = 0

    def start_workers(self) -> None:
        for worker in self.sent:
            self.take(self.cluster.worker_ready(worker))

    def take(self, sends: Sends) -> None:
        for worker, message in sends:
            self.sent[worker].append(message)
            if message["type"] == "view" and worker not in self.deaf:
                self.tell(worker, {"type": "seen", "version": message["version"]})

    def tell(self, worker: int, message: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: self.take(self.cluster.receive(worker, message, loop.time())))

    async def request(self, worker: int, op: str, **args: Any) -> dict[str, Any]:
        self._id += 1
        number = self._id
        self.tell(worker, {"type": "request", "id": number, "op": op, "args": args})
        found: list[dict[str, Any]] = []

        def answered() -> bool:
            replies = (m for m in self.sent[worker] if m["type"] == "reply")
            found.extend(m for m in replies if m["id"] == number)
            return bool(found)

        await until(answered)
        return found[0]

    async def register(self, name: str, group: str = "g") -> dict[str, Any]:
        return await self.request(
            0, "register", consumerId=name, group=group, topics=["t"], start="startFromLatest"
        )

    def groups(self, worker: int = 0) -> dict[str, Any]:
        """As a worker would have put its views together."""
        groups: dict[str, Any] = {}
        for message in self.sent[worker]:
            if message["type"] == "view":
                if message["since"] == 0:
                    groups.clear()
                for name in message["removed"]:
                    groups.pop(name, None)
                for name, members in message["groups"].items():
                    group = groups.setdefault(name, {})
                    group.update(members)
                    for left in [each for each, value in members.items() if value is None]:
                        del group[left]
        return groups

    def brokers(self, worker: int = 0) -> dict[int, str]:
        """The states of brokers, as a worker was told."""
        frames = [m for m in self.sent[worker] if m["type"] == "cluster"]
        return {b["ordinal"]: b["state"] for frame in frames for b in frame["brokers"]}

    def processes(self, of: int, worker: int = 0) -> list[list[list[int]]]:
        """Each different table of a broker, as a worker was told."""
        frames = [m for m in self.sent[worker] if m["type"] == "cluster"]
        told = [b["processes"] for m in frames for b in m["brokers"] if b["ordinal"] == of]
        return [each for number, each in enumerate(told) if told.index(each) == number]

    def incarnation(self, of: int) -> int:
        """Of a broker, as its supervisor knows it."""
        return BrokerInfo.of(self.cluster.node.machine.store.get(BROKER, of)).incarnation

    def routes(self, worker: int = 0) -> dict[int, RangeRoute]:
        """Who leads what by first slice, as a worker was told last."""
        frames = [m for m in self.sent[worker] if m["type"] == "cluster"]
        told = [unpack_route(CUT, packed) for frame in frames for packed in frame["routes"]]
        return {route.first: route for route in told}


@asynccontextmanager
async def three(data_dir: Path | None = None) -> AsyncIterator[list[Site]]:
    """data_dir: of the first."""
    listeners = [socket.create_server((host(ordinal), 0)) for ordinal in range(3)]
    addresses = [listener.getsockname()[:2] for listener in listeners]
    sites = [Site(o, addresses, 1, data_dir if o == 0 else None) for o in range(3)]
    try:
        for site, listener in zip(sites, listeners, strict=True):
            await site.cluster.start(listener)
            site.start_workers()
        await until(lambda: all(len(site.brokers()) == 3 for site in sites))
        yield sites
    finally:
        for site in sites:
            await site.cluster.node.close(depart=False)


def test_a_registration_is_known_everywhere_when_it_is_answered() -> None:
    async def run() -> None:
        async with three() as sites:
            for number, site in enumerate(sites):
                reply = await site.register(f"c{number}")
                assert reply["ok"], reply
                for other in sites:
                    for worker in (0, 1):
                        assert f"c{number}" in other.groups(worker)["g"]
            assert sites[0].groups() == sites[1].groups() == sites[2].groups()
            members = sites[0].groups()["g"]
            places = [tuple(m["assigned"]["t"]) for m in members.values()]
            assert sum(map(len, places)) == 2 * len(ring_slices(3, 8))
            assert (await sites[1].request(0, "goodbye", consumerId="c0"))["ok"]
            assert all("c0" not in site.groups()["g"] for site in sites)

    asyncio.run(run())


def test_a_consumer_that_expires_at_one_broker_gives_up_its_slices_at_all() -> None:
    async def run() -> None:
        async with three() as sites:
            given = {"consumerId": "c", "group": "g", "topics": ["t"], "start": "startFromLatest"}
            assert (await sites[0].request(0, "register", **given, sessionMs=5_000))["ok"]
            assert (await sites[2].register("d"))["ok"]
            # Its time is over; what this broker says of it, all workers of all brokers hear.
            later = asyncio.get_running_loop().time() + 6.0
            sites[1].take(sites[1].cluster.tick(later))
            for site in sites:
                for worker in (0, 1):
                    await until(lambda s=site, w=worker: list(s.groups(w)["g"]) == ["d"])
            places = sites[0].groups()["g"]["d"]["assigned"]["t"]
            assert len(places) == 2 * len(ring_slices(3, 8))

    asyncio.run(run())


def test_a_broker_whose_workers_hang_does_not_keep_a_registration_for_ever() -> None:
    async def run() -> None:
        async with three() as sites:
            sites[2].deaf = {0, 1}
            assert (await sites[0].register("c"))["ok"]
            assert "c" in sites[1].groups()["g"]
            # The same again may be a new life of the consumer: that has to be known to all.
            refused = await sites[1].register("c")
            assert (refused["ok"], refused["status"]) == (False, 503)
            sites[2].deaf = set()
            for worker in (0, 1):
                sites[2].tell(worker, {"type": "seen", "version": 2**62})
            assert (await sites[1].register("c"))["ok"]

    asyncio.run(run())


def test_who_leads_what_reaches_every_worker_and_the_newest_epoch_wins() -> None:
    async def run() -> None:
        async with three() as sites:
            one = RangeRoute(8, 8, CUT.token(8), 2, 1, (1, 2, 0))
            other = one._replace(epoch=3, leader=2)
            sites[1].tell(0, leads(one))
            for site in sites:
                await until(lambda site=site: site.routes(1) == {8: one})
            sites[2].tell(1, leads(other))
            sites[1].tell(0, leads(one))
            for site in sites:
                await until(lambda site=site: site.routes(1) == {8: other})

    asyncio.run(run())


def test_each_broker_tells_which_processes_it_has() -> None:
    """At its start, and when they are others; what a third one says of them is not believed."""

    async def run() -> None:
        async with three() as sites:
            first = [list(each) for each in told(TABLES[1])]
            for site in sites:
                assert site.processes(1) == [first]
            machine, node = sites[2].cluster.node.machine, sites[2].cluster.node
            known = BrokerInfo.of(machine.store.get(BROKER, 1))
            lie = replace(known, processes=((5, 5, 5),), incarnation=known.incarnation + 7)
            node.run(machine.publish(lie.fact(), node.now()))
            less = TABLES[1].without(TABLES[1].at(2).token)
            sites[1].cluster.renew(less)
            for site in sites:
                now = [list(each) for each in told(less)]
                await until(lambda site=site, now=now: site.processes(1)[-1] == now)
            assert sites[0].processes(1) == sites[1].processes(1) == [first, now]
            # Who of them is ready changes with each start, and third ones pass it on: with it comes
            # that a broker lives, to those who do not reach it.
            known = BrokerInfo.of(sites[2].cluster.node.machine.store.get(BROKER, 1))
            ready = tuple((number, token, 9) for number, token, _ in known.processes)
            news = replace(known, processes=ready, incarnation=known.incarnation + 1)
            told_by_third = Push(facts=(news.fact().packed,))
            node = sites[0].cluster.node
            node.run(node.machine.receive(2, told_by_third, node.now()))
            assert sites[0].incarnation(1) == news.incarnation
            # A state that a third one tells is another matter.
            node = sites[0].cluster.node
            known = BrokerInfo.of(node.machine.store.get(BROKER, 1))
            gone = Push(facts=(replace(known, state=DOWN, by=2).fact().packed,))
            denied = known.incarnation
            node.run(node.machine.receive(2, gone, node.now()))
            await until(lambda: sites[0].incarnation(1) > denied)

    asyncio.run(run())


def test_a_broker_that_leaves_is_told_to_the_workers() -> None:
    async def run() -> None:
        async with three() as sites:
            await sites[1].cluster.close()
            for site in (sites[0], sites[2]):
                await until(lambda site=site: site.brokers()[1] == "left")

    asyncio.run(run())


def test_the_cluster_describes_itself() -> None:
    async def run() -> None:
        async with three() as sites:
            sites[1].tell(0, {"type": "topics-digest", "digest": "abc", "count": 3})
            seen: dict[str, Any] = {}

            async def described() -> bool:
                seen.update((await sites[0].request(1, "cluster"))["result"])
                return any(broker.get("topics") == "3:abc" for broker in seen["brokers"])

            async with asyncio.timeout(30):
                while not await described():
                    await asyncio.sleep(0.01)
            assert [broker["state"] for broker in seen["brokers"]] == ["alive"] * 3
            assert seen["gossip"]["brokers_alive"] == 3
            assert seen["gossip"]["messages_sent"] > 0
            assert seen["refusals"] == {}

    asyncio.run(run())


def test_many_registrations_at_all_brokers_end_the_same() -> None:
    async def run() -> None:
        async with three() as sites:
            rng = random.Random(1)
            names = [f"c{number}" for number in range(60)]
            replies = await asyncio.gather(
                *(
                    rng.choice(sites).register(name, f"g{index % 4}")
                    for index, name in enumerate(names)
                )
            )
            assert all(reply["ok"] for reply in replies)
            groups = [site.groups(worker) for site in sites for worker in (0, 1)]
            assert all(each == groups[0] for each in groups)
            assert sum(len(members) for members in groups[0].values()) == 60

    asyncio.run(run())


def test_the_routes_of_a_split_reach_all_and_a_late_old_one_moves_nothing() -> None:
    """Told by a member of the range that was split, which is a member of neither of the others."""

    async def run() -> None:
        async with three() as sites:
            old = RangeRoute(0, 8, CUT.token(0), 5, 0, (0, 1, 2))
            left = old._replace(slices=4, epoch=6, members=(0, 3, 1))
            right = RangeRoute(4, 4, CUT.token(4), 6, 3, (3, 1, 4))
            for site in sites:
                site.tell(0, leads(old))
            for site in sites:
                await until(lambda site=site: list(site.cluster.routes) == [old])
            sites[2].tell(0, leads(left))
            sites[2].tell(0, leads(right))
            for site in sites:
                await until(lambda site=site: list(site.cluster.routes) == [left, right])
                assert site.routes(1) == {0: left, 4: right}
            told = [len(site.sent[1]) for site in sites]
            sites[1].tell(0, leads(old))
            node = sites[0].cluster.node
            late = Push(facts=(LeaderInfo(old).fact().packed,))
            node.run(node.machine.receive(1, late, node.now()))
            for site in sites:
                assert (await site.request(0, "cluster"))["ok"]
                assert list(site.cluster.routes) == [left, right]
            assert [len(site.sent[1]) for site in sites] == told, "and nobody is told again"
            assert sites[0].cluster.describe()["routes"] == {
                "version": sites[1].cluster.routes.version,
                "faults": ["nothing was heard of slices 8, 9, 10, 11, 12, 13, 14, 15 and 8 more"],
            }

    asyncio.run(run())


def test_what_a_process_here_vouches_for_a_lie_does_not_outdo() -> None:
    async def run() -> None:
        async with three() as sites:
            own = RangeRoute(0, 8, CUT.token(0), 5, 0, (0, 1, 2))
            lie = RangeRoute(1, 23, CUT.token(1), 2**63 - 1, 2, (2,))
            sites[0].cluster.renew(TABLES[0], dict.fromkeys(TABLES[0].numbers, 7))
            sites[0].tell(0, leads(own))
            await until(lambda: list(sites[0].cluster.routes) == [own])
            sites[2].tell(0, leads(lie))
            await until(lambda: 1 in sites[0].routes() and 1 in sites[1].routes())
            assert list(sites[0].cluster.routes) == [own]
            assert "led by broker 2 in epoch" in sites[0].cluster.describe()["routes"]["faults"][-1]
            # As long as that process is there.
            sites[0].cluster.renew(TABLES[0])
            assert sites[0].cluster.routes.at(1) == lie

    asyncio.run(run())


def test_only_what_changed_is_told_to_workers() -> None:
    async def run() -> None:
        async with three() as sites:
            for first in (0, 8, 16):
                sites[0].tell(0, leads(RangeRoute(first, 8, CUT.token(first), 2, 0, (0, 1, 2))))
            await until(lambda: len(sites[1].routes()) == 3)
            before = len(sites[1].sent[0])
            sites[0].tell(0, leads(RangeRoute(8, 8, CUT.token(8), 3, 1, (0, 1, 2))))
            await until(lambda: sites[1].routes()[8].epoch == 3)
            frames = [m for m in sites[1].sent[0][before:] if m["type"] == "cluster"]
            assert sum(len(frame["routes"]) for frame in frames) == 1

    asyncio.run(run())


def test_a_route_that_can_not_be_is_refused() -> None:
    """From a worker: it is ended. By gossip: the connection is, and nothing is kept."""

    async def run() -> None:
        async with three() as sites:
            cluster, node = sites[0].cluster, sites[0].cluster.node
            sound = RangeRoute(8, 8, CUT.token(8), 2, 1, (1, 2, 0))
            wrong = (
                sound._replace(token=CUT.token(8) + 1),
                sound._replace(first=9),
                sound._replace(slices=17),
                sound._replace(first=24, token=0),
            )
            for each in wrong:
                with pytest.raises(ProtocolError):
                    cluster.receive(0, {"type": "leads", "route": each.packed()}, 0.0)
                told = Push(facts=(LeaderInfo(each).fact().packed,))
                with pytest.raises(ProtocolError):
                    node.machine.receive(1, told, node.now())
            for frame in ({}, {"route": 7}, {"route": b""}, {"route": b"x" * 999}):
                with pytest.raises(ProtocolError):
                    cluster.receive(0, {"type": "leads"} | frame, 0.0)
            assert not list(cluster.routes) and not node.machine.store.count("leader")

    asyncio.run(run())


def test_routes_are_kept_as_a_hint_for_the_next_start(tmp_path: Path) -> None:
    """A worker that starts has them before anybody has answered; what is heard outdoes them."""

    async def run() -> None:
        route = RangeRoute(8, 8, CUT.token(8), 9, 1, (1, 2, 0))
        store_routes(tmp_path, CLUSTER, RouteTable(CUT, [route]))
        async with three(tmp_path) as sites:
            (first,) = [m for m in sites[0].sent[0] if m["type"] == "cluster"][:1]
            assert [unpack_route(CUT, each) for each in first["hints"]] == [route]
            assert list(sites[0].cluster.routes) == [route]
            assert not sites[0].cluster.node.machine.store.count("leader"), "it is told to nobody"
            now = route._replace(epoch=3, leader=2)  # The cluster was formatted anew, say.
            sites[1].tell(0, leads(now))
            await until(lambda: list(sites[0].cluster.routes) == [now])
            sites[0].cluster.tick(asyncio.get_running_loop().time())
            assert list(stored_routes(tmp_path, CLUSTER, CUT)) == [now]

    asyncio.run(run())


def test_others_hear_which_processes_are_ready_and_in_which_session() -> None:
    async def run() -> None:
        async with three() as sites:
            numbers = TABLES[1].numbers
            assert [each[2] for each in sites[0].processes(1)[-1]] == [0, 0, 0]
            sites[1].cluster.renew(TABLES[1], {numbers[0]: 77, numbers[2]: 2**64 - 1})
            await until(
                lambda: [each[2] for each in sites[0].processes(1)[-1]] == [77, 0, 2**64 - 1]
            )

    asyncio.run(run())


def test_only_a_broker_itself_brings_itself_in() -> None:
    """And says where it is; that one of its processes has started again, anybody passes on."""

    async def run() -> None:
        addresses = [(host(ordinal), 9_255) for ordinal in range(3)]
        cluster = Site(0, addresses, 1).cluster
        fourth = BrokerInfo(
            ordinal=3, disk_uuid="d" * 32, session=1, address=host(3), ports=(), workers=1,
            version="0", host="127.0.0.4", processes=((0, 7, 0),), incarnation=1,
        )  # fmt: skip
        assert not cluster._accept(fourth.fact(), 1) and cluster._accept(fourth.fact(), 3)
        cluster._topology.apply(fourth.fact())
        started = replace(fourth, incarnation=2, processes=((0, 7, 70),))
        assert cluster._accept(started.fact(), 1)
        for wrong in ({"host": "127.0.0.9"}, {"processes": ((0, 8, 0),)}):
            said = replace(fourth, incarnation=3, **wrong).fact()
            assert not cluster._accept(said, 1) and cluster._accept(said, 3)
        other = TargetInfo(version=1, packed=first_target(Cut(6, 8), 1).packed())
        mine = Target(1, CUT, first_target(CUT, 1).brokers)
        assert not cluster._accept(other.fact(), 1)
        assert cluster._accept(TargetInfo(version=1, packed=mine.packed()).fact(), 1)
        many = b"\xdd" + (10**6).to_bytes(4, "big") + b"\x80" * 10**6  # 1 KiB of gossip
        assert not cluster._accept(TargetInfo(version=1, packed=many).fact(), 1)

    asyncio.run(run())


def test_a_message_tells_of_one_target_and_of_each_range_once() -> None:
    """Honest ones do, and each is dear to look at: a frame of lies would stop the loop a minute."""

    async def run() -> None:
        cluster = Site(0, [(host(ordinal), 9_255) for ordinal in range(3)], 1).cluster
        brokers = first_target(CUT, 1).brokers
        targets = [Target(version, CUT, brokers).packed() for version in (1, 2)]
        twice = [TargetInfo(version=v, packed=p).fact() for v, p in enumerate(targets, 1)]
        route = RangeRoute(8, 8, CUT.token(8), 9, 1, (1, 2, 0))
        again = [LeaderInfo(each).fact() for each in (route, route._replace(epoch=10))]
        for facts in (twice, again):
            told = Push(facts=tuple(fact.packed for fact in facts))
            with pytest.raises(ProtocolError):
                cluster.node.machine.receive(1, told, cluster.node.now())
            assert cluster.node.machine.store.get(facts[0].kind, facts[0].key) == facts[0]
            told = Push(facts=(facts[1].packed,))
            cluster.node.machine.receive(1, told, cluster.node.now())
            assert cluster.node.machine.store.get(facts[0].kind, facts[0].key) == facts[1]

    asyncio.run(run())
