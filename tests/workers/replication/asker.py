"""C, who asks B for the state of two of its four slices: a real store and core, real sockets."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from following import GID, SEGMENT_BYTES, SESSION, UUID, Follower

from barco._native import Reactor
from barco.errors import BarcoError, RequestError
from barco.model.generation import Gid
from barco.model.ranges import peer_of
from barco.types import Ordinal
from barco.workers.peers.rpc import RpcServer, Siblings
from barco.workers.replication.states import States
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

MINE = range(2, 4)
ASK_SLICES = MINE.start, len(MINE)
PEER_A, PEER_B, PEER_C = (peer_of((Ordinal(ordinal), 0)) for ordinal in range(3))
ASK = {"token": GID.token, "epoch": GID.epoch, "first": MINE.start, "slices": len(MINE)} | {
    "session": SESSION,
    "at": 0,
    "size": 0,
}
"""The arguments of the operation, without the tail."""

Spoil = Callable[[dict[str, Any], Mapping[str, Any]], None]
"""Changes an answer; what was asked for comes with it."""


class Answering:
    """A process that answers over its socket: what `gives` says, and it is counted."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.spoil: Spoil = lambda answer, args: None
        self.asked: list[Mapping[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.server = RpcServer(self._operation, bytes_max=4 << 20)
        self.gives: Callable[[Mapping[str, Any]], Any] | None = None

    async def _operation(self, op: str, args: Mapping[str, Any]) -> Any:
        if op != "state" or self.gives is None:
            raise RequestError("it has none")
        self.asked.append(args)
        answer = dict(await self.gives(args))
        self.spoil(answer, args)
        self.answers.append(answer)
        return answer


def core_of(slices: range) -> Reactor:
    return Reactor(
        arena_bytes=8 << 20,
        request_bytes_max=1 << 20,
        event_bytes_max=1 << 18,
        slices=4,
        slice_first=slices.start,
        slice_last=slices.stop - 1,
        cluster_uuid=UUID,
        session=2,
    )


async def _nothing(op: str, args: Mapping[str, Any]) -> Any:
    raise RequestError("nobody asks itself")


async def soon(condition: Callable[[], bool], seconds: float) -> bool:
    """As `Turns.until`, of a test that turns no loop of the core."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.001)
    return condition()


def states_of(follower: Follower) -> States:
    """Of B, who answers."""
    return States(
        GID.token,
        follower.reactor,
        follower.store,
        siblings=Siblings(worker=PEER_B, paths={}, operation=_nothing, bytes_max=4 << 20),
        holders=lambda gid: [],
        tail_of=follower.driver.tail_of,
        session_of=follower.driver.session_of,
        state_bytes_max=4 << 20,
        until=soon,
    )


class Asker:
    """C, who is to lead slices that B's generation had, and has nothing of it."""

    def __init__(
        self, root: Path, bulk: BulkIo, others: Mapping[int, Answering], slices: range = MINE
    ) -> None:
        """others: who may be asked, by their numbers."""
        self.core = core_of(slices)
        shard = layout.range_path(root / "asker", 0)
        shard.mkdir(parents=True)
        self.told: list[BarcoError] = []
        self.store = ReplicaStore(
            shard,
            bulk,
            cluster_uuid=UUID,
            token=GID.token,
            segment_bytes=SEGMENT_BYTES,
            policy=Policy(0, 0),
            on_error=self.told.append,
        )
        self.siblings = Siblings(
            worker=PEER_C,
            paths={peer: other.path for peer, other in others.items()},
            operation=_nothing,
            bytes_max=4 << 20,
        )
        self.holders = list(others)
        self.session: Callable[[Gid], int | None] = lambda gid: SESSION
        self.states = States(
            GID.token,
            self.core,
            self.store,
            siblings=self.siblings,
            holders=lambda gid: self.holders,
            tail_of=lambda gid: None,
            session_of=lambda gid: self.session(gid),
            state_bytes_max=4 << 20,
            until=soon,
        )

    async def start(self) -> None:
        await self.store.recover(self.core)
        self.store.states = self.states

    async def close(self) -> None:
        self.states.close()
        await self.siblings.close()
        await self.store.close()
        self.core.close()
        await asyncio.sleep(0)
