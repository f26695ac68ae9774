"""How a collector is told of spans: in batches, and without an end that waits for it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from twin import Broker

from barco import _native
from barco.workers.tracing import exporter
from barco.workers.tracing.exporter import Exporter
from barco.workers.tracing.traces import SERVER, Span

pytestmark = pytest.mark.anyio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LARGE = 32 << 20
"""More than the kernel takes of a connection whose other end reads nothing."""


@asynccontextmanager
async def exporting(serve: Serve) -> AsyncIterator[Exporter]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    trace = {"endpoint": f"http://127.0.0.1:{port}/v1/traces", "one_in": 0}
    reactor = _native.Reactor(engine="epoll", cluster_uuid=bytes(16))
    try:
        yield Exporter(replace(Broker(1).options(0), trace=trace), reactor)
    finally:
        server.close()
        reactor.close()


def span(name: str = "a") -> Span:
    return Span(b"t" * 16, b"", name, SERVER, 1, 2)


async def test_what_comes_meanwhile_is_for_the_next_time() -> None:
    """Whoever traces a lot would else be told a span at a time, and nobody asks the core."""
    posts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal posts
        posts += 1
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
        if posts < 9:
            found.traces.add(span())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with exporting(serve) as found:
        for _ in range(exporter.BATCH_SPANS + 1):
            found.traces.add(span())
        await found.export()
        assert posts == 2 and found.counted()["spans_exported"] == exporter.BATCH_SPANS + 2
        assert len(found.traces.take(9)) == 1


async def test_who_reads_nothing_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, read = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await given_up.wait()
        count = 0
        try:
            while piece := await reader.read(1 << 20):
                count += len(piece)
        except ConnectionResetError:
            pass
        writer.close()
        read.set_result(count)

    monkeypatch.setattr(exporter, "POST_SECONDS", 0.2)
    async with exporting(serve) as found:
        found.traces.add(span("n" * LARGE))
        await found.export()
        given_up.set()
        assert await read < LARGE, "the rest was still to be sent, to whom nobody waits for"
        assert found.counted() == {"spans_exported": 0, "spans_lost": 0}
        assert len(found.traces.take(9)) == 1


async def test_a_name_that_nobody_knows_takes_no_thread_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, silent = [], threading.Event()

    def getaddrinfo(*host: object) -> list[object]:
        asked.append(host)
        silent.wait(60)
        raise OSError("there is no such name")

    async with exporting(lambda reader, writer: asyncio.sleep(0)) as found:
        monkeypatch.setattr(exporter, "POST_SECONDS", 0.01)
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        found._host = "collector.example"
        for _ in range(64):  # More than the loop has threads.
            found.traces.add(span())
            await found.export()
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 30) == 1
            assert len(asked) == 1
        finally:
            silent.set()
