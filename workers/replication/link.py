"""Connections between replicas: each process dials its peers and sends on what it dialled.

Nothing here waits for a peer. What does not fit into a link's queue is dropped; the protocol asks
again. A group is sent from the arena, without a copy, for as long as it is there.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from barco._native import Reactor, Seal
from barco.errors import NotReadyError, PeerError, ProtocolError
from barco.limits import REPLICATION_QUEUE_BYTES_MAX
from barco.protocol.link import Hello
from barco.protocol.replication import Message
from barco.types import KiB
from barco.workers.peers.links import End
from barco.workers.replication import wire
from barco.workers.watched import watched

RETRY_SECONDS_FIRST = 0.02
RETRY_SECONDS_MAX = 0.2
"""Between two attempts. Loop-back and data centres alike: an attempt costs nothing."""

Dial = Callable[[], Coroutine[Any, Any, tuple[Hello, End]]]
"""Opens a connection to a peer, hello and all (`barco.workers.peers.links.open_link`)."""

log = logging.getLogger("barco.replication")


class _Item(NamedTuple):
    """A frame that waits: its head, then either bytes or a place in the arena."""

    head: bytes
    data: bytes | bytearray | None
    pos: int
    length: int


class Link:
    """The outgoing connection to one peer."""

    def __init__(
        self,
        reactor: Reactor,
        ordinal: int,
        dial: Dial,
        on_lost: Callable[[], None],
        on_change: Callable[[], None],
        fatal: Callable[[str], None],
    ) -> None:
        """`ordinal`: the peer's. `on_lost`: reset, closed or refused. `on_change`: of `idle_fd`,
        told before anything else may use that descriptor. `fatal`: end the process, for the peer
        would never be dialled again."""
        self._reactor = reactor
        self._ordinal = ordinal
        self._dial = dial
        self._on_lost = on_lost
        self._on_change = on_change
        self._fatal = fatal
        self._socket: End | None = None
        self._queue: deque[_Item] = deque()
        self._queued = 0
        self._sent = 0
        self._writing = False
        self._refusal = ""
        self._roomy = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        """Frames that found the queue full."""
        self.sent_bytes = 0

    def start(self) -> None:
        """Dial, from now on."""
        assert self._task is None, "a link is started once"
        what = f"the link to broker {self._ordinal} has ended"
        self._task = watched(self._run(), what, self._fatal)

    async def close(self) -> None:
        """Hang up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._hang_up()

    @property
    def connected(self) -> bool:
        """Whether the peer has said welcome."""
        return self._socket is not None

    @property
    def idle_fd(self) -> int:
        """Where a whole frame may be put in between; -1: there is none, or one is half sent."""
        return self._socket.fileno() if self._socket is not None and not self._writing else -1

    @property
    def seal(self) -> Seal | None:
        """What seals that; None: it is plain."""
        return self._socket.seal if self._socket is not None else None

    @property
    def full(self) -> bool:
        """Whether another group would be dropped."""
        return self._queued > REPLICATION_QUEUE_BYTES_MAX

    async def room(self) -> None:
        """Returns when another group would not be dropped for those before it."""
        while self.full:
            self._roomy.clear()
            await self._roomy.wait()

    def send(
        self,
        message: Message,
        data: bytes | bytearray | None = None,
        place: tuple[int, int] | None = None,
    ) -> bool:
        """Sends a frame, with a group's bytes or its (position, length) in the arena.

        False: it was dropped.
        """
        assert data is None or place is None, "a group lies in one place"
        length = place[1] if place is not None else len(data) if data is not None else 0
        return self.send_frame(wire.encode(message, length), length, data, place)

    def send_frame(
        self,
        head: bytes,
        length: int = 0,
        data: bytes | bytearray | None = None,
        place: tuple[int, int] | None = None,
    ) -> bool:
        """Send a head that is encoded already, and a group of `length` bytes behind it; False if
        it is dropped."""
        assert (length > 0) == (data is not None or place is not None)
        if self._socket is None or (length and self.full):
            self.dropped += 1
            return False
        item = _Item(head, data, place[0] if place is not None else 0, length)
        self._queue.append(item)
        self._queued += len(head) + length
        assert self._queued >= self._sent, "what is sent was queued"
        if not self._writing:
            self._write()
        return True

    # --- Sending ------------------------------------------------------------------------------

    def _write(self) -> None:
        end = self._socket
        if end is None:
            return
        try:
            while self._queue:
                item = self._queue[0]
                size = len(item.head) + item.length
                done = self._push(end, item)
                if done is None:
                    if self._sent:  # The arena went round while it was half sent.
                        raise ConnectionError("the peer is too slow")
                    done = size
                    self.dropped += 1
                elif done == 0:
                    self._want_to_write(end, True)
                    return
                self._sent += done
                assert self._sent <= size <= self._queued
                self.sent_bytes += done
                if self._sent == size:
                    self._queue.popleft()
                    self._queued -= size
                    self._sent = 0
                    if not self.full:
                        self._roomy.set()
            assert self._queued == self._sent == 0, "of what was sent nothing is counted any more"
            sealed = end.seal is not None and not end.seal.flush(end.fileno())
            if sealed or self._writing:
                self._want_to_write(end, sealed)
        except OSError as error:
            self._lose(error)

    def _push(self, end: End, item: _Item) -> int | None:
        """Bytes taken by the kernel, or sealed for it; 0: it is full; None: the group is no longer
        in memory."""
        assert self._sent < len(item.head) + item.length, "what is sent is not sent again"
        if item.data is None and item.length:
            return self._reactor.send_group(
                end.fileno(), item.head, item.pos, item.length, self._sent, end.seal
            )
        if end.seal is not None:
            assert end.fileno() >= 0, "it is sealed for a connection that is there"
            return end.seal.send(end.fileno(), item.head, item.data or b"", self._sent)
        try:
            if not item.length and not self._sent:
                return end.send(item.head)
            if self._sent < len(item.head):
                parts = [memoryview(item.head)[self._sent :], item.data or b""]
                return end.sendmsg(parts)
            return end.send(memoryview(item.data or b"")[self._sent - len(item.head) :])
        except (BlockingIOError, InterruptedError):
            return 0

    def _want_to_write(self, end: End, want: bool) -> None:
        if want != self._writing:
            loop = asyncio.get_running_loop()
            if want:
                loop.add_writer(end.fileno(), self._write)
            else:
                loop.remove_writer(end.fileno())
            assert not want or end is self._socket, "what is lost is not watched"
            self._writing = want
            self._on_change()

    # --- Dialling -----------------------------------------------------------------------------

    async def _run(self) -> None:
        delay = RETRY_SECONDS_FIRST
        while True:
            try:
                await self._connect()
                delay = RETRY_SECONDS_FIRST
                self._refusal = ""
                await self._until_closed()
            except TimeoutError:
                pass
            except (PeerError, ProtocolError) as error:
                if str(error) != self._refusal:
                    self._refusal = str(error)
                    log.error("broker %d: %s", self._ordinal, error)
            except OSError:
                self._on_lost()
            self._hang_up()
            await asyncio.sleep(delay)
            delay = min(2 * delay, RETRY_SECONDS_MAX)

    async def _connect(self) -> None:
        assert self._socket is None and not self._writing, "it has hung up before"
        try:
            _, self._socket = await self._dial()
            assert not self._queue and not self._sent, "nothing is left of the last connection"
            assert self._socket.transport is None, "what is sent is written to the descriptor"
            self._on_change()
        except NotReadyError as error:
            # Refused or reset: its process is gone. Silence is for the machine to judge.
            if isinstance(error.__cause__, ConnectionError):
                raise ConnectionError("refused") from error
            raise TimeoutError from error

    async def _until_closed(self) -> None:
        """The peer says nothing more on this connection, but that it is gone."""
        end = self._socket
        assert end is not None
        loop = asyncio.get_running_loop()
        while await loop.sock_recv(end, 4 * KiB):
            pass
        raise ConnectionError("closed")

    def _lose(self, error: OSError) -> None:
        """A send failed: the reader above notices as soon as the socket is shut down."""
        end = self._socket
        if end is not None:
            assert self._dying is None, "one connection at a time"
            self._want_to_write(end, False)
            self._socket = None
            self._on_change()
            self._forget()
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._dying = end

    _dying: End | None = None

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._want_to_write(self._socket, False)
        ends = self._socket, self._dying
        self._socket = self._dying = None
        self._on_change()
        assert not self._writing, "the loop does not watch what is closed"
        for end in ends:
            if end is not None:
                end.close()
        self._forget()

    def _forget(self) -> None:
        self._queue.clear()
        self._queued = self._sent = 0
        assert not self.full, "an empty queue has room"
        self._roomy.set()


class Links(dict[int, Link]):
    """Those to the other holders of a range, by ordinal. Who is no member any more stays linked: it
    has copies of what is history."""

    def __init__(self, make: Callable[[int, Dial], Link], dials: Mapping[int, Dial]) -> None:
        """`make`: a link to this ordinal, which is not started. `dials`: how to reach the first."""
        super().__init__({ordinal: make(ordinal, dial) for ordinal, dial in dials.items()})
        self._make = make
        self._started = False

    def start(self) -> None:
        """Dial all, from now on."""
        assert not self._started, "a replica is started once"
        self._started = True
        for link in self.values():
            link.start()

    def meet(self, ordinal: int, dial: Dial) -> bool:
        """From now on this one is dialled, and may dial; false if it was so."""
        if ordinal in self:
            return False
        assert ordinal >= 0, "a broker's number"
        link = self[ordinal] = self._make(ordinal, dial)
        if self._started:
            link.start()
        return True
