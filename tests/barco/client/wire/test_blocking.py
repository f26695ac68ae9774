"""A connection for who waits: opened when needed, given up when it fails."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from barco.client.wire.access import Access
from barco.client.wire.blocking import COPIED_BYTES_MAX, Link
from barco.client.wire.http1 import Request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASKED = Request("PUT", "/x", body=b"1")


class Server:
    """Answers each connection as it is told; counts them."""

    def __init__(self, talk: Callable[[socket.socket, int], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._talk = talk
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(30)
                self.connections += 1
                if self.connections > 5 or not connection.recv(1, socket.MSG_PEEK):
                    return
                self._talk(connection, self.connections)

    def close(self) -> None:
        with socket.create_connection(self._listener.getsockname()):
            pass
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket, int], None]], tuple[Server, Link]]]:
    made: list[Server] = []
    links: list[Link] = []

    def make(talk):
        made.append(Server(talk))
        links.append(Link(Access.of(made[-1].endpoint), made[-1].endpoint, timeout_s=20))
        return made[-1], links[-1]

    yield make
    for link in links:
        link.close()
    for server in made:
        server.close()


def test_one_connection_for_many_requests(serve):
    def talk(connection, _):
        while connection.recv(65536):
            connection.sendall(OK)

    server, link = serve(talk)
    assert [link.exchange(ASKED).body for _ in range(3)] == [b"ok"] * 3
    assert server.connections == 1 and not link.pending


def test_after_an_answer_that_closes_another_is_opened(serve):
    def talk(connection, _):
        connection.recv(65536)
        connection.sendall(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))

    server, link = serve(talk)
    assert [link.exchange(ASKED).status for _ in range(2)] == [200, 200]
    assert server.connections == 2


@pytest.mark.parametrize("said", [b"", OK[:20], b"hello\r\n\r\n"])
def test_what_fails_is_given_up_and_can_be_asked_again(serve, said):
    def talk(connection, turn):
        connection.recv(65536)
        connection.sendall(OK if turn > 1 else said)

    server, link = serve(talk)
    with pytest.raises(OSError, match="it closed the connection|does not speak"):
        link.exchange(ASKED)
    assert not link.pending
    assert link.exchange(ASKED).body == b"ok"
    assert server.connections == 2


@pytest.mark.parametrize("count", [0, 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1])
def test_bodies_arrive_whole(serve, count):
    got = []

    def talk(connection, _):
        data = b""
        while len(data.partition(b"\r\n\r\n")[2]) < count or b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        got.append(data.partition(b"\r\n\r\n")[2])
        connection.sendall(OK)

    _, link = serve(talk)
    body = bytes(at % 251 for at in range(count))
    assert link.exchange(Request("PUT", "/x", body=body)).status == 200
    assert got == [body]
