"""C, who asks B for the state of two of its four slices: a real store and core, and its link."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from following import GID, SEGMENT_BYTES, SESSION, UUID, C, Follower

from barco._native import Reactor
from barco.errors import BarcoError, NotReadyError
from barco.protocol import replication as r
from barco.workers.replication.states import States
from barco.workers.replication.wire import HEAD, decode
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

MINE = range(2, 4)
ASK_SLICES = MINE.start, len(MINE)
ASK = r.AskState(GID, 0, *ASK_SLICES, SESSION)


class Wire:
    """C's link to B: what C says goes over its connection, what B says is given to C's `States`."""

    connected = True

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.states: States
        self.kept = b""
        self.heard: list[r.Message] = []
        self.spoil: Callable[[r.Message, bytearray], r.Message] = lambda message, _: message
        self.sending: set[asyncio.Task[None]] = set()

    def send(self, message: r.Message) -> bool:
        task = asyncio.get_running_loop().create_task(self.follower.send(C, message))
        self.sending.add(task)
        return True

    async def carry(self) -> None:
        """What B says to C, for as long as the test goes on."""
        loop, end = asyncio.get_running_loop(), self.follower.heard[C.ordinal]
        end.setblocking(False)
        while data := await loop.sock_recv(end, 1 << 20):
            self.kept += data
            while len(self.kept) >= HEAD.size:
                length, beside = HEAD.unpack_from(self.kept)
                if len(self.kept) < HEAD.size + length + beside:
                    break
                message = decode(self.kept[HEAD.size : HEAD.size + length])
                body = bytearray(self.kept[HEAD.size + length :][:beside])
                self.kept = self.kept[HEAD.size + length + beside :]
                if isinstance(message, r.OF_STATES):
                    self.heard.append(message)
                    message = self.spoil(message, body)
                    self.states.heard(1, message, body if beside else None)


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


class Asker:
    """C, who is to lead slices that B's generation had, and has nothing of it."""

    def __init__(self, root: Path, bulk: BulkIo, wire: Wire, slices: range = MINE) -> None:
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
        links: Any = {1: wire}
        self.states = wire.states = States(
            links,
            GID.token,
            self.core,
            self.store,
            lambda gid: None,
            lambda gid: SESSION,
            4 << 20,
            lambda reason: self.told.append(NotReadyError(reason)),
        )

    async def start(self) -> None:
        await self.store.recover(self.core)
        self.store.states = self.states

    async def close(self) -> None:
        await self.states.close()
        await self.store.close()
        self.core.close()
