"""Waits that the selector ends: on a real core, in a loop that has nothing else to do."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "replication"))

from following import make_reactor

from barco._native import Reactor
from barco.workers.process.selector import ReactorSelector
from barco.workers.process.turns import Turns

LONG = 60.0
"""Seconds that nobody waits for unless something is wrong."""

HTTP = 0


def run(test: Callable[[Turns, Reactor], Coroutine[Any, Any, None]]) -> None:
    reactor, turns = make_reactor(), Turns()
    loop = asyncio.SelectorEventLoop(ReactorSelector(reactor, turns))
    began = time.monotonic()
    try:
        loop.run_until_complete(test(turns, reactor))
    finally:
        loop.close()
        reactor.close()
    assert time.monotonic() - began < LONG / 2


def test_what_python_changes_is_noticed_at_once() -> None:
    async def test(turns: Turns, reactor: Reactor) -> None:
        done: list[int] = []
        asyncio.get_running_loop().call_soon(done.append, 1)
        assert await turns.until(lambda: bool(done), LONG)

    run(test)


def test_what_holds_is_not_waited_for_and_what_never_does_ends() -> None:
    async def test(turns: Turns, reactor: Reactor) -> None:
        assert await turns.until(lambda: True, 0.0)
        assert not await turns.until(lambda: False, 0.05)
        assert not turns.look(), "nobody waits any more"

    run(test)


def test_a_condition_that_fails_is_told_to_who_waits() -> None:
    async def test(turns: Turns, reactor: Reactor) -> None:
        calls: list[int] = []

        def broken() -> bool:
            calls.append(1)
            if len(calls) > 1:
                raise ValueError("broken")
            return False

        with pytest.raises(ValueError, match="broken"):
            await turns.until(broken, LONG)

    run(test)


def test_an_end_of_a_drain_is_noticed_at_once() -> None:
    """The last byte of an answer goes out in the core, of which Python hears nothing."""

    async def test(turns: Turns, reactor: Reactor) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        address = listener.getsockname()
        reactor.listen(listener.detach(), HTTP)
        client = socket.create_connection(address)
        client.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        asked: list[Any] = []
        while not asked:
            asked += [each for each in reactor.run(1.0)[1] if each[0] == "request"]
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 16000000\r\n\r\n"
        assert reactor.respond(asked[0][1], 200, head, b"x" * 16_000_000)
        reactor.drain()
        reactor.run(0.0)
        assert not reactor.idle(), "the client reads nothing yet"
        reader = threading.Thread(target=read, args=(client,))
        timer = threading.Timer(0.3, reader.start)
        timer.start()
        assert await turns.until(reactor.idle, LONG)
        timer.join()
        reader.join()

    run(test)


def read(client: socket.socket) -> None:
    """All that comes."""
    client.settimeout(LONG)
    left = 16_000_000
    while left > 0 and (data := client.recv(1 << 20)):
        left -= len(data)
    client.close()
