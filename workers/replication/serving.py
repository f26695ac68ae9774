"""Answers to `Fetch`: groups of any generation, from the files, one answer at a time to a peer."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from barco.cluster.logs.driving import expired
from barco.cluster.state.effects import Serve
from barco.errors import BarcoError
from barco.model.generation import Gid, GroupHead, Successor
from barco.protocol.replication import Fetched
from barco.types import MiB
from barco.workers.replication.link import Link
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.watched import watched

SERVE_BYTES_MAX = 4 * MiB
"""Of groups that are read, and handed to the link, at a time."""

SERVE_WAITING_MAX = 64
"""Generations that one peer may wait for; it asks for others again."""

log = logging.getLogger("barco.replication")


class Serving:
    """Reads groups for the peers that lack them."""

    def __init__(
        self,
        links: Mapping[int, Link],
        store: ReplicaStore,
        successor: Callable[[Gid], Successor | None],
        fatal: Callable[[str], None],
    ) -> None:
        """`successor`: as far as it is known here. `fatal`: end the process."""
        self._links = links
        self._store = store
        self._successor = successor
        self._fatal = fatal
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, dict[Gid, Serve]] = {}
        """By peer: what it asked for while it was being answered, the newest of each generation."""
        self._current: dict[int, Serve] = {}
        self.groups = 0
        """Sent so far."""

    def serve(self, effect: Serve) -> None:
        """Now, or when the peer has the answers that are under way; not again what these hold."""
        assert effect.first <= effect.last and effect.ordinal in self._links
        ordinal = effect.ordinal
        waiting = self._waiting.setdefault(ordinal, {})
        current = self._current.get(ordinal)
        if current is not None and current.gid == effect.gid and effect.first <= current.last:
            return
        assert len(waiting) <= SERVE_WAITING_MAX, "one for each generation, and not of many"
        if effect.gid in waiting or len(waiting) < SERVE_WAITING_MAX:
            waiting[effect.gid] = effect
        task = self._tasks.get(ordinal)
        if task is None or task.done():
            what = f"broker {ordinal} can not be served"
            self._tasks[ordinal] = watched(self._answer(ordinal), what, self._fatal)

    async def _answer(self, ordinal: int) -> None:
        waiting = self._waiting[ordinal]
        while waiting:
            effect = waiting.pop(next(iter(waiting)))
            assert ordinal not in self._current, "a peer has one answer at a time"
            self._current[ordinal] = effect
            try:
                await self._send_groups(effect)
            except BarcoError as error:
                log.error("groups for broker %d: %s", ordinal, error)
            finally:
                del self._current[ordinal]

    async def _send_groups(self, effect: Serve) -> None:
        """All of them: the peer asks for more when it has the last one it asked for."""
        link, first = self._links[effect.ordinal], effect.first
        while first <= effect.last:
            groups = await self._store.groups.read(
                effect.gid.epoch, first, effect.last, SERVE_BYTES_MAX
            )
            if not groups:
                if first == effect.first:
                    await self._send_expired(effect, link)
                return
            assert groups[0][0].gseq == first, "nothing is left out"
            for header, data in groups:
                head = GroupHead(header.gseq, header.prev_crc, header.header_crc, len(data))
                if not link.send(Fetched(effect.gid, head), data=data):
                    return
                self.groups += 1
            assert groups[-1][0].gseq >= first, "it would read the same for ever"
            first = groups[-1][0].gseq + 1
            await link.room()

    async def _send_expired(self, effect: Serve, link: Link) -> None:
        """What is not here any more because it is too old: whoever asks need not wait for it."""
        successor = self._successor(effect.gid)
        if successor is None:
            return
        first, prev_crc = await self._store.first_group(effect.gid.epoch, successor.tail)
        if (answer := expired(effect, first, prev_crc, successor.tail)) is not None:
            link.send(answer)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
