"""What is taken in during one turn stays small, however many clients have something to say."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barco import _native

CLIENTS = 400
HEAD_BYTES = 24 << 10
RECEIVE_BYTES = 4 << 10
"""Of a client that is not known: at a time."""
RESTARTED = 16
"""In a turn, of those who have more to say than that."""
ARRIVED = 24
"""In a turn, of those whose bytes came meanwhile: as many as the kernel looks at."""

Client = tuple[socket.socket, bytearray]


@pytest.fixture(params=["io_uring", "epoll"])
def core(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, _native.Reactor]]:
    reactor = _native.Reactor(
        engine=request.param,
        arena_bytes=8 << 20,
        request_bytes_max=1 << 18,
        event_bytes_max=1 << 16,
        body_memory_max=64 << 20,
        cluster_uuid=b"c" * 16,
        epoch=2,
    )
    path = tmp_path / "log"
    path.write_bytes(bytes(1 << 20))
    reactor.add_segment(0, os.open(path, os.O_RDWR | os.O_DIRECT), 1 << 20)
    reactor.open_generation(b"")
    reactor.set_route(0, 1, 0, "here")
    yield request.param, reactor
    reactor.close()


def connect(reactor: _native.Reactor) -> list[Client]:
    """Clients that have sent most of a head, more than is read at a time."""
    head = b"POST /v1/topic/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nX: "
    head += b"x" * (HEAD_BYTES - len(head))
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listener:
        listener.setblocking(False)
        reactor.listen(listener.fileno(), 0)
        clients = []
        for _ in range(CLIENTS):
            sock = socket.create_connection(listener.getsockname())
            sock.setblocking(False)
            clients.append((sock, bytearray(head)))
            reactor.run(0.0)
        send(clients)
    return clients


def send(clients: list[Client]) -> None:
    for sock, rest in clients:
        while rest:
            try:
                del rest[: sock.send(rest)]
            except BlockingIOError:
                break


def close(clients: list[Client]) -> None:
    for sock, _ in clients:
        sock.close()


def test_all_are_read_a_little_at_a_time(core: tuple[str, _native.Reactor]) -> None:
    engine, reactor = core
    clients = connect(reactor)
    turns = 0
    for _ in range(2_000):
        reactor.run(0.0)
        send(clients)
        if reactor.stats()["connection_bytes"] < CLIENTS * HEAD_BYTES:
            turns += 1
    for _, rest in clients:
        assert not rest
        rest += b"\r\n\r\n{}"
    answered = 0
    for _ in range(100_000):
        send(clients)
        reactor.run(0.0)
        answered = reactor.stats()["produce_requests"]
        if answered == CLIENTS:
            break
    assert answered == CLIENTS  # Nobody was forgotten.
    if engine == "io_uring":
        assert CLIENTS * HEAD_BYTES / RECEIVE_BYTES / turns <= RESTARTED + ARRIVED
    close(clients)


def test_who_goes_while_it_waits_is_gone(core: tuple[str, _native.Reactor]) -> None:
    _, reactor = core
    clients = connect(reactor)
    close(clients[::2])
    for _ in range(100_000):
        reactor.run(0.0)
        if reactor.stats()["connections"] <= CLIENTS // 2:
            break
    assert reactor.stats()["connections"] == CLIENTS // 2
    close(clients[1::2])
    for _ in range(100_000):
        reactor.run(0.0)
        if reactor.stats()["connections"] == 0:
            break
    assert reactor.stats()["connections"] == 0
