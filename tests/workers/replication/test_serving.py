"""Answers to `Fetch`: all that was asked for, and to each request its turn."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from barco.cluster.state.effects import Serve
from barco.model.generation import Gid
from barco.protocol.replication import Fetched
from barco.types import Epoch, Token
from barco.workers.replication.serving import Serving

PEER = 1
OLD, NEW = (Gid(Token(0), Epoch(epoch)) for epoch in (2, 3))


class Groups:
    """Three groups at a time, as if more of them were too many bytes."""

    async def read(self, epoch: int, first: int, last: int, bytes_max: int) -> list[Any]:
        await asyncio.sleep(0)
        numbers = range(first, min(last, first + 2) + 1)
        return [(SimpleNamespace(gseq=n, prev_crc=n - 1, header_crc=n), b"x") for n in numbers]


class Link:
    """Notes what is sent, and waits a turn for room."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.waits = 0

    async def room(self) -> None:
        self.waits += 1
        await asyncio.sleep(0)

    def send(self, message: Fetched, data: bytes) -> bool:
        self.sent.append((message.gid.epoch, message.head.gseq))
        return True


def fatal(reason: str) -> None:
    raise AssertionError(reason)


def run(test: Callable[[Serving, Link], Coroutine[Any, Any, None]]) -> Link:
    link = Link()

    async def main() -> None:
        store = SimpleNamespace(groups=Groups())
        links: Any = {PEER: link}
        serving = Serving(links, store, lambda gid: None, fatal)  # type: ignore[arg-type]
        await test(serving, link)
        await asyncio.wait_for(serving._tasks[PEER], 10)

    asyncio.run(main())
    return link


def test_an_answer_goes_to_the_last_group_that_was_asked_for() -> None:
    async def test(serving: Serving, link: Link) -> None:
        serving.serve(Serve(PEER, OLD, 5, 14))

    link = run(test)
    assert link.sent == [(2, gseq) for gseq in range(5, 15)]
    assert link.waits == 4, "it waited for room before each read"


def test_a_request_waits_for_its_turn_and_is_not_answered_twice() -> None:
    async def test(serving: Serving, link: Link) -> None:
        serving.serve(Serve(PEER, OLD, 1, 4))
        await asyncio.sleep(0)
        serving.serve(Serve(PEER, NEW, 1, 2))
        serving.serve(Serve(PEER, OLD, 2, 4))  # On its way already.
        serving.serve(Serve(PEER, OLD, 5, 6))

    link = run(test)
    wanted = [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (2, 5), (2, 6)]
    assert link.sent == wanted
