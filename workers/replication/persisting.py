"""The machine's records as lineage.log has them. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

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
