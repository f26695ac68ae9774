"""What a member's journal says of how generations came to be, for those who ask it. Pure.

A process has the log of its own range alone. What its range continues may be another's, or its own
range's from before this broker was a member: *far*, known as a record, and read elsewhere.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from barco.model.generation import GENESIS_EPOCH, Generation, Gid, Kind, Parent, Successor

TOKEN_END = 2**63
"""Behind the last token."""

_NOTHING: Mapping[Gid, Sequence[Parent]] = MappingProxyType({})


class KnownLineage(NamedTuple):
    """What is known at one member."""

    records: Mapping[Gid, Generation]
    decided: Mapping[Gid, Successor]


class Ancestor(NamedTuple):
    """A generation that has ended, and whose groups are not of this process's log."""

    gid: Gid
    tail: int
    end: int
    """The first token after its range."""
    members: tuple[int, ...]
    """Ordinals; nobody if its record is not known here."""

    def covers(self, token: int) -> bool:
        """Whether this point of the ring was in its range."""
        return self.gid.token <= token < self.end


class Share(NamedTuple):
    """What a generation begins with of one of those that it continues."""

    parent: Parent
    token: int
    """Where the part of the ring begins that comes from it; of a join each parent has its own."""
    end: int


def origin(journal: KnownLineage, token: int, ordinal: int) -> tuple[Generation, Successor] | None:
    """How a broker came to be a member of the range that begins at a token: a generation and what
    was decided to follow it. Where there are several, the last in which it was new."""
    found: tuple[int, bool, Gid] | None = None
    for gid, value in journal.decided.items():
        parent = journal.records.get(gid)
        for child in value.children:
            if parent is None or child.gid.token != token or child.seat(ordinal) is None:
                continue
            is_new = gid.token != token or parent.seat(ordinal) is None
            if found is None or (is_new, child.gid.epoch) > (found[1], found[0]):
                found = child.gid.epoch, is_new, gid
    return None if found is None else (journal.records[found[2]], journal.decided[found[2]])


def far(
    journal: KnownLineage,
    token: int,
    ordinal: int,
    lacking: Collection[Gid] = (),
    lodged: Mapping[Gid, Sequence[Parent]] = _NOTHING,
) -> list[Ancestor]:
    """What the range that begins at a token continues and this broker's process for it does not
    have, the newest first. lacking: what it shall have, and has not yet. lodged: what it has as no
    member, and what each of these continues."""
    found: dict[Gid, Ancestor] = {}

    def look(parent: Parent) -> None:
        record = journal.records.get(parent.gid)
        seated = parent.gid.token == token and (record is None or record.seat(ordinal) is not None)
        if parent.gid in lodged or seated and parent.gid not in lacking:
            return
        end = TOKEN_END if record is None else record.end
        members = () if record is None else tuple(each.ordinal for each in record.members)
        found[parent.gid] = Ancestor(parent.gid, parent.tail, end, members)

    for gid, generation in journal.records.items():
        if gid.token == token and generation.seat(ordinal) is not None:
            for parent in nearest(journal, generation):
                assert parent.tail > 0, "an empty one hands on its own"
                look(parent)
    for parents in lodged.values():
        for parent in parents:
            # Of what is known by a copy alone it is not known that it is here.
            if parent.gid in journal.records or parent.gid.token != token:
                look(parent)
            elif parent.gid not in lodged:
                found[parent.gid] = Ancestor(parent.gid, parent.tail, TOKEN_END, ())
    return sorted(found.values(), key=lambda each: (-each.gid.epoch, each.gid.token))


def handed(journal: KnownLineage, gid: Gid) -> tuple[Generation, Successor] | None:
    """That a generation was handed over to its left neighbour, as this journal has it."""
    value, record = journal.decided.get(gid), journal.records.get(gid)
    if record is None or value is None or value.kind is not Kind.HANDOFF:
        return None
    return record, value


def taker(journal: KnownLineage, gid: Gid) -> Gid | None:
    """Of what was handed over: the generation that has taken it in, if this journal has one."""
    found = [each.gid for each in journal.records.values() if gid in _others(each)]
    return min(found, default=None, key=lambda each: each.epoch)


def _others(generation: Generation) -> list[Gid]:
    """What it has taken in."""
    return [parent.gid for parent in generation.parents[1:]]


def shares(journal: KnownLineage, generation: Generation) -> list[Share]:
    """The generations whose history this one continues, each with a group and with what comes of
    it, from the left to the right."""
    return list(_shares(journal, generation, int(generation.gid.token), generation.end))


def _shares(journal: KnownLineage, generation: Generation, token: int, end: int) -> Iterator[Share]:
    for number, parent in enumerate(generation.parents):
        # A parent that was taken in begins where it does, and ends where the next one begins.
        after = generation.parents[number + 1 :]
        first = max(token, int(parent.gid.token)) if number else token
        last = min(end, int(after[0].gid.token)) if after else end
        record = journal.records.get(parent.gid)
        if first >= last:
            continue
        if parent.tail > 0:
            yield Share(parent, first, last)
        elif record is not None and parent.gid.epoch > GENESIS_EPOCH:
            yield from _shares(journal, record, first, last)


def nearest(journal: KnownLineage, generation: Generation) -> list[Parent]:
    """The generations whose history this one continues, each with a group."""
    return list(dict.fromkeys(share.parent for share in shares(journal, generation)))
