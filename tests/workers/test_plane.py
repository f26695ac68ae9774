"""Two control planes that talk to each other over real sockets, on in-memory reactors."""

import asyncio
import json
from pathlib import Path
from typing import Any

from twin import Broker, MemoryLog, MemoryReactor, MemorySupervisor, run

from barco.workers.plane import ControlPlane


class Sockets:
    """A broker whose workers are control planes with sockets between them."""

    def __init__(self, directory: Path) -> None:
        (directory / "run").mkdir()
        self.supervisor = MemorySupervisor(8)
        self.reactors = [MemoryReactor(), MemoryReactor()]
        shape = Broker()
        self.planes = []
        for worker, reactor in enumerate(self.reactors):
            options = shape.options(worker)
            options.data_dir, options.event_bytes_max = str(directory), 1 << 20
            plane = ControlPlane(
                options,
                reactor=reactor,
                reader=MemoryLog(reactor),
                supervisor=self.supervisor,
                now_us=lambda: 1,
            )
            reactor.upcalls = plane.upcall
            self.planes.append(plane)
            self.supervisor.workers.append(plane.service)

    async def request(self, worker: int, method: str, path: str, query: str = "") -> Any:
        response = await self.planes[worker].handle(method, path, query, [], b"")
        body = response.body
        whole = b"".join(body) if isinstance(body, list) else bytes(body)
        return response.status, (json.loads(whole) if whole[:1] in (b"[", b"{") else whole)


def test_over_sockets(tmp_path: Path) -> None:
    @run
    async def scenario() -> None:
        broker = Sockets(tmp_path)
        for plane in broker.planes:
            await plane.start()
        assert (await broker.request(0, "GET", "/status"))[0] == 503
        await broker.planes[0].open(1)
        assert (await broker.request(0, "GET", "/status"))[0] == 503
        await broker.planes[1].open(1, lambda: [{"epoch": 1}])
        assert (await broker.request(0, "GET", "/status"))[0] == 200
        register = "consumerId=c&topic=t&onNewGroup=startFromEarliest"
        assert await broker.request(0, "PUT", "/v1/consumer/register", register) == (200, b"OK")
        broker.reactors[0].produce("t", 0, [b"1"])
        broker.reactors[1].produce("t", 7, [b"2"])
        status, items = await broker.request(1, "POST", "/v1/consumer/poll", "consumerId=c")
        assert status == 200 and sorted(item["values"] for item in items) == [[1], [2]]
        assert (await broker.request(0, "POST", "/v1/consumer/commit", "consumerId=c"))[0] == 204
        poll = asyncio.create_task(
            broker.request(0, "POST", "/v1/consumer/poll", "consumerId=c&waitMs=5000")
        )
        while not broker.reactors[1].notified:
            await asyncio.sleep(0.001)
        broker.reactors[1].produce("t", 7, [b"3"])
        status, items = await asyncio.wait_for(poll, 1)
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
            await plane.start()
            await plane.open(1)
        await broker.request(0, "PUT", "/v1/consumer/register", "consumerId=c&topic=t")
        poll = asyncio.create_task(
            broker.request(0, "POST", "/v1/consumer/poll", "consumerId=c&waitMs=5000")
        )
        while not (broker.reactors[0].notified and broker.reactors[1].notified):
            await asyncio.sleep(0.001)
        poll.cancel()
        while broker.reactors[0].notified or broker.reactors[1].notified:
            await asyncio.sleep(0.001)
        for plane in broker.planes:
            await plane.close()

    scenario()
