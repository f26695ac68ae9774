"""What all parts of a replica share: the generations it holds, its journal, its effects."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from barco.cluster.state.aside import what_counts
from barco.cluster.state.effects import Effect, Persist, Send
from barco.cluster.state.held import Fence, Held
from barco.cluster.state.plausible import is_plausible
from barco.model.generation import Ballot, Generation, Gid, Identity, Successor
from barco.protocol.replication import (
    AcceptedRecord,
    AsideRecord,
    Decided,
    DecidedRecord,
    DoubtRecord,
    HeardRecord,
    JournalRecord,
    Message,
    OpenedRecord,
    PromisedRecord,
)


class Settings(Struct, frozen=True, kw_only=True):
    """Who a replica is."""

    me: Identity
    session: int
    """64 random bits, new for every start of the process."""
    ranges: tuple[Generation, ...]
    """Genesis of every range that it may be a member of; one, outside of splits and merges."""
    token: int | None = None
    """The range whose log it holds, as each process does: generations of other tokens it knows as
    records only, whoever their members are. None: it holds whatever its broker is a member of."""
    joins: bool = False
    """Of a range that was made after the cluster was formatted: these generations say who its
    members are, and none of them ever was. Nothing is held, and so nothing promised, before two
    members say what the parent has decided."""
    replaces: bytes = b""
    """disk_uuid of the lost disk whose place it takes (`barco replace`)."""


class Recovered(NamedTuple):
    """What recovery found of one generation's log."""

    tail: int
    """The last group of the valid prefix; 0: none."""
    header_crc: int
    """Of that group; 0 without one."""
    suspect: bool = False
    """The log ends in corruption, not in a torn tail (storage rule S5).

    To be told at every start until the generation was sealed and repaired (`Seal`): a member that
    forgets that it has forgotten would vote.
    """
    sealed: bool = False
    """`Seal` was carried out. Else it is asked for again: the process may have ended before."""
    committed: int = 0
    """gseq up to which its groups themselves say that it was committed."""


class Then(NamedTuple):
    """What a machine goes on with when its journal is stable."""

    what: str
    """promise, accepted, decided or aside."""
    gid: Gid
    ballot: Ballot | None = None
    ordinal: int = -1


class Core:
    """State and small things; the parts of the protocol are its subclasses, one upon the other."""

    def __init__(
        self,
        settings: Settings,
        journal: Iterable[JournalRecord],
        logs: Mapping[Gid, Recovered],
        random: Callable[[], float],
        now: float,
    ) -> None:
        assert settings.ranges, "a replica is one of a range"
        self._settings = settings
        self._me = settings.me
        self._session = settings.session
        self._random = random
        self._now = self._started = now
        self._clock = 0.0
        self._held: dict[Gid, Held] = {}
        self._current: dict[int, Held] = {}
        """Token to the newest generation that starts there."""
        self._overtaken: dict[Gid, Held] = {}
        """Of which a later one is known, and not how they ended."""
        self._decided: dict[Gid, Successor] = {}
        """Also of generations whose own record is not known here."""
        self._missing: set[Gid] = set()
        """Parents whose record is not known here, of generations that concern this broker."""
        self._lacking: dict[Gid, Held] = {}
        """Those of whose groups some are to be fetched."""
        self._unsealed: dict[Gid, Held] = {}
        """Generations that have ended and of which not everything was here when last looked."""
        self._effects: list[Effect] = []
        self._to_myself: deque[Message] = deque()
        self._serial = self._durable = 0
        self._thens: deque[tuple[int, Then]] = deque()
        self._doubted = 0
        """Epochs up to this one: of what was voted in them here, something may be forgotten."""
        self._teller = -1
        """Who has said that this directory is an old copy: an ordinal, of this process."""
        self._base = self._recorded = self._stable_records = 0
        self._asides = 0
        """How often something was set aside here."""
        self._positions: dict[Identity, tuple[int, int]] = {}
        """Session and position of each disk's journal, as last heard."""
        self._kept: dict[Identity, int] = {}
        """The positions that are in this journal, or on their way into it."""
        self._counts: deque[tuple[int, int]] = deque()
        """Serials of the journal, and how many records there are up to each."""
        self._found: dict[Gid, Recovered] = {}
        """Logs whose record was not stable yet when the process ended: groups go to the disk while
        the journal's fsync is under way. They are kept, for the record comes again from another
        member, and the log then goes on where it ends. Nobody counts on them: APPENDED waits for
        the record (`Follower._acknowledge`), a leader for it too (`Lineage._lead`)."""
        self._expected: dict[int, float] = {}
        """Ordinals of others, and when (on the clock of the failure view) each became known as a
        member here: nothing can have been heard of it before."""
        for generation in () if settings.joins else settings.ranges:
            self._hold(generation)
        self._load(journal, logs)
        assert self._serial == 0 and not self._effects, "what was read is not done again"

    def _load(self, journal: Iterable[JournalRecord], logs: Mapping[Gid, Recovered]) -> None:
        """Rule I12: everything that was promised or accepted is in force again."""
        records = list(journal)
        self._recorded = sum(not isinstance(record, HeardRecord) for record in records)
        self._asides = sum(isinstance(record, AsideRecord) for record in records)
        for record in what_counts(records):
            if isinstance(record, HeardRecord):
                self._positions[record.disk] = (record.session, record.position)
                self._kept[record.disk] = record.position
            elif isinstance(record, OpenedRecord):
                self._hold(record.generation)
            elif isinstance(record, PromisedRecord):
                self._vote(record.gid, record.ballot, None)
            elif isinstance(record, AcceptedRecord):
                self._vote(record.gid, record.ballot, record.value)
            elif isinstance(record, DoubtRecord):
                self._doubted = record.upto
                self._base = max(self._base, record.beyond)
            else:
                assert isinstance(record, (DecidedRecord, AsideRecord))
                self._decided[record.gid] = record.value
                held = self._held.get(record.gid)
                if held is not None:
                    held.decided = record.value
                for child in record.value.children:
                    self._hold(child)
        self._stable_records = self._recorded
        for held in self._held.values():
            if held.promised is not None or held.decided is not None:
                held.fence = Fence.SHUT
            self._forget(held)
        self._found = dict(logs)
        for gid in list(self._found):
            if (held := self._held.get(gid)) is not None:
                self._recovered(held)
        for held in self._held.values():
            self._want_all(held)  # Of some there may be nothing here yet, not even a file.

    def _recovered(self, held: Held) -> None:
        """Its log was found on disk; perhaps before its record became stable."""
        assert held.leading is None and held.shown == 0, "before anything is done with it"
        found = self._found.pop(held.generation.gid)
        held.tail = held.received = found.tail
        held.tail_crc = held.received_crc = found.header_crc
        if found.suspect and not held.suspect:
            held.suspect, held.why = True, "its log is corrupt"
        held.witnessed = found.committed
        if held.fence is Fence.OPEN:
            held.owed = found.tail  # No promise was stable, so none was given.
        if held.decided is not None:
            held.shown = min(held.tail, held.decided.tail)
            held.sealed = found.sealed and held.complete and not held.suspect
        self._want_all(held)

    def _vote(self, gid: Gid, ballot: Ballot, value: Successor | None) -> None:
        held = self._held.get(gid)
        if held is None:
            return  # Its record was damaged; without it there is no vote.
        if held.promised is None or ballot > held.promised:
            held.promised = ballot
        held.round = max(held.round, ballot.round)
        assert held.promised >= ballot and held.round >= held.promised.round
        if value is not None:
            held.accepted = (ballot, value)

    def _forgotten(self, held: Held) -> bool:
        """Whether this member may have voted in it and does not know any more (rule A4).

        Not of genesis: all three decide there, so what was accepted somebody else tells.
        """
        generation = held.generation
        old = generation.gid.epoch <= self._doubted and not generation.is_genesis
        return old and held.decided is None and len(generation.members) > 1

    def _forget(self, held: Held) -> None:
        held.suspect = self._forgotten(held)
        if held.suspect:
            held.why, held.accuser = "its votes are forgotten", self._teller

    def _hold(self, generation: Generation) -> Held:
        """The state of this generation; new if its record was not known."""
        held = self._held.get(generation.gid)
        if held is not None:
            assert held.generation == generation, "a record is immutable"
            return held
        # A replaced disk can not know what the old one voted in genesis, where all are blank.
        may_vote = not (self._settings.replaces and generation.is_genesis)
        here = self._is_here(generation.gid)
        held = Held(generation, self._me, may_vote=may_vote, here=here)
        held.born = self._serial
        held.good_at, held.known_at = self._clock, self._now
        for member in generation.members:
            self._expected.setdefault(member.ordinal, self._clock)
        held.decided = self._decided.get(generation.gid)
        if held.decided is not None:
            held.fence = Fence.SHUT
        self._forget(held)
        self._held[generation.gid] = held
        self._missing.discard(generation.gid)
        current = self._current.get(generation.gid.token)
        if current is None or current.generation.gid.epoch < generation.gid.epoch:
            self._current[generation.gid.token] = held
        older = held if held is not self._current[generation.gid.token] else current
        if older is not None and older.member and older.decided is None:
            self._overtaken[older.generation.gid] = older
        if held.concerned:
            for gid, _ in generation.parents:
                if gid not in self._held and self._is_here(gid):
                    self._missing.add(gid)
        assert self._current[generation.gid.token].generation.gid.epoch >= generation.gid.epoch
        if generation.gid in self._found:
            self._recovered(held)
        self._want_all(held)
        return held

    def _is_here(self, gid: Gid) -> bool:
        """Whether this process may have a log of that name. What another holds, also of the same
        broker, is known as a record, and never waited for."""
        return self._settings.token in (None, gid.token)

    def _is_kept(self, held: Held) -> bool:
        """Whether there is a log of it here, or may be. Who holds several ranges fetches whatever
        it needs to lead."""
        return held.concerned or self._settings.token is None

    def _want_all(self, held: Held) -> None:
        """A sealed generation is to be whole wherever a copy of it belongs."""
        if not held.concerned or held.decided is None or held.sealed:
            return
        self._unsealed[held.generation.gid] = held
        if not held.complete:
            self._want(held, held.decided.tail)

    def _want(self, held: Held, target: int, sources: tuple[int, ...] = ()) -> None:
        """Fetch the groups up to `target`, from `sources` first."""
        held.target = max(held.target, target)
        if sources:
            held.sources = sources
        if held.received < held.target:
            self._lacking[held.generation.gid] = held
            if held.asked <= held.received:
                held.fetch_at = self._now  # No answer is under way that might bring them.

    def _send(self, ordinal: int, message: Message) -> None:
        if ordinal == self._me.ordinal:
            self._to_myself.append(message)
        else:
            self._effects.append(Send(ordinal, message))

    def _persist(self, *records: JournalRecord) -> None:
        assert self._durable <= self._serial
        self._serial += 1
        self._recorded += len(records)
        self._counts.append((self._serial, self._recorded))
        self._effects.append(Persist(self._serial, (*self._keep_positions(), *records)))

    def _keep_positions(self) -> list[HeardRecord]:
        """What was heard of the others' journals and is not in this one. It does not count for its
        own position: two members would tell each other of that for ever."""
        news = [
            HeardRecord(disk, session, position)
            for disk, (session, position) in self._positions.items()
            if position > self._kept.get(disk, 0)
        ]
        self._kept.update((record.disk, record.position) for record in news)
        return news

    def _position(self) -> int:
        """How far the journal is stable: it is never less at a later start."""
        while self._counts and self._counts[0][0] <= self._durable:
            self._stable_records = self._counts.popleft()[1]
        assert self._stable_records <= self._recorded
        return self._base + self._stable_records

    def _after_journal(self, then: Then) -> None:
        """Go on when all records so far are stable: before that, nothing may leave (I12)."""
        assert self._durable <= self._serial
        if self._durable == self._serial:
            self._continue(then)
        else:
            self._thens.append((self._serial, then))

    def _continue(self, then: Then) -> None:
        raise AssertionError(f"no part goes on with {then.what}")

    def _check_journal(self) -> None:
        assert 0 <= self._durable <= self._serial, "only what was given becomes stable"
        assert self._stable_records <= self._recorded
        assert not self._thens or self._thens[0][0] > self._durable, "what waited has gone on"
        assert not self._thens or self._thens[-1][0] <= self._serial, "it waits for a record"
        assert not self._counts or self._counts[-1] == (self._serial, self._recorded)

    def _check_held(self) -> None:
        for token, held in self._current.items():
            generation = held.generation
            assert generation.gid.token == token, "by where it starts"
            assert self._held[generation.gid] is held, "there is one state of each"
            if held.decided is None:
                held.check()
        assert self._missing.isdisjoint(self._held), "what is known is not asked for"
        assert self._lacking.keys() <= self._held.keys()
        assert self._overtaken.keys() <= self._held.keys()
        assert self._unsealed.keys() <= self._decided.keys(), "only what has ended is sealed"

    def _names_me(self, held: Held) -> bool:
        """Whether it is this very process that leads the generation, or will."""
        generation = held.generation
        mine = generation.leader == self._me and generation.session == self._session
        return mine and self._is_here(generation.gid)

    def _open(self) -> list[Held]:
        """The generations without a successor in which this broker has a voice."""
        return [held for held in self._current.values() if held.decided is None and held.member]

    def _unended(self) -> list[Held]:
        """Generations that this member has a part in, and whose end was decided while it was away.
        Where the line has gone on to others nobody else tells it."""
        if self._settings.token is None:
            return []
        for gid in [gid for gid, held in self._overtaken.items() if held.decided is not None]:
            del self._overtaken[gid]
        return list(self._overtaken.values())

    def _hear_round(self, held: Held, ballot: Ballot, ahead: int) -> None:
        """A ballot that was promised elsewhere: the next one has to be higher, as far as that."""
        held.round = max(held.round, min(ballot.round, held.round + ahead))

    def _plausible(self, gid: Gid, value: Successor) -> bool:
        held = self._held.get(gid)
        return is_plausible(gid, value, held.generation if held is not None else None)

    def _is_other(self, held: Held, session: int) -> bool:
        """Whether another generation of the same name is meant
        (`barco.cluster.replica.conflict`)."""
        return session not in (0, held.generation.session)

    def _decided_of(self, gid: Gid) -> Decided:
        held = self._held.get(gid)
        return Decided(gid, self._decided[gid], held.generation.session if held is not None else 0)

    def _told_decided(self, sender: Identity, gid: Gid, value: Successor) -> None:
        """Hear of a decided successor; the part on lineage knows what to think of it."""
        raise AssertionError("the part on lineage is missing")

    def _learned(self, gid: Gid, value: Successor) -> None:
        """Take in a decided successor; the part on lineage knows how."""
        raise AssertionError("the part on lineage is missing")
