"""How a worker reaches the others: hand-off, operations, links, and who leads what.

Everything that is asked of another process goes through here; replication has links of its own,
which `links` hands to it.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

from barco._native import Reactor
from barco.cluster.ring.routes import RangeRoute
from barco.errors import BarcoError
from barco.model.options import WorkerOptions
from barco.model.ranges import process_of
from barco.model.replicas import Process
from barco.mutual import Mutual
from barco.protocol.link import HAND_OFF, RPC, Hello
from barco.workers.operations.service import ShardService
from barco.workers.peers.leaders import News
from barco.workers.peers.links import End, LinkServer, open_link, own_hello
from barco.workers.peers.rpc import RpcServer, Siblings, frame_bytes_max
from barco.workers.peers.siblings import HandOff, socket_path
from barco.workers.watched import watched

EXCHANGE_SECONDS = 1.0
"""How often the news of leaders is compared with one sibling; changes are told at once."""

TELL_SECONDS_MAX = 1.0

log = logging.getLogger("barco.worker")


class Network:
    """The connections of one worker."""

    def __init__(
        self,
        options: WorkerOptions,
        reactor: Reactor,
        service: ShardService,
        session: int,
        fatal: Callable[[str], None],
    ) -> None:
        """`fatal`: told when its work ends with what nobody expects; the process then ends."""
        self._options = options
        self._fatal = fatal
        self._service = service
        self.hello = own_hello(options, session)
        self.mutual = Mutual(options.cluster_uuid, options.tls.get("brokers", {}))
        bytes_max = frame_bytes_max(options.event_bytes_max)
        self._ranges = service.ranges
        self._paths: dict[int, str] = {}
        self._find_own()
        self.siblings = Siblings(
            worker=options.peer,
            paths=self._paths,
            operation=service.operation,
            bytes_max=bytes_max,
            dial=self._dial,
        )
        self._rpc = RpcServer(service.operation, bytes_max=bytes_max)
        self.addresses = service.neighbours.addresses
        self.hand_off = HandOff(
            reactor,
            self.addresses,
            self._ranges,
            service.neighbours.endpoint,
            self.hello,
            self.mutual,
        )
        service.unreached = self._unreached
        self.links = LinkServer(self.hello, self.addresses, options.key, self.mutual, fatal)
        self.links.handle(HAND_OFF, self.hand_off.take)
        self.links.handle(RPC, self._rpc.take)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_route: Callable[[RangeRoute], None] = lambda route: None
        """Called with each generation of which this worker's replica says for the first time that
        it is open, or handed over."""

    async def start(self) -> None:
        """Listen, connect to the siblings, route what is known; then keep up with the news."""
        options, leaders = self._options, self._service.leaders
        rpc_path = socket_path(options.data_dir, options.worker, "rpc")
        await self._rpc.start(rpc_path)
        os.chmod(rpc_path, 0o600)
        for fd in options.listeners.get("replication", ()):
            self.links.start(fd)
        for held in self._ranges.all:
            self.hand_off.lead(held.token, leaders.leader(held.token))
        leaders.on_change = self.hand_off.lead
        self._service.neighbours.on_change = self.hand_off.rename
        self._service.neighbours.on_own = self._meet_own
        self._ranges.reached = self._reached
        self.hand_off.start()
        self._spawn(self._exchange())

    def _find_own(self) -> None:
        """The sockets of this broker's processes, by their numbers in the cluster."""
        self._paths.clear()
        for peer in self._ranges.peers:
            self._paths[peer] = socket_path(self._options.data_dir, process_of(peer)[1], "rpc")

    def _meet_own(self) -> None:
        """This broker has other processes than before."""
        self._find_own()
        self._service.leaders.renumber()
        self.hand_off.rename()
        self.hand_off.meet()

    @property
    def _others(self) -> list[int]:
        return [peer for peer in self._paths if peer != self._options.peer]

    def _reached(self, peer: int) -> bool:
        return peer == self._options.peer or self.siblings.reached(peer)

    def told(self, route: RangeRoute, *, stopped: bool = False) -> None:
        """What this worker's own replica says: this generation is open, is handed over, or its
        leader has been stopped. The siblings are told at once."""
        if not self._service.leaders.learn(route, stopped=stopped):
            return
        if not stopped:
            self.on_route(route)
        for peer in self._others:
            self._spawn(self._tell(peer, [[route.packed(), stopped]]))

    def _unreached(self) -> list[int]:
        tokens = (held.token for held in self._ranges.all)
        return [token for token in tokens if not self.hand_off.reaches(token)]

    async def close(self) -> None:
        """End all connections but those of the reactor."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.links.close()
        await self.hand_off.close()
        await self._rpc.close()
        await self.siblings.close()

    async def _dial(self, peer: int) -> End:
        _, end = await self.dial(process_of(peer), RPC)
        return end

    async def dial(self, process: Process, kind: str) -> tuple[Hello, End]:
        """A link to a worker of another broker (`open_link`)."""
        return await open_link(self.addresses, process, self.hello, kind, self.mutual)

    async def _exchange(self) -> None:
        """Whatever news got lost: compare notes with one sibling after the other."""
        for turn in itertools.count():
            if others := self._others:
                await self._tell(others[turn % len(others)], self._service.leaders.all())
            await asyncio.sleep(EXCHANGE_SECONDS)

    async def _tell(self, peer: int, news: list[News]) -> None:
        try:
            theirs = await self.siblings.call(peer, "leaders", {"news": news}, TELL_SECONDS_MAX)
            self._service.leaders.learn_all(theirs)
        except BarcoError:
            pass  # It is away; it asks when it is back.

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = watched(coroutine, "news of leaders was not told", self._fatal)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
