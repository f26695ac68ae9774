"""What was forgotten: a journal of which something is lost, or a directory that is an old copy.

Who has forgotten may have voted, and acknowledged groups, in any generation that was open then. For
all of these it is suspect (rule A4), also where their very records are lost and come again from
others. Which ones these are, the others know: who had its vote or its groups knows the generation.
So when each has answered a ping of this process, what they had open by then is the end of it, and
in what begins later this member takes part as ever. Until then it takes part in nothing. While what
one of them names is not known here it may be made up: that end is kept in no journal, and it is
less as soon as all of their processes say less.

A peer notices an old copy by the position of the journal, which it has heard before and keeps in
its own: it changes with votes, not with events. And it notices a log that has become shorter while
no vote was lost, by what the member told in its pings and acknowledged. The word on it goes to the
member itself, which knows better: a log never becomes shorter in the life of a process, so a word
that comes late, or twice, accuses nobody. If all who have heard of it are away, nobody notices
(docs/findings.md). Who is there says it before it answers the first ping of this process; so there
is no vote before that (rule A6): one that was quicker than the word could not be taken back.
"""

from barco.cluster.replica.peers import Peer
from barco.cluster.replica.standing import Standing
from barco.cluster.state.effects import Warn
from barco.cluster.state.held import Held
from barco.limits import PING_SECONDS, SILENCE_SECONDS_MAX
from barco.model.generation import Gid, Identity
from barco.protocol.replication import DoubtRecord, Gap, Ping, RolledBack, Shrunk
from barco.types import Epoch

UNKNOWN = Epoch(2**63 - 1)
"""Nobody has said yet which epochs are concerned."""

POSITIONS_AHEAD_MAX = 2**32
"""By so much at most do words raise the own position in one process: no journal has lost as many
records, for it is read whole at each start. One word that went to the end of the numbers would
leave none for the true ones."""

POSITION_MAX = 2**62
"""No word raises it beyond this: there is room above for the records that come."""

KEEP_SECONDS = 1.0
"""So long a position waits for a record to go with; a change of leaders makes several, and several
positions."""

DISKS_MAX = 16
"""Whose positions are kept in mind: the members', and some that were replaced."""


class Doubt(Standing):
    """Learns that something was forgotten, and up to where."""

    _stood: dict[Identity, dict[Gid, int]]
    """How far each disk's logs of open generations were, as it told itself."""
    _news_at: float | None
    """Since when there is a position that is not kept; None: there is none."""
    _unsettled: bool
    """What may be forgotten is not known, or only from words that may be taken back."""
    _began_at: int
    """The position at the start of this process: it has never told one below."""
    _began_base: int

    def _start_doubt(self) -> None:
        assert self._serial == 0, "the position is that of the start"
        self._stood = {}
        self._news_at = None
        if self._doubted > self._known_epoch():
            self._doubted = UNKNOWN  # What it rested on is set aside, or was never more than words.
        self._unsettled = self._began_in_doubt = self._doubted == UNKNOWN
        self._began_at, self._began_base = self._position(), self._base
        if not self._members_besides():
            self._settle_doubt()  # Nobody else has heard of anything.

    def _check_words(self) -> None:
        super()._check_words()
        assert len(self._stood) <= DISKS_MAX
        assert self._began_at <= self._position(), "no process tells less than it began with"
        assert self._began_base <= self._base, "the base only rises"
        assert self._unsettled or self._doubted != UNKNOWN, "what is not known is not settled"

    def accuser(self) -> int:
        """Who has said that this directory is an old copy; negative: nobody, of this process."""
        return self._teller

    def forgetful(self) -> bool:
        """Whether this member takes part in nothing, until the others have answered."""
        return self._doubted == UNKNOWN

    def _hear_position(self, peer: Peer, message: Ping) -> None:
        disk = peer.identity
        session, position = self._positions.get(disk, (peer.session, 0))
        if peer.session != session and message.position < position:
            self._send(disk.ordinal, RolledBack(peer.session, position))
            return
        self._positions[disk] = (peer.session, max(position, message.position))
        while len(self._positions) > DISKS_MAX:
            del self._positions[next(iter(self._positions))]
        if self._positions[disk][1] > self._kept.get(disk, 0) and self._news_at is None:
            self._news_at = self._now
        if self._news_at is not None and self._now - self._news_at >= KEEP_SECONDS:
            self._news_at = None
            if any(at > self._kept.get(each, 0) for each, (_, at) in self._positions.items()):
                self._persist()

    def _hear_tails(self, peer: Peer, message: Ping) -> None:
        """A log of an open generation that was longer before."""
        stood = self._stood.get(peer.identity, {})
        opened = {held.generation.gid: held for held in self._open()}
        kept = {gid: tail for gid, tail in stood.items() if gid in opened}
        for view in message.views:
            held = opened.get(view.gid)
            if held is None or not held.generation.has_member(peer.identity):
                continue
            if self._is_other(held, view.session):
                continue
            before = max(kept.get(view.gid, 0), self._acknowledged_by(held, peer.identity))
            kept[view.gid] = max(before, view.tail)
            if view.tail < before:
                self._send(peer.identity.ordinal, Shrunk(view.gid, before))
        self._stood[peer.identity] = kept
        while len(self._stood) > DISKS_MAX:
            del self._stood[next(iter(self._stood))]

    def _on_shrunk(self, sender: Identity, message: Shrunk) -> None:
        """Rule A5. What an earlier process of this disk acknowledged counts only with the process
        that leads: so that one's word settles it, both ways. A word of others is put to it, and
        believed only where it is gone."""
        held = self._held.get(message.gid)
        if held is None or held.decided is not None or held.suspect or not held.member:
            return
        if held.generation.seat(sender.ordinal) is None or self._names_me(held):
            return  # What this very process began, no earlier one can have had more of.
        leads = self._leads(held, sender)
        if message.gseq <= held.tail:  # Nothing is missing: it is old news, or wrong.
            if leads:
                held.accused, held.acquitted = 0, True
                self._fulfil(held)
        elif leads or not (held.acquitted or self._may_be_asked(held) or self._is_unheard(held)):
            self._believe(held, sender.ordinal, message.gseq)
        elif not held.acquitted:
            if message.gseq > held.accused:
                held.accused, held.accuser = message.gseq, sender.ordinal
            self._awaits_word(held)

    def _leads(self, held: Held, sender: Identity) -> bool:
        """Whether it is the very process that leads this generation, or led it."""
        peer = self._peers.get(sender.ordinal)
        generation = held.generation
        same = peer is not None and peer.session == generation.session
        return same and sender == generation.leader

    def _may_be_asked(self, held: Held) -> bool:
        leader = held.generation.leader
        return self._leads(held, leader) and not self._down(leader.ordinal)

    def _awaits_word(self, held: Held) -> bool:
        """Whether somebody's word on this log is not settled; the leader is asked, as long as it
        is there. A GAP asks: its answer is the last group that the leader counts of this disk."""
        if held.suspect:
            return False
        unheard = self._is_unheard(held)
        if held.accused <= held.tail:
            return unheard
        if self._may_be_asked(held):
            if self._now >= held.question_at:
                held.question_at = self._now + PING_SECONDS
                leader = held.generation.leader
                self._send(leader.ordinal, Gap(held.generation.gid, held.received))
            return True
        if unheard:
            return True  # Perhaps it is the leader that has yet to answer.
        self._believe(held, held.accuser, held.accused)
        return False

    def _is_unheard(self, held: Held) -> bool:
        """Rule A6: whether a member that is there has not yet answered this process. What it
        remembers of this disk comes with the answer. One that hears nothing is not waited for
        longer than one that says nothing."""
        if self._clock > SILENCE_SECONDS_MAX:
            return False
        others = self._others(held)
        return not all(self._down(each) or self._has_answered(each) for each in others)

    def _has_answered(self, ordinal: int) -> bool:
        """Whether it has had a ping of this process when it sent its last one."""
        peer = self._peers.get(ordinal)
        if peer is None or peer.ping is None:
            return False
        return self._echoed(peer.ping.echo_us) is not None

    def _believe(self, held: Held, accuser: int, gseq: int) -> None:
        assert gseq > held.tail and not held.suspect, "something is missing, and that is news"
        gid = held.generation.gid
        self._effects.append(
            Warn(
                f"broker {accuser} has had group {gseq} of epoch {gid.epoch} acknowledged from"
                f" here, and this log ends with group {held.tail}: the data directory is an old"
                " copy, or damaged. It has no vote there until it is repaired; `barco status` says"
                " what helps if nobody leads"
            )
        )
        if self._doubted != UNKNOWN:
            self._doubted = max(self._doubted, gid.epoch)
            self._keep_doubt()
        self._disqualify(held, "its log has lost its end", accuser)
        self._ping_at = self._now

    def _on_rolled_back(self, sender: Identity, message: RolledBack) -> None:
        if message.session != self._session:
            return  # An earlier process is meant, whose words came late.
        if message.position <= self._began_at:
            return  # Never did this process tell less.
        base = self._base_for(message.position)
        if self._began_in_doubt:
            if base > self._base:
                self._base = base
                self._keep_doubt()
            return
        self._base = max(self._base, base)
        self._began_in_doubt = self._unsettled = True
        self._doubted = UNKNOWN
        self._teller = sender.ordinal
        self._keep_doubt()
        self._effects.append(
            Warn(
                f"this data directory is an old copy: broker {sender.ordinal} has heard of votes"
                " that it does not hold. It counts as lost for the generations that are open,"
                " until others have followed; `barco status` says what helps if nobody leads"
            )
        )
        for held in self._held.values():
            if self._forgotten(held):
                self._disqualify(held, "its votes are forgotten", sender.ordinal)
        self._ping_at = self._now
        self._settle_doubt()

    def _base_for(self, position: int) -> int:
        """Where the own position has to begin, to be told no less than this. In powers of two from
        where it was at the start: so there are few records, however many positions are named."""
        assert position > self._began_at, "no process tells less than it began with"
        missing = min(position - self._began_at, POSITIONS_AHEAD_MAX)
        base = self._began_base + (1 << (missing - 1).bit_length())
        return min(base, max(POSITION_MAX, self._began_base))

    def _disqualify(self, held: Held, reason: str, accuser: int) -> None:
        """Rule A4: it behaves as lost there."""
        self._stop_leading(held, reason)
        held.suspect, held.wish = True, None
        held.why, held.accuser = reason, accuser
        self._drain(held)

    def _settle_doubt(self) -> None:
        """Once every other member has answered this process, it is known what may be forgotten.

        No member that has come as far says less later, so the least that they have ever said
        counts; it is final when a generation is known here that is no older."""
        if not self._unsettled:
            return
        known = told = self._known_epoch()
        for ordinal in self._members_besides():
            peer = self._peers.get(ordinal)
            if peer is None or peer.ping is None or not self._has_answered(ordinal):
                return
            told = max(told, peer.epoch)
        self._doubted = min(self._doubted, told)
        if self._doubted <= known:
            self._unsettled = False
            self._keep_doubt()

    def _known_epoch(self) -> Epoch:
        """The highest one of the generations that are known here; 0: none is (`Settings.joins`)."""
        known = (gid.epoch for gid in (*self._held, *self._found, *self._decided))
        return max(known, default=Epoch(0))

    def _keep_doubt(self) -> None:
        upto = UNKNOWN if self._unsettled else self._doubted
        self._persist(DoubtRecord(upto, self._base))

    def _members_besides(self) -> set[int]:
        """All who may know a generation that this member knew."""
        ordinals: set[int] = {m.ordinal for each in self._settings.ranges for m in each.members}
        ordinals |= {m.ordinal for held in self._open() for m in held.generation.members}
        return ordinals - {self._me.ordinal}
