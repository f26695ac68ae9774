"""The files of one shard behind one object, from recovery to the drain: what a worker talks to.

store = ShardStore(shard_dir, ...)
# make the core with store.next_epoch, then:
report = await store.recover(core.restore, core.apply_group)
epoch, parents = store.open_generation(session)
core.add_segment(*await store.next_segment())
core.open_generation(parents)
await store.start(core.locate, core.locate_timestamp, core.truncate_stream)
# from then on: next_segment() on "segment_wanted", segment_sealed() on "segment_sealed",
# store.reader for what is not in memory, run_retention() every minute, close() at the end.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from barco.errors import BarcoError, DiskFullError
from barco.types import MiB
from barco.workers.storage import layout
from barco.workers.storage.bulk import BulkIo
from barco.workers.storage.catalog import Catalog
from barco.workers.storage.errors import CorruptLineageError
from barco.workers.storage.extents import StreamExtents
from barco.workers.storage.lineage import Lineage
from barco.workers.storage.reader import Locate, LocateTimestamp, LogReader
from barco.workers.storage.recovery import (
    ApplyGroup,
    RecoveryReport,
    Restore,
    open_next,
    pack_parents,
    recover_shard,
)
from barco.workers.storage.retention import Policy, Retention
from barco.workers.storage.scan import SegmentSummary
from barco.workers.storage.segment import SegmentPool

SIDECAR_RETRY_SECONDS = 2.0

GENERATIONS_TOLD_MAX = 64
"""In topology answers; older ones are still readable by cursor."""


class ShardStore:
    """Recovers a shard, makes its segments, reads, indexes and expires them."""

    reader: LogReader
    """There after `start`."""

    extents: StreamExtents
    """There after `start`."""

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
    ) -> None:
        """`on_error` hears of failures of background work (a spare segment, an index)."""
        self._shard = Path(shard_dir)
        layout.make_directory(self._shard)
        self._bulk = bulk
        self._cluster_uuid = cluster_uuid
        self._token = token
        self._policy = policy
        self._on_error = on_error
        self._lineage = Lineage.load(self._shard)
        if self._lineage.damaged:
            on_error(
                CorruptLineageError(
                    f"{self._lineage.path}: {self._lineage.damaged} damaged records; what they "
                    "said is taken from the generations themselves"
                )
            )
        self._pool = SegmentPool(self._shard, segment_bytes, bulk, on_error=on_error)
        self._catalog = Catalog(
            self._shard, self._lineage, cluster_uuid=cluster_uuid, token=token, bulk=bulk
        )
        self.state_bytes = 0
        """Of the snapshot that opens the first segment."""
        self._retention: Retention | None = None
        self._report: RecoveryReport | None = None
        self._epoch = 0
        self._next_index = 0
        self._fds: dict[int, int] = {}
        self._indexing: asyncio.Task[None] | None = None
        self._sealing = asyncio.Lock()

    @property
    def next_epoch(self) -> int:
        """The epoch of the generation that will be opened; recovery does not change it."""
        return self._lineage.next_epoch

    async def recover(self, restore: Restore, apply_group: ApplyGroup) -> RecoveryReport:
        """Rebuilds the state through the callbacks and seals the newest generation.

        First proves that direct I/O works here; a disk that is nearly full is told.
        """
        space = await self._bulk.run(layout.check_data_dir, self._shard)
        if space.nearly_full:
            self._on_error(DiskFullError(f"{self._shard}: only {space.free // MiB} MiB are free"))
        self._report = await recover_shard(
            self._shard,
            cluster_uuid=self._cluster_uuid,
            token=self._token,
            bulk=self._bulk,
            restore=restore,
            apply_group=apply_group,
            lineage=self._lineage,
        )
        return self._report

    def open_generation(self, session: int) -> tuple[int, bytes]:
        """Records the new generation: its epoch, and its parents as the core takes them."""
        assert self._report is not None, "recover first"
        self._epoch = open_next(self._report, session)
        return self._epoch, pack_parents(self._report.parents)

    async def next_segment(self) -> tuple[int, int, int]:
        """(index, descriptor, capacity) of the next segment; errors as `SegmentPool.prepare`."""
        index = self._next_index
        fd, capacity = await self._pool.prepare(self._epoch, index, self.state_bytes)
        self._next_index = index + 1
        self._fds[index] = fd
        return index, fd, capacity

    async def start(
        self,
        locate: Locate,
        locate_timestamp: LocateTimestamp,
        on_truncate: Callable[[str, int, int], None],
    ) -> None:
        """Makes `reader` and retention; missing indexes are rebuilt in the background."""
        await self._catalog.load()
        self.reader = LogReader(
            self._catalog,
            self._bulk,
            open_epoch=self._epoch,
            locate=locate,
            locate_timestamp=locate_timestamp,
        )
        self.extents = StreamExtents(
            self._catalog, locate=locate, locate_timestamp=locate_timestamp
        )
        self._retention = Retention(
            self._catalog,
            self._lineage,
            self._bulk,
            self._policy,
            open_epoch=self._epoch,
            on_truncate=on_truncate,
        )
        self._indexing = asyncio.get_running_loop().create_task(self._build_missing())

    async def _build_missing(self) -> None:
        try:
            await self._catalog.build_missing()
        except (BarcoError, OSError) as error:
            self._on_error(error if isinstance(error, BarcoError) else BarcoError(str(error)))

    async def segment_sealed(
        self, index: int, body: bytes, summary: SegmentSummary | None = None
    ) -> None:
        """All groups of a segment are stable: writes its sidecar and closes its descriptor.

        `body`: the core's export_index(index); `summary`: what the core knows of the whole (None:
        it is read from the file). Afterwards reads of it come from the sidecar, so
        the core may drop its own index. On a full disk it waits for room: nobody needs a sidecar
        as long as the core has its index, or after a start, which makes it again.
        """
        async with self._sealing:  # One after the other, in the order of the log.
            while True:
                try:
                    await self._catalog.add_sealed(self._epoch, index, body, summary)
                    break
                except DiskFullError as error:
                    self._on_error(error)
                    await asyncio.sleep(SIDECAR_RETRY_SECONDS)
        fd = self._fds.pop(index, -1)
        if fd >= 0:
            os.close(fd)

    async def run_retention(self, now_us: int) -> int:
        """Deletes what is due by the wall clock `now_us`; returns how many segments."""
        return await self._retention.run(now_us) if self._retention is not None else 0

    def lineage(self) -> list[dict[str, int]]:
        """The generations that hold data or may get some, oldest first, for topology answers."""
        return [
            {"epoch": g.epoch, "tail": -1 if g.tail is None else g.tail}
            for g in self._lineage.generations()
            if not g.expired
        ][-GENERATIONS_TOLD_MAX:]

    def stats(self) -> dict[str, int]:
        """Counters and sizes, for /status and the metrics."""
        segments = self._catalog.segments()
        figures = {
            "storage_sealed_segments": len(segments),
            "storage_sealed_bytes": sum(segment.size for segment in segments),
            "storage_rebuilt_indexes": self._catalog.rebuilt,
            "storage_damaged_lineage_records": self._lineage.damaged,
            "storage_buffer_bytes": self._bulk.buffers.bytes_out,
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
        return figures

    async def close(self) -> None:
        """After the core's last append: ends background work and closes every file."""
        if self._indexing is not None:
            self._indexing.cancel()
            await asyncio.gather(self._indexing, return_exceptions=True)
        await self._pool.close()
        if self._retention is not None:
            self.reader.close()
        self._catalog.close()
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
