"""The files of one shard behind one object, from recovery to the drain: what a worker talks to.

store = ShardStore(shard_dir, ...)
# make the core with store.next_epoch, then:
report = await store.recover(core.restore, core.apply_group)
epoch, parents = store.open_generation(session)
core.add_segment(*await store.next_segment())
core.open_generation(parents)
await store.start(
#     core.locate, core.locate_timestamp, core.locate_appended, core.truncate_stream)
# from then on: next_segment() on "segment_wanted", segment_sealed() on "segment_sealed",
# store.reader for what is not in memory, run_retention() every minute, close() at the end.
"""

from collections.abc import Callable

from barco.workers.storage.index.scan import SegmentSummary
from barco.workers.storage.reading.reader import Locate, LocateTimestamp
from barco.workers.storage.stores.recovery import (
    ApplyGroup,
    RecoveryReport,
    Restore,
    open_next,
    pack_parents,
    recover_shard,
)
from barco.workers.storage.stores.shard_files import ShardFiles


class ShardStore(ShardFiles):
    """Recovers a shard, makes its segments, reads, indexes and expires them."""

    state_bytes = 0
    """Of the snapshot that opens the first segment."""
    _report: RecoveryReport | None = None
    _epoch = 0

    @property
    def next_epoch(self) -> int:
        """The epoch of the generation that will be opened; recovery does not change it."""
        return self.lineage.next_epoch

    async def recover(self, restore: Restore, apply_group: ApplyGroup) -> RecoveryReport:
        """Rebuilds the state through the callbacks and seals the newest generation.

        First proves that direct I/O works here; a disk that is nearly full is told.
        """
        await self._check_disk()
        self._report = await recover_shard(
            self._shard,
            cluster_uuid=self._cluster_uuid,
            token=self._token,
            bulk=self._bulk,
            restore=restore,
            apply_group=apply_group,
            lineage=self.lineage,
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
        locate_appended: LocateTimestamp,
        on_truncate: Callable[[str, int, int], None],
    ) -> None:
        """Makes `reader`, `extents` and retention; missing indexes are rebuilt beside."""
        await self._catalog.load()
        self._start_reading(self._epoch, locate, locate_timestamp, locate_appended, on_truncate)

    async def segment_sealed(
        self, index: int, body: bytes, summary: SegmentSummary | None = None
    ) -> None:
        """All groups of a segment are stable: writes its sidecar and closes its descriptor.

        `body`: the core's export_index(index); `summary`: what the core knows of the whole (None:
        it is read from the file). Afterwards reads of it come from the sidecar, so the core may
        drop its own index. On a full disk it waits for room.
        """
        await self._add_sealed(self._epoch, index, body, summary)
        self._close_segment(index)
