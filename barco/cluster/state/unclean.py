"""The unclean way on: a successor that one member decides alone, on the operator's word (D9).

A generation whose members have lost two of their three disks can never decide what follows it:
nobody is left to make a quorum, and that is right as long as one of the lost disks may come back.
When the operator says that they do not (each has been replaced by another, `barco replace`), the
member that is left ends the generation where its own log ends, as if that had been agreed. Its
record of the decision is all that is needed: the new disks learn it like any other, and the child
has them as members, so everything after it is decided in the usual way.

There is exactly one member left, so no two can do this for the same generation.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from barco.cluster.state.aside import what_counts
from barco.model.generation import (
    GENESIS_EPOCH,
    Generation,
    Gid,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.protocol.replication import AsideRecord, DecidedRecord, JournalRecord, OpenedRecord
from barco.types import Epoch

EPOCHS_SKIPPED = 2**16
"""The lost disks may have held later generations of the range, that nobody knows of any more: their
names must not be given again (I9), or a consumer's position in one of them would mean other events.
Every change of leader takes one epoch."""

TailOf = Callable[[Gid], int]
"""The last group of a generation whose bytes are whole on this disk; 0: none."""


class UncleanEnd(NamedTuple):
    """What is to be done for one shard range."""

    generation: Generation | None
    """The newest that is known here; None: nothing was ever written."""
    tail: int
    """Its last group here."""
    lost: tuple[int, ...]
    """Ordinals of its members whose disks have been replaced."""
    refusal: str
    """Why nothing can be decided here; "": `records` can be written."""
    records: tuple[JournalRecord, ...]
    """To be appended to the journal."""

    @property
    def stuck(self) -> bool:
        """Whether too few disks are left to decide in the usual way."""
        generation = self.generation
        return generation is not None and (
            len(generation.members) - len(self.lost) < generation.quorum
        )


def unclean_successor(
    journal: Iterable[JournalRecord],
    me: Identity,
    disks: Mapping[int, Identity],
    tail_of: TailOf,
    session: int,
) -> UncleanEnd:
    """What follows the newest generation of a range whose other disks are lost.

    disks: by ordinal, the disks that stand in for lost ones. session: 64 random bits, of no
    process: whoever owns the range proposes the next generation at once.
    """
    known, decided = _known(journal)
    newest = max(known, key=lambda gid: gid.epoch, default=None)
    if newest is None or newest.epoch == GENESIS_EPOCH:
        return UncleanEnd(None, 0, (), "nothing was ever stored here", ())
    generation = known[newest]
    tail = tail_of(newest)
    members = tuple(disks.get(member.ordinal, member) for member in generation.members)
    lost = tuple(
        old.ordinal for old, new in zip(generation.members, members, strict=True) if old != new
    )
    refusal = _refusal(generation, me, lost, known, decided, tail_of)
    if refusal:
        return UncleanEnd(generation, tail, lost, refusal, ())
    child = replace(
        generation,
        gid=Gid(newest.token, Epoch(newest.epoch + 1 + EPOCHS_SKIPPED)),
        leader=me,
        session=session,
        members=members,
        parents=(Parent(newest, tail),),
    )
    assert all(child.gid.epoch > gid.epoch for gid in known), "a name is never given again (I9)"
    assert newest not in decided, "what has ended is not ended again (I1)"
    assert me in members and len(members) == len(generation.members), "the seats stay"
    value = Successor(tail, Kind.UNCLEAN, (child,))
    return UncleanEnd(
        generation, tail, lost, "", (DecidedRecord(newest, value), OpenedRecord(child))
    )


def _known(
    journal: Iterable[JournalRecord],
) -> tuple[dict[Gid, Generation], dict[Gid, Successor]]:
    known: dict[Gid, Generation] = {}
    decided: dict[Gid, Successor] = {}
    for record in what_counts(list(journal)):
        if isinstance(record, OpenedRecord):
            known[record.generation.gid] = record.generation
        elif isinstance(record, (AsideRecord, DecidedRecord)):
            decided[record.gid] = record.value
            known.update((child.gid, child) for child in record.value.children)
    return known, decided


def _refusal(
    generation: Generation,
    me: Identity,
    lost: tuple[int, ...],
    known: Mapping[Gid, Generation],
    decided: Mapping[Gid, Successor],
    tail_of: TailOf,
) -> str:
    if generation.gid in decided:
        return "its range has gone to a neighbour"
    if me not in generation.members:
        return "this disk was not taken in yet: the others' disks have what there is"
    left = [m.ordinal for m in generation.members if m != me and m.ordinal not in lost]
    if len(generation.members) - len(lost) >= generation.quorum:
        return (
            f"broker {' and '.join(map(str, left))} has a copy on a disk that is not said to be"
            " lost, and two copies are enough: start it with this one"
        )
    return _gap(generation, known, tail_of)


def _gap(generation: Generation, known: Mapping[Gid, Generation], tail_of: TailOf) -> str:
    """Of the groups right before it, which are on no disk any more; "": they are here."""
    for gid, tail in generation.parents:
        if tail > 0 and tail_of(gid) < tail:
            return (
                f"groups {tail_of(gid) + 1:,} to {tail:,} of epoch {gid.epoch} had not been copied"
                " to this disk: it can not say what the state of the range was"
            )
        parent = known.get(gid)
        if tail == 0 and parent is not None and (found := _gap(parent, known, tail_of)):
            return found
    return ""
