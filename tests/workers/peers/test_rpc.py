"""Worker to worker operations over real Unix sockets."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ends
import msgpack
import pytest
from twin import run

from barco._native import send_parts
from barco.errors import (
    BarcoError,
    BrokerError,
    CorruptDataError,
    CursorExpiredError,
    NotReadyError,
    OutcomeUnknownError,
    ProtocolError,
    pack_error,
    unpack_error,
)
from barco.protocol.link import RPC, Hello
from barco.workers.peers import callers, rpc
from barco.workers.peers.rpc import RpcServer, Siblings, frame_bytes_max
from barco.workers.peers.rpc_frames import FRAMES_AT_ONCE, _unsent, unpack
from barco.workers.storage.files.errors import CorruptChunkError

BYTES_MAX = 1 << 20


class Pair:
    """Worker 0 calls, worker 1 answers."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "worker-1.rpc")
        self.paths = {0: str(directory / "worker-0.rpc"), 1: self.path}
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.server = RpcServer(self.operation, bytes_max=BYTES_MAX)
        self.siblings = Siblings(
            worker=0, paths=self.paths, operation=self.local, bytes_max=BYTES_MAX
        )

    async def local(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "ready":
            return args["ready"]
        return "local"

    async def operation(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "echo":
            return args
        if op == "gone":
            raise CursorExpiredError("Too late.", earliest="x")
        if op == "bug":
            raise RuntimeError("secret")
        if op == "ready":
            await asyncio.sleep(args["after"])
            return args["ready"]
        if op == "answers all the same":  # As if it had, before it heard that nobody waits.
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return args
        self.started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def close(self) -> None:
        await self.siblings.close()
        await self.server.close()


def with_pair(test: Callable[[Pair], Any]) -> Callable[[Path], None]:
    def called(tmp_path: Path) -> None:
        @run
        async def scenario() -> None:
            pair = Pair(tmp_path)
            await pair.server.start(pair.path)
            try:
                await test(pair)
            finally:
                await pair.close()

        scenario()

    called.__name__ = test.__name__
    return called


@with_pair
async def test_calls_carry_plain_values(pair: Pair) -> None:
    args = {"bytes": b"\0" * 100_000, "map": {0: "a", "b": [1, 2.5, None]}, "big": 2**63}
    assert await pair.siblings.call(1, "echo", args) == args
    assert await pair.siblings.call(1, "echo", {"view": memoryview(b"abc")}) == {"view": b"abc"}
    assert await pair.siblings.call(0, "echo", {}) == "local"


@with_pair
async def test_many_calls_at_once(pair: Pair) -> None:
    calls = [pair.siblings.call(1, "echo", {"n": n}) for n in range(500)]
    assert await asyncio.gather(*calls) == [{"n": n} for n in range(500)]


@with_pair
async def test_errors_keep_their_class(pair: Pair) -> None:
    with pytest.raises(CursorExpiredError) as caught:
        await pair.siblings.call(1, "gone", {})
    assert caught.value.detail == "Too late." and caught.value.fields == {"earliest": "x"}
    with pytest.raises(BrokerError) as hidden:
        await pair.siblings.call(1, "bug", {})
    assert "secret" not in hidden.value.detail


@with_pair
async def test_a_cancelled_call_is_cancelled_there(pair: Pair) -> None:
    task = asyncio.create_task(pair.siblings.call(1, "hang", {}))
    await pair.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(pair.cancelled.wait(), 20)
    assert await pair.siblings.call(1, "echo", {}) == {}


@with_pair
async def test_a_call_that_takes_too_long(pair: Pair) -> None:
    with pytest.raises(OutcomeUnknownError):
        await pair.siblings.call(1, "hang", {}, 0.02)
    await asyncio.wait_for(pair.cancelled.wait(), 20)


@with_pair
async def test_a_sibling_that_goes_away_and_comes_back(pair: Pair) -> None:
    task = asyncio.create_task(pair.siblings.call(1, "hang", {}))
    await pair.started.wait()
    await pair.server.close()
    with pytest.raises(OutcomeUnknownError):
        await task
    with pytest.raises(NotReadyError):
        await pair.siblings.call(1, "echo", {})
    answers = await pair.siblings.broadcast("echo", {0: {}, 1: {}})
    assert answers[0] == "local" and isinstance(answers[1], NotReadyError)
    pair.server = RpcServer(pair.operation, bytes_max=BYTES_MAX)
    await pair.server.start(pair.path)
    assert await pair.siblings.call(1, "echo", {}) == {}


@with_pair
async def test_first_true(pair: Pair) -> None:
    ready = {0: {"ready": False}, 1: {"ready": True, "after": 0.01}}
    assert await pair.siblings.first_true("ready", ready, 1.0) == {1}
    late = {0: {"ready": False}, 1: {"ready": True, "after": 5}}
    assert await pair.siblings.first_true("ready", late, 0.02) == set()
    assert await pair.siblings.first_true("ready", {1: {"ready": True, "after": 0}}, 1.0) == {1}
    began = asyncio.get_running_loop().time()
    hangs = {1: {"ready": True, "after": 60}}
    assert await pair.siblings.first_true("ready", hangs, 0.02) == set()
    assert asyncio.get_running_loop().time() - began < 4.0, "nobody waits longer than was said"


@with_pair
async def test_an_answer_that_comes_too_late_is_told(pair: Pair) -> None:
    told: list[Any] = []
    with pytest.raises(OutcomeUnknownError):
        await pair.siblings.call(1, "answers all the same", {"n": 1}, 0.02, told.append)
    assert await pair.siblings.call(1, "echo", {"n": 2}, 5.0, told.append) == {"n": 2}
    assert told == [{"n": 1}], "and of nothing else"


@with_pair
async def test_an_answer_to_who_is_cancelled_just_then_is_told(pair: Pair) -> None:
    told: list[Any] = []
    connection = await pair.siblings._connect(1)
    call = connection.start("echo", {"n": 1})
    task = asyncio.create_task(call.result(5.0, told.append))
    call._future.add_done_callback(lambda _: task.cancel())  # Before the task goes on.
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [{"n": 1}]


def beside(message: Any, rest: bytes) -> bytes:
    """A frame's body with something behind its map."""
    packed = msgpack.packb(message)
    return struct.pack("<I", len(packed)) + packed + rest


def part(size: int) -> msgpack.ExtType:
    return msgpack.ExtType(1, struct.pack("<I", size))


BESIDE_BAD = [
    struct.pack("<I", 0) + b"abc",
    struct.pack("<I", 100) + msgpack.packb({"id": 1, "op": "echo"}),
    struct.pack("<I", 2**32 - 1) + msgpack.packb({"id": 1, "op": "echo"}),
    beside({"id": 1, "op": "echo", "args": {"x": part(4)}}, b"abc"),
    beside({"id": 1, "op": "echo", "args": {"x": part(0)}}, b""),
    beside({"id": 1, "op": "echo", "args": {"x": [part(2), part(2)]}}, b"abc"),
    beside({"id": 1, "op": "echo", "args": {"x": part(2)}}, b"abc"),
    beside({"id": 1, "op": "echo", "args": {"x": msgpack.ExtType(1, b"abc")}}, b"abc"),
]

BAD = [
    struct.pack("<I", 0),
    struct.pack("<I", BYTES_MAX + 1) + b"x",
    struct.pack("<I", 2**32 - 1),
    struct.pack("<I", 5) + b"\xdf\xff\xff\xff\xff",  # A map that claims 2^32 - 1 entries.
    struct.pack("<I", 5) + b"\xdd\xff\xff\xff\xff",
    struct.pack("<I", 1) + b"\x01",
    struct.pack("<I", 100_000) + b"\x91" * 100_000,
    b"".join((struct.pack("<I", 9), msgpack.packb({"id": "x", "op": 1}), b"\0" * 9))[:13],
    struct.pack("<I", 3) + b"\xd4\x05\x00",
    b"\x01",
    *(struct.pack("<I", 1 << 31 | len(each)) + each for each in BESIDE_BAD),
]


@pytest.mark.parametrize("frame", BAD)
def test_bad_frames_close_the_connection_and_nothing_else(frame: bytes, tmp_path: Path) -> None:
    @run
    async def scenario() -> None:
        pair = Pair(tmp_path)
        await pair.server.start(pair.path)
        reader, writer = await asyncio.open_unix_connection(pair.path)
        writer.write(frame)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert await pair.siblings.call(1, "echo", {}) == {}
        await pair.close()

    scenario()


def test_what_comes_in_one_read_is_taken_a_few_at_a_time(tmp_path: Path) -> None:
    """Hundreds of requests that a sibling sends at once: the loop turns between every few of them,
    so that whoever else waits has a turn; all are answered, in their order."""

    @run
    async def scenario() -> None:
        pair = Pair(tmp_path)
        begun: list[int] = []

        async def operation(op: str, args: Mapping[str, Any]) -> Any:
            begun.append(args["n"])
            return args["n"]

        server = RpcServer(operation, bytes_max=BYTES_MAX)
        await server.start(pair.path)
        end = socket.socket(socket.AF_UNIX)
        end.setblocking(False)
        await asyncio.get_running_loop().sock_connect(end, pair.path)
        bodies = [msgpack.packb({"id": n, "op": "x", "args": {"n": n}}) for n in range(300)]
        end.send(b"".join(struct.pack("<I", len(body)) + body for body in bodies))
        most = 0
        for _ in range(10_000):
            before = len(begun)
            await asyncio.sleep(0)
            most = max(most, len(begun) - before)
            if len(begun) == len(bodies):
                break
        assert begun == list(range(300)) and most <= FRAMES_AT_ONCE
        answers: list[int] = []
        given = b""
        while len(answers) < 300:
            given += await asyncio.wait_for(asyncio.get_running_loop().sock_recv(end, 65536), 30)
            while len(given) >= 4 and len(given) >= 4 + struct.unpack("<I", given[:4])[0]:
                size = 4 + struct.unpack("<I", given[:4])[0]
                answers.append(msgpack.unpackb(given[4:size])["result"])
                given = given[size:]
        assert answers == begun
        end.close()
        await server.close()

    scenario()


def test_the_largest_answer_fits_into_a_frame() -> None:
    from barco.limits import EVENT_BYTES_MAX_CEILING, POLL_BYTES_MAX

    for event_bytes in (1024, EVENT_BYTES_MAX_CEILING):
        assert frame_bytes_max(event_bytes) > POLL_BYTES_MAX + event_bytes
    assert issubclass(NotReadyError, BarcoError)


def test_an_error_with_arguments_of_its_own_arrives() -> None:
    """It once broke the connection: the caller was told that nobody had answered."""
    error = CorruptChunkError("seg-00000000.log", 4224, "t", 2, 3, 9, "section 5")
    arrived = unpack_error(pack_error(error))
    assert isinstance(arrived, CorruptDataError)
    assert (arrived.detail, arrived.fields) == (error.detail, error.fields)


def caller(ordinal: int, worker: int) -> Hello:
    return Hello(
        kind=RPC,
        cluster_uuid="0" * 32,
        ordinal=ordinal,
        disk_uuid="1" * 32,
        worker=worker,
        token=0,
        session=1,
        ring_size=3,
        workers=1,
        slices_per_range=4,
    )


def asks(number: int, op: str, padding: int) -> bytes:
    body = msgpack.packb({"id": number, "op": op, "args": {"x": bytes(padding)}})
    return struct.pack("<I", len(body)) + body


@with_pair
async def test_what_another_broker_asks_has_a_bound(pair: Pair) -> None:
    """Its requests under way count; more of it waits, what others ask does not."""
    large = BYTES_MAX - 100
    links = [ends.pair() for _ in range(3)]
    streams = []
    for (ours, theirs), who in zip(links, [(1, 0), (1, 1), (2, 0)], strict=True):
        pair.server.take(caller(*who), theirs)
        streams.append(await asyncio.open_connection(sock=ours))
    (_, first), (waits, second), (served, other) = streams
    first.write(asks(1, "sleep", large))
    await pair.started.wait()
    second.write(asks(1, "echo", large))
    other.write(asks(1, "echo", large))
    await asyncio.wait_for(served.readexactly(large), 20)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waits.readexactly(1), 0.2)
    first.close()  # Its request is given up.
    await asyncio.wait_for(waits.readexactly(large), 20)
    second.close()
    other.close()


def test_a_connection_ends_with_who_has_it() -> None:
    """And so do the frames that it has begun: nobody has to look for cycles."""
    connection = rpc._Calling(1 << 20)
    connection.send({"id": 1})
    gone = weakref.ref(connection)
    gc.disable()
    try:
        del connection
        assert gone() is None
    finally:
        gc.enable()


@with_pair
async def test_who_does_not_read_is_not_answered_without_end(pair: Pair) -> None:
    """Also by what waits and has no room of its own: then its requests are under way, and count."""
    connection = pair.server._accept((1, 0))
    sent: list[int] = []
    send: Any = lambda message, **_: sent.append(message["id"]) or 0
    connection.send = send
    connection._operation = pair.local
    connection.received({"id": 1, "op": "origin_wait"}, 50)
    await asyncio.gather(*connection.under_way)
    connection.pause_writing()
    connection.received({"id": 2, "op": "origin_wait"}, 50)
    for _ in range(5):
        await asyncio.sleep(0)
    assert sent == [1] and len(connection.under_way) == 1
    connection.resume_writing()
    await asyncio.gather(*connection.under_way)
    assert sent == [1, 2]


@with_pair
async def test_one_connection_of_each_worker(pair: Pair) -> None:
    """Also of those that come in one turn of the loop."""
    links = [ends.pair() for _ in range(20)]
    for _, theirs in links:
        pair.server.take(caller(1, 0), theirs)
    streams = [await asyncio.open_connection(sock=ours) for ours, _ in links]
    for reader, _ in streams[:-1]:
        assert await asyncio.wait_for(reader.read(1), 20) == b""
    streams[-1][1].write(asks(1, "echo", 1))
    assert await asyncio.wait_for(streams[-1][0].readexactly(4), 20)
    for _, writer in streams:
        writer.close()


@with_pair
async def test_the_connections_of_one_broker_have_a_bound(pair: Pair) -> None:
    """A broker may say that it has hundreds of processes: the first that waits for nothing goes."""
    streams = []

    async def dial(ordinal: int, worker: int) -> None:
        ours, theirs = ends.pair()
        pair.server.take(caller(ordinal, worker), theirs)
        streams.append(await asyncio.open_connection(sock=ours))

    most = callers.CONNECTIONS_MAX
    await dial(2, 0)
    for worker in range(most):
        await dial(1, worker)
    streams[1][1].write(asks(1, "sleep", 10))  # Its answer is waited for.
    await pair.started.wait()
    for worker in range(most, most + 5):
        await dial(1, worker)
    for gone in range(2, 7):
        assert await asyncio.wait_for(streams[gone][0].read(1), 20) == b""
    assert len(pair.server._connections) == most + 1
    for reader, writer in (streams[0], streams[-1]):
        writer.write(asks(1, "echo", 1))
        assert await asyncio.wait_for(reader.readexactly(4), 20)
    for _, writer in streams:
        writer.close()


def test_who_asks_is_known_to_what_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async def who(op: str, args: Mapping[str, Any]) -> int:
            return callers.CALLER.get()

        server = RpcServer(who, bytes_max=BYTES_MAX)
        found = []
        for ordinal in (2, 1):
            ours, theirs = ends.pair()
            server.take(caller(ordinal, 0), theirs)
            reader, writer = await asyncio.open_connection(sock=ours)
            writer.write(asks(1, "echo", 1))
            (size,) = struct.unpack("<I", await asyncio.wait_for(reader.readexactly(4), 20))
            found.append(msgpack.unpackb(await reader.readexactly(size))["result"])
            writer.close()
        assert found == [2, 1] and callers.CALLER.get() == callers.HOME
        await server.close()

    asyncio.run(main())


def test_what_stands_behind_the_map() -> None:
    body = bytearray(beside({"id": 1, "result": [part(3), {"x": part(2)}, b"y"]}, b"abcde"))
    for own in (True, False):
        message, size = unpack(memoryview(body), beside=True, own=own)
        assert message["result"] == [b"abc", {"x": b"de"}, b"y"] and size > len(body)
        body[-1:] = b"E"
        assert message["result"][1]["x"] == (b"dE" if own else b"de"), "copied but of its own"
        body[-1:] = b"e"
    many = bytearray(beside({"id": 1, "result": [part(1)] * 100}, b"x" * 100))
    with pytest.raises(ProtocolError):
        unpack(memoryview(many), 400, beside=True)
    assert unpack(memoryview(many), 600, beside=True)[0]["result"] == [b"x"] * 100
    with pytest.raises(ProtocolError):
        unpack(memoryview(msgpack.packb({"id": 1, "x": part(1)})))


def test_parts_are_sent_as_far_as_there_is_room() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        parts: list[Any] = [b"head", b"", memoryview(b"x" * 1_000_000)]
        sent = send_parts(ours.fileno(), parts)
        assert 4 < sent < 1_000_004 and send_parts(ours.fileno(), [b"more"]) == 0, "it is full"
        assert _unsent(parts, 3) == b"d" + b"x" * 1_000_000
        assert _unsent(parts, sent) == b"x" * (1_000_004 - sent)
        got = theirs.recv(sent, socket.MSG_WAITALL)
        assert got == b"head" + b"x" * (sent - 4)
        theirs.close()
        with pytest.raises(OSError):
            send_parts(ours.fileno(), [b"more"])


def test_a_frame_of_many_small_things_is_refused() -> None:
    for one, most in ((b"\x80", 99), (b"\x90", 99), (b"\xc0", 99)):
        flat = b"\x82\xa2id\x01\xa1x\xdc" + struct.pack(">H", 100) + one * 100
        nested = b"\x82\xa2id\x01\xa1x\x9a" + (b"\x9f" + one * 15) * 10
        for body in (flat, nested):
            with pytest.raises(ProtocolError):
                unpack(memoryview(body), most)
            message, size = unpack(memoryview(body), 1000)
            assert message["id"] == 1 and size > 64 * 100
