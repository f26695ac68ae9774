"""A follower whose core takes the usual groups by itself against one whose driver takes them all.

Both get the same frames, usual and hostile: their logs, their answers and what their machines hold
are the same after each.
"""

import asyncio
import functools
import os
import random
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from barco._native import Reactor
from barco.cluster.core import Settings
from barco.errors import BarcoError
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
    genesis,
)
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol import replication as r
from barco.protocol.link import REPLICATION, Hello
from barco.protocol.replication_codec import to_map
from barco.workers.reactor.selector import ReactorSelector
from barco.workers.replication.driver import Driver
from barco.workers.replication.wire import HEAD, encode
from barco.workers.storage import layout
from barco.workers.storage.bulk import BulkIo, open_bulk
from barco.workers.storage.replicas import ReplicaStore
from barco.workers.storage.retention import Policy

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
GROUPS = 260
STEPS = 40
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


# --- What a leader sends --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def groups() -> list[tuple[GroupHead, bytes]]:
    """The groups of a leader, in order."""
    reactor, rng, found = make_reactor(), random.Random(5), []
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as directory:
        reactor.begin_generation(GID.epoch, SESSION)
        for index in range(12):
            fd = os.open(f"{directory}/{index}", os.O_RDWR | os.O_CREAT)
            os.truncate(fd, SEGMENT_BYTES)
            reactor.add_segment(index, fd, SEGMENT_BYTES)
        reactor.open_generation(b"")
        while len(found) < GROUPS:
            size = rng.choice((100, 1000, 1000, 9000, 150_000 if rng.random() < 0.1 else 3000))
            reactor.append(1, "topic", rng.randrange(4), b"key", rng.randbytes(size))
            for upcall in reactor.run(0.001)[1]:
                if upcall[0] == "built":
                    _, gseq, prev_crc, header_crc, pos, length = upcall
                    data = reactor.group_bytes(pos, length)
                    assert data is not None
                    found.append((GroupHead(gseq, prev_crc, header_crc, length), data))
            reactor.replicated(reactor.log_state()["stable_gseq"])
        reactor.close()
    return found


# --- A follower, and the ends of its connections ---------------------------------------------------


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
        self.reactor = reactor
        self.store = ReplicaStore(
            shard,
            bulk,
            cluster_uuid=UUID,
            token=GID.token,
            segment_bytes=SEGMENT_BYTES,
            policy=Policy(0, 0),
            on_error=lambda error: self.fatal.append(str(error)),
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
        if not native:
            self.driver._inputs.arm = lambda *_: False  # type: ignore[method-assign]
        self.acknowledged = 0
        self.said: list[Any] = []

    def upcall(self, upcall: Any) -> None:
        if upcall[0] in ("built", "landed", "segment_wanted", "frame", "replica_closed"):
            asyncio.get_running_loop().call_soon(self.driver.upcall, upcall)

    async def dialled(self, peer: Identity) -> tuple[Hello, socket.socket]:
        own, other = socket.socketpair()
        own.setblocking(False)
        other.setblocking(False)
        self.heard[peer.ordinal] = other
        return hello(peer), own

    def dial(self, peer: Identity) -> None:
        """A peer calls, anew perhaps."""
        own, other = socket.socketpair()
        own.setblocking(False)
        if peer.ordinal in self.ways:
            self.ways.pop(peer.ordinal).close()
        self.ways[peer.ordinal] = own
        self.driver.take(hello(peer), other)

    async def start(self) -> None:
        self.driver.start(await self.store.recover(self.reactor))
        self.driver._loop = self.still = Still(asyncio.get_running_loop())  # type: ignore[assignment]
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
        await self.write(peer, encode(to_map(message), len(group)) + group)

    async def write(self, peer: Identity, data: bytes) -> None:
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
            busy = (
                not state["settled"] or self.driver.logs.pending_bytes or self.driver.logs._keeping
            )
            quiet = quiet + 1 if now == before and not busy else 0
            before = now
        self.driver._hear_core()
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
                if message["t"] == "appended":
                    self.acknowledged = max(self.acknowledged, message["gseq"])
                elif message["t"] != "ping":
                    self.said.append((ordinal, message))

    def frames(self, ordinal: int) -> Iterator[dict[str, Any]]:
        data = self.kept[ordinal]
        while len(data) >= HEAD.size:
            length, group = HEAD.unpack_from(data)
            if len(data) < HEAD.size + length + group:
                break
            yield msgpack.unpackb(data[HEAD.size : HEAD.size + length])
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
        session=SESSION if peer == A else 3,
        ring_size=3,
        workers=1,
        slices_per_range=4,
    )


# --- What they are sent -----------------------------------------------------------------------------

Groups = list[tuple[GroupHead, bytes]]


class Script:
    """One random step after the other, the same for both as long as they stand at the same."""

    def __init__(self, seed: int, follower: Follower, groups: Groups) -> None:
        self.rng = random.Random(seed)
        self.follower = follower
        self.groups = groups
        self.committed = 0

    async def step(self) -> str:
        """Returns what it was."""
        kinds = ["usual"] * 8 + ["burst"] * 3 + ["pieces"] * 3 + ["tick"] * 5 + ["row"]
        kinds += ["repeat", "gap", "chain", "body", "session", "epoch", "size"]
        kinds += ["oversize", "cut", "ping", "nonsense", "redial"]
        return await self.act(self.rng.choice(kinds))

    async def act(self, kind: str) -> str:
        await getattr(self, "_" + kind)()
        await self.follower.rest()
        await self._serve()
        return kind

    def _next(self) -> int:
        return self.follower.driver._machine._held[GID].received

    def _frame(self, index: int, group: bytes | None = None, **changes: Any) -> bytes:
        head, data = self.groups[index]
        if group is None:
            group = data
        message = to_map(r.Append(GID, SESSION, head, min(self.committed, index)))
        message |= {name: changes[name] for name in changes if name in message}
        if "head" in changes:
            message["head"] = list(changes["head"])
        return encode(message, len(group)) + group

    async def _send(self, frame: bytes) -> None:
        await self.follower.write(A, frame)

    async def _usual(self) -> None:
        self.committed = self.rng.randint(self.committed, self._next())
        await self._send(self._frame(self._next()))

    async def _burst(self) -> None:
        first = self._next()
        await self._send(b"".join(self._frame(first + n) for n in range(self.rng.randint(2, 6))))

    async def _row(self) -> None:
        """More than wait for the disk one by one."""
        first = self._next()
        await self._send(b"".join(self._frame(first + n) for n in range(30)))

    async def _pieces(self) -> None:
        first = self._next()
        data = b"".join(self._frame(first + n) for n in range(2))
        while data:
            size = self.rng.choice((1, 7, 9, 60, 200, 5000, 70_000))
            await self._send(data[:size])
            data = data[size:]
            await asyncio.sleep(0.001 if self.rng.random() < 0.3 else 0)

    async def _repeat(self) -> None:
        if self._next():
            await self._send(self._frame(self.rng.randrange(self._next())))

    async def _gap(self) -> None:
        await self._send(self._frame(self._next() + 1) + self._frame(self._next() + 2))

    async def _header(self) -> None:
        head, _ = self.groups[self._next()]
        await self._send(self._frame(self._next(), head=head._replace(header_crc=1)))

    async def _chain(self) -> None:
        head, _ = self.groups[self._next()]
        await self._send(self._frame(self._next(), head=head._replace(prev_crc=1)))

    async def _body(self) -> None:
        data = bytearray(self.groups[self._next()][1])
        data[130] ^= 1 << self.rng.randrange(8)
        await self._send(self._frame(self._next(), bytes(data)))

    async def _session(self) -> None:
        await self._send(self._frame(self._next(), session=SESSION + 1))

    async def _epoch(self) -> None:
        await self._send(self._frame(self._next(), gid=[GID.token, GID.epoch + 1]))

    async def _size(self) -> None:
        """A group that is not as long as its message says: the connection ends."""
        await self._send(self._frame(self._next(), self.groups[self._next()][1] + bytes(4096)))
        await self._again()

    async def _oversize(self) -> None:
        await self._send(struct.pack("<II", 40, GROUP_BYTES_MAX + 1))
        await self._again()

    async def _cut(self) -> None:
        frame = self._frame(self._next())
        await self._send(frame[: self.rng.randrange(1, len(frame))])
        await self._again()

    async def _nonsense(self) -> None:
        await self._send(encode({"t": "append", "gid": 3}))
        await self._again()

    async def _redial(self) -> None:
        await self._send(self._frame(self._next()))
        await self._again()

    async def _again(self) -> None:
        await self.follower.rest()
        self.follower.dial(A)

    async def _ping(self) -> None:
        views = (r.View(GID, self._next(), self.committed, False, True, True),)
        sender = self.rng.choice((A, C))
        frame = encode(to_map(r.Ping(False, True, (), 5, 0, views)))
        if sender == A:
            await self._send(frame + self._frame(self._next()))
        else:
            await self.follower.write(C, frame)

    async def _tick(self) -> None:
        self.follower.still.now += 0.5
        self.follower.driver._tick()

    async def _serve(self) -> None:
        """Answers what B asked for by FETCH, until it asks no more."""
        answered = 0
        while answered < len(self.follower.said):
            ordinal, message = self.follower.said[answered]
            answered += 1
            if message["t"] == "fetch" and message["gid"] == list(GID):
                for head, data in self.groups[message["first"] - 1 : message["last"]]:
                    await self.follower.send((A, B, C)[ordinal], r.Fetched(GID, head), data)
                await self.follower.rest()


# --- The tests --------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory where direct I/O works; /tmp is memory on some machines."""
    for base in (tmp_path, Path(__file__).parents[3] / ".pytest_cache"):
        base.mkdir(exist_ok=True)
        directory = Path(tempfile.mkdtemp(dir=base))
        try:
            layout.check_data_dir(directory)
        except BarcoError:
            shutil.rmtree(directory)
            continue
        yield directory
        shutil.rmtree(directory, ignore_errors=True)
        return
    pytest.skip("neither --basetemp nor the checkout allows O_DIRECT")


def follow(
    root: Path, *, native: bool, test: Callable[[Follower], Coroutine[Any, Any, Any]]
) -> Any:
    """Runs a test with a follower on an empty disk."""
    shard = layout.shard_path(Path(tempfile.mkdtemp(dir=root)), 0)
    shard.mkdir()
    reactor = make_reactor()
    selector = ReactorSelector(reactor)
    loop = asyncio.SelectorEventLoop(selector)
    bulk = open_bulk("threads")
    follower = Follower(shard, bulk, reactor, native=native)
    selector.on_upcall = follower.upcall

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


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_are_the_same(seed: int, root: Path, groups: Groups) -> None:
    async def test(follower: Follower) -> Any:
        script, found = Script(seed, follower, groups), []
        for _ in range(STEPS):
            if script._next() > GROUPS - 40:
                break
            found.append((await script.step(), follower.state()))
        for kind in ("header", "usual"):  # Believed: whoever says so built the group.
            found.append((await script.act(kind), follower.state()))
        return found, follower.log(), follower.reactor.stats()["groups_followed"]

    native, log, followed = follow(root, native=True, test=test)
    driven, other_log, none = follow(root, native=False, test=test)
    assert followed > 10 and none == 0
    for number, (one, other) in enumerate(zip(native, driven, strict=True)):
        assert one == other, f"step {number}"
    assert log == other_log


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_acknowledged_beyond_a_promise(seed: int, root: Path, groups: Groups) -> None:
    """Groups stream in while C asks for the promise: its tail is the last that is ever told."""

    async def test(follower: Follower) -> None:
        script, rng = Script(seed, follower, groups), random.Random(seed)
        script.committed = 3
        for index in range(5):
            await script._send(script._frame(index))
            await follower.rest()
        assert follower.reactor.stats()["groups_followed"] > 0
        stream = b"".join(script._frame(index) for index in range(5, 100))
        at = rng.randrange(len(stream))
        promise = r.Prepare(GID, Ballot(1, 2, 3))  # type: ignore[arg-type]
        sending = asyncio.ensure_future(follower.write(A, stream[:at]))
        await asyncio.sleep(rng.random() * 0.004)
        await follower.send(C, promise)
        await sending
        await script._send(stream[at:])
        while not (said := [m for _, m in follower.said if m["t"] == "promise"]):
            await asyncio.sleep(0.001)
            follower.listen()
        await follower.rest()
        (told,) = said
        state = follower.reactor.log_state()
        assert follower.acknowledged == told["tail"] == state["stable_gseq"] == state["gseq"]
        if told["tail"] < 99:
            assert any(m["t"] == "fenced" for _, m in follower.said)

    follow(root, native=True, test=test)
