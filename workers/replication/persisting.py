"""The machine's records on their way to lineage.log: in order, stable, then told. Pure.

One append is under way at a time, and all that gathers meanwhile goes with the next one. Whoever
writes it (`journal`; the simulator) asks what it holds, and says how it went.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from barco.cluster.state.effects import Persist
from barco.cluster.state.events import IoFailed, Persisted
from barco.model.generation import GENESIS_EPOCH
from barco.protocol.replication import DoubtRecord, HeardRecord, JournalRecord, OpenedRecord
from barco.protocol.replication_codec import record_from_map, to_map


def read_journal(maps: Iterable[dict[str, Any]]) -> list[JournalRecord]:
    """Every record that was ever persisted, in order."""
    return [record_from_map(each) for each in maps]


def plain(records: Sequence[JournalRecord]) -> list[tuple[int, dict[str, Any]]]:
    """Each with the epoch that it is of."""
    return [(_epoch(each), to_map(each)) for each in records]


def _epoch(record: JournalRecord) -> int:
    if isinstance(record, (DoubtRecord, HeardRecord)):
        return GENESIS_EPOCH  # Of no generation.
    return record.generation.gid.epoch if isinstance(record, OpenedRecord) else record.gid.epoch


class Persisting:
    """What waits, and what is under way."""

    def __init__(self) -> None:
        self._waiting: list[Persist] = []
        self._writing: list[Persist] = []
        self._newest = 0
        """Serial of the last records that were given."""
        self._broken = False

    def add(self, persist: Persist) -> None:
        """Persist these records after all before them."""
        if self._broken:
            return
        assert persist.serial == self._newest + 1, "records are persisted in their order"
        self._newest = persist.serial
        self._waiting.append(persist)

    def next(self) -> list[JournalRecord] | None:
        """What is to be appended now. None: nothing, for nothing waits, or one is under way."""
        if self._writing or not self._waiting:
            return None
        assert not self._broken, "what failed is not tried again"
        self._writing, self._waiting = self._waiting, []
        return [record for each in self._writing for record in each.records]

    def written(self) -> Persisted:
        """It is stable, which the machine is to be told."""
        batch, self._writing = self._writing, []
        assert batch[-1].serial - batch[0].serial == len(batch) - 1, "none is left out"
        assert batch[-1].serial <= self._newest, "only what was given becomes stable"
        return Persisted(batch[-1].serial)

    def failed(self, reason: str) -> IoFailed:
        """It is not, whatever it was: so nothing after it may count, and nothing is tried again."""
        assert self._writing and not self._broken
        self._broken = True
        self._waiting.clear()
        return IoFailed(None, reason)
