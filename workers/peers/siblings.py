"""The native hand-off connections to other workers, of this broker and of others."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from barco._native import Reactor
from barco.errors import NotReadyError, PeerError, ProtocolError
from barco.model.ranges import peer_of, process_of
from barco.model.replicas import Process
from barco.mutual import Mutual
from barco.protocol.link import HAND_OFF as LINK_HAND_OFF
from barco.protocol.link import Hello
from barco.types import Ordinal
from barco.workers.peers.links import Addresses, End, open_link
from barco.workers.peers.ranges import RingRanges

RETRY_SECONDS_FIRST = 0.02
RETRY_SECONDS_SOON = 0.2
RETRY_SECONDS_MAX = 1.0
"""Between two attempts: at first, and for a sibling that has been away for `SOON_SECONDS`."""
SOON_SECONDS = 10.0
HTTP, HAND_OFF, HTTPS = 0, 1, 2
"""Kinds of `Reactor.listen`."""

log = logging.getLogger("barco.worker")


def run_dir(data_dir: str) -> Path:
    """Where the Unix sockets are; made by the first who needs it, for the broker's user alone."""
    path = Path(data_dir) / "run"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def socket_path(data_dir: str, worker: int, kind: str) -> str:
    """Path of a worker's socket. A Unix address holds 107 bytes: a longer path goes by a link."""
    path = run_dir(data_dir) / f"worker-{worker}.{kind}"
    if len(os.fsencode(path)) <= 107:
        return str(path)
    # The directory's descriptor makes any path short, and stays open for the process's life.
    fd = _run_dirs.setdefault(data_dir, -1)
    if fd < 0:
        fd = _run_dirs[data_dir] = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{fd}/{path.name}"


_run_dirs: dict[str, int] = {}


class HandOff:
    """Keeps the outgoing hand-off connections: to every sibling of this broker, and to each process
    of another broker that leads a range."""

    def __init__(
        self,
        reactor: Reactor,
        addresses: Addresses,
        ranges: RingRanges,
        endpoint: Callable[[Process], str],
        hello: Hello | None = None,
        mutual: Mutual | None = None,
    ) -> None:
        """endpoint: where clients call a process."""
        self._reactor = reactor
        self._options, self._addresses = addresses.options, addresses
        self._ranges = ranges
        self._hello, self._mutual = hello, mutual
        self._endpoint = endpoint
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._listener: socket.socket | None = None
        self._led_by: dict[int, int] = {}
        self._standing: set[int] = set()
        self._told: dict[Process, str] = {}
        self._closed = False
        self.slices = self._options.held.numbers
        """Those that the core has, numbered in the whole ring."""

    def start(self) -> None:
        """Listens, and connects to everybody else of this broker."""
        path = socket_path(self._options.data_dir, self._options.worker, "handoff")
        Path(path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(64)
        self._reactor.listen(self._listener.fileno(), HAND_OFF)
        self.meet()

    def meet(self) -> None:
        """Connects to all processes that this broker has now."""
        for sibling in self._ranges.peers:
            if sibling != self._options.peer:
                self.connect(sibling)

    def take(self, theirs: Hello, end: End) -> None:
        """A connection that a worker of another broker has opened to hand events off."""
        process = (Ordinal(theirs.ordinal), theirs.worker)
        self._reactor.adopt_peer(end.detach(), peer_of(process), end.seal)

    def lead(self, token: int, leader: Process | None) -> None:
        """From now on this process gets the events of the range; None: nobody does, or there is no
        such range any more."""
        if leader is None:
            self._led_by.pop(token, None)
            self._route(token, -1, "")
            return
        peer = self._led_by[token] = peer_of(leader)
        if peer != self._options.peer:
            self.connect(peer)
        self._route(token, peer, self._endpoint(leader))

    def rename(self) -> None:
        """Brokers have said by which addresses clients call them: so do answers from now on."""
        for token, peer in self._led_by.items():
            self._route(token, peer, self._endpoint(process_of(peer)))

    def hold(self, slices: range) -> None:
        """The core has these slices from now on, numbered in the whole ring. It has forgotten who
        it thought leads others here."""
        self.slices = slices
        self.rename()

    def _route(self, token: int, peer: int, endpoint: str) -> None:
        held = self._ranges.at(token)
        numbers = range(0) if held is None else held.numbers  # They may be in other ranges now.
        if peer == self._options.peer:  # The core takes events of the slices that it has.
            first, stop = self.slices.start, self.slices.stop
            numbers = range(max(numbers.start, first), min(numbers.stop, stop))
        if not numbers:
            return
        self._reactor.set_route(numbers.start, len(numbers), peer, endpoint)

    def reaches(self, token: int) -> bool:
        """Whether events for the range get to its leader from here."""
        peer = self._led_by.get(token)
        if peer == self._options.peer:
            return self._takes(self._ranges.numbers_of(token))
        return peer is not None and peer in self._standing

    def _takes(self, numbers: range) -> bool:
        """Whether the core has these slices: of others it takes no events."""
        return set(numbers) <= set(self.slices)

    def connect(self, peer: int) -> None:
        """Connects in the background, unless there is a connection or an attempt already; until it
        stands, calls for it wait."""
        task = self._tasks.get(peer)
        if self._closed or not self._wanted(peer):
            return
        if task is None or (task.done() and not task.cancelled() and peer not in self._standing):
            self._tasks[peer] = asyncio.create_task(self._connect(peer))

    def lost(self, peer: int) -> None:
        """The reactor says that a connection has ended."""
        self._standing.discard(peer)
        self.connect(peer)

    def _wanted(self, peer: int) -> bool:
        return peer in self._ranges.peers or peer in self._led_by.values()

    async def _connect(self, peer: int) -> None:
        delay = RETRY_SECONDS_FIRST
        began = time.monotonic()
        while self._wanted(peer):
            end = await self._try(process_of(peer))
            if end is not None:
                self._standing.add(peer)
                self._reactor.attach_peer(peer, end.detach(), end.seal)
                return
            await asyncio.sleep(delay)
            soon = time.monotonic() - began < SOON_SECONDS
            delay = min(2 * delay, RETRY_SECONDS_SOON if soon else RETRY_SECONDS_MAX)

    async def _try(self, process: Process) -> End | None:
        if process[0] != self._options.process[0]:
            assert self._hello is not None and self._mutual is not None, "there are other brokers"
            try:
                _, end = await open_link(
                    self._addresses, process, self._hello, LINK_HAND_OFF, self._mutual
                )
                return end
            except NotReadyError:
                return None
            except (PeerError, ProtocolError) as error:
                if self._told.get(process) != str(error):
                    self._told[process] = str(error)
                    log.warning("worker %s/%s: %s", *process, error)
                return None
        end = End(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            end.connect(socket_path(self._options.data_dir, process[1], "handoff"))
            return end
        except OSError:
            end.close()
            return None

    async def close(self) -> None:
        """Ends the attempts. The sockets are the reactor's."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
