"""B, who has all groups of a generation that has ended, and C, who asks it for the state."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from asker import MINE, PEER_B, Answering, Asker, states_of
from following import GID, SESSION, SUBJECT, A, C, Follower, follow
from leading import Groups

from barco._native import ShardState, state_cut
from barco.limits import GROUP_HEADER_BYTES
from barco.model.generation import Generation, Gid, Kind, Parent, Successor
from barco.protocol import replication as r
from barco.types import Epoch
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.storage.index import scan


async def ended(follower: Follower, groups: Groups) -> int:
    """B has all groups, and two members' word that they are all."""
    for at, (head, data) in enumerate(groups):
        await follower.send(A, r.Append(GID, SESSION, head, at), data)
    await follower.rest()
    tail = len(groups)
    child = Generation(
        Gid(GID.token, Epoch(3)), SUBJECT.end, A, 5, SUBJECT.members, (Parent(GID, tail),)
    )
    for peer in (A, C):
        await follower.send(peer, r.Decided(GID, Successor(tail, Kind.RELEAD, (child,))))
    async with asyncio.timeout(20):
        while (found := follower.store.lineage.get(GID.epoch)) is None or not found.sealed:
            await follower.rest()
    return tail


def expected(groups: Groups, slices: range) -> bytes:
    behind = ShardState(0, 4)
    for _, data in groups:
        header = scan.parse_header(data)
        assert header is not None
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            behind.restore(data[GROUP_HEADER_BYTES:][: header.body_bytes])
        else:
            behind.apply_group(data)
    return state_cut(behind.snapshot(), slices.start, len(slices))


Test = Callable[[Follower, Asker, Answering, int], Coroutine[Any, Any, None]]


def asking(root: Path, groups: Groups, test: Test, slices: range = MINE) -> None:
    """Runs a test with B, who has all groups, and C, who has none."""

    async def main(follower: Follower) -> None:
        tail = await ended(follower, groups)
        answering, bulk = Answering(root / "b.rpc"), open_bulk("threads")
        states = states_of(follower)
        answering.gives = states.operations["state"]
        await answering.server.start(answering.path)
        asker = Asker(root, bulk, {PEER_B: answering}, slices)
        await asker.start()
        try:
            await test(follower, asker, answering, tail)
            assert not follower.fatal
        finally:
            await asker.close()
            states.close()
            await answering.server.close()
            bulk.close()

    follow(root, native=True, test=main)
