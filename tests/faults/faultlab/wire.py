"""HTTP/1.1 by hand: what a client can know of each answer, and nothing more."""

import socket
from typing import NamedTuple

TIMEOUT_S = 8.0

Address = tuple[str, int]
"""Host and port."""


class Answer(NamedTuple):
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def outcome(self) -> str:
        """What the contract lets a producer conclude: "ok", "fail" (never visible) or "info"."""
        if self.status in (200, 204):
            return "ok"
        if 400 <= self.status < 500:
            return "fail"
        return "fail" if self.headers.get("barco-outcome") == "not-written" else "info"


class Wire:
    """One connection. OSError or EOFError when it ends; requests may be pipelined."""

    def __init__(self, address: Address, timeout: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Puts bytes on the wire."""
        self._socket.sendall(data)

    def answer(self) -> Answer:
        """Waits for the next response."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._more()
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, text = line.partition(":")
            headers[name.lower()] = text.strip()
        status = int(lines[0].split(" ")[1])
        stop = end + 4 + int(headers.get("content-length", "0"))
        while len(self._buffer) < stop:
            self._more()
        body, self._buffer = self._buffer[end + 4 : stop], self._buffer[stop:]
        return Answer(status, headers, body)

    def _more(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise EOFError
        self._buffer += data

    def call(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """One request, one response."""
        self.send(request(method, target, body, headers))
        return self.answer()

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()


def request(
    method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    """The bytes of a request."""
    fields = {"Host": "localhost", "Content-Length": str(len(body))} | (headers or {})
    head = "".join(f"{name}: {text}\r\n" for name, text in fields.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


def call(
    address: Address,
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    timeout: float = TIMEOUT_S,
) -> Answer:
    """One request on a connection of its own."""
    wire = Wire(address, timeout)
    try:
        return wire.call(method, target, body, headers)
    finally:
        wire.close()
