"""While clients wait for appends, long answers go in portions, after all others."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barco import _native

SEGMENT_BYTES = 1 << 20
PORTION_BYTES = 128 << 10
BODY_BYTES = 4 << 20
BUFFER_BYTES = 8 << 20
URGENT_SECONDS = 0.02
BODY = os.urandom(BODY_BYTES)


class Core:
    """A reactor with a log, and clients of it."""

    def __init__(self, root: Path, engine: str) -> None:
        self.reactor = _native.Reactor(
            engine=engine,
            arena_bytes=8 << 20,
            request_bytes_max=1 << 18,
            event_bytes_max=1 << 16,
            body_memory_max=8 << 20,
            cluster_uuid=b"c" * 16,
            epoch=2,
        )
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self.listener.setblocking(False)
        self.reactor.listen(self.listener.fileno(), 0)
        path = root / "log"
        path.write_bytes(bytes(SEGMENT_BYTES))
        self.reactor.add_segment(0, os.open(path, os.O_RDWR | os.O_DIRECT), SEGMENT_BYTES)
        self.reactor.open_generation(b"")
        self.reactor.set_route(0, 1, 0, "here")
        self.clients: list[socket.socket] = []

    def turn(self) -> list[tuple]:
        return self.reactor.run(0.0)[1]

    def client(self, request: bytes) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        client.connect(self.listener.getsockname())
        client.setblocking(False)
        client.sendall(request)
        self.clients.append(client)
        return client

    def produce(self) -> None:
        """One event, until it is acknowledged."""
        client = self.client(
            b"POST /v1/topic/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert self.receive(client, 12) == b"HTTP/1.1 200"

    def asked(self) -> tuple[socket.socket, int]:
        """A client that waits for a long answer, and its request's number."""
        client = self.client(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(1000):
            if found := [upcall for upcall in self.turn() if upcall[0] == "request"]:
                return client, found[0][1]
        raise AssertionError("no request came")

    def respond(self, number: int) -> None:
        assert self.reactor.respond(number, 200, b"", BODY)

    def check(self, reader: socket.socket) -> None:
        """The whole answer comes, as it is."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.receive(reader, 1)
        assert head.startswith(b"HTTP/1.1 200")
        assert self.receive(reader, BODY_BYTES) == BODY

    def receive(self, client: socket.socket, length: int) -> bytes:
        got = b""
        for _ in range(100_000):
            self.turn()
            try:
                got += client.recv(length - len(got))
            except BlockingIOError:
                continue
            if len(got) == length:
                return got
        raise AssertionError(f"only {len(got)} of {length} bytes came")

    def most_in_a_turn(self) -> int:
        """Bytes that one turn sent, of the first ones of an answer."""
        most, before = 0, self.reactor.stats()["bytes_out"]
        for _ in range(4):
            self.turn()
            now = self.reactor.stats()["bytes_out"]
            most, before = max(most, now - before), now
        return most

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.reactor.close()
        self.listener.close()


@pytest.fixture(params=["io_uring", "epoll"])
def core(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Core]:
    made = Core(tmp_path, request.param)
    yield made
    made.close()


def test_a_long_answer_goes_in_portions_after_a_produce(core: Core) -> None:
    for _ in range(50):
        reader, number = core.asked()
        began = time.monotonic()
        core.produce()
        core.respond(number)
        most = core.most_in_a_turn()
        in_time = time.monotonic() - began < URGENT_SECONDS / 2
        core.check(reader)
        if in_time:  # Else the machine was busy with something else.
            assert 0 < most <= PORTION_BYTES + 1024
            return
    raise AssertionError("this machine is too slow")


def test_it_goes_at_once_when_nobody_waits(core: Core) -> None:
    time.sleep(1.5 * URGENT_SECONDS)  # Of a test before.
    reader, number = core.asked()
    core.respond(number)
    assert core.most_in_a_turn() > 2 * PORTION_BYTES
    core.check(reader)


def test_an_acknowledgement_goes_before_long_answers(core: Core) -> None:
    readers = [core.asked() for _ in range(4)]
    core.produce()
    for _, number in readers:
        core.respond(number)
    core.produce()
    for reader, _ in readers:
        core.check(reader)


def test_a_reader_that_leaves_is_not_waited_for(core: Core) -> None:
    (gone, first), (reader, second) = core.asked(), core.asked()
    core.produce()
    core.respond(first)
    core.respond(second)
    core.turn()
    gone.close()
    core.check(reader)
    core.produce()
