"""Is the generator honest? It must understand every answer, and count those that are not good."""

import json
import lzma
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.load import Load, LoadFailed, build, load

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nBarco-Next-Cursor: c%d\r\n\r\nhello"


@contextmanager
def scripted(answer: Callable[[int, socket.socket], bool]) -> Iterator[int]:
    """A server that reads a head and lets `answer` reply to the nth request; false: closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        number = 0
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, client.makefile("rb") as reader:
                while line := reader.readline():
                    if line == b"\r\n":
                        number += 1
                        if not answer(number, client):
                            break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def ask(port: int, requests: int, *, check: bool = True, **options: Any) -> Load:
    """Requests without a body on one connection."""
    given: dict[str, Any] = {"connections": 1, "no_body": True, "method": "GET"} | options
    return load(port, requests=requests, check=check, **given)


def test_answers_in_pieces() -> None:
    """An answer that comes byte by byte is one answer."""

    def answer(number: int, client: socket.socket) -> bool:
        for byte in GOOD % number:
            client.sendall(bytes([byte]))
        return True

    with scripted(answer) as port:
        done = ask(port, 20, depth=4)
    assert done.requests == 20
    assert done.figures["bytes_received"] == 100


def test_bad_status_is_an_error() -> None:
    """A single refusal makes a checked run fail, and is shown."""

    def answer(number: int, client: socket.socket) -> bool:
        client.sendall(
            b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy" if number == 3 else GOOD % 1
        )
        return True

    with scripted(answer) as port:
        done = ask(port, 10, check=False)
        assert done.figures["statuses"] == {"200": 9, "503": 1}
        assert done.figures["errors"] == 1
        assert "busy" in done.figures["first_error"]
    with scripted(answer) as port, pytest.raises(LoadFailed, match="busy"):
        ask(port, 10)


def test_closed_connection_is_an_error() -> None:
    """What a lost connection still owed is counted, and another one takes its place."""

    def answer(number: int, client: socket.socket) -> bool:
        if number == 5:
            return False
        client.sendall(GOOD % number)
        return True

    with scripted(answer) as port:
        done = ask(port, 10, check=False)
    assert (done.requests, done.figures["errors"], done.figures["reconnects"]) == (9, 1, 1)


def test_announced_close_is_none() -> None:
    """A server may close after an answer, if it says so."""

    def answer(number: int, client: socket.socket) -> bool:
        client.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        return False

    with scripted(answer) as port:
        done = ask(port, 5)
    assert done.requests == 5
    assert done.figures["errors"] == 0


def test_cursor_is_followed() -> None:
    """The next request carries the cursor of the last answer, from the start at the end."""
    seen: list[str] = []

    def serve(client: socket.socket) -> None:
        with client.makefile("rb") as reader:
            while line := reader.readline():
                if line.startswith(b"GET"):
                    seen.append(line.split()[1].decode())
                    more = len(seen) % 3
                    end = b"HTTP/1.1 204 No Content\r\n\r\n"
                    client.sendall(GOOD % more if more else end)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=lambda: serve(listener.accept()[0]), daemon=True).start()
        done = ask(port, 6, path="/e?from={cursor}", cursor_header="barco-next-cursor")
    assert seen == [f"/e?from={at}" for at in ["earliest", "c1", "c2"] * 2]
    assert done.figures["ends"] == 2


def test_payloads_differ_and_compress(tmp_path: Path) -> None:
    """Every event is JSON, has its size, occurs once, and compresses, but not too well."""
    pool = tmp_path / "pool"
    load_pool = [str(build()), "--pool-mib", "4", "--pool-out", str(pool)]
    subprocess.run(load_pool, check=True)
    data = pool.read_bytes()
    events = [data[at : at + 1024] for at in range(0, len(data), 1024)]
    assert len(set(events)) == len(events) == 4096
    assert all(isinstance(json.loads(event), dict) for event in events)
    assert 3 < len(data) / len(zlib.compress(data, 1)) < 4.5
    assert len(data) / len(lzma.compress(data, preset=1)) < 6
