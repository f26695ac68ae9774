"""Copies of generations that this broker was never a member of: history of brokers that leave.

Beside the replica's logs, in its directory and its catalog, and apart from its machine: such a copy
has no vote, and the core never has it. It grows group by group while others are asked for it; it
is read like any other once it is sealed, and counts once it was read again from the disk.
"""

from collections.abc import Sequence
from pathlib import Path

from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.records import Lodged
from barco.workers.storage.files.trash import discard
from barco.workers.storage.index.scan import Tags
from barco.workers.storage.stores.copied import CopiedLog, Position
from barco.workers.storage.stores.loading import walk_generation
from barco.workers.storage.stores.recovery import clear_torn, make_stable, sources_of
from barco.workers.storage.stores.replicas import ReplicaStore


class Lodging:
    """The copies of one shard. One call at a time for a generation."""

    def __init__(
        self, store: ReplicaStore, shard: Path, bulk: BulkIo, *, cluster_uuid: bytes, token: int
    ) -> None:
        self.store = store
        self._shard, self._bulk = shard, bulk
        self._cluster_uuid, self._token = cluster_uuid, token
        self._logs: dict[int, CopiedLog] = {}
        self._sound: set[int] = set()
        """Read from the disk by this process, after they were sealed, and found whole."""
        self.changes = 0
        """How often a copy was begun or sealed."""

    def is_here(self, epoch: int) -> bool:
        """Whether there is a copy, or a part of one."""
        generation = self.store.lineage.get(epoch)
        return generation is not None and generation.lodged is not None

    def is_sound(self, epoch: int) -> bool:
        """Whether a copy counts: whole, read again, and not found damaged since."""
        generation, scrub = self.store.lineage.get(epoch), self.store.scrub
        assert generation is not None and scrub is not None, "recovery is done"
        return generation.sealed and epoch in self._sound and not scrub.damaged(epoch)

    async def begun(self, epoch: int) -> int:
        """Bytes that are here of a copy that is not sealed."""
        return await self._bulk.run(self._file_bytes, epoch)

    def _file_bytes(self, epoch: int) -> int:
        paths = [
            layout.segment_path(self._shard, epoch, index)
            for index in layout.segment_indexes(self._shard, epoch)
        ]
        return sum(path.stat().st_size for path in paths)

    async def begin(
        self, epoch: int, session: int, lodged: Lodged, first: int, prev_crc: int
    ) -> CopiedLog:
        """A copy from nothing, whatever was there of it: its first group is `first`, which follows
        one with this checksum."""
        self.changes += 1
        self._sound.discard(epoch)
        self._logs.pop(epoch, None)
        await self._bulk.run(self.store.lineage.lodged, epoch, session, lodged)
        await self._bulk.run(kept.forget, self._shard, epoch)
        await self.store.skip(epoch, session, first, prev_crc)  # Files of an earlier try go.
        log = self._logs[epoch] = self.store.copy(epoch, session)
        return log

    async def resume(self, epoch: int) -> CopiedLog:
        """The log of a copy that is not sealed, behind the last group that is stable here."""
        log = self._logs.get(epoch)
        if log is not None:
            return log
        generation = self.store.lineage.get(epoch)
        assert generation is not None and generation.lodged is not None and not generation.sealed
        await self._bulk.run(kept.restore, self._shard, epoch)
        sources = sources_of(self._shard, generation)
        await make_stable(sources, self._bulk)
        tags = Tags(self._cluster_uuid, self._token, epoch, generation.session)
        found = await walk_generation(generation, tags, self._bulk, sources, None, accept_loss=True)
        _, first, prev_crc = generation.begin
        position = Position(first - 1, prev_crc)
        if found.groups:
            position = Position(found.tail, found.last_crc, found.end_segment, found.end_bytes)
            await clear_torn(sources, found, self._bulk)
        for index in layout.segment_indexes(self._shard, epoch):
            if index > position.segment:  # Begun, and nothing of it is whole.
                path = layout.segment_path(self._shard, epoch, index)
                await self._bulk.run(discard, self._shard, path)
        log = self._logs[epoch] = self.store.copy(epoch, generation.session)
        log.position = position
        return log

    async def append(self, epoch: int, groups: Sequence[bytes | bytearray]) -> Position:
        """The next groups, stable when it returns. ValueError: they do not follow what is here;
        those before the wrong one are. BarcoError: the disk."""
        return await self._logs[epoch].append(list(groups))

    async def seal(self, epoch: int, tail: int) -> None:
        """All of it is here: from now on it is read. It does not count yet (`look`)."""
        log = self._logs.pop(epoch)
        assert log.position.tail == tail, "all of it is here"
        await self.store.seal(epoch, tail)
        self.changes += 1

    async def look(self, epoch: int, bytes_per_second: int) -> bool:
        """Reads a sealed copy again from the disk, end to end: whether it counts now."""
        assert self.store.scrub is not None, "recovery is done"
        if await self.store.scrub.sound(epoch, bytes_per_second):
            self._sound.add(epoch)
        else:
            self._sound.discard(epoch)
        return self.is_sound(epoch)
