"""Writes the machine's records to lineage.log, as `persisting` says.

An fsync takes 0.1 to 10 ms here, by what else the device does: it runs in a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from barco.cluster.state.aside import what_counts
from barco.cluster.state.effects import Persist
from barco.cluster.state.events import IoFailed, Persisted
from barco.errors import BarcoError
from barco.model.generation import Gid, Successor
from barco.protocol.replication import AsideRecord, DecidedRecord, JournalRecord
from barco.workers.replication.persisting import Persisting, plain
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.lineage import Lineage

log = logging.getLogger("barco.replication")


async def add_records(lineage: Lineage, bulk: BulkIo, records: Sequence[JournalRecord]) -> None:
    """Makes these records stable. Raises what writing them raises (BarcoError)."""
    if records:
        await bulk.run(lineage.add_journal, plain(records))


Decision = DecidedRecord | AsideRecord


def last_decisions(records: Iterable[JournalRecord]) -> list[Decision]:
    """Those whose children, or one of them, have no successor here: what a journal says of the
    present, and what was handed over."""
    found = [each for each in what_counts(list(records)) if isinstance(each, Decision)]
    ended = {record.gid for record in found}
    return [
        record
        for record in found
        if not record.value.children or {child.gid for child in record.value.children} - ended
    ]


class Journal:
    """Persists what it is given."""

    def __init__(
        self,
        lineage: Lineage,
        bulk: BulkIo,
        *,
        tell: Callable[[Persisted | IoFailed], None],
        decided: Callable[[Gid, Successor], None] = lambda gid, value: None,
    ) -> None:
        """`tell`: the machine, of what is stable, or that no more is. `decided`: whoever tells
        others of a successor, once it is stable and the machine knows that."""
        self._lineage = lineage
        self._bulk = bulk
        self._tell = tell
        self._decided = decided
        self._persisting = Persisting()
        self._task: asyncio.Task[None] | None = None

    def recall(self, records: Iterable[JournalRecord]) -> None:
        """What is stable from earlier starts: it is told again, for others may not know it."""
        assert self._task is None, "before anything is added"
        for record in last_decisions(records):
            self._decided(record.gid, record.value)

    def add(self, persist: Persist) -> None:
        """Persist these records after all before them."""
        self._persisting.add(persist)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while (records := self._persisting.next()) is not None:
            try:
                await add_records(self._lineage, self._bulk, records)
            except Exception as error:
                if not isinstance(error, BarcoError):
                    log.error("lineage.log is not written: this is a bug", exc_info=error)
                reason = str(error) if isinstance(error, BarcoError) else repr(error)
                self._tell(self._persisting.failed(reason))
                return
            assert records, "a wake-up without a record makes no sync"
            self._tell(self._persisting.written())
            for record in records:
                if isinstance(record, Decision):
                    self._decided(record.gid, record.value)

    async def close(self) -> None:
        """Waits for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
