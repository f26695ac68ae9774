"""What a writer is told when brokers do not keep what it stages."""

import asyncio

import pytest

from barco.client.wire.access import Access
from barco.client.wire.http1 import Request
from barco.client.wire.staged import AgainError, StagedWrites

FULL = b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: %d\r\n\r\n%s"
BODY = b'{"type": "urn:barco:problem:disk-full", "title": "the disk is full", "status": 507}'


def test_why_nobody_keeps_it_is_said() -> None:
    """A disk that is full looked like brokers that are away: "too few have done it"."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline() not in (b"\r\n", b""):
            pass
        writer.write(FULL % (len(BODY), BODY))
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        writes = StagedWrites(Access.of(f"127.0.0.1:{port}"), "w", 0.05)
        try:
            with pytest.raises(AgainError, match="disk is full|disk-full|507"):
                await writes._most(
                    (f"127.0.0.1:{port}",), Request("PUT", "/v1/writes/w/0"), "stage"
                )
        finally:
            writes.close()
            server.close()

    asyncio.run(main())
