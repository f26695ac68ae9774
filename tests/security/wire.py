"""Bytes on a socket: what no HTTP library would send, and every answer that comes back."""

import socket
import ssl
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Response:
    """One response, as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether the server says that it is the last one."""
        return self.headers.get("connection", "").lower() == "close"


class Closed(Exception):
    """The server ended the connection before a whole response was there."""


@dataclass
class Wire:
    """A client connection without manners."""

    sock: socket.socket
    rest: bytes = b""
    seen: list[Response] = field(default_factory=list)

    @classmethod
    def to(
        cls,
        port: int,
        timeout: float = 30,
        receive_bytes: int = 0,
        context: ssl.SSLContext | None = None,
    ) -> "Wire":
        """Connects; `receive_bytes` makes the kernel's receive buffer small. context: by TLS."""
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(timeout)
        sock.connect(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(context.wrap_socket(sock, server_hostname="127.0.0.1") if context else sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *pieces: bytes) -> None:
        """All of it; a server that closed meanwhile is no error here, its answer may be there."""
        try:
            for piece in pieces:
                self.sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass

    def _more(self) -> bytes:
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(self.rest)
        self.rest += data
        return data

    def head(self) -> tuple[int, dict[str, str]]:
        """The next head, with interim ones as they are."""
        while b"\r\n\r\n" not in self.rest:
            self._more()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        assert first.startswith("HTTP/1.1 "), first
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            assert name and name == name.strip(), line
            headers[name.lower()] = value.strip()
        return int(first.split(" ", 2)[1]), headers

    def response(self, *, head_only: bool = False) -> Response:
        """The next whole response."""
        status, headers = self.head()
        length = int(headers.get("content-length", 0))
        if head_only or status in (204, 304) or status < 200:
            length = 0
        while len(self.rest) < length:
            self._more()
        body, self.rest = self.rest[:length], self.rest[length:]
        response = Response(status, headers, body)
        self.seen.append(response)
        return response

    def responses(self, count: int) -> list[Response]:
        """The next `count` of them."""
        return [self.response() for _ in range(count)]

    def ended(self, seconds: float = 15) -> bool:
        """Whether the server closes within this time; what it still sends is dropped."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            try:
                if not self.sock.recv(1 << 16):
                    return True
            except ConnectionResetError:
                return True
            except TimeoutError:
                return False
        return False

    def reset(self) -> None:
        """RST instead of an orderly end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def head(
    method: str, target: str, headers: Iterable[str] = (), *, version: str = "HTTP/1.1"
) -> bytes:
    """A request head with Host."""
    lines = [f"{method} {target} {version}", "Host: localhost", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def produce(
    topic: str, body: bytes, query: str = "", headers: Iterable[str] = (), kind: str = ""
) -> bytes:
    """A whole produce request."""
    target = f"/v1/topic/{topic}/messages" + (f"?{query}" if query else "")
    own = [f"Content-Length: {len(body)}"]
    if kind:
        own.append(f"Content-Type: {kind}")
    return head("POST", target, [*own, *headers]) + body


def chunked(*pieces: bytes) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
