"""Which records of a journal still count, once two others went on without some of them."""

from barco.protocol.replication import (
    AsideRecord,
    DecidedRecord,
    DoubtRecord,
    HeardRecord,
    JournalRecord,
    OpenedRecord,
)


def what_counts(records: list[JournalRecord]) -> list[JournalRecord]:
    """Without what was set aside: all before an `AsideRecord` on what followed its generation."""
    left: list[JournalRecord] = []
    for record in records:
        if isinstance(record, AsideRecord):
            left = [each for each in left if not _is_set_aside(each, record)]
        left.append(record)
    return left


def _is_set_aside(record: JournalRecord, aside: AsideRecord) -> bool:
    if isinstance(record, (DoubtRecord, HeardRecord)):
        return False
    gid = record.generation.gid if isinstance(record, OpenedRecord) else record.gid
    if gid == aside.gid:
        return isinstance(record, (DecidedRecord, AsideRecord))
    return gid.epoch > aside.gid.epoch
