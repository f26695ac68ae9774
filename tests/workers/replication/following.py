"""B, a follower with a real log, between A who leads and C; the test plays both."""

import asyncio
import functools
import socket
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import ends

from barco._native import Reactor
from barco.cluster.state.core import Settings
from barco.errors import BarcoError, DiskFullError
from barco.model.generation import (
    Generation,
    Gid,
    Identity,
    Kind,
    Parent,
    Successor,
    genesis,
)
from barco.model.placement import Placement
from barco.model.ranges import slices_between
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol import replication as r
from barco.protocol.append_frame import Appended
from barco.protocol.link import REPLICATION, Hello
from barco.workers.process.selector import ReactorSelector
from barco.workers.replication.driver import Driver
from barco.workers.replication.wire import HEAD, decode, encode
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo, open_bulk
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

UUID = b"\x07" * 16
A, B, C = (Identity(ordinal, bytes([ordinal + 1]) * 16) for ordinal in range(3))
SESSION = 70
GENESIS = genesis(TOKEN_MIN, TOKEN_MAX + 1, (0, 1, 2))
SUBJECT = Generation(
    Gid(GENESIS.gid.token, 2),  # type: ignore[arg-type]
    GENESIS.end,
    A,
    SESSION,
    (A, B, C),
    (Parent(GENESIS.gid, 0),),
)
GID = SUBJECT.gid
SEGMENT_BYTES = 1 << 20
GROUP_BYTES_MAX = 4 << 20


def make_reactor() -> Reactor:
    return Reactor(
        arena_bytes=8 << 20,
        request_bytes_max=1 << 20,
        event_bytes_max=1 << 18,
        slices=4,
        slice_last=3,
        cluster_uuid=UUID,
        session=1,
    )


def slices_of(token: int, end: int) -> range:
    """As a worker has it."""
    return slices_between(Placement(1, 4), token, end)


class Still:
    """A loop whose clock moves when it is told to: nobody pings, nothing is due by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Any) -> Any:
        return type("Never", (), {"cancel": lambda self: None})()


class Follower:
    """B, with A and C played by the test."""

    def __init__(self, shard: Path, bulk: BulkIo, reactor: Reactor, *, native: bool) -> None:
        self.fatal: list[str] = []
        self.slices: list[range] = []
        self.reactor = reactor
        self.store = ReplicaStore(
            shard,
            bulk,
            cluster_uuid=UUID,
            token=GID.token,
            segment_bytes=SEGMENT_BYTES,
            policy=Policy(0, 0),
            on_error=self._told,
        )
        self.heard: dict[int, socket.socket] = {}
        """By ordinal: what B says to it."""
        self.ways: dict[int, socket.socket] = {}
        self.kept: dict[int, bytes] = {0: b"", 2: b""}
        self.driver = Driver(
            Settings(me=B, session=9, ranges=(GENESIS,)),
            {each.ordinal: functools.partial(self.dialled, each) for each in (A, C)},
            reactor=reactor,
            store=self.store,
            bulk=bulk,
            group_bytes_max=GROUP_BYTES_MAX,
            on_lead=lambda generation: None,
            on_follow=lambda generation: None,
            on_stop=lambda reason: None,
            fatal=self.fatal.append,
        )
        self.driver.logs.slices_of = slices_of
        self.driver.logs.begun = self.slices.append
        if not native:
            self.driver._inputs.arm = lambda *_: False  # type: ignore[method-assign]
        self.acknowledged = 0
        self.said: list[Any] = []

    def _told(self, error: BarcoError) -> None:
        if not isinstance(error, DiskFullError):  # The machine's disk is not what is tested.
            self.fatal.append(str(error))

    def upcalls(self, upcalls: Any) -> None:
        taken = ("built", "landed", "settled", "segment_wanted", "frame", "replica_closed")
        for upcall in upcalls:
            if upcall[0] in taken:
                asyncio.get_running_loop().call_soon(self.driver.upcall, upcall)

    async def dialled(self, peer: Identity) -> tuple[Hello, socket.socket]:
        own, other = ends.pair()
        own.setblocking(False)
        other.setblocking(False)
        self.heard[peer.ordinal] = other
        return hello(peer), own

    def dial(self, peer: Identity) -> None:
        """A peer calls, anew perhaps."""
        own, other = ends.pair()
        own.setblocking(False)
        if peer.ordinal in self.ways:
            self.ways.pop(peer.ordinal).close()
        self.ways[peer.ordinal] = own
        self.driver.take(hello(peer), other)

    async def start(self) -> None:
        self.driver.start(await self.store.recover(self.reactor))
        self.still = Still(asyncio.get_running_loop())
        self.driver._loop = self.still  # type: ignore[assignment]
        assert self.driver._timer is not None
        self.driver._timer.cancel()
        self.dial(A)
        self.dial(C)
        while len(self.heard) < 2:
            await asyncio.sleep(0.001)
        await self.send(A, r.Decided(GENESIS.gid, Successor(0, Kind.RELEAD, (SUBJECT,))))
        while self.driver.logs.current != GID:
            await asyncio.sleep(0.001)

    async def send(self, peer: Identity, message: r.Message, group: bytes = b"") -> None:
        await self.write(peer, encode(message, len(group)) + group)

    async def write(self, peer: Identity, data: bytes | bytearray) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self.ways[peer.ordinal], data)
        except OSError:
            pass  # B has hung up meanwhile.

    async def rest(self) -> None:
        """Until everything that was sent is taken in and written."""
        quiet, before = 0, None
        while quiet < 4:
            await asyncio.sleep(0.002)
            self.listen()
            state = self.reactor.log_state()
            now = (state["gseq"], state["stable_gseq"], self.driver.steps, len(self.said))
            busy = not self.driver.logs.idle
            quiet = quiet + 1 if now == before and not busy else 0
            before = now
        for each in self.driver._news():
            self.driver._step(each, None)
        self.driver._arrange()

    def listen(self) -> None:
        """Reads what B has said: the highest APPENDED, and all else but pings."""
        for ordinal, end in self.heard.items():
            while True:
                try:
                    data = end.recv(1 << 16)
                except BlockingIOError:
                    break
                if not data:
                    break
                self.kept[ordinal] += data
            for message in self.frames(ordinal):
                if isinstance(message, Appended):
                    self.acknowledged = max(self.acknowledged, message.gseq)
                elif not isinstance(message, r.Ping):
                    self.said.append((ordinal, message))

    def frames(self, ordinal: int) -> Iterator[r.Message]:
        data = self.kept[ordinal]
        while len(data) >= HEAD.size:
            length, group = HEAD.unpack_from(data)
            if len(data) < HEAD.size + length + group:
                break
            yield decode(data[HEAD.size : HEAD.size + length])
            data = data[HEAD.size + length + group :]
        self.kept[ordinal] = data

    def state(self) -> Any:
        """All that must not depend on who took the groups."""
        held = self.driver._machine._held[GID]
        core = self.reactor.log_state()
        said, self.said = self.said, []
        return (
            (held.received, held.received_crc, held.tail, held.tail_crc, held.committed),
            (held.owed, held.shown, held.promised, held.fence, held.refused_at, held.target),
            tuple(core[name] for name in ("gseq", "stable_gseq", "committed", "header_crc")),
            (core["segment"], core["segment_used"], self.acknowledged, said, self.fatal),
        )

    def log(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.store._shard.glob("*.seg*")))

    async def close(self) -> None:
        await self.driver.close()
        await self.store.close()
        for end in (*self.heard.values(), *self.ways.values()):
            end.close()


def hello(peer: Identity) -> Hello:
    return Hello(
        kind=REPLICATION,
        cluster_uuid=UUID.hex(),
        ordinal=peer.ordinal,
        disk_uuid=peer.disk_uuid.hex(),
        worker=0,
        token=TOKEN_MIN,
        session=SESSION if peer == A else 3,
        ring_size=3,
        workers=1,
        slices_per_range=4,
    )


def follow(
    root: Path, *, native: bool, test: Callable[[Follower], Coroutine[Any, Any, Any]]
) -> Any:
    """Runs a test with a follower on an empty disk."""
    shard = layout.range_path(tempfile.mkdtemp(dir=root), 0)
    shard.mkdir()
    reactor = make_reactor()
    selector = ReactorSelector(reactor)
    loop = asyncio.SelectorEventLoop(selector)
    bulk = open_bulk("threads")
    follower = Follower(shard, bulk, reactor, native=native)
    selector.on_upcalls = follower.upcalls

    async def main() -> Any:
        await follower.start()
        try:
            return await asyncio.wait_for(test(follower), 60)
        finally:
            await follower.close()

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()
        bulk.close()
        reactor.close()
