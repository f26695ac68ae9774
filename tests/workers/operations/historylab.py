"""Generations at several holders: real files, asked over real sockets."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from barco._native import chunk_events, chunks_scan
from barco.cluster.state.kin import TOKEN_END, Ancestor
from barco.errors import RequestError
from barco.model.generation import Gid
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations.history import History
from barco.workers.operations.holding import Holding
from barco.workers.peers.rpc import RpcServer, Siblings
from barco.workers.shard.whole import WholeExtents, WholeReader
from barco.workers.storage.files.bulk import BulkIo, open_bulk
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.stores.replicas import ReplicaStore

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
import builder
import replica_files

STREAM = ("b.c", 0)
EACH = 72
"""Events of it in a generation of `builder.simple`: 24 chunks of 3, in four segments."""


def ancestor(epoch: int, members: tuple[int, ...] = (0, 1)) -> Ancestor:
    return Ancestor(Gid(Token(builder.TOKEN), Epoch(epoch)), 28, TOKEN_END, members)


def log_of(epoch: int) -> builder.Log:
    """The generation of that epoch, each of which continues the one before; 2 is the first."""
    log = builder.Log(epoch=epoch, offsets={STREAM: (epoch - 2) * EACH})
    for _ in range(4):
        log.roll()
        for _ in range(6):
            log.events(STREAM)
    return log


async def store_of(directory: Path, bulk: BulkIo, *epochs: int, gone: int = 0) -> ReplicaStore:
    """A replica of these generations, all of them ended; without the first `gone` segments."""
    directory.mkdir()
    lineage = Lineage.load(directory)
    for epoch in epochs:
        log = log_of(epoch)
        lineage.opened(epoch, builder.SESSION, [(epoch - 1, 28)])
        paths = log.write(directory)
        lineage.sealed(epoch, 28, 3, len(log.segments[-1]))
        if gone:
            first = next(n for n, (segment, _, _) in enumerate(log.groups) if segment == gone)
            lineage.begins(epoch, gone, first + 1, 1)
            for path in paths[:gone]:
                path.unlink()
    store = replica_files.make(directory, bulk, [])
    await store.recover(replica_files.Loading())
    return store


class Holder:
    """A process that has some generations, and says what it does not have."""

    def __init__(self, path: Path, store: ReplicaStore, *far: Ancestor) -> None:
        self.path, self.store = str(path), store
        self.asked: list[Mapping[str, Any]] = []
        self.spoil: Callable[[dict[str, Any]], Any] = lambda answer: answer
        self.holding = Holding(builder.TOKEN, store, lambda: far)
        self.server = RpcServer(self._operation, bytes_max=4 << 20)

    async def _operation(self, op: str, args: Mapping[str, Any]) -> Any:
        self.asked.append(args)
        return self.spoil(await self.holding.operations[op](args))


async def _nothing(op: str, args: Mapping[str, Any]) -> Any:
    raise RequestError("nobody asks itself")


class Scene:
    """Who asks is broker 2, with a store of its own; brokers 0, 1, ... are the holders."""

    def __init__(self, root: Path, bulk: BulkIo) -> None:
        self.root, self.bulk = root, bulk
        self.holders: list[Holder] = []
        self.far: list[Ancestor] = []
        self.paths: dict[int, str] = {}

    async def hold(self, *epochs: int, far: tuple[Ancestor, ...] = (), gone: int = 0) -> Holder:
        name = f"h{len(self.holders)}"
        store = await store_of(self.root / name, self.bulk, *epochs, gone=gone)
        holder = Holder(self.root / f"{name}.rpc", store, *far)
        await holder.server.start(holder.path)
        self.paths[peer_of((Ordinal(len(self.holders)), 0))] = holder.path
        self.holders.append(holder)
        return holder

    async def own(self, *epochs: int, far: tuple[Ancestor, ...]) -> None:
        self.far = list(far)
        self.store = await store_of(self.root / "own", self.bulk, *epochs)
        self.siblings = Siblings(
            worker=peer_of((Ordinal(9), 0)), paths=self.paths, operation=_nothing, bytes_max=4 << 20
        )
        self.history = History(
            ranges=self,  # type: ignore[arg-type]
            siblings=self.siblings,
            peer=peer_of((Ordinal(9), 0)),
            far=lambda: self.far,
            token_of=lambda index: builder.TOKEN,
            token=builder.TOKEN,
            gone=lambda gid: self.store.lineage.is_gone(gid),
        )
        self.reader = WholeReader(self.store.reader, self.store.extents.begins)
        self.reader.elsewhere = self.history
        self.store.reader.between = self.history.between
        self.extents = WholeExtents(self.store.extents, self.history)

    def processes_of_token(self, token: int) -> list[tuple[int, int]]:
        assert token == builder.TOKEN
        return [(at, 0) for at in range(len(self.holders))]

    async def offsets(
        self, start: int = 0, *, size: int = 200, raw: int | None = None
    ) -> list[int]:
        """Of all events from a place on, as they come; each read goes on where the last ended."""
        found: list[int] = []
        while True:
            result = await self.reader.read(*STREAM, start, size, raw_bytes_max=raw)
            if not result.chunks:
                return found
            for piece in map(bytes, result.chunks):
                for at, *_ in chunks_scan(piece):
                    found += [event[0] for event in chunk_events(piece, at)]
            assert result.next_offset > start
            start = result.next_offset

    async def close(self) -> None:
        await self.siblings.close()
        for holder in self.holders:
            await holder.server.close()
            await holder.store.close()
        await self.store.close()


def scene(root: Path, test: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        bulk = open_bulk("threads")
        made = Scene(root, bulk)
        try:
            await test(made)
        finally:
            await made.close()
            bulk.close()

    asyncio.run(main())
