"""The control planes of two workers with real sockets between them, on in-memory reactors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from twin import Broker, MemoryLog, MemoryReactor, MemorySpool, MemorySupervisor, run

from barco.errors import NotReadyError
from barco.workers.http.app import App
from barco.workers.http.base.messages import Call
from barco.workers.operations.service import Open, ShardService
from barco.workers.peers.rpc import RpcServer, Siblings


class Plane:
    """What a worker puts together, without storage."""

    def __init__(self, directory: Path, options: Any, supervisor: MemorySupervisor) -> None:
        self.path = str(directory / f"{options.worker}.rpc")
        self.reactor = MemoryReactor()
        self.service = ShardService(
            options,
            reactor=self.reactor,
            reader=MemoryLog(self.reactor),
            supervisor=supervisor,
            spool=MemorySpool(),
            now_us=lambda: 1,
            wall_us=lambda: 1,
        )
        self.reactor.upcalls = self.service.upcall
        operation = self.service.operation
        paths = {worker: str(directory / f"{worker}.rpc") for worker in range(options.workers)}
        self.siblings = Siblings(
            worker=options.worker, paths=paths, operation=operation, bytes_max=1 << 20
        )
        self.server = RpcServer(operation, bytes_max=1 << 20)
        self.app = App(self.service, siblings=self.siblings, supervisor=supervisor)

    async def open(self) -> None:
        self.service.open(1)
        self.app.open()
        await self.service.adopt_topics(self.siblings)

    async def close(self) -> None:
        await self.siblings.close()
        await self.server.close()


class Sockets:
    """A broker whose workers have sockets between them."""

    def __init__(self, directory: Path) -> None:
        self.supervisor = MemorySupervisor(8)
        shape = Broker()
        self.planes = [Plane(directory, shape.options(w), self.supervisor) for w in (0, 1)]
        self.reactors = [plane.reactor for plane in self.planes]
        self.supervisor.workers += [plane.service for plane in self.planes]

    async def request(self, worker: int, method: str, path: str, query: str = "") -> Any:
        response = await self.planes[worker].app.handle(Call(0, method, path, query, [], b""))
        if response.written is not None:
            response.written()
        body = response.body
        whole = b"".join(body) if isinstance(body, list) else bytes(body)
        return response.status, (json.loads(whole) if whole[:1] in (b"[", b"{") else whole)


def test_over_sockets(tmp_path: Path) -> None:
    @run
    async def scenario() -> None:
        broker = Sockets(tmp_path)
        for plane in broker.planes:
            await plane.server.start(plane.path)
        assert (await broker.request(0, "GET", "/status"))[0] == 503
        await broker.planes[0].open()
        assert (await broker.request(0, "GET", "/status"))[0] == 503
        await broker.planes[1].open()
        assert (await broker.request(0, "GET", "/status"))[0] == 200
        register = "consumerId=c&topic=t&onNewGroup=startFromEarliest"
        assert await broker.request(0, "PUT", "/v1/consumer/register", register) == (200, b"OK")
        broker.reactors[0].produce("t", 0, [b"1"])
        broker.reactors[1].produce("t", 7, [b"2"])
        status, items = await broker.request(1, "POST", "/v1/consumer/poll", "consumerId=c")
        assert status == 200 and sorted(item["values"] for item in items) == [[1], [2]]
        assert (await broker.request(0, "POST", "/v1/consumer/commit", "consumerId=c"))[0] == 204
        poll = asyncio.create_task(
            broker.request(0, "POST", "/v1/consumer/poll", "consumerId=c&waitMs=60000")
        )
        while not broker.reactors[1].notified:
            await asyncio.sleep(0.001)
        broker.reactors[1].produce("t", 7, [b"3"])
        status, items = await asyncio.wait_for(poll, 25)
        assert status == 200 and items[0]["values"] == [3]
        for plane in broker.planes:
            await plane.close()
        assert not broker.reactors[0].notified and not broker.reactors[1].notified

    scenario()


def test_a_long_poll_that_is_cancelled_stops_waiting_everywhere(tmp_path: Path) -> None:
    @run
    async def scenario() -> None:
        broker = Sockets(tmp_path)
        for plane in broker.planes:
            await plane.server.start(plane.path)
            await plane.open()
        await broker.request(0, "PUT", "/v1/consumer/register", "consumerId=c&topic=t")
        poll = asyncio.create_task(
            broker.request(0, "POST", "/v1/consumer/poll", "consumerId=c&waitMs=60000")
        )
        while not (broker.reactors[0].notified and broker.reactors[1].notified):
            await asyncio.sleep(0.001)
        poll.cancel()
        while broker.reactors[0].notified or broker.reactors[1].notified:
            await asyncio.sleep(0.001)
        for plane in broker.planes:
            await plane.close()

    scenario()


@run
async def test_a_replica_that_catches_up_tells_no_ends() -> None:
    """They lie before what readers have seen of the leader; names and settings may be told."""

    class CatchingUp(Open):
        def readable(self) -> bool:
            return False

    broker = Broker()
    broker.reactors[0].produce("t", 0, [b"1"])
    service = broker.services[0]
    assert service is not None
    assert "t" in await service.operation("topics", {"topic": "t"})
    service.gate = CatchingUp()
    with pytest.raises(NotReadyError):
        await service.operation("topics", {"topic": "t"})
    assert "t" in await service.operation("topics", {"topic": None})
