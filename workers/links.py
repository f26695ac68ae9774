"""Connections between the workers of different brokers: one port, a hello, then what it is for.

A socket is handed over with nothing read beyond the hello, so that the reactor, asyncio or
replication can go on with it as if it had always been theirs.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from barco.errors import NotReadyError, PeerError, ProtocolError
from barco.model.options import WorkerOptions
from barco.model.replicas import Process
from barco.protocol import frame
from barco.protocol.link import Hello, hello_from, refusal

HELLO_BYTES_MAX = 1024
HELLO_SECONDS_MAX = 2.0
CONNECT_SECONDS_MAX = 1.0
GREETING_MAX = 64
"""Connections that have not said hello yet; the next one is closed at once."""

ACCEPT_RETRY_SECONDS = 0.1
USER_TIMEOUT_MS = 3000
"""Sent bytes that nobody acknowledges for so long break a connection: the machine is gone."""

Handler = Callable[[Hello, socket.socket], None]
"""Takes over a connection, and who is at its other end."""

log = logging.getLogger("barco.worker")


def own_hello(options: WorkerOptions, session: int) -> Hello:
    """What this worker says of itself; `kind` is filled in for each connection."""
    return Hello(
        kind="",
        cluster_uuid=options.cluster_uuid,
        ordinal=options.ordinal,
        disk_uuid=options.disk_uuid,
        worker=options.worker,
        session=session,
        ring_size=options.ring_size,
        workers=options.workers,
        slices_per_range=options.slices_per_range,
    )


class LinkServer:
    """Takes the connections of other brokers' workers, and gives each to whom it is for."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._handlers: dict[str, Handler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[str, str] = {}
        self._listeners: list[socket.socket] = []

    def handle(self, kind: str, handler: Handler) -> None:
        """Who takes connections of this kind; until there is one they are refused."""
        self._handlers[kind] = handler

    def start(self, listener_fd: int) -> None:
        """Accept on a listening socket, which stays the supervisor's."""
        listener = socket.socket(fileno=os.dup(listener_fd))
        listener.setblocking(False)
        self._listeners.append(listener)
        self._listen(listener)

    async def close(self) -> None:
        """Accept no more; connections that were handed over are not touched."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _listen(self, listener: socket.socket) -> None:
        # Not sock_accept: cancelled in the moment in which somebody calls, it raises into the loop.
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            end, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # The caller has gone already.
        except OSError:  # Out of descriptors.
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(ACCEPT_RETRY_SECONDS, self._listen, listener)
            return
        if len(self._tasks) >= GREETING_MAX:
            end.close()
        else:
            self._spawn(self._greet(end))

    async def _greet(self, end: socket.socket) -> None:
        handed_over = False
        try:
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                prepare(end)
                theirs = hello_from(await read_frame(end))
                why = refusal(self._hello, theirs)
                handler = self._handlers.get(theirs.kind)
                if why is None and handler is None:
                    why = f"this worker takes no {theirs.kind} yet"
                answer = (
                    {"refused": why} if why else replace(self._hello, kind=theirs.kind).to_message()
                )
                await asyncio.get_running_loop().sock_sendall(end, frame.encode(answer))
                if why is None and handler is not None:
                    handed_over = True
                    handler(theirs, end)
                elif why is not None:
                    self._tell(f"{theirs.ordinal}/{theirs.worker}", why)
        except (ProtocolError, OSError, TimeoutError) as error:
            self._tell("an unknown peer", str(error) or "it said nothing in time")
        finally:
            if not handed_over:
                end.close()

    def _tell(self, who: str, why: str) -> None:
        """Once for each reason: who is refused tries again."""
        if self._refused.get(who) != why:
            if len(self._refused) >= GREETING_MAX:
                self._refused.clear()
            self._refused[who] = why
            log.warning("refused a connection of worker %s: %s", who, why)


async def open_link(
    options: WorkerOptions, process: Process, hello: Hello, kind: str
) -> tuple[Hello, socket.socket]:
    """A connection to a worker of another broker, and what it says of itself.

    Bound to this broker's own address. NotReadyError: there is nobody (nothing was asked for);
    PeerError: it refused, or is not who was meant.
    """
    loop = asyncio.get_running_loop()
    address = options.link_address(process)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    end = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        prepare(end)
        end.bind((options.bind, 0))
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await loop.sock_connect(end, address)
        async with asyncio.timeout(HELLO_SECONDS_MAX):
            await loop.sock_sendall(end, frame.encode(replace(hello, kind=kind).to_message()))
            theirs = hello_from(await read_frame(end))
        if (theirs.ordinal, theirs.worker) != process or theirs.cluster_uuid != hello.cluster_uuid:
            raise PeerError(f"Worker {process} is worker {theirs.ordinal}/{theirs.worker}.")
    except (OSError, TimeoutError) as error:  # Replication asks why: refused, or silence.
        end.close()
        raise NotReadyError(f"Broker {process[0]} does not answer.") from error
    except BaseException:
        end.close()
        raise
    return theirs, end


def prepare(end: socket.socket) -> None:
    """Options of every connection between brokers."""
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


async def read_frame(end: socket.socket) -> Mapping[str, object]:
    """One small frame, and not a byte beyond it."""
    head = await _read_exactly(end, frame.LENGTH.size)
    (length,) = frame.LENGTH.unpack(head)
    if not 1 <= length <= HELLO_BYTES_MAX:
        raise ProtocolError(f"a hello of {length} bytes")
    return frame.decode(await _read_exactly(end, length))


async def _read_exactly(end: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    got = b""
    while len(got) < size:
        piece = await loop.sock_recv(end, size - len(got))
        if not piece:
            raise ProtocolError("the connection ended within a hello")
        got += piece
    return got
