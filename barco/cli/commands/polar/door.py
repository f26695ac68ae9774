"""The three ports of a door: discovery, consumers, frames."""

import argparse
import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from barco.cli.commands.polar.consuming import Consuming, Visitor
from barco.cli.commands.polar.http2 import H2Protocol
from barco.cli.commands.polar.producing import Producing
from barco.cli.shared import talk
from barco.client.wire.access import Access
from barco.client.wire.discovery import Directory, join_endpoint
from barco.client.wire.http1 import split_endpoint
from barco.client.wire.transport import Pool
from barco.errors import OperatorError

CONNECTIONS_MAX = 256
"""To the broker, and of those who ask where it is."""
HEAD_BYTES_MAX = 8 * 1024
HEAD_SECONDS_MAX = 10.0
FIND_SECONDS = 10.0


async def serve(args: argparse.Namespace, tell: Callable[[dict[str, int]], None]) -> None:
    """Until SIGTERM or Ctrl-C. tell: what is called with the ports."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    door = Door(talk.access(args), from_latest=args.new_groups == "latest")
    try:
        tell(await door.open(args.bind, args.port))
        await ended.wait()
    finally:
        await door.close()


class Door:
    """The three ports of a door."""

    def __init__(self, access: Access, *, from_latest: bool) -> None:
        self._access, self._from_latest = access, from_latest
        self._pool = Pool(access, connections_max=CONNECTIONS_MAX)
        self._servers: list[asyncio.Server] = []
        self._work: set[asyncio.Future[Any]] = set()
        self._connections = 0
        self._told: dict[str, Any] = {}

    async def open(self, bind: str, port: int) -> dict[str, int]:
        """Listen; what clients need to know."""
        directory = Directory(self._access)
        try:
            brokers = await directory.brokers(FIND_SECONDS)
        finally:
            directory.close()
        host, _ = split_endpoint(self._access.endpoints[0])
        _, produce = split_endpoint(brokers.produce[0])
        _, consume = split_endpoint(brokers.consume[0])
        endpoint = join_endpoint(host, produce)
        producing = Producing(self._access, lambda: endpoint)
        consuming = Consuming(
            self._pool, join_endpoint(host, consume), brokers.ring, from_latest=self._from_latest
        )

        def visitor() -> asyncio.Protocol:
            return H2Protocol(Visitor(consuming), self._spawn)

        loop, wanted = asyncio.get_running_loop(), [port and port + each for each in (0, 2, 4)]
        try:
            self._servers += [
                await asyncio.start_server(self._discover, bind, wanted[0]),
                await loop.create_server(visitor, bind, wanted[1]),
                await asyncio.start_server(producing.serve, bind, wanted[2]),
            ]
        except OSError as error:
            raise OperatorError(f"cannot listen: {error}") from None
        found = [int(server.sockets[0].getsockname()[1]) for server in self._servers]
        ports = dict(zip(("discovery", "consumer", "binary"), found, strict=True))
        names = [split_endpoint(each)[0] for each in brokers.consume]
        self._told = {
            "length": len(names),
            "names": names,
            "producerPort": produce,
            "producerBinaryPort": ports["binary"],
            "consumerPort": ports["consumer"],
        }
        return ports

    async def close(self) -> None:
        """Hang up; registrations end as if the clients had gone."""
        for server in self._servers:
            server.close()
        for each in list(self._work):
            each.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self._pool.close()

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _discover(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of HTTP/1.1, and its answer: clients come once in a while."""
        if self._connections >= CONNECTIONS_MAX:
            writer.close()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head[:HEAD_BYTES_MAX].split(b"\r\n")[0]))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            pass  # It is no such client.
        finally:
            self._connections -= 1
            writer.close()

    def _answer(self, line: bytes) -> bytes:
        bodies = {
            b"GET /v1/brokers": (b"application/json", json.dumps(self._told).encode()),
            b"GET /status": (b"text/plain", b"Client discovery server listening"),
        }
        status, (kind, body) = b"404 Not Found", (b"text/plain", b"Not found")
        if (asked := line.rpartition(b" ")[0]) in bodies:
            status, (kind, body) = b"200 OK", bodies[asked]
        head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        return head % (status, kind, len(body)) + body
