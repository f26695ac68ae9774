"""What a client calls its request goes with what is asked of other workers for it, over a real
Unix socket, and no further than that request."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twin import run

from barco.log import GIVEN_ID_BYTES_MAX, OfRequest, asked_id
from barco.workers.peers.rpc import RpcServer, Siblings


def test_it_goes_along(tmp_path: Path) -> None:
    answered = asyncio.Event()
    later: list[asyncio.Task[str]] = []

    async def afterwards() -> str:
        await answered.wait()
        return asked_id()

    async def operation(op: str, args: Mapping[str, Any]) -> str:
        if op == "later":  # As a connection that is opened for one who asks, and stays.
            later.append(asyncio.create_task(afterwards()))
        return asked_id()

    @run
    async def scenario() -> None:
        paths = {0: str(tmp_path / "0.rpc"), 1: str(tmp_path / "1.rpc")}
        server = RpcServer(operation, bytes_max=1 << 20)
        siblings = Siblings(worker=0, paths=paths, operation=operation, bytes_max=1 << 20)
        await server.start(paths[1])

        async def ask(request: str) -> list[str]:
            with OfRequest(request):
                found = [await siblings.call(each, "asked", {}) for each in (0, 1)]
                many = await siblings.broadcast("later", {0: {}, 1: {}})
            return [*found, *many.values(), await siblings.call(1, "asked", {})]

        assert await siblings.call(1, "asked", {}) == ""
        one, other = await asyncio.gather(ask("order-7"), ask("order-8"))
        assert one == ["order-7"] * 4 + [""] and other == ["order-8"] * 4 + [""]
        assert await siblings.call(1, "asked", {}) == "", "the connection is everybody's"
        longest = "x" * GIVEN_ID_BYTES_MAX
        assert (await asyncio.create_task(ask(longest + "y")))[1] == longest
        answered.set()
        assert await asyncio.gather(*later) == [""] * 6
        await siblings.close()
        await server.close()

    scenario()
