"""Connections between the workers of different brokers: one port, a hello, then what it is for.

A socket is handed over with nothing read beyond the hello, so that the reactor, asyncio or
replication can go on with it as if it had always been theirs.
"""

import asyncio
import ipaddress
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from barco._native import Seal
from barco.errors import NotReadyError, PeerError, ProtocolError
from barco.model.options import WorkerOptions
from barco.model.replicas import Process
from barco.mutual import Mutual, Session
from barco.protocol import door, frame
from barco.protocol.link import RPC, Hello, hello_from, refusal, unspoken
from barco.workers.watched import watched

HELLO_BYTES_MAX = 1024
HELLO_SECONDS_MAX = 2.0
CONNECT_SECONDS_MAX = 1.0
GREETING_MAX = 64
"""Connections of one address that have not proved who they are; the oldest makes room for the next.
Nothing but their hello is read."""

TOLD_SECONDS = 60.0
"""GREETING_MAX refusals are said in this time: who is refused says whatever it likes."""

ACCEPT_RETRY_SECONDS = 0.1
USER_TIMEOUT_MS = 3000
"""Sent bytes that nobody acknowledges for so long break a connection: the machine is gone."""


class End(socket.socket):
    """A connection to a worker of another broker, and what seals it from the greeting on."""

    seal: Seal | None = None
    """None: what is said is plain, or sealed by `transport`."""
    transport: asyncio.Transport | None = None
    """Of asyncio, where it goes on with it and the socket is not here any more."""

    def drop(self) -> None:
        """At once."""
        if self.transport is not None:
            self.transport.abort()
        self.close()


Handler = Callable[[Hello, End], None]
"""Takes over a connection, and who is at its other end."""

NEWS_SECONDS = 10.0
"""Until gossip has told every process of a broker that joins, on a busy machine."""

log = logging.getLogger("barco.worker")


def own_hello(options: WorkerOptions, session: int) -> Hello:
    """What this worker says of itself; `kind` is filled in for each connection."""
    return Hello(
        kind="",
        cluster_uuid=options.cluster_uuid,
        ordinal=options.ordinal,
        disk_uuid=options.disk_uuid,
        worker=options.worker,
        token=options.held.token,
        session=session,
        ring_size=options.ring_size,
        workers=options.workers,
        slices_per_range=options.slices_per_range,
    )


class Addresses:
    """Where other brokers are called: as the configuration lists them; who came later says it."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        listed = (str(ipaddress.ip_address(address)) for address in options.brokers)
        self._hosts = dict(enumerate(listed))
        self._listed = len(self._hosts)
        self.most = options.ring_size * options.slices_per_range
        """Ordinals are below it: each broker leads a slice."""

    def tell(self, ordinal: int, host: str) -> None:
        """What gossip says of a broker; nothing new of one that is listed."""
        if host and self._listed <= ordinal < self.most:
            self._hosts[ordinal] = host

    def host(self, ordinal: int) -> str | None:
        """None of a broker that has not been heard of."""
        return self._hosts.get(ordinal)

    def knows(self, host: str) -> bool:
        """Whether any broker is called there."""
        return host in self._hosts.values()

    @property
    def options(self) -> WorkerOptions:
        """Of this worker: from where, and with which key, it calls."""
        return self._options

    def link(self, process: Process) -> tuple[str, int]:
        """Where a process listens for workers of other brokers; NotReadyError: nobody knows."""
        host = self.host(process[0])
        if host is None:
            raise NotReadyError(f"Nobody has told yet where broker {process[0]} is.")
        return host, self._options.replication_port + process[1]


class LinkServer:
    """Takes the connections of other brokers' workers, and gives each to whom it is for."""

    def __init__(
        self,
        hello: Hello,
        addresses: Addresses,
        key: bytes,
        mutual: Mutual,
        fatal: Callable[[str], None],
    ) -> None:
        """`addresses`: from where brokers call. `key`: what callers have to know. `mutual`: what
        they have to show.

        `fatal`: told when who takes a connection over raises what nobody expects.
        """
        self._fatal = fatal
        self._mutual = mutual
        self._hello = hello
        self._addresses = addresses
        self._key = key
        self._handlers: dict[str, Handler] = {}
        self._tasks: dict[asyncio.Task[None], str] = {}
        """Who greets, and from where; the oldest first."""
        self._refused: dict[str, str] = {}
        self._told_at = deque[float](maxlen=GREETING_MAX)
        self._unheard: dict[str, asyncio.TimerHandle] = {}
        """Addresses that nobody has told of yet, and when each is a stranger's."""
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
        for waiting in self._unheard.values():
            waiting.cancel()
        self._unheard.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], host: str) -> None:
        """Whoever does not come to the end of a greeting makes room for others of its address, and
        keeps no other address out."""
        same = [task for task, other in self._tasks.items() if other == host]
        if len(same) >= GREETING_MAX:
            same[0].cancel()
        task = watched(coroutine, "a connection was not taken over", self._fatal)
        self._tasks[task] = host
        task.add_done_callback(self._tasks.pop)

    def _listen(self, listener: socket.socket) -> None:
        # Not sock_accept: cancelled in the moment in which somebody calls, it raises into the loop.
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, address = listener.accept()
            end = End(fileno=accepted.detach())
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # The caller has gone already.
        except OSError:  # Out of descriptors.
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(ACCEPT_RETRY_SECONDS, self._listen, listener)
            return
        if not self._addresses.knows(address[0]):
            end.close()
            self._wonder(address[0])
        else:
            self._spawn(self._greet(end, address[0]), address[0])

    def _wonder(self, host: str) -> None:
        """A broker that has just joined, or is new to this process, calls before it was heard of
        here, and calls again: it is a stranger if nobody has told of it some time later."""
        if len(self._unheard) >= GREETING_MAX:
            self._wonder_no_more(host)
        elif host not in self._unheard:
            loop = asyncio.get_running_loop()
            self._unheard[host] = loop.call_later(NEWS_SECONDS, self._wonder_no_more, host)

    def _wonder_no_more(self, host: str) -> None:
        self._unheard.pop(host, None)
        if not self._addresses.knows(host):
            self._tell(host, "no broker has this address")

    async def _greet(self, end: End, host: str) -> None:
        handed_over = False
        who = host
        try:
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                prepare(end)
                message, said = await read_frame(end)
                if (why := unspoken(message)) is not None:
                    await _send(end, frame.encode({"refused": why}))
                    raise ProtocolError(why)
                theirs = hello_from(door.without_nonce(message))
                who = f"{theirs.ordinal}/{theirs.worker} at {host}"
                handler = self._handlers.get(theirs.kind)
                why = self._refusal(theirs, host)
                why = why or door.disagreement(message, tls=self._mutual.tls)
                if why is None and handler is not None:
                    tls = door.sealed(message, tls=self._mutual.tls)
                    await self._prove(end, theirs, said, tls=tls)
                    handed_over = True
                    handler(theirs, end)
                else:
                    why = why or f"this worker takes no {theirs.kind} yet"
                    await _send(end, frame.encode({"refused": why}))
                    self._tell(who, why)
        except (ProtocolError, OSError, TimeoutError) as error:
            self._tell(who, str(error) or "it said nothing in time")
        except Exception as error:
            if handed_over:
                raise  # Whose state is half changed is not to go on (I12).
            # A greeting promises nothing, and no stranger ends a process with one.
            self._tell(who, f"its greeting met a bug: {error!r}", error)
        finally:
            if not handed_over:
                end.drop()

    def _refusal(self, theirs: Hello, host: str) -> str | None:
        why = refusal(self._hello, theirs, self._addresses.most)
        if why is None and self._addresses.host(theirs.ordinal) != host:
            why = (
                f"broker {theirs.ordinal} has another address than {host}: make cluster.brokers the"
                " same everywhere"
            )
        return why

    async def _prove(self, end: End, theirs: Hello, said: bytes, *, tls: bool) -> None:
        """Both ways, and with certificates where TLS follows; ProtocolError for who does not."""
        more = door.added(os.urandom(door.NONCE_BYTES), tls=self._mutual.tls)
        answer = frame.encode(replace(self._hello, kind=theirs.kind).to_message() | more)
        greetings = (said, answer[frame.LENGTH.size :])
        proof = door.proof(self._key, door.ANSWERER, *greetings)
        await _send(end, answer + frame.encode({door.PROOF: proof}))
        given = door.proof_in((await read_frame(end))[0])
        if not door.proves(given, self._key, door.CALLER, *greetings):
            raise ProtocolError(door.DIFFERENT)
        if tls:
            session = Session(True, door.name(*greetings), theirs.ordinal)
            await _seal(end, self._mutual, session, theirs.kind)

    def _tell(self, who: str, why: str, error: Exception | None = None) -> None:
        """Once for each reason: who is refused tries again."""
        now = asyncio.get_running_loop().time()
        full = len(self._told_at) == GREETING_MAX and now - self._told_at[0] < TOLD_SECONDS
        if self._refused.get(who) != why and not full:
            self._told_at.append(now)
            if len(self._refused) >= GREETING_MAX:
                self._refused.clear()
            self._refused[who] = why
            log.warning("refused a connection of worker %s: %s", who, why, exc_info=error)


async def open_link(
    addresses: Addresses, process: Process, hello: Hello, kind: str, mutual: Mutual
) -> tuple[Hello, End]:
    """A connection to a worker of another broker, and what it says of itself.

    Bound to this broker's own address. NotReadyError: there is nobody (nothing was asked for);
    PeerError: it refused, or is not who was meant.
    """
    loop = asyncio.get_running_loop()
    address, options = addresses.link(process), addresses.options
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    end = End(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        prepare(end)
        end.bind((options.bind, 0))
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await loop.sock_connect(end, address)
        async with asyncio.timeout(HELLO_SECONDS_MAX):
            theirs, named = await _say_hello(
                end, replace(hello, kind=kind), options.key, mutual.tls
            )
            known = (theirs.ordinal, theirs.worker), theirs.cluster_uuid
            if known != (process, hello.cluster_uuid):
                raise PeerError(f"Worker {process} is worker {theirs.ordinal}/{theirs.worker}.")
            if named:
                await _seal(end, mutual, Session(False, named, theirs.ordinal), kind)
    except (OSError, TimeoutError) as error:  # Replication asks why: refused, or silence.
        end.drop()
        raise NotReadyError(f"Broker {process[0]} does not answer.") from error
    except BaseException:
        end.drop()
        raise
    return theirs, end


async def _say_hello(end: End, hello: Hello, key: bytes, tls: door.Tls) -> tuple[Hello, str]:
    """Who answers, and what TLS that follows is called, "" where none does; ProtocolError for a
    refusal, or a wrong proof."""
    more = door.added(os.urandom(door.NONCE_BYTES), tls=tls)
    mine = frame.encode(hello.to_message() | more)
    await _send(end, mine)
    answer, said = await read_frame(end)
    theirs = hello_from(door.without_nonce(answer) if "refused" not in answer else answer)
    greetings = (mine[frame.LENGTH.size :], said)
    proven = door.proves(door.proof_in((await read_frame(end))[0]), key, door.ANSWERER, *greetings)
    why = door.disagreement(answer, tls=tls) if proven else door.DIFFERENT
    if why is not None:
        await _send(end, frame.encode({"refused": why}))
        raise ProtocolError(why)
    await _send(end, frame.encode({door.PROOF: door.proof(key, door.CALLER, *greetings)}))
    return theirs, door.name(*greetings) if door.sealed(answer, tls=tls) else ""


async def _seal(end: End, mutual: Mutual, session: Session, kind: str) -> None:
    """TLS on it from now on; ProtocolError for who is not who he says."""
    if kind == RPC:
        end.transport = await mutual.transport(end, session)
    else:
        end.seal = await mutual.shake(end, session)


async def _send(end: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(end, data)


def prepare(end: socket.socket) -> None:
    """Options of every connection between brokers."""
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


async def read_frame(end: socket.socket) -> tuple[Mapping[str, Any], bytes]:
    """One small frame, and not a byte beyond it: the message, and its bytes."""
    head = await _read_exactly(end, frame.LENGTH.size)
    (length,) = frame.LENGTH.unpack(head)
    if not 1 <= length <= HELLO_BYTES_MAX:
        raise ProtocolError(f"a hello of {length} bytes")
    body = await _read_exactly(end, length)
    return frame.decode(body), body


async def _read_exactly(end: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    got = b""
    while len(got) < size:
        piece = await loop.sock_recv(end, size - len(got))
        if not piece:
            raise ProtocolError("the connection ended within a hello")
        got += piece
    return got
