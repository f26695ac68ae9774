"""A depot: copies history of its range that members who leave would take along.

Whether it is one stands in the target, and what it copies follows from who has what
(`barco.cluster.ring.depots`): there is nothing to be remembered but the copies themselves. What a
generation was two others have to say alike. Groups come from any of them: each has the checksum
of the one before, and the last one's was said by two, so what does not end there is thrown away.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from barco.cluster.ring.depots import copied_by
from barco.cluster.ring.target import Target
from barco.errors import BarcoError, NotReadyError
from barco.model.ranges import peer_of
from barco.workers.operations.leaving.ended import (
    EndedGeneration,
    HeldCopy,
    Said,
    ask_ended,
    ask_group_part,
    believed,
    logs_of,
)
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import VOICES
from barco.workers.seams import SiblingsLike
from barco.workers.storage.files.records import Lodged
from barco.workers.storage.stores.lodging import Lodging

LOOK_SECONDS, LOOK_SECONDS_MAX = 1.0, 10.0
"""Between two looks at what there is to copy; they become rarer while there is nothing."""

log = logging.getLogger("barco.replication")


class _OtherGroupsError(Exception):
    """What a process gave is not that of which two have spoken."""


class Depot:
    """The copies of one process's range."""

    def __init__(
        self,
        token: int,
        ordinal: int,
        first_slice: int,
        lodging: Lodging,
        *,
        ranges: RingRanges,
        siblings: SiblingsLike,
        peer: int,
        target: Callable[[], Target],
        bytes_per_second: int,
        voices: Callable[[Iterable[int]], frozenset[int]] = frozenset,
    ) -> None:
        """token, ordinal, first_slice, peer: of the own process; the slice's number in the ring.
        `target`: as this process has heard it. `voices`: whose word counts."""
        self._token, self._ordinal, self._first = token, ordinal, first_slice
        self._lodging, self._lineage = lodging, lodging.store.lineage
        self._ranges, self._siblings, self._peer = ranges, siblings, peer
        self._target, self._rate, self._voices = target, bytes_per_second, voices
        self._blamed: dict[int, set[int]] = {}
        """By epoch: who gave what was not so; the others are asked first."""

    async def run(self) -> None:
        """For as long as the process lives."""
        pause = LOOK_SECONDS
        while True:
            busy = False
            with suppress(BarcoError):  # Somebody is away, or lies: it is looked at again.
                busy = await self.look()
            pause = LOOK_SECONDS if busy else min(2 * pause, LOOK_SECONDS_MAX)
            if self._is_named():
                pause = LOOK_SECONDS
            await asyncio.sleep(pause)

    def _is_named(self) -> bool:
        return self._ordinal in self._target().depots_of(self._first)

    async def look(self) -> bool:
        """Copies what is due, as far as it goes now: whether something was, or is left."""
        if not self._is_named():
            return False
        said = await self._ask()
        due = self._due(said)
        for epoch in due:
            try:
                await self._make(epoch, said)
            except BarcoError as error:
                log.warning("epoch %d is not copied yet: %s", epoch, error)
        return bool(due)

    async def _ask(self) -> Said:
        said: dict[int, list[HeldCopy]] = {}
        told = self._ranges.processes_of_token(self._token)
        voices = self._voices(ordinal for ordinal, _ in told)
        for process in told:
            if peer_of(process) == self._peer or process[0] not in voices:
                continue
            with suppress(BarcoError):
                said[process[0]] = await ask_ended(self._siblings, peer_of(process), self._token)
        return said

    def _due(self, said: Said) -> list[int]:
        """Epochs of which this one is to have a copy, and has none that counts; the oldest first.

        One that has begun here is finished, whoever else has it by now.
        """
        target, found = self._target(), []
        depots = target.depots_of(self._first)
        for epoch, ended in sorted(logs_of(self._token, said).items()):
            known = self._lineage.get(epoch)
            if known is not None and (known.expired or known.sealed and known.lodged is None):
                continue
            wanted = self._ordinal in copied_by(ended, target.workers.keys(), depots)
            here = self._lodging.is_here(epoch)
            if (wanted or here) and not (here and self._lodging.is_sound(epoch)):
                found.append(epoch)
        return found

    # --- One generation ---------------------------------------------------------------------------

    async def _make(self, epoch: int, said: Said) -> None:
        """A whole copy that was read again; or nothing, where not enough say what it is."""
        allowed = frozenset(self._target().depots_of(self._first)) - {self._ordinal}
        told = believed(epoch, said, allowed, VOICES)
        if told is None:
            return
        what, holders = told
        if self._ordinal in what.members:
            return  # Its machine sees to that.
        known = self._lineage.get(epoch)
        sealed = known is not None and known.lodged is not None and known.sealed
        if not sealed and not await self._copy(what, holders):
            return
        if not await self._lodging.look(epoch, self._rate):
            log.error("the copy of epoch %d is not sound on the disk: it is made again", epoch)
            await self._begin(what, min(holders.values(), key=lambda each: each.first))
        else:
            log.info("epoch %d is copied, and was read again", epoch)

    async def _begin(self, what: EndedGeneration, held: HeldCopy) -> None:
        lodged = Lodged(what.members, what.line)
        start = (held.first, held.prev_crc)
        await self._lodging.begin(what.epoch, what.session, lodged, *start)

    async def _copy(self, what: EndedGeneration, holders: dict[int, HeldCopy]) -> bool:
        """Whether all of it is here, and sealed. Asks one holder after the other."""
        blamed = self._blamed.setdefault(what.epoch, set())
        order = sorted(holders, key=lambda at: (at in blamed, holders[at].first, at))
        lowest = holders[order[0]].first  # Who has less waits for who has more.
        for ordinal in order:
            process, held = self._ranges.process_at(ordinal, self._token), holders[ordinal]
            if process is None:
                continue
            try:
                await self._copy_from(peer_of(process), what, held, lowest)
            except (_OtherGroupsError, ValueError) as error:
                log.error("broker %d gave what is not epoch %d: %s", ordinal, what.epoch, error)
                blamed.add(ordinal)
                await self._begin(what, held)  # Nothing of it is kept.
            except BarcoError as error:
                log.info("broker %d did not give epoch %d: %s", ordinal, what.epoch, error)
            else:
                await self._lodging.seal(what.epoch, what.tail)
                self._blamed.pop(what.epoch, None)
                return True
        return False

    async def _copy_from(
        self, peer: int, what: EndedGeneration, held: HeldCopy, lowest: int
    ) -> None:
        """Goes on behind what is here. A BarcoError: another may have it."""
        epoch = what.epoch
        if not self._lodging.is_here(epoch):
            await self._begin(what, held)
        position = (await self._lodging.resume(epoch)).position
        known = self._lineage.get(epoch)
        assert known is not None, "it is here"
        is_empty = position.tail < known.begin[1]
        if is_empty and held.first > lowest or not is_empty and held.first > position.tail + 1:
            if not is_empty and held.first == lowest:
                await self._begin(what, held)  # Retention was there meanwhile, everywhere.
            raise NotReadyError("it has less of it than others")
        if is_empty and known.begin[1:] != (held.first, held.prev_crc):
            await self._begin(what, held)
            position = (await self._lodging.resume(epoch)).position
        while position.tail < what.tail:
            first = position.tail + 1
            groups = await ask_group_part(self._siblings, peer, self._token, epoch, first)
            position = await self._lodging.append(epoch, groups[: what.tail - position.tail])
            await asyncio.sleep(sum(map(len, groups)) / self._rate)
        if (position.tail, position.header_crc) != (what.tail, what.header_crc):
            raise _OtherGroupsError("it does not end with the group of which two have spoken")
