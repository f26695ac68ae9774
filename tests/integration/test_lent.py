"""Answers that are sent from where the log has them, to clients that do not read."""

import os
import socket
import struct
import time
from collections.abc import Callable

import pytest
from running import RunningBroker, key_of

from barco import _native

TOKEN = "-9223372036854775808"
EVENT_BYTES = 500_000


def ask(broker: RunningBroker, slice_: int) -> socket.socket:
    """A client that has asked for 4 MiB of stored chunks, and has room for a little of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.settimeout(30)
    client.connect(("127.0.0.1", broker.port()))
    client.sendall(
        f"GET /v1/topic/t/slices/{TOKEN}/{slice_}/events?from=earliest&maxBytes={4 << 20} "
        "HTTP/1.1\r\nHost: localhost\r\nAccept: application/vnd.barco.chunks\r\n\r\n".encode()
    )
    return client


def head_of(client: socket.socket) -> tuple[int, bytes]:
    """The body's length, and its first bytes: the answer is on its way."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += client.recv(1024)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(lines[0].split(b":")[1]), body


def rest_of(client: socket.socket, length: int, body: bytes) -> bytes:
    parts, left = [body], length - len(body)
    while left > 0:
        parts.append(client.recv(min(left, 100_000)))
        assert parts[-1], "the answer was cut off"
        left -= len(parts[-1])
    return b"".join(parts)


def values(body: bytes) -> list[bytes]:
    """The values in stored chunks, whose checksums are checked."""
    found = []
    for at, *_ in _native.chunks_scan(body):
        found += [value for *_, value in _native.chunk_events(body, at)]
    return found


@pytest.mark.parametrize("engine", ["io_uring", "epoll"])
def test_what_a_slow_client_has_not_read_survives_in_its_answer(
    start_broker: Callable[..., RunningBroker], engine: str
) -> None:
    broker = start_broker(
        workers=1,
        engine=engine,
        limits_memory_bytes=64 << 20,  # Of it 16 MiB are the arena, and as much are answers.
        limits_request_bytes_max=1 << 20,
        limits_event_bytes_max=1 << 20,
        storage_segment_bytes=16 << 20,
    )
    key = key_of(broker, "t", 2)

    def produce(count: int) -> list[bytes]:
        bodies = [os.urandom(EVENT_BYTES) for _ in range(count)]
        for body in bodies:
            broker.produce("t", body, key=key, kind="application/octet-stream")
        return bodies

    bodies = produce(6)
    clients = [ask(broker, 2) for _ in range(4)]
    heads = [head_of(client) for client in clients]
    assert all(length > 2 * EVENT_BYTES for length, _ in heads)
    # One has gone before anything is written over what it was lent, one does afterwards.
    clients[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    clients[0].close()
    produce(45)  # More than the arena.
    clients[1].close()
    for client, (length, body) in zip(clients[2:], heads[2:], strict=True):
        found = values(rest_of(client, length, body))
        assert len(found) > 1 and found == bodies[: len(found)]
        client.close()

    def waiting() -> int:
        lines = broker.request("GET", "/metrics").body.decode().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("barco_answer_bytes"))

    deadline = time.monotonic() + 30
    while waiting():
        assert time.monotonic() < deadline, "an answer that nobody waits for is kept"
        time.sleep(0.05)


def test_events_of_another_worker_are_the_same(broker: RunningBroker) -> None:
    """Between workers they travel as bytes."""
    key = key_of(broker, "t", 2)
    bodies = [os.urandom(50_000) for _ in range(8)]
    for body in bodies:
        broker.produce("t", body, key=key, kind="application/octet-stream")
    path = f"/v1/topic/t/slices/{TOKEN}/2/events"
    query = {"maxBytes": 4 << 20}
    accept = {"Accept": "application/vnd.barco.chunks"}
    for shard in (0, 1):
        answer = broker.request("GET", path, query, headers=accept, shard=shard)
        assert values(answer.body) == bodies
