"""A follower whose core takes the usual groups by itself against one whose driver takes them all.

Both get the same frames, usual and hostile: their logs, their answers and what their machines hold
are the same after each.
"""

import asyncio
import os
import random
import socket
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from following import (
    GENESIS,
    GID,
    GROUP_BYTES_MAX,
    SEGMENT_BYTES,
    SESSION,
    SUBJECT,
    A,
    B,
    C,
    Follower,
    follow,
    make_reactor,
)
from msgspec.structs import replace

from barco._native import Reactor
from barco.cluster.replica.replica import Replica
from barco.cluster.state import events as ev
from barco.model.generation import (
    Ballot,
    GroupHead,
    Kind,
    Successor,
)
from barco.protocol import replication as r
from barco.protocol.append_frame import Append, Appended
from barco.workers.replication import inputs
from barco.workers.replication.wire import HEAD, encode

GROUPS = 260
STEPS = 40


def sent_group(reactor: Reactor, pos: int, length: int) -> bytes:
    """A group from the core's memory, by the way that it goes to followers."""
    data = b""
    here, there = socket.socketpair()
    with here, there:
        while len(data) < length:
            sent = reactor.send_group(here.fileno(), b"", pos, length, len(data))
            assert sent, "the group is there, and the socket is empty"
            while sent > 0:
                part = there.recv(sent)
                data, sent = data + part, sent - len(part)
    return data


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
                    data = sent_group(reactor, pos, length)
                    found.append((GroupHead(gseq, prev_crc, header_crc, length), data))
            reactor.replicated(reactor.log_state()["stable_gseq"])
        reactor.close()
    return found


# --- What they are sent -------------------------------------------------------------------------

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
        kinds += ["oversize", "cut", "flip", "ping", "nonsense", "redial"]
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
        message = Append(GID, SESSION, head, min(self.committed, index))
        return encode(replace(message, **changes), len(group)) + group

    async def _send(self, frame: bytes | bytearray) -> None:
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
        """In the name of another start of its process: the connection ends."""
        await self._send(self._frame(self._next(), session=SESSION + 1))
        await self._again()

    async def _epoch(self) -> None:
        await self._send(self._frame(self._next(), gid=GID._replace(epoch=GID.epoch + 1)))

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
        body = msgpack.packb({"t": "gap", "gid": 3})
        await self._send(HEAD.pack(len(body), 0) + body)
        await self._again()

    async def _flip(self) -> None:
        """A bit of the lengths or of the message: the connection ends."""
        frame = bytearray(self._frame(self._next()))
        frame[self.rng.randrange(HEAD.size + 64)] ^= 1 << self.rng.randrange(8)
        await self._send(frame)
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
        frame = encode(r.Ping(b"", True, (), 5, 0, 0, views))
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
            if isinstance(message, r.Fetch) and message.gid == GID:
                for head, data in self.groups[message.first - 1 : message.last]:
                    await self.follower.send((A, B, C)[ordinal], r.Fetched(GID, head), data)
                await self.follower.rest()


# --- The tests ----------------------------------------------------------------------------------


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
def test_nothing_is_acknowledged_beyond_a_promise(
    seed: int, root: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups stream in while C asks for the promise: its tail is the last that is ever told."""
    # The others have answered this process (rule A6): here nobody pings, and the clock stands.
    monkeypatch.setattr(Replica, "_is_unheard", lambda self, held: False)

    async def test(follower: Follower) -> None:
        script, rng = Script(seed, follower, groups), random.Random(seed)
        script.committed = 3
        for index in range(5):
            await script._send(script._frame(index))
            await follower.rest()
        stats = follower.reactor.stats()
        assert stats["groups_followed"] > 0 and stats["acknowledgement_bytes"] > 0
        stream = b"".join(script._frame(index) for index in range(5, 100))
        at = rng.randrange(len(stream))
        promise = r.Prepare(GID, Ballot(1, 2, 3))  # type: ignore[arg-type]
        sending = asyncio.ensure_future(follower.write(A, stream[:at]))
        await asyncio.sleep(rng.random() * 0.004)
        await follower.send(C, promise)
        await sending
        await script._send(stream[at:])
        while not (said := [m for _, m in follower.said if isinstance(m, r.Promise)]):
            await asyncio.sleep(0.001)
            follower.listen()
        await follower.rest()
        (told,) = said
        state = follower.reactor.log_state()
        assert follower.acknowledged == told.tail == state["stable_gseq"] == state["gseq"]
        if told.tail < 99:
            assert any(isinstance(m, r.Fenced) for _, m in follower.said)

    follow(root, native=True, test=test)


@pytest.mark.parametrize("native", [True, False])
def test_a_bit_that_flips_ends_the_connection(native: bool, root: Path, groups: Groups) -> None:
    """In an APPEND, or in an APPENDED: nothing is taken, and B hangs up."""

    async def test(follower: Follower) -> None:
        script, rng = Script(3, follower, groups), random.Random(3)
        for index in range(3):
            await script._send(script._frame(index))
            await follower.rest()
        before = follower.state()
        appended = encode(Appended(GID, 2, SESSION))
        for number in range(40):
            frame = bytearray(appended if number % 2 else script._frame(3))
            at = HEAD.size + rng.randrange(48 if number % 2 else 64)
            frame[at] ^= 1 << rng.randrange(8)
            await script._send(frame)
            with suppress(ConnectionResetError):
                hung_up = asyncio.get_running_loop().sock_recv(follower.ways[A.ordinal], 1)
                assert await asyncio.wait_for(hung_up, 20) == b""
            await script._again()
            assert follower.state() == before, (number, at)
        await script.act("usual")
        assert script._next() == 4

    follow(root, native=native, test=test)


def test_peers_that_had_to_wait_go_on_as_soon_as_there_is_room(
    root: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a connection that was dialled meanwhile."""
    bound = 20_000
    monkeypatch.setattr(inputs, "REPLICATION_PENDING_BYTES_MAX", bound)

    async def test(follower: Follower) -> None:
        ours = follower.driver._inputs
        paused: list[bool] = []

        def pause(number: int, wait: bool) -> None:
            paused.append(wait)
            assert wait == (follower.driver.logs.pending_bytes > bound // 2)
            follower.reactor.pause_replica(number, wait)

        monkeypatch.setattr(
            ours, "_reactor", SimpleNamespace(reactor=follower.reactor, pause_replica=pause)
        )
        for name in ("adopt_replica", "close_replica", "arm_intake"):
            setattr(ours._reactor, name, getattr(follower.reactor, name))
        script = Script(1, follower, groups)
        half = GROUPS // 2
        stream = b"".join(script._frame(index) for index in range(half))
        sending = asyncio.ensure_future(script._send(stream))
        while True not in paused:
            await asyncio.sleep(0)
        follower.dial(C)
        assert not ours._paused or len(paused) > 2
        await sending
        while follower.reactor.log_state()["stable_gseq"] < half:
            await asyncio.sleep(0.001)
        await follower.rest()
        assert paused[-1] is False and not follower.fatal
        assert follower.acknowledged == half

    follow(root, native=False, test=test)


# --- What the driver arranges -------------------------------------------------------------------


async def until(what: Any) -> None:
    while not what():
        await asyncio.sleep(0.001)


async def followed(script: Script, upto: int = 5) -> int:
    """How many groups the core has taken by itself when it has so many."""
    script.committed = 1
    for index in range(upto):
        await script._send(script._frame(index))
        await script.follower.rest()
    found: int = script.follower.reactor.stats()["groups_followed"]
    assert found > 0
    return found


def test_the_core_is_armed_once_behind_each_step(root: Path, groups: Groups) -> None:
    """Not within one: what is asked for in it may be the end of that."""

    async def test(follower: Follower) -> None:
        driver, armed = follower.driver, list[bool]()
        arm, step = driver._inputs.arm, driver._machine.step

        def seen(*how: Any) -> bool:
            armed.append(driver._course.busy)
            return arm(*how)

        def wayward(now: float, event: Any) -> Any:
            driver._arranges()  # As a link does whose way back changes meanwhile.
            return step(now, event)

        await followed(Script(1, follower, groups))
        driver._inputs.arm = seen  # type: ignore[method-assign]
        driver._machine.step = wayward  # type: ignore[method-assign]
        driver.post(ev.Tick())
        assert armed == [False]

    follow(root, native=True, test=test)


def test_the_core_takes_nothing_more_when_a_step_says_so(root: Path, groups: Groups) -> None:
    """No frame comes with which it would stop by itself."""

    async def test(follower: Follower) -> None:
        script, driver = Script(1, follower, groups), follower.driver
        before = await followed(script)
        driver.post(ev.IoFailed(GID, "as the test says"))
        steps = driver.steps
        await script._send(script._frame(5))
        await until(lambda: driver.steps > steps)
        assert follower.reactor.stats()["groups_followed"] == before
        assert follower.reactor.log_state()["gseq"] == 5

    follow(root, native=True, test=test)


def test_of_a_log_that_the_core_has_nothing_is_told_to_have_expired(root: Path) -> None:
    async def test(follower: Follower) -> None:
        driver, told = follower.driver, list[str]()
        known = r.Decided(GENESIS.gid, Successor(0, Kind.RELEAD, (SUBJECT,)))
        step = driver._machine.step

        def seen(now: float, event: Any) -> Any:
            told.append(type(getattr(event, "message", event)).__name__)
            return step(now, event)

        driver._machine.step = seen  # type: ignore[method-assign]
        await follower.send(A, r.Expired(GID, 3, 0))
        await follower.send(A, known)
        await until(lambda: "Decided" in told)
        assert "Expired" not in told

    follow(root, native=True, test=test)
