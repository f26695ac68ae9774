"""What the journal of a single member has lost of its lineage, from its own files.

In a ring the others know which generation followed which, and tell. A single member has nobody to
ask and nobody who could know better: whatever generations its directory holds are its history, one
after the other, each as far as its files go.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import pairwise

from barco.model.generation import (
    GENESIS_EPOCH,
    Generation,
    Gid,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.protocol.replication import DecidedRecord, JournalRecord, OpenedRecord
from barco.protocol.replication_codec import to_map
from barco.types import Epoch
from barco.workers.replication.journal import add_records
from barco.workers.replication.persisting import read_journal
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.index.verdict import Found
from barco.workers.storage.stores.replicas import ReplicaStore

log = logging.getLogger("barco.replication")


async def one_line(
    store: ReplicaStore,
    genesis: Generation | None,
    end: int,
    me: Identity,
    bulk: BulkIo,
    found: dict[int, Found],
) -> dict[int, Found]:
    """After recovery: all generations that are here become known to the machine, as its journal and
    as what was found of them, which is returned. Raises what writing lineage.log raises.

    genesis: None for a range that was made later: what its journal has lost of its beginning nobody
    makes up. end: where the slices of the newest log that is here end; others were split off.
    """
    lineage = store.lineage
    known = lineage.generations()
    sessions = {each.epoch: each.session for each in known}
    journal = read_journal(lineage.journal)
    missing = []
    if genesis is not None:
        missing = lost_records(genesis, end, me, journal, sessions, found)
    if missing:
        text = "lineage.log lacks the records of %d generation(s): they are as their files are"
        log.warning(text, len(missing))
        await add_records(lineage, bulk, missing)
        lineage.journal += map(to_map, missing)  # As if they had been read.
    lost = [each.epoch for each in known if each.lost is not None]
    return given_up([*journal, *missing], found, lost)


def lost_records(
    genesis: Generation,
    end: int,
    me: Identity,
    journal: Iterable[JournalRecord],
    sessions: Mapping[int, int | None],
    found: Mapping[int, Found],
) -> list[DecidedRecord]:
    """The decisions that make one line of all generations, as far as the journal lacks them.

    `end`: of those that are made up, for who had slices split off must not have them again.
    `sessions`: of all generations that the files know, by epoch; None where nothing says it.
    `found`: what recovery found of those that hold anything.
    """
    assert [each.ordinal for each in genesis.members] == [me.ordinal], "it has nobody to ask"
    token = genesis.gid.token
    known: dict[int, Generation] = {GENESIS_EPOCH: genesis}
    decided: set[int] = set()
    for record in journal:
        if isinstance(record, OpenedRecord):
            known[record.generation.gid.epoch] = record.generation
        elif isinstance(record, DecidedRecord):
            decided.add(record.gid.epoch)
            own = (child for child in record.value.children if child.gid.token == token)
            known |= {child.gid.epoch: child for child in own}
    tails: dict[int, int] = {
        parent.gid.epoch: parent.tail for each in known.values() for parent in each.parents
    }
    epochs = sorted({*known, *sessions, *tails})
    made = []
    for before, epoch in pairwise(epochs):
        if before in decided:
            continue
        gid = Gid(token, Epoch(before))
        tail = tails.get(before, found[before].tail if before in found else 0)
        child = known.get(epoch) or Generation(
            Gid(token, Epoch(epoch)),
            end,
            me,
            sessions.get(epoch) or 0,
            (me,),
            (Parent(gid, tail),),
        )
        made.append(DecidedRecord(gid, Successor(tail, Kind.RELEAD, (child,))))
    return made


def given_up(
    journal: Iterable[JournalRecord], found: Mapping[int, Found], lost: Iterable[int]
) -> dict[int, Found]:
    """`found`, for the machine: what an operator gave up of a generation (`lost`: their epochs)
    after its end was decided is not waited for."""
    ends: dict[int, int] = {
        each.gid.epoch: each.value.tail for each in journal if isinstance(each, DecidedRecord)
    }
    told = dict(found)
    for epoch in lost:
        if epoch in told and ends.get(epoch, 0) > told[epoch].tail:
            told[epoch] = told[epoch]._replace(tail=ends[epoch])
    return told
