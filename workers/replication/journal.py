"""The machine's records on their way to lineage.log: in order, stable, then told.

An fsync takes 0.1 to 10 ms here, by what else the device does: it runs in a thread, and all that
gathers meanwhile goes with the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from barco.cluster.state.effects import Persist
from barco.errors import BarcoError
from barco.protocol.replication import JournalRecord
from barco.workers.replication.persisting import plain
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
        self,
        lineage: Lineage,
        bulk: BulkIo,
        *,
        persisted: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        """`persisted(serial)`: everything up to it is stable. `failed(reason)`: no more is."""
        self._lineage = lineage
        self._bulk = bulk
        self._persisted = persisted
        self._failed = failed
        self._waiting: list[Persist] = []
        self._newest = 0
        """Serial of the last records that were given."""
        self._broken = False
        self._task: asyncio.Task[None] | None = None

    def add(self, persist: Persist) -> None:
        """Persist these records after all before them."""
        if self._broken:
            return
        assert persist.serial == self._newest + 1, "records are persisted in their order"
        self._newest = persist.serial
        self._waiting.append(persist)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                records = [each for one in batch for each in one.records]
                await add_records(self._lineage, self._bulk, records)
            except Exception as error:
                # Whatever it was: these are not stable, and so nothing after them may count.
                self._broken = True
                self._waiting.clear()
                if not isinstance(error, BarcoError):
                    log.error("lineage.log is not written: this is a bug", exc_info=error)
                self._failed(str(error) if isinstance(error, BarcoError) else repr(error))
                return
            assert batch[-1].serial - batch[0].serial == len(batch) - 1, "none is left out"
            self._persisted(batch[-1].serial)

    async def close(self) -> None:
        """Waits for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
