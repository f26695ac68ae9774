"""Floods as processes of their own, so that the honest client beside them has a clock it can trust.

`python flooders.py NAME PORT SECONDS COUNT`: prints one line when it is under way.
"""

import resource
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"
GREEDY = "barco_greedy"
"""A token, of a user who asks for more than its quota."""

LINGER = struct.pack("ii", 1, 0)


def connect(port: int, receive_bytes: int = 0) -> socket.socket:
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(20)
    sock.connect((HOST, port))
    sock.setblocking(False)
    return sock


def never_reading(port: int, end: float, count: int, request: bytes) -> None:
    """Sends the request again and again on many connections, and reads nothing."""
    flood = request * max(1, (1 << 17) // len(request))
    waiting = selectors.DefaultSelector()
    at: dict[socket.socket, int] = {}

    def more() -> None:
        with suppress(OSError):
            sock = connect(port, 4096)
            at[sock] = 0
            waiting.register(sock, selectors.EVENT_WRITE)

    for _ in range(count):
        more()
    print("under way", flush=True)
    while time.monotonic() < end:
        for key, _ in waiting.select(0.1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                at[sock] += sock.send(flood[at[sock] % len(request) :])
            except BlockingIOError:
                pass
            except OSError:  # Closed for what it does: on with another one.
                waiting.unregister(sock)
                sock.close()
                del at[sock]
                more()


def refusals(port: int, end: float, count: int) -> None:
    """Requests that the broker refuses, whose answers nobody reads."""
    never_reading(
        port,
        end,
        count,
        b"POST /v1/topic/../messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    )


def reading(port: int, end: float, count: int, request: bytes) -> None:
    """Sends 16 requests at a time on each of many connections, and reads every answer."""
    batch = request * 16
    waiting = selectors.DefaultSelector()
    answers: dict[socket.socket, int] = {}

    def more() -> None:
        with suppress(OSError):
            sock = connect(port)
            sock.send(batch)
            answers[sock] = 0
            waiting.register(sock, selectors.EVENT_READ)

    for _ in range(count):
        more()
    print("under way", flush=True)
    while time.monotonic() < end:
        for key, _ in waiting.select(0.1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                found = sock.recv(1 << 16)
                answers[sock] += found.count(b"HTTP/1.1 ")
                if found and answers[sock] >= 16:
                    answers[sock] -= 16
                    sock.send(batch)
            except BlockingIOError:
                continue
            except OSError:
                found = b""
            if not found:  # Closed for what it does: on with another one.
                waiting.unregister(sock)
                sock.close()
                del answers[sock]
                more()


def produced(*headers: str) -> bytes:
    lines = ["POST /v1/topic/flood/messages HTTP/1.1", "Host: localhost", *headers]
    return ("\r\n".join([*lines, "Content-Length: 100"]) + "\r\n\r\n" + "x" * 100).encode()


def unauthorized(port: int, end: float, count: int) -> None:
    """Produces without a token."""
    reading(port, end, count, produced())


def wrong_tokens(port: int, end: float, count: int) -> None:
    """Produces with a token that nobody has."""
    reading(port, end, count, produced("Authorization: Bearer barco_" + "w" * 43))


def greedy(port: int, end: float, count: int) -> None:
    """Produces of one user, as fast as they are answered: what its quota lets in, and the rest."""
    reading(port, end, count, produced(f"Authorization: Bearer {GREEDY}"))


def resets(port: int, end: float, count: int) -> None:
    """Connect, ask for something that Python answers, reset: as fast as it goes."""
    print("under way", flush=True)
    open_: list[socket.socket] = []
    for _ in range(count):
        if time.monotonic() > end:
            break
        with suppress(OSError):
            sock = connect(port)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            sock.send(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            open_.append(sock)
        if len(open_) > 20:
            open_.pop(0).close()
    while time.monotonic() < end:
        time.sleep(0.05)


def long_reads(port: int, end: float, count: int) -> None:
    """Long polls of one slice with large heads, eight at once on each connection."""
    target = "/v1/topic/honest/slices/-9223372036854775808/0/events?from=latest&waitMs=60000"
    request = (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Large: {'x' * 30_000}\r\n\r\n".encode()
    )
    socks = []
    for _ in range(count):
        with suppress(OSError):
            socks.append((connect(port), [request * 8]))
    print("under way", flush=True)
    while time.monotonic() < end:
        for sock, rest in socks:
            with suppress(OSError):
                if rest[0]:
                    rest[0] = rest[0][sock.send(rest[0]) :]
                sock.recv(1 << 16)
        time.sleep(0.01)


def gets(port: int, end: float, count: int) -> None:
    """Three hundred requests on each of many connections, all at once; nobody reads the answers."""
    flood = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300
    waiting = selectors.DefaultSelector()
    left: dict[socket.socket, int] = {}

    def more() -> None:
        with suppress(OSError):
            sock = connect(port, 4096)
            left[sock] = len(flood)
            waiting.register(sock, selectors.EVENT_WRITE)

    for _ in range(count):
        more()
    print("under way", flush=True)
    while time.monotonic() < end:
        for key, _ in waiting.select(0.1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                left[sock] -= sock.send(flood[-left[sock] :])
                if left[sock] == 0:
                    waiting.unregister(sock)
            except BlockingIOError:
                pass
            except OSError:  # Closed for what it does: on with another one.
                waiting.unregister(sock)
                sock.close()
                del left[sock]
                more()


FLOODS: dict[str, Callable[[int, float, int], None]] = {
    "gets": gets,
    "refusals": refusals,
    "resets": resets,
    "long_reads": long_reads,
    "unauthorized": unauthorized,
    "wrong_tokens": wrong_tokens,
    "greedy": greedy,
}


def main(name: str, port: int, seconds: float, count: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    FLOODS[name](port, time.monotonic() + seconds, count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
