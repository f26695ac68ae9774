"""The files of a shard, whatever its generations are: one catalog, one pool of segments, one
reader, one retention, and their figures. `ReplicaStore` builds on it.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from barco.errors import BarcoError, CorruptDataError, DiskFullError
from barco.types import MiB
from barco.workers.storage.files import aside, layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import CorruptLineageError
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Claim
from barco.workers.storage.files.segment import SegmentPool
from barco.workers.storage.files.slack import give_back
from barco.workers.storage.index.catalog import Catalog, SegmentKey
from barco.workers.storage.index.scan import SegmentSummary, Tags
from barco.workers.storage.reading.extents import StreamExtents
from barco.workers.storage.reading.reader import LogReader
from barco.workers.storage.stores.loading import LogCore
from barco.workers.storage.stores.retention import Policy, Retention
from barco.workers.storage.stores.scrub import Scrub

SIDECAR_RETRY_SECONDS = 2.0

GENERATIONS_TOLD_MAX = 64
"""In topology answers; older ones are still readable by cursor."""


class ShardFiles:
    """The files of one shard, from the start of recovery to the drain."""

    reader: LogReader
    extents: StreamExtents
    scrub: Scrub | None = None
    """All are there once recovery is done."""

    def __init__(
        self,
        shard_dir: str | os.PathLike[str],
        bulk: BulkIo,
        *,
        cluster_uuid: bytes,
        token: int,
        segment_bytes: int,
        policy: Policy,
        on_error: Callable[[BarcoError], None],
        claim: Claim | None = None,
    ) -> None:
        """`claim`: whose files they have to be; None, for tools and tests: anybody's. `on_error`
        hears of failures of background work (a spare segment, an index) and of what an operator
        should know: damaged records, a disk that is nearly full."""
        self._shard = Path(shard_dir)
        layout.make_directory(self._shard)
        self._bulk = bulk
        self._cluster_uuid = cluster_uuid
        self._token = token
        self._policy = policy
        self._on_error = on_error
        self.lineage = Lineage.load(self._shard, claim, token=token)
        if aside.carry_out(self._shard, self.lineage):
            self.lineage = Lineage.load(self._shard, claim, token=token)
        if self.lineage.hurt:
            on_error(CorruptLineageError(_told(self.lineage)))
        self._given_up = self._count_given_up()
        self._pool = SegmentPool(self._shard, segment_bytes, bulk, on_error=on_error)
        self._catalog = Catalog(
            self._shard, self.lineage, cluster_uuid=cluster_uuid, token=token, bulk=bulk
        )
        self._retention: Retention | None = None
        self._next_index = 0
        self._fds: dict[int, int] = {}
        self._indexing: asyncio.Task[None] | None = None
        self._sealing, self._expiring = asyncio.Lock(), asyncio.Lock()

    def _count_given_up(self) -> int:
        """Groups that an operator has given up (`barco recover --accept-data-loss`): told at every
        start, and counted, for promise D9 is that nobody does it unseen."""
        count = 0
        for generation in self.lineage.generations():
            if generation.lost is not None:
                first, last = generation.lost
                count += last - first + 1
                self._on_error(
                    CorruptDataError(
                        f"{self._shard}: groups {first} to {last} of generation {generation.epoch} "
                        "were given up with barco recover --accept-data-loss"
                    )
                )
        return count

    async def _check_disk(self) -> None:
        """Proves that direct I/O works here; a disk that is nearly full is told."""
        space = await self._bulk.run(layout.check_data_dir, self._shard)
        if space.nearly_full:
            self._on_error(DiskFullError(f"{self._shard}: only {space.free // MiB} MiB are free"))

    def _start_reading(self, open_epoch: int, core: LogCore) -> None:
        """Makes `reader`, `extents` and retention; missing indexes are rebuilt beside."""
        locate, locate_appended = core.locate, core.locate_appended
        self.reader = LogReader(
            self._catalog,
            self._bulk,
            open_epoch=open_epoch,
            locate=locate,
            locate_timestamp=core.locate_timestamp,
        )
        self.extents = StreamExtents(self._catalog, locate=locate, locate_appended=locate_appended)
        self._retention = Retention(
            self._catalog,
            self.lineage,
            self._bulk,
            self._policy,
            open_epoch=open_epoch,
            continued=self._continued,
            gone=lambda epoch: self.lineage.is_gone((self._token, epoch)),
            on_truncate=core.truncate_stream,
        )
        self._indexing = asyncio.get_running_loop().create_task(self._build_missing())
        self.scrub = Scrub(
            self._shard,
            self._catalog,
            self.lineage,
            self._bulk,
            tags_of=self._tags,
            committed=self._committed,
            on_error=self._on_error,
        )
        self.scrub.start()

    def _tags(self, epoch: int) -> Tags:
        generation = self.lineage.get(epoch)
        session = generation.session if generation is not None else None
        return Tags(self._cluster_uuid, self._token, epoch, session)

    def _committed(self, epoch: int) -> int | None:
        """Up to which group a generation that has not ended is history; None: not known."""
        return None

    def _continued(self, epoch: int) -> bool:
        """Rule S8: whether the first group of each child of a generation is committed.

        In this line one follows the other, and one that ended without a group hands on its parents:
        so any later one that has a group will do.
        """
        generation = self.lineage.get(epoch)
        if generation is not None and generation.lodged is not None:
            return True  # Nobody asks a copy of what others were members of for its state.
        elsewhere = self.lineage.elsewhere((self._token, epoch))
        if not all(elsewhere.values()):
            return False
        if None in elsewhere or any(child and child[0] == self._token for child in elsewhere):
            return True  # It was handed off, or goes on without this broker: others have said so.
        return self.has_begun(epoch + 1)

    def moved_to(self, epoch: int) -> tuple[int, int] | None:
        """Of a generation that is here and has ended, the one that follows it in this line, as long
        as nothing here says that it, or a later one, has begun: perhaps it has other members."""
        known, later = self.lineage.get(epoch), self.lineage.generations()
        if known is None or not known.sealed or known.expired or known.lodged is not None:
            return None
        after = next((each.epoch for each in later if each.epoch > epoch), None)
        if after is None or self.has_begun(epoch + 1):
            return None
        child = (self._token, after)
        return None if child in self.lineage.elsewhere((self._token, epoch)) else child

    def has_begun(self, epoch: int) -> bool:
        """Whether a generation of this epoch or a later one has a committed group here."""
        later = (each for each in self.lineage.generations() if each.epoch >= epoch)
        return any(each.tail or self._begun(each.epoch) for each in later)

    def _begun(self, epoch: int) -> bool:
        """Whether a group of a generation that has not ended is committed."""
        return False

    async def _cut_ended(self) -> None:
        """The ends of segments that an earlier life did not come to cut."""
        for generation in self.lineage.generations():
            if generation.sealed and not generation.expired:
                for index in await give_back(self._shard, generation, self._bulk):
                    self._catalog.cut(SegmentKey(generation.epoch, index))

    async def _build_missing(self) -> None:
        try:
            await self._cut_ended()
            await self._catalog.build_missing()
        except Exception as error:  # noqa: BLE001 - nobody else looks at this task.
            self._on_error(error if isinstance(error, BarcoError) else BarcoError(repr(error)))

    async def _add_sealed(
        self, epoch: int, index: int, body: bytes, summary: SegmentSummary | None
    ) -> None:
        """Writes the sidecar of a full segment, and takes both into the catalog.

        On a full disk it waits for room: nobody needs a sidecar as long as the core has its index,
        or after a start, which makes it again.
        """
        async with self._sealing:  # One after the other, in the order of the log.
            while True:
                try:
                    await self._catalog.add_sealed(epoch, index, body, summary)
                    return
                except DiskFullError as error:
                    self._on_error(error)
                    await asyncio.sleep(SIDECAR_RETRY_SECONDS)

    def _close_segment(self, index: int) -> None:
        fd = self._fds.pop(index, -1)
        if fd >= 0:
            os.close(fd)

    async def run_retention(self, now_us: int, *, left: bool = False) -> int:
        """Deletes what is due by the log's own clock, `now_us`; returns how many segments. left:
        this broker takes part in the range no more."""
        async with self._expiring:
            if self._retention is None:
                return 0
            return await self._retention.run(now_us, left=left)

    @property
    def held_back(self) -> bool:
        """Whether retention waits for the open generation to end (`retention.held_back`)."""
        return self._retention is not None and self._retention.held_back

    def topology(self) -> list[dict[str, int]]:
        """The generations that hold data or may get some, oldest first, for topology answers."""
        return [
            {"epoch": g.epoch, "tail": -1 if g.tail is None else g.tail}
            for g in self.lineage.generations()
            if not g.expired and (g.lodged is None or g.sealed)
        ][-GENERATIONS_TOLD_MAX:]

    def stats(self) -> dict[str, int]:
        """Counters and sizes, for /status and the metrics."""
        segments = self._catalog.segments()
        figures = {
            "storage_sealed_segments": len(segments),
            "storage_sealed_bytes": sum(segment.size for segment in segments),
            "storage_rebuilt_indexes": self._catalog.rebuilt,
            "storage_given_up_groups": self._given_up,
            "storage_damaged_lineage_files": self.lineage.damaged,
            "storage_doubtful_lineage": int(self.lineage.doubtful),
            "storage_buffer_bytes": self._bulk.buffers.bytes_out,
            "storage_aside_sets": len(aside.found(self._shard)),
            "storage_aside_bytes": aside.disk_bytes(self._shard),
            "storage_free_bytes": layout.disk_space(self._shard).free,
        }
        if self._retention is not None:
            figures |= {
                "storage_corrupt_chunks": self.reader.corrupt_chunks,
                "storage_read_bytes": self.reader.disk_bytes,
                "storage_read_ahead_hits": self.reader.read_ahead_hits,
                "storage_expired_segments": self._retention.deleted_segments,
                "storage_expired_bytes": self._retention.deleted_bytes,
            }
        return figures | (self.scrub.stats() if self.scrub is not None else {})

    def bytes_of(self, epoch: int) -> int:
        """Of the files of a generation that has ended."""
        return sum(each.size for each in self._catalog.segments() if each.key.epoch == epoch)

    async def first_group(self, epoch: int, tail: int) -> tuple[int, int]:
        """(gseq, prev_crc) of the oldest group that retention has left of a sealed generation.

        (`tail` + 1, 0): it has left none. Its mark says so, not what files there are.
        """
        generation = self.lineage.get(epoch)
        if generation is not None and generation.expired:
            return tail + 1, 0
        return generation.begin[1:] if generation is not None else (1, 0)

    def health(self) -> dict[str, int]:
        """For /status: what is known to be damaged, and how far the search for more is."""
        figures = self.scrub.status() if self.scrub is not None else {}
        return figures | {"setAside": len(aside.found(self._shard))}

    async def close(self) -> None:
        """After the core's last append: ends background work and closes every file."""
        if self._indexing is not None:
            self._indexing.cancel()
            await asyncio.gather(self._indexing, return_exceptions=True)
        if self.scrub is not None:
            await self.scrub.close()
        await self._pool.close()
        if self._retention is not None:
            self.reader.close()
        self._catalog.close()
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _told(lineage: Lineage) -> str:
    text = "; ".join(lineage.hurt)
    if not lineage.doubtful:
        return f"{text}: the other copy had all of it, both are whole again"
    return (
        f"{text}, and what was there is in neither copy: what it said of generations is taken from"
        " themselves; a replica counts as lost for those that are open until others have followed"
    )
