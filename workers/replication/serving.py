"""Answers to `Fetch`: groups of any generation, from the files, one answer at a time to each."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from barco.cluster.effects import Serve
from barco.errors import BarcoError
from barco.model.generation import Gid, GroupHead, Successor
from barco.protocol.replication import Expired, Fetched
from barco.protocol.replication_codec import to_map
from barco.types import MiB
from barco.workers.replication.link import Link
from barco.workers.storage.replicas import ReplicaStore

SERVE_BYTES_MAX = 4 * MiB
"""Groups for one `Fetch` at most; whoever got too few asks again."""

log = logging.getLogger("barco.replication")


class Serving:
    """Reads groups for the peers that lack them."""

    def __init__(
        self,
        links: Mapping[int, Link],
        store: ReplicaStore,
        successor: Callable[[Gid], Successor | None],
    ) -> None:
        self._links = links
        self._store = store
        self._successor = successor
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.groups = 0
        """Sent so far."""

    def serve(self, effect: Serve) -> None:
        """Nothing while an answer to this peer is under way: it asks again."""
        task = self._tasks.get(effect.ordinal)
        if task is None or task.done():
            loop = asyncio.get_running_loop()
            self._tasks[effect.ordinal] = loop.create_task(self._send_groups(effect))

    async def _send_groups(self, effect: Serve) -> None:
        link = self._links[effect.ordinal]
        try:
            groups = await self._store.groups.read(
                effect.gid.epoch, effect.first, effect.last, SERVE_BYTES_MAX
            )
            if not groups:
                await self._send_expired(effect, link)
        except BarcoError as error:
            log.error("groups for broker %d: %s", effect.ordinal, error)
            return
        for header, data in groups:
            head = GroupHead(header.gseq, header.prev_crc, header.header_crc, len(data))
            if not link.send(to_map(Fetched(effect.gid, head)), data=data):
                return
            self.groups += 1

    async def _send_expired(self, effect: Serve, link: Link) -> None:
        """What is not here any more because it is too old: whoever asks need not wait for it."""
        successor = self._successor(effect.gid)
        if successor is None:
            return
        first, prev_crc = await self._store.first_group(effect.gid.epoch, successor.tail)
        if effect.first < first <= successor.tail + 1:
            link.send(to_map(Expired(effect.gid, first, prev_crc)))

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
