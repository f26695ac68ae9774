"""Writes the machine's records to lineage.log, as `persisting` says.

An fsync takes 0.1 to 10 ms here, by what else the device does: it runs in a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from barco.cluster.state.effects import Persist
from barco.cluster.state.events import IoFailed, Persisted
from barco.errors import BarcoError
from barco.protocol.replication import JournalRecord
from barco.workers.replication.persisting import Persisting, plain
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.lineage import Lineage

log = logging.getLogger("barco.replication")


async def add_records(lineage: Lineage, bulk: BulkIo, records: Sequence[JournalRecord]) -> None:
    """Makes these records stable. Raises what writing them raises (BarcoError)."""
    if records:
        await bulk.run(lineage.add_journal, plain(records))


class Journal:
    """Persists what it is given."""

    def __init__(
        self, lineage: Lineage, bulk: BulkIo, *, tell: Callable[[Persisted | IoFailed], None]
    ) -> None:
        """`tell`: the machine, of what is stable, or that no more is."""
        self._lineage = lineage
        self._bulk = bulk
        self._tell = tell
        self._persisting = Persisting()
        self._task: asyncio.Task[None] | None = None

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
            self._tell(self._persisting.written())

    async def close(self) -> None:
        """Waits for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
