"""Processes of one range with real files and real sockets, for the tests of depots."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.target import Target, TargetBroker
from barco.cluster.state.kin import TOKEN_END, Ancestor, KnownLineage, far
from barco.errors import RequestError
from barco.model.generation import Generation, Gid, Identity, Parent
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations.holding import Holding
from barco.workers.operations.leaving.depot import Depot
from barco.workers.operations.leaving.ended import (
    Ended,
    ask_ended,
    lodged_here,
)
from barco.workers.peers.rpc import RpcServer, Siblings
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo, open_bulk
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.scan import parse_header
from barco.workers.storage.stores.lodging import Lodging

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
import builder
import replica_files

STREAM = ("b.c", 0)
EACH, TAIL = 72, 28
MEMBERS = (3, 1, 4)
ME = 0
RATE = 1 << 30
CUT = Cut(3, 8)


def log_of(epoch: int, pace: int = 0) -> builder.Log:
    """The generation of that epoch, each of which continues the one before; 2 is the first."""
    log = builder.Log(epoch=epoch, offsets={STREAM: (epoch - 2) * EACH}, pace=pace)
    for _ in range(4):
        log.roll()
        for _ in range(6):
            log.events(STREAM)
    return log


def record(gid: Gid) -> Generation:
    members = tuple(Identity(Ordinal(each), bytes([each]) * 16) for each in MEMBERS)
    return Generation(gid, TOKEN_END, members[0], builder.SESSION, members, ())


def nearest(generation: Generation) -> list[Parent]:
    """The first continues what another range had."""
    epoch = generation.gid.epoch
    token = builder.TOKEN if epoch > 2 else builder.TOKEN + 4096
    return [Parent(Gid(Token(token), Epoch(epoch - 1 if epoch > 2 else 1)), TAIL)]


class Holder:
    """A process of the range that answers what a real one does, but for what is spoilt."""

    def __init__(self, root: Path, bulk: BulkIo, ordinal: int) -> None:
        self.directory, self.path = root / f"b{ordinal}", str(root / f"b{ordinal}.rpc")
        self.ordinal, self.bulk = ordinal, bulk
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.spoil: Callable[[str, Any], Any] = lambda op, answer: answer

    async def open(self, *epochs: int, pace: int = 0, gone: int = 0) -> None:
        """With these generations, all of them ended; without the first `gone` segments."""
        self.directory.mkdir(exist_ok=True)
        lineage = Lineage.load(self.directory)
        for epoch in epochs:
            log = log_of(epoch, pace)
            lineage.opened(epoch, builder.SESSION, [(epoch - 1, TAIL)])
            paths = log.write(self.directory)
            lineage.sealed(epoch, TAIL, 3, len(log.segments[-1]))
            if gone:
                first = 1 + next(n for n, each in enumerate(log.groups) if each[0] == gone)
                before = paths[gone].read_bytes()[:128]
                prev_crc = parse_header(before).prev_crc  # type: ignore[union-attr]
                lineage.begins(epoch, gone, first, prev_crc)
                for path in paths[:gone]:
                    path.unlink()
        await self.start()

    async def start(self) -> None:
        self.store = replica_files.make(self.directory, self.bulk, [])
        await self.store.recover(replica_files.Loading())
        self.lodging = Lodging(
            self.store, self.directory, self.bulk, cluster_uuid=builder.UUID, token=builder.TOKEN
        )
        self.ended = Ended(
            builder.TOKEN, self.lodging, record=record, nearest=nearest, whole=lambda: True
        )
        self.holding = Holding(builder.TOKEN, self.store, self.far)
        self.server = RpcServer(self._operation, bytes_max=64 << 20)
        await self.server.start(self.path)

    def far(self) -> list[Ancestor]:
        lodged = lodged_here(builder.TOKEN, self.store.lineage)
        return far(KnownLineage({}, {}), builder.TOKEN, self.ordinal, (), lodged)

    async def _operation(self, op: str, args: Mapping[str, Any]) -> Any:
        self.asked.append((op, args))
        operations = {**self.ended.operations, **self.holding.operations}
        return self.spoil(op, await operations[op](args))

    async def close(self) -> None:
        await self.server.close()
        await self.store.close()

    def groups_asked(self) -> list[int]:
        return [args["first"] for op, args in self.asked if op == "ended_groups"]


async def _nothing(op: str, args: Mapping[str, Any]) -> Any:
    raise RequestError("nobody asks itself")


class Scene:
    """Brokers 3, 1 and 4 were members; 3 and 4 leave; broker 0 is the depot."""

    def __init__(self, root: Path, bulk: BulkIo) -> None:
        self.root, self.bulk = root, bulk
        self.brokers: dict[int, Holder] = {}
        self.paths: dict[int, str] = {}
        self.target = Target(
            3,
            CUT,
            tuple(TargetBroker(ordinal=each, workers=1) for each in range(3)),
            depots=((0, ME),),
        )
        peer = peer_of((Ordinal(ME), 0))
        self.siblings = Siblings(
            worker=peer, paths=self.paths, operation=_nothing, bytes_max=64 << 20
        )

    async def hold(self, ordinal: int, *epochs: int, pace: int = 0, gone: int = 0) -> Holder:
        made = self.brokers[ordinal] = Holder(self.root, self.bulk, ordinal)
        await made.open(*epochs, pace=pace, gone=gone)
        self.paths[peer_of((Ordinal(ordinal), 0))] = made.path
        return made

    async def depot(self) -> Depot:
        """Of broker 0, whose process has just started."""
        if (before := self.brokers.pop(ME, None)) is not None:
            await before.close()
        self.own = self.brokers[ME] = Holder(self.root, self.bulk, ME)
        await self.own.open()
        return Depot(
            builder.TOKEN,
            ME,
            0,
            self.own.lodging,
            ranges=self,  # type: ignore[arg-type]
            siblings=self.siblings,
            peer=peer_of((Ordinal(ME), 0)),
            target=lambda: self.target,
            bytes_per_second=RATE,
        )

    def processes_of_token(self, token: int) -> list[tuple[int, int]]:
        assert token == builder.TOKEN
        return [(at, 0) for at in sorted(self.brokers)]

    def process_at(self, ordinal: int, token: int) -> tuple[int, int] | None:
        return (ordinal, 0) if ordinal in self.brokers else None

    def same(self, epoch: int, other: int = 3) -> bool:
        """Whether both have the same bytes, but for what is behind the end."""
        for index in range(4):
            mine, theirs = (
                layout.segment_path(self.brokers[at].directory, epoch, index) for at in (ME, other)
            )
            if not mine.exists() or mine.read_bytes().rstrip(b"\0") != theirs.read_bytes().rstrip(
                b"\0"
            ):
                return False
        return True

    async def close(self) -> None:
        await self.siblings.close()
        for holder in self.brokers.values():
            await holder.close()


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


async def whole_at(scene: Scene, ordinal: int) -> list[int]:
    """Epochs of which a broker says that it has all."""
    peer = peer_of((Ordinal(ordinal), 0))
    scene.paths[peer] = scene.brokers[ordinal].path
    other = Siblings(worker=999, paths=scene.paths, operation=_nothing, bytes_max=64 << 20)
    try:
        said = await ask_ended(other, peer, builder.TOKEN)
    finally:
        await other.close()
    return [each.generation.epoch for each in said if each.whole]
