"""Gossip over TCP: the connections between supervisors, around the machine of the gossip.

One connection to a peer is enough for both directions, whoever opened it. Each begins with a
greeting in which both sides show who they are; a wrong one is refused, with one line on both sides.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict

from barco import limits
from barco.cluster.gossip.facts import LEFT
from barco.cluster.gossip.gossip import Effect, Gossip, Send
from barco.cluster.gossip.hello import refusal
from barco.errors import PeerGoneError, ProtocolError
from barco.mutual import Mutual, Session
from barco.protocol import door, frame
from barco.protocol.gossip import (
    Greeting,
    Hello,
    Message,
    Refuse,
    Welcome,
    from_frame,
    speaks,
    to_frame,
)
from barco.supervisor.wire.peers import (
    Counted,
    GossipLink,
    GossipPeer,
    NotTriedError,
    Traffic,
    host_of,
    same_host,
    set_no_delay,
)

log = logging.getLogger("barco.gossip")

GREETINGS_MAX = 64
"""Connections of one address that have not proved who they are; more are closed at once."""

STRANGERS_MAX = 16
"""Connections from addresses that no broker is known to have, all together, before they have
proved who they are. One that joins has such an address. The next one takes the place of the oldest
of the address that has most: one address keeps no other out."""

LINKS_PER_PEER_MAX = 4
"""Two brokers that call each other at once have two connections; more are closed, oldest first."""

QUEUE_MESSAGES_MAX = 64
"""To a peer that is being connected to; the oldest goes first."""

REFUSAL_LOG_SECONDS, REFUSAL_LINES_MAX = 30.0, 100
"""The same refusal is not said more often than this, nor more than so many in that time: strangers
are refused with whatever they say."""


class GossipNode:
    """One broker's gossip: the machine, its timer and its sockets. Lives in one event loop.

    addresses: (host, port) of the gossip of every broker that is listed, by ordinal. Another one
    with a lower ordinal than `most` is let in as well, once it has proved that it knows the key.
    on_effect: takes every effect that is not a message; it may call back.
    seal: what the others have to know (`barco.protocol.door`), and what they have to show.
    """

    def __init__(
        self,
        machine: Gossip,
        hello: Hello,
        addresses: list[tuple[str, int]],
        *,
        bind: str,
        on_effect: Callable[[Effect], None],
        seal: tuple[bytes, Mutual] | None = None,
        most: int | None = None,
    ) -> None:
        self.machine = machine
        self.counters = Traffic()
        self.refusals: dict[int, str] = {}
        """Why peers are refused or refuse, by ordinal, until it has been settled."""
        self._most = most or len(addresses)
        self._port = addresses[hello.ordinal][1]
        self._hello = hello
        self._key, self._mutual = seal or (b"", Mutual(hello.cluster_uuid, {}))
        self._bind = bind
        self._on_effect = on_effect
        self._peers = {
            ordinal: GossipPeer(ordinal, host, port)
            for ordinal, (host, port) in enumerate(addresses)
            if ordinal != hello.ordinal
        }
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._greeting: Counter[str] = Counter()
        self._strangers: dict[asyncio.Task[None], str] = {}
        """Who greets from where, the oldest first."""
        self._said: dict[str, float] = {}
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def start(self, listener: socket.socket) -> None:
        """Listen, and begin to look for the others."""
        self._server = await asyncio.start_server(
            self._accepted, sock=listener, limit=limits.GOSSIP_FRAME_BYTES_MAX
        )
        self.run(self.machine.tick(self._loop.time()))

    async def close(self, *, depart: bool = True) -> None:
        """Take leave of the others, and close everything."""
        if depart and not self._closed:
            if self.machine.members.me.state != LEFT:
                self.run(self.machine.depart(self._loop.time()))
            links = [link for peer in self._peers.values() for link in peer.links]
            drains = [asyncio.ensure_future(link.writer.drain()) for link in links]
            if drains:
                await asyncio.wait(drains, timeout=0.5)
                for drain in drains:
                    drain.cancel()
                await asyncio.gather(*drains, return_exceptions=True)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for peer in self._peers.values():
            for link in peer.links:
                link.writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- The machine ------------------------------------------------------------------------------

    def now(self) -> float:
        """The machine's clock."""
        return self._loop.time()

    def call_soon(self, call: Callable[..., None], *args: Any) -> None:
        """In the next turn of the loop."""
        self._loop.call_soon(call, *args)

    def run(self, effects: list[Effect]) -> None:
        """Do what the machine asks for, and set its timer."""
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.ordinal, effect.message)
            else:
                self._on_effect(effect)
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self.machine.deadline(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.run(self.machine.tick(self._loop.time()))

    # --- Sending ----------------------------------------------------------------------------------

    def _send(self, ordinal: int, message: Message) -> None:
        peer = self._peers.get(ordinal)
        if peer is None or self._closed:
            return
        encoded = frame.encode(to_frame(message))
        peer.used_at = self._loop.time()
        for link in peer.links:
            if not link.writer.transport.is_closing():
                self._write(link, encoded)
                return
        if len(peer.queue) >= QUEUE_MESSAGES_MAX:
            peer.queue.pop(0)
            self.counters.messages_dropped += 1
        peer.queue.append(encoded)
        if peer.connecting is None:
            peer.connecting = self._spawn(self._connect(peer))

    def _write(self, link: GossipLink, encoded: bytes) -> None:
        if link.writer.transport.get_write_buffer_size() > limits.GOSSIP_QUEUE_BYTES_MAX:
            self.counters.messages_dropped += 1
            return
        link.writer.write(encoded)
        self.counters.messages_sent += 1
        self.counters.bytes_sent += len(encoded)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a gossip connection failed: %r", error, exc_info=error)

    # --- Connections ------------------------------------------------------------------------------

    async def _connect(self, peer: GossipPeer) -> None:
        """One attempt; what waits for the peer is sent, or dropped and told to the machine."""
        try:
            if self._loop.time() < peer.retry_at:
                # Tried just now, in vain: the machine is told the same again.
                await asyncio.sleep(limits.GOSSIP_BACKOFF_SECONDS_MIN / 2)
                raise NotTriedError
            peer.refused = False
            async with asyncio.timeout(limits.GOSSIP_HELLO_SECONDS_MAX):
                link = await self._open(peer)
        except (OSError, TimeoutError, PeerGoneError, ProtocolError) as error:
            self._not_connected(peer, error)
            return
        finally:
            peer.connecting = None
        peer.failures = 0
        self._linked(peer, link)
        self._spawn(self._listen(peer, link))

    async def _open(self, peer: GossipPeer) -> GossipLink:
        reader, writer = await asyncio.open_connection(
            peer.host,
            peer.port,
            local_addr=(self._bind, 0),
            limit=limits.GOSSIP_FRAME_BYTES_MAX,
        )
        try:
            mine = self._packed(self._hello)
            writer.write(mine)
            answer, said, all_of = await self._greeting_of(reader)
            if isinstance(answer, Refuse):
                self._refused(peer.ordinal, f"broker {peer.ordinal} refuses this one", answer)
                raise PeerGoneError
            if not isinstance(answer, Welcome):
                raise ProtocolError("a greeting was not answered by one")
            reason = self._refusal(answer, all_of, peer.ordinal == answer.ordinal)
            if reason:
                writer.write(frame.encode(to_frame(Refuse(reason=reason))))
                what = f"broker {peer.ordinal} is refused"
                self._refused(peer.ordinal, what, Refuse(reason=reason))
                raise PeerGoneError
            greetings = (mine[frame.LENGTH.size :], said)
            await self._believe(answer.ordinal, reader, writer, door.ANSWERER, greetings)
            writer.write(frame.encode({door.PROOF: self._proof(door.CALLER, greetings)}))
            session = Session(False, door.name(*greetings), answer.ordinal)
            if door.sealed(all_of, tls=self._mutual.tls):
                reader, writer = await self._sealed(writer, session)
        except BaseException:
            writer.close()
            raise
        return GossipLink(Counted(reader, self.counters), writer, answer)

    def _not_connected(self, peer: GossipPeer, error: BaseException) -> None:
        now = self._loop.time()
        if not isinstance(error, NotTriedError):
            peer.failures += 1
            peer.refused = getattr(error, "errno", None) == errno.ECONNREFUSED
            delay = limits.GOSSIP_BACKOFF_SECONDS_MIN * 2 ** min(peer.failures - 1, 10)
            peer.retry_at = now + min(delay, limits.GOSSIP_BACKOFF_SECONDS_MAX)
        self.counters.messages_dropped += len(peer.queue)
        peer.queue.clear()
        self.run(self.machine.unreachable(peer.ordinal, now, refused=peer.refused))

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = host_of(writer)
        hosts = [self._bind, *(peer.host for peer in self._peers.values())]
        stranger = not any(same_host(each, host) for each in hosts)
        if self._closed or self._greeting[host] >= GREETINGS_MAX:
            writer.transport.abort()
            return
        self._greeting[host] += 1
        task = self._spawn(self._serve(reader, writer, host))
        if stranger:
            self._make_room(host)
            self._strangers[task] = host

    def _make_room(self, host: str) -> None:
        """For one more stranger, from there."""
        if len(self._strangers) < STRANGERS_MAX:
            return
        held = Counter(self._strangers.values())
        most = max(held.values())
        crowded = [each for each in self._strangers.values() if held[each] == most]
        address = host if held[host] == most else crowded[0]
        oldest = next(task for task, each in self._strangers.items() if each == address)
        del self._strangers[oldest]
        self._loop.call_soon(oldest.cancel)  # It has begun by then, and ends as others do.

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        try:
            async with asyncio.timeout(limits.GOSSIP_HELLO_SECONDS_MAX):
                peer, link = await self._greet(reader, writer)
        except (OSError, TimeoutError, PeerGoneError) as error:
            log.debug("a gossip connection was not greeted: %r", error)
            writer.close()
            return
        except ProtocolError as error:
            self._say(f"gossip: {host_of(writer)} breaks the protocol: {error}")
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            self._greeting -= Counter([host])  # Who has none left is forgotten.
            if (task := asyncio.current_task()) is not None:
                self._strangers.pop(task, None)
        self._linked(peer, link)
        await self._listen(peer, link)

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[GossipPeer, GossipLink]:
        hello, said, all_of = await self._greeting_of(reader)
        if not isinstance(hello, Hello) or isinstance(hello, Welcome):
            raise ProtocolError("a connection begins with a hello")
        host = host_of(writer)
        reason = self._refusal(hello, all_of, self._fits(hello.ordinal, host))
        if reason:
            writer.write(frame.encode(to_frame(Refuse(reason=reason))))
            self._refused(hello.ordinal, f"{host} is refused", Refuse(reason=reason))
            raise PeerGoneError
        welcome = self._packed(Welcome(**asdict(self._hello)))
        greetings = (said, welcome[frame.LENGTH.size :])
        writer.write(welcome)
        writer.write(frame.encode({door.PROOF: self._proof(door.ANSWERER, greetings)}))
        await self._believe(hello.ordinal, reader, writer, door.CALLER, greetings)
        session = Session(True, door.name(*greetings), hello.ordinal)
        if door.sealed(all_of, tls=self._mutual.tls):
            reader, writer = await self._sealed(writer, session)
        peer = self.meet(hello.ordinal, host)
        return peer, GossipLink(Counted(reader, self.counters), writer, hello)

    def meet(self, ordinal: int, host: str) -> GossipPeer:
        """A broker is called at this address from now on, unless the configuration says another."""
        assert 0 <= ordinal < self._most and ordinal != self._hello.ordinal, "another of the ring"
        peer = self._peers.get(ordinal)
        if peer is None:
            peer = self._peers[ordinal] = GossipPeer(ordinal, host, self._port, listed=False)
        elif not peer.listed:
            peer.host = host
        return peer

    def _fits(self, ordinal: int, host: str) -> bool:
        """Whether a broker may speak from there."""
        peer = self._peers.get(ordinal)
        if peer is not None and peer.listed:
            return same_host(peer.host, host)
        taken = [peer.host for peer in self._peers.values() if peer.ordinal != ordinal]
        return host not in (self._bind, *taken)

    def _packed(self, hello: Hello) -> bytes:
        more = door.added(os.urandom(door.NONCE_BYTES), tls=self._mutual.tls)
        return frame.encode(to_frame(hello) | more)

    async def _sealed(
        self, writer: asyncio.StreamWriter, session: Session
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """TLS from here on; who is not who it says is refused."""
        try:
            return await self._mutual.streams(writer, session, limits.GOSSIP_FRAME_BYTES_MAX)
        except ProtocolError as error:
            refuse, what = Refuse(reason=error.detail), f"broker {session.ordinal} is not believed"
            self._refused(session.ordinal, what, refuse)
            raise PeerGoneError from None

    def _proof(self, role: bytes, greetings: tuple[bytes, bytes]) -> bytes:
        return door.proof(self._key, role, *greetings)

    async def _believe(
        self,
        ordinal: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        role: bytes,
        greetings: tuple[bytes, bytes],
    ) -> None:
        """Nothing that the other end has said, before it proves that it knows the secret."""
        message, _ = await frame.read_whole(reader, limits.GREETING_BYTES_MAX)
        if message is None:
            raise PeerGoneError
        if message.get("type") == Refuse.TYPE:
            refuse = from_frame(message)
            assert isinstance(refuse, Refuse)
            self._refused(ordinal, f"broker {ordinal} refuses this one", refuse)
            raise PeerGoneError
        if not door.proves(door.proof_in(message), self._key, role, *greetings):
            refuse = Refuse(reason=f"broker {ordinal} is not let in: {door.DIFFERENT}")
            writer.write(frame.encode(to_frame(refuse)))
            self._refused(ordinal, f"{host_of(writer)} is refused", refuse)
            raise PeerGoneError

    async def _greeting_of(
        self, reader: asyncio.StreamReader
    ) -> tuple[Greeting | Message, bytes, Mapping[str, Any]]:
        """And its bytes, and all that its frame has."""
        message, said = await frame.read_whole(reader, limits.GREETING_BYTES_MAX)
        if message is None:
            raise PeerGoneError
        if message.get("type") in ("hello", "welcome") and not speaks(message):
            # Of another version little can be said about the rest.
            names = ("type", "protocol", "newest", "version", "ordinal")
            kept = {name: message[name] for name in names if name in message}
            return from_frame(asdict(self._hello) | {"protocol": 0, "newest": 0} | kept), said, {}
        if message.get("type") == Refuse.TYPE:
            return from_frame(message), said, message
        return from_frame(door.without_nonce(message)), said, message

    def _refusal(self, theirs: Hello, all_of: Mapping[str, Any], fits: bool) -> str:
        known = self.machine.members.info(theirs.ordinal)
        why = refusal(self._hello, theirs, known, ring=self._most, address_fits=fits)
        return why or door.disagreement(all_of, tls=self._mutual.tls) or ""

    def _refused(self, ordinal: int, what: str, refuse: Refuse) -> None:
        self.counters.refusals += 1
        if ordinal < self._most:  # Anybody says any number.
            self.refusals[ordinal] = refuse.reason
        self._say(f"gossip: {what}: {refuse.reason}")

    def _say(self, line: str) -> None:
        now = self._loop.time()
        recent = [each for each in self._said.items() if now - each[1] < REFUSAL_LOG_SECONDS]
        self._said = dict(recent)
        if line not in self._said and len(recent) < REFUSAL_LINES_MAX:
            self._said[line] = now
            log.error(line)

    def _linked(self, peer: GossipPeer, link: GossipLink) -> None:
        for old in [old for old in peer.links if old.hello.session != link.hello.session]:
            old.close()  # Of an earlier life.
            peer.links.remove(old)
        set_no_delay(link.writer)
        self.counters.connections += 1
        self.refusals.pop(peer.ordinal, None)
        peer.links.append(link)
        if len(peer.links) > LINKS_PER_PEER_MAX:
            peer.links.pop(0).close()
        peer.retry_at = 0.0
        peer.used_at = self._loop.time()
        queue, peer.queue = peer.queue, []
        for encoded in queue:
            self._write(link, encoded)
        self._close_unused(peer)

    def _close_unused(self, keep: GossipPeer) -> None:
        linked = [peer for peer in self._peers.values() if peer.links]
        if len(linked) > limits.GOSSIP_CONNECTIONS_MAX:
            oldest = min((p for p in linked if p is not keep), key=lambda p: p.used_at)
            for link in oldest.links:
                link.writer.close()
            oldest.links = []

    async def _listen(self, peer: GossipPeer, link: GossipLink) -> None:
        """Until the connection ends."""
        try:
            while True:
                message, _ = await frame.read_whole(link.reader, limits.GOSSIP_FRAME_BYTES_MAX)
                if message is None:
                    break
                self._take(peer, from_frame(message))
        except (OSError, EOFError, TimeoutError):
            pass
        except ProtocolError as error:
            self._say(f"gossip: broker {peer.ordinal} breaks the protocol: {error}")
        finally:
            link.close()
            if link in peer.links:
                peer.links.remove(link)
                if not peer.links and not self._closed:
                    self.run(self.machine.link_lost(peer.ordinal, self._loop.time()))

    def _take(self, peer: GossipPeer, message: Message | Greeting) -> None:
        if isinstance(message, Refuse):
            self._refused(peer.ordinal, f"broker {peer.ordinal} refuses this one", message)
            raise ConnectionError
        if isinstance(message, Hello):
            raise ProtocolError("a second greeting")
        self.counters.messages_received += 1
        peer.used_at = self._loop.time()
        self.run(self.machine.receive(peer.ordinal, message, self._loop.time()))

    def connected(self) -> Mapping[int, bool]:
        """Whether there is a connection to each peer, now."""
        return {ordinal: bool(peer.links) for ordinal, peer in self._peers.items()}
