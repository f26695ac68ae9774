"""The port on which the processes of other brokers call: who it is, what for, and to whom it goes.

Every connection begins with one frame (`wire.Hello`). Whoever is of another cluster or version, or
wants what nobody here does, is told so in one line and hung up on.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from barco.errors import ProtocolError
from barco.types import MiB
from barco.workers.replication import wire

HELLO_SECONDS_MAX = 5.0
WAITING_MAX = 64
"""Connections that have not said who they are; more are closed at once."""

RECEIVE_BYTES = 4 * MiB

log = logging.getLogger("barco.replication")

Handler = Callable[[socket.socket, wire.Hello], None]
"""Takes a connection, its descriptor non-blocking, nothing of what follows the hello read yet."""


class Port:
    """Accepts, and hands connections on by kind."""

    def __init__(self, me: wire.Hello) -> None:
        """`me`: what is answered to whoever is welcome."""
        self._me = me
        self._handlers: dict[str, Handler] = {}
        self._listener: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()

    def on(self, kind: str, handler: Handler) -> None:
        """What to do with connections of this kind."""
        self._handlers[kind] = handler

    def start(self, listener: socket.socket) -> None:
        """Accepts from a listening socket, which is this object's from now on."""
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._listener = listener
        self._task = asyncio.get_running_loop().create_task(self._accept(listener))

    async def close(self) -> None:
        """Accepts nobody any more."""
        tasks = [*self._waiting] + ([self._task] if self._task is not None else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                end, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.05)  # Out of descriptors, mostly.
                continue
            if len(self._waiting) >= WAITING_MAX:
                end.close()
                continue
            task = loop.create_task(self._greet(end))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _greet(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                hello = await self._hello(end)
                if hello is None:
                    end.close()
                    return
                await loop.sock_sendall(end, wire.encode(self._me.to_map()))
        except (OSError, TimeoutError, ProtocolError):
            end.close()
            return
        except asyncio.CancelledError:
            end.close()
            raise
        self._handlers[hello.kind](end, hello)

    async def _hello(self, end: socket.socket) -> wire.Hello | None:
        loop = asyncio.get_running_loop()
        head = await _exactly(end, wire.HEAD.size)
        length, group = wire.HEAD.unpack(head)
        if not 0 < length <= wire.HELLO_BYTES_MAX or group:
            raise ProtocolError("not a first frame")
        message = wire.decode(await _exactly(end, length))
        try:
            hello = wire.read_hello(message, self._me.cluster)
            if hello.kind not in self._handlers:
                raise ProtocolError(f"nobody here takes {hello.kind[:32]!r} connections")
            if hello.kind == "replication" and hello.token != self._me.token:
                raise ProtocolError(f"this is the shard with token {self._me.token}")
            return hello
        except ProtocolError as error:
            self._tell(str(error))
            await loop.sock_sendall(end, wire.encode({"refused": str(error)}))
            return None

    def _tell(self, text: str) -> None:
        """Once: whoever is refused tries again."""
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            log.error("refused a connection: %s", text)


async def _exactly(end: socket.socket, count: int) -> bytes:
    """Not a byte more: what follows is the handler's."""
    loop = asyncio.get_running_loop()
    got = b""
    while len(got) < count:
        more = await loop.sock_recv(end, count - len(got))
        if not more:
            raise ConnectionError("closed")
        got += more
    return got
