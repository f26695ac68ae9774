"""The invariants of the protocol, checked at every step by one who sees all disks at once."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.protocol.replication import (
    Accepted,
    AcceptedRecord,
    DecidedRecord,
    JournalRecord,
    Message,
    OpenedRecord,
    Promise,
    PromisedRecord,
)

if TYPE_CHECKING:
    from .broker import Broker
    from .disk import Disk
    from .world import World


LEMMAS = ("I6", "I11", "I12", "I13", "ballot", "A4", "P3")
"""What no client can see: it is broken before anything is lost."""


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Oracle:
    """What really happened, beside what the brokers believe."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.generations: dict[Gid, Generation] = {g.gid: g for g in world.ranges}
        self.opened = dict(self.generations)
        """Without a decided successor."""
        self.handed: dict[Gid, Generation] = {}
        """Handed to the left and not yet absorbed."""
        self.decided: dict[Gid, Successor] = {}
        self.acknowledged: dict[Gid, int] = {}
        self.acks = 0
        self.commits = 0
        self.contents: dict[Gid, dict[int, int]] = {}
        self.votes: dict[Gid, dict[Ballot, dict[Identity, Successor]]] = {}
        self.promised: dict[Gid, dict[Identity, int]] = {}
        """Identity to its tail when it first promised."""
        self.gone: set[Identity] = set()
        """Disks that are lost."""
        self.rotten: set[tuple[Identity, Gid]] = set()
        self.forgotten: set[tuple[Identity, Gid]] = set()
        """Whose votes are lost in which generation, that was open then."""
        self.told: set[tuple[Identity, Gid]] = set()
        """Which disk has had the record of which generation."""
        self.skipped: dict[tuple[Identity, Gid], int] = {}
        """Where a log is to begin, of which retention has removed the groups before elsewhere."""
        self.leads = 0
        self.rolled: set[Identity] = set()
        """Disks that went back in time. Two of three may then go on without what was acknowledged:
        it has to be set aside and told, and nothing else may be lost."""
        self.left: dict[Gid, list[Successor]] = {}
        """What was decided once, and is not history any more."""
        self.losses: list[tuple[Gid, int, int]] = []
        """(generation, groups that are history, groups that were acknowledged)."""
        self.left_out: set[tuple[Gid, int, int]] = set()
        """The groups of those, by number and content: generations of two lines have one name."""
        self.lemmas = True
        """False: only what a client could see counts."""

    def fail(self, invariant: str, text: str) -> None:
        if self.lemmas or invariant not in LEMMAS:
            raise Violation(invariant, text)

    # --- A disk that went back in time --------------------------------------------------------

    def rolled_back(self, disk: Disk) -> None:
        """What it held since is a declared loss, and what it promised it does not know any
        more. Its votes were cast: they may be on their way, and count."""
        self.rolled.add(disk.identity)
        for gid, tails in self.promised.items():
            if gid not in disk.promised:
                tails.pop(disk.identity, None)

    def elsewhere(self, broker: Broker, gid: Gid) -> bool:
        """Whether this broker means another generation of that name than what became history."""
        if not self.rolled:
            return False
        known = broker.replica.record(gid) if broker.replica is not None else None
        return known is not None and self.generations.get(gid) != known

    def _fork(self, gid: Gid, value: Successor) -> None:
        """Two of three have decided anew."""
        if gid in self.decided:
            self.left.setdefault(gid, []).append(self.decided.pop(gid))
        self._lose(gid, value.tail)
        for later in [each for each in self.generations if each.epoch > gid.epoch]:
            self._lose(later, 0)
            del self.generations[later]
            if later in self.decided:
                self.left.setdefault(later, []).append(self.decided[later])
            for known in (self.opened, self.decided, self.acknowledged, self.contents, self.votes):
                known.pop(later, None)  # type: ignore[attr-defined]
            self.promised.pop(later, None)

    def _lose(self, gid: Gid, tail: int) -> None:
        told = self.acknowledged.get(gid, 0)
        if told > tail:
            self.losses.append((gid, tail, told))
            groups = self.contents.get(gid, {}).items()
            self.left_out |= {(gid, gseq, crc) for gseq, crc in groups if tail < gseq <= told}
            self.acknowledged[gid] = tail

    # --- Disks ------------------------------------------------------------------------------

    def submitted(self, broker: Broker, gid: Gid, head: GroupHead) -> None:
        """I5: a gap-free chain. I4: one content for a group, wherever it is."""
        if self.elsewhere(broker, gid):
            return
        gseq, crc = broker.disk.end(gid)
        if head.gseq != gseq + 1 or head.prev_crc != crc:
            self.fail("I5", f"broker {broker.ordinal} appends {head} of {gid} after {gseq}")
        contents = self.contents.setdefault(gid, {})
        if contents.setdefault(head.gseq, head.header_crc) != head.header_crc:
            self.fail("I4", f"group {head.gseq} of {gid} has two contents")

    def stored(self, broker: Broker, gid: Gid, log: Sequence[GroupHead]) -> None:
        """Groups became stable: a repair may be complete."""
        key = (broker.disk.identity, gid)
        if key in self.rotten and gid in self.decided and len(log) >= self.decided[gid].tail:
            self.rotten.discard(key)

    def loaded(self, broker: Broker, gid: Gid, stable: int) -> None:
        """S3: the core's state is that of a whole history, or that of none."""
        tail = broker.disk.sealed.get(gid, stable)
        if stable != tail:
            self.fail("S3", f"broker {broker.ordinal} goes on from {stable} of {tail} of {gid}")

    def lost(self, identity: Identity) -> None:
        self.gone.add(identity)

    def corrupted(self, identity: Identity, gid: Gid) -> None:
        self.rotten.add((identity, gid))

    def forgot(self, identity: Identity) -> None:
        """Of a generation that nobody had told it of it has had no vote: two had accepted what
        began it, and their ACCEPTED was still on its way."""
        known = (gid for gid in self.opened if (identity, gid) in self.told)
        self.forgotten |= {(identity, gid) for gid in known if gid.epoch > 1}

    def as_lost(self, identity: Identity, gid: Gid) -> bool:
        """Whether this member's copy and vote are a declared loss."""
        return identity in self.gone or (identity, gid) in self.rotten

    def members(self, gid: Gid) -> list[tuple[Identity, Broker]]:
        """Each member with the broker that has its ordinal now (maybe under another disk)."""
        generation = self.generations[gid]
        found = []
        for member in generation.members:
            broker = self.world.brokers[member.ordinal]
            found.append((broker.disk.identity if not member.disk_uuid else member, broker))
        return found

    def holders(self, gid: Gid, gseq: int) -> int:
        """Members that hold groups 1 to gseq, and those whose loss is declared."""
        count = 0
        for member, broker in self.members(gid):
            if (
                self.as_lost(member, gid)
                or member in self.rolled
                or broker.disk.identity == member
                and broker.disk.holds(gid, gseq)
            ):
                count += 1
        return count

    # --- Votes ------------------------------------------------------------------------------

    def read(self, broker: Broker, found: Sequence[JournalRecord]) -> None:
        """I12: a start finds every record that was told, whatever one copy of the journal has
        suffered; what both have lost it knows to be missing (A5), and nothing more."""
        expected = broker.disk.journal
        if found != expected:
            lost, more = (
                [type(each).__name__ for each in one if each not in other]
                for one, other in ((expected, found), (found, expected))
            )
            text = f"of its journal broker {broker.ordinal} reads {more} and does not read {lost}"
            self.fail("I12", text)

    def recorded(self, broker: Broker, record: JournalRecord) -> None:
        """A journal record is stable."""
        me = broker.disk.identity
        if isinstance(record, OpenedRecord):
            self.told.add((me, record.generation.gid))
        votes = (PromisedRecord, AcceptedRecord, DecidedRecord)
        if isinstance(record, votes) and self.elsewhere(broker, record.gid):
            return
        if isinstance(record, PromisedRecord):
            self._promised(broker, record.gid)
        elif isinstance(record, AcceptedRecord):
            self._promised(broker, record.gid)
            generation = self.generations.get(record.gid)
            if generation is None or not generation.has_member(me):
                self.fail("I11", f"{me} accepted for {record.gid} and is not a member")
                return
            if self.as_lost(me, record.gid) and me not in self.gone:
                self.fail("A4", f"{me} is corrupt in {record.gid} and accepted")
            if (me, record.gid) in self.forgotten and record.gid not in self.decided:
                self.fail("A4", f"{me} has forgotten its votes in {record.gid} and accepted")
            votes = self.votes.setdefault(record.gid, {}).setdefault(record.ballot, {})
            votes[me] = record.value
            if any(value != record.value for value in votes.values()):
                self.fail("ballot", f"{record.ballot} carries two values for {record.gid}")
            same = sum(1 for value in votes.values() if value == record.value)
            if same >= generation.quorum:
                self._decide(generation, record.value)
        elif isinstance(record, DecidedRecord) and self.decided.get(record.gid) != record.value:
            if record.value in self.left.get(record.gid, ()):
                return
            self.fail("I1", f"broker {broker.ordinal} learned of {record.gid} what was not so")

    def _promised(self, broker: Broker, gid: Gid) -> None:
        tails = self.promised.setdefault(gid, {})
        tails.setdefault(broker.disk.identity, len(broker.disk.logs.get(gid, ())))

    def sent(self, broker: Broker, message: Message) -> None:
        """I12: promises and accepts are stable before they are told."""
        if isinstance(message, Promise):
            promised = broker.disk.promised.get(message.gid)
            if not message.suspect and (promised is None or promised < message.ballot):
                self.fail("I12", f"broker {broker.ordinal} tells {message} without having it")
        elif isinstance(message, Accepted):
            accepted = broker.disk.accepted.get(message.gid)
            if accepted is None or accepted[0] < message.ballot:
                self.fail("I12", f"broker {broker.ordinal} tells {message} without having it")

    def _decide(self, generation: Generation, value: Successor) -> None:
        gid = generation.gid
        known = self.decided.get(gid)
        if self.rolled and known != value and value not in self.left.get(gid, ()):
            lost = self.acknowledged.get(gid, 0) > value.tail
            if known is not None or lost:
                self._fork(gid, value)
                known = None
        if known is not None:
            if known != value and value not in self.left.get(gid, ()):
                self.fail("I1", f"succ({gid}) is {known} and {value}")
            return
        self.decided[gid] = value
        if self.acknowledged.get(gid, 0) > value.tail:
            self.fail("I2", f"{gid} ends at {value.tail}, but {self.acknowledged[gid]} was told")
        if self.holders(gid, value.tail) < generation.quorum:
            self.fail("I3", f"{gid} ends at {value.tail}, and who has it?")
        self.opened.pop(gid, None)
        if value.kind is Kind.HANDOFF:
            self.handed[gid] = generation
        for child in value.children:
            self._child(child)
        self._tiles()

    def given_up(self, record: DecidedRecord) -> None:
        """An operator's word: what only the lost disks had has never been."""
        generation = self.generations[record.gid]
        self.acknowledged[record.gid] = min(self.acknowledged.get(record.gid, 0), record.value.tail)
        self.decided.pop(record.gid, None)
        self.opened.clear()
        self._decide(generation, record.value)

    def _child(self, child: Generation) -> None:
        """I9: epochs grow, names are unique."""
        for parent, tail in child.parents:
            if child.gid.epoch <= parent.epoch:
                self.fail("I9", f"{child.gid} follows {parent}")
            sealed = self.decided.get(parent)
            if sealed is None or sealed.tail != tail:
                self.fail("I10", f"{child.gid} has parent {parent}, which is not sealed at {tail}")
            self.handed.pop(parent, None)
        if child.gid in self.generations:
            self.fail("I9", f"{child.gid} was there before")
        self.generations[child.gid] = self.opened[child.gid] = child

    def _tiles(self) -> None:
        """I10: every token is in exactly one open generation, or handed over."""
        spans = [(g.gid.token, g.end) for g in (*self.opened.values(), *self.handed.values())]
        at = self.world.ranges[0].gid.token
        for start, end in sorted(spans):
            if start != at:
                self.fail("I10", f"the ring is {sorted(spans)}")
            at = end
        if at != self.world.ranges[-1].end:
            self.fail("I10", f"the ring is {sorted(spans)}")

    # --- Acknowledgements ---------------------------------------------------------------------

    def committed(self, broker: Broker, gid: Gid, gseq: int) -> None:
        """Something is shown, and by its leader answered."""
        self.commits += 1
        if self.elsewhere(broker, gid):
            return
        generation = self.generations[gid]
        me = broker.disk.identity
        if generation.leader == me and generation.session == broker.session:
            if gid not in self.decided or self.acknowledged.get(gid, 0) < gseq:
                self._acknowledged(broker, generation, gseq)
            return
        decided = self.decided.get(gid)
        known = self.acknowledged.get(gid, 0) if decided is None else decided.tail
        if gseq > known and not self._was_committed(broker, gid, gseq):
            self.fail("I7", f"broker {broker.ordinal} shows {gseq} of {gid}, committed {known}")
        if not broker.disk.holds(gid, gseq) and gseq >= self.skipped.get((me, gid), 0):
            self.fail("I7", f"broker {broker.ordinal} shows {gseq} of {gid} and has it not")

    def readable(self, broker: Broker, gid: Gid, gseq: int) -> None:
        """D7: what readers are let at is history, up to the groups that the core shows; and all of
        the history before is here, with what its first group brings."""
        generation = self.generations.get(gid)
        if generation is None or self.elsewhere(broker, gid):
            return
        decided = self.decided.get(gid)
        known = self.acknowledged.get(gid, 0) if decided is None else decided.tail
        if gseq > known and not self._was_committed(broker, gid, gseq):
            self.fail("D7", f"broker {broker.ordinal} lets read {gseq} of {gid}, committed {known}")
        me = broker.disk.identity
        if not gseq and generation.leader != me:  # Who leads has made the state before.
            self.fail("D7", f"broker {broker.ordinal} lets read {gid} without its state")
        for each, _ in self._continued(generation):
            # A split brings a member of one half; what is merged is another driver's.
            own = self.generations[each].has_member(me) and each.token == gid.token
            if own and each not in broker.disk.sealed:
                self.fail("D7", f"broker {broker.ordinal} lets read {gid} without {each}")

    def ended(self, broker: Broker, token: int, besides: Container[Gid | None]) -> None:
        """D7: of what has ended, as it knows, and is not said to be lacking, all is here. An end
        may be told before what has ended: without its record nobody says that it is here."""
        replica, me = broker.replica, broker.disk.identity
        assert replica is not None, "what is over lets nobody read"
        journal = replica.journal()
        for gid, successor in journal.decided.items():
            here = gid.token == token and gid not in besides and gid in journal.records
            if not here or gid not in self.generations or not self.generations[gid].has_member(me):
                continue
            if broker.disk.sealed.get(gid) != successor.tail:
                self.fail("D7", f"broker {broker.ordinal} lets read {gid}, which is not whole here")

    def _was_committed(self, broker: Broker, gid: Gid, gseq: int) -> bool:
        """Whether two of three have left this group out since, and this one has not heard of it."""
        log = broker.disk.logs.get(gid, ())
        known = gseq <= len(log) and (gid, gseq, log[gseq - 1].header_crc) in self.left_out
        return known and not broker.disk.decided(gid)

    def _acknowledged(self, broker: Broker, generation: Generation, gseq: int) -> None:
        gid, me = generation.gid, broker.disk.identity
        decided = self.decided.get(gid)
        if decided is not None and gseq <= decided.tail and gid not in broker.leads:
            return  # Shown after the seal; nobody is told anything.
        self.acks += 1
        if me in self.promised.get(gid, {}):
            self.fail("I13", f"broker {broker.ordinal} answers {gseq} of {gid} after its promise")
        if decided is not None and gseq > decided.tail:
            self.fail("I2", f"{gseq} of {gid} is answered, but it ended at {decided.tail}")
        if self.holders(gid, gseq) < generation.quorum:
            self.fail("I7", f"{gseq} of {gid} is answered, and not on {generation.quorum} disks")
        # I6, as it can be seen: no quorum may be left that would not find the group.
        blind = 0
        for member, holder in self.members(gid):
            tail = self.promised.get(gid, {}).get(member)
            if self.as_lost(member, gid) or member in self.rolled:
                continue
            if tail is None:
                tail = len(holder.disk.logs.get(gid, ()))
            blind += tail < gseq
        if blind >= generation.quorum:
            self.fail("I6", f"{gseq} of {gid} is answered, {blind} members have promised less")
        self.acknowledged[gid] = max(self.acknowledged.get(gid, 0), gseq)

    # --- Lineage ------------------------------------------------------------------------------

    def led(self, broker: Broker, generation: Generation) -> None:
        """I8 and I14: who opens a child has all of its parents, so also every group offset."""
        self.leads += 1
        if self.elsewhere(broker, generation.gid):
            return
        if self.generations.get(generation.gid) != generation:
            self.fail("P3", f"broker {broker.ordinal} opens {generation.gid}, never decided")
        for gid, tail in self._continued(generation):
            if not broker.disk.holds(gid, tail):
                self.fail("I8", f"broker {broker.ordinal} opens {generation.gid} without {gid}")

    def _continued(self, generation: Generation) -> list[Parent]:
        """The parents with groups; one that ended empty hands on what it continued itself."""
        found = []
        for parent in generation.parents:
            if parent.tail:
                found.append(parent)
            else:
                found += self._continued(self.generations[parent.gid])
        return found

    def followed(self, broker: Broker, generation: Generation) -> None:
        if self.elsewhere(broker, generation.gid):
            return
        if self.generations.get(generation.gid) != generation:
            self.fail("P3", f"broker {broker.ordinal} follows {generation.gid}, never decided")

    def sealed(self, broker: Broker, gid: Gid, tail: int) -> None:
        if self.rolled and self.left:
            return
        value = self.decided.get(gid)
        if value is None or value.tail != tail or not broker.disk.holds(gid, tail):
            self.fail("I3", f"broker {broker.ordinal} seals {gid} at {tail}")

    def whole(self) -> bool:
        """Whether no disk has lost anything that it has not got again."""
        return not (self.rotten or self.rolled or self.gone or self.forgotten)

    def fault_free(self) -> bool:
        """Whether every copy is whole again: another disk may be lost then (D2)."""
        brokers = {b.disk.identity: b for b in self.world.brokers}
        if self.rotten or self.rolled:
            return False
        for member, gid in self.forgotten:
            # What was decided and nobody has heard of yet can hang on its votes.
            if gid not in self.decided or member in brokers and not self._knows(member, gid):
                return False
        if any(self._lacks_vote(broker) for broker in self.world.brokers):
            return False
        for generation in self.opened.values():
            if any(member not in brokers for member in generation.members):
                return False
        for gid, value in self.decided.items():
            for member in self.generations[gid].members:
                if not self.world.brokers[member.ordinal].disk.holds(gid, value.tail):
                    return False
        return True

    def _lacks_vote(self, broker: Broker) -> bool:
        """Whether it is in doubt about what is open, or ends in what is decided and may be known to
        nobody but one that is away."""
        recent = {gid for gid in self.opened if gid.epoch > 1}
        recent |= {parent.gid for gid in recent for parent in self.opened[gid].parents}
        doubts, decided = broker.disk.doubts(), broker.disk.decided
        return any(gid.epoch <= doubts and not decided(gid) for gid in recent)

    def _knows(self, member: Identity, gid: Gid) -> bool:
        return self.world.brokers[member.ordinal].disk.decided(gid)

    def history(self) -> list[tuple[Gid, int]]:
        """Everything that was ever acknowledged must be in what is left: checked at the end."""
        missing = []
        for gid, gseq in self.acknowledged.items():
            value = self.decided.get(gid)
            if value is not None and value.tail < gseq:
                missing.append((gid, gseq))
        return missing

    def handed_at(self, token: int) -> Generation | None:
        """The generation that was handed over and starts here."""
        return next((g for g in self.handed.values() if g.gid.token == token), None)
