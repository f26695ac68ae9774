"""An acceptor: the vote of one member on the successor of a generation (rules A1 to A4).

Who has promised to somebody else does not propose itself for PATIENCE_SECONDS. The owner would
otherwise do so at once (its generation is fenced, so nobody leads it) and outbid the proposer
whose ACCEPT is on its way; that one backs off, tries again, and they could go on like this while
the range has no leader. It is for progress only: ballots keep everything safe.
"""

from barco.cluster.replica.leader import Leader
from barco.cluster.state.core import Then
from barco.cluster.state.events import Drained
from barco.cluster.state.held import Fence, Held, Wish
from barco.cluster.state.plausible import ROUNDS_AHEAD_IDLE_MAX, ROUNDS_AHEAD_MAX
from barco.cluster.state.unrest import Unrest
from barco.limits import PATIENCE_SECONDS
from barco.model.generation import Ballot, Gid, Identity, Kind, Successor
from barco.protocol.replication import (
    Accept,
    Accepted,
    AcceptedRecord,
    Nack,
    Prepare,
    Promise,
    PromisedRecord,
    Unknown,
)


class Acceptor(Leader):
    """Answers PREPARE and ACCEPT."""

    _unrest: Unrest

    def _on_prepare(self, sender: Identity, message: Prepare) -> None:
        ordinal = sender.ordinal
        held = self._votes_on(ordinal, message.gid, message.session)
        if held is None or not self._in_reach(held, message.ballot):
            return
        if self._awaits_word(held):
            return  # It is sent again.
        if held.suspect:
            # As good as lost (A4). Told, because somebody will want to know why.
            told = Promise(message.gid, message.ballot, held.tail, held.accepted, True)
            self._send(ordinal, told)
            return
        if self._outbid(held, ordinal, message.ballot):
            return
        if message.ballot == held.promised:
            self._after_journal(Then("promise", message.gid, message.ballot, ordinal))
            return
        if not self._bids(held, ordinal, message.ballot):
            return
        self._take_up(held, Wish(message.ballot, ordinal, None))
        self._fulfil(held)

    def _on_accept(self, sender: Identity, message: Accept) -> None:
        ordinal = sender.ordinal
        held = self._votes_on(ordinal, message.gid, message.session)
        if held is None or not self._in_reach(held, message.ballot):
            return
        if not self._plausible(message.gid, message.value):
            return
        if self._gives_up(held, message.value):
            return
        if self._awaits_word(held) or held.suspect or self._outbid(held, ordinal, message.ballot):
            return
        if held.accepted == (message.ballot, message.value):
            self._after_journal(Then("accepted", message.gid, message.ballot, ordinal))
            return
        if not self._bids(held, ordinal, message.ballot):
            return
        self._take_up(held, Wish(message.ballot, ordinal, message.value))
        self._want(held, message.value.tail, message.sources)
        self._fulfil(held)
        self._fetch_due()

    def _votes_on(self, ordinal: int, gid: Gid, session: int) -> Held | None:
        """The generation, if there is something to vote on for this member."""
        held = self._held.get(gid)
        if held is None:
            self._send(ordinal, Unknown(gid))
        elif self._is_other(held, session):
            self._tell_origin(ordinal, held)
        elif held.decided is not None:
            self._send(ordinal, self._decided_of(gid))
        elif held.member:
            return held
        return None

    def _awaits_word(self, held: Held) -> bool:
        """Whether there is no vote yet, for what somebody said of this log is not settled."""
        raise AssertionError("the part on doubt is missing")

    def _is_unheard(self, held: Held) -> bool:
        """Whether somebody may still have to say something of it, as this process is new."""
        raise AssertionError("the part on doubt is missing")

    def _tell_origin(self, ordinal: int, held: Held) -> None:
        raise AssertionError("the part on lineage is missing")

    def _in_reach(self, held: Held, ballot: Ballot) -> bool:
        """Whether a ballot is one that a proposer can have come to: they are not to run out.

        Nobody's ballot is out of reach for good: an honest proposer may have promised that far.
        """
        idle = self._is_idle(held)
        highest = max(held.round, held.reach)
        highest += ROUNDS_AHEAD_IDLE_MAX if idle else ROUNDS_AHEAD_MAX
        if ballot.round > highest and idle and self._now >= held.reach_at:
            held.reach, held.reach_at = highest, self._now + PATIENCE_SECONDS / 2
        return ballot.round <= highest

    def _is_idle(self, held: Held) -> bool:
        """Whether nobody leads it, as far as can be seen here."""
        leader = held.generation.leader
        return held.shut or (leader != self._me and self._doubt(leader.ordinal, held))

    def _gives_up(self, held: Held, value: Successor) -> bool:
        """Whether a value leaves out what was committed (I2): no quorum of promises makes one."""
        known = max(held.committed, held.witnessed)
        return value.tail < known and value.kind is not Kind.UNCLEAN

    def _outbid(self, held: Held, ordinal: int, ballot: Ballot) -> bool:
        """Whether a higher ballot came before; then that is the answer."""
        floor = held.promised
        if held.wish is not None and (floor is None or held.wish.ballot > floor):
            floor = held.wish.ballot
        if floor is None or ballot >= floor:
            return False
        self._send(ordinal, Nack(held.generation.gid, ballot, floor))
        return True

    def _bids(self, held: Held, ordinal: int, ballot: Ballot) -> bool:
        """Whether a new ballot is taken up; in the midst of others' work, not too often.

        Of genesis always: it takes all of the members, and nobody is at work yet.
        """
        known = ballot == held.promised or (held.wish is not None and ballot == held.wish.ballot)
        if not known and ordinal != self._me.ordinal and not held.generation.is_genesis:
            idle = self._is_idle(held)
            # Half of what an honest one waits: by then clocks and messages are no excuse, and who
            # comes after a liar must not need an allowance of its own.
            turn = held.bidder != ordinal and self._now - held.bid_at >= PATIENCE_SECONDS / 2
            token = held.generation.gid.token
            if not (idle and turn) and not self._unrest.takes(token, ordinal, self._now):
                return False
        held.bid_at, held.bidder = self._now, ordinal
        return True

    def _take_up(self, held: Held, wish: Wish) -> None:
        assert held.member and not held.suspect, "who has no vote takes none up (A3, A4)"
        held.wish = wish
        held.round = max(held.round, wish.ballot.round)
        self._drain(held)
        assert held.fence is not Fence.OPEN, "no vote before the drain (A1)"

    def _on_drained(self, event: Drained) -> None:
        held = self._held[event.gid]
        if held.fence is not Fence.DRAINING:
            return
        held.fence = Fence.SHUT
        assert event.gseq >= held.tail, "a promise tells of all that was acknowledged (A1)"
        held.tail, held.tail_crc = event.gseq, event.header_crc
        held.received, held.received_crc = event.gseq, event.header_crc
        self._want(held, held.target)
        self._fulfil(held)
        self._grown(held)

    def _grown(self, held: Held) -> None:
        self._fulfil(held)

    def _fulfil(self, held: Held) -> None:
        """Answer the PREPARE or ACCEPT that waits, as soon as its conditions hold."""
        wish = held.wish
        if wish is None or held.decided is not None or not self._drained(held):
            return
        if self._awaits_word(held) or held.suspect:
            return
        if wish.value is not None and not self._holds(held, wish.value.tail):
            return
        assert held.promised is None or wish.ballot >= held.promised, "a promise is kept"
        assert held.accepted is None or wish.ballot >= held.accepted[0], "so is a vote"
        held.wish = None
        gid = held.generation.gid
        self._end_session(held)
        held.promised = wish.ballot
        if wish.ordinal != self._me.ordinal:
            held.retry_at = max(held.retry_at, self._now + PATIENCE_SECONDS)
        if wish.value is None:
            self._persist(PromisedRecord(gid, wish.ballot))
            self._after_journal(Then("promise", gid, wish.ballot, wish.ordinal))
        else:
            held.accepted = (wish.ballot, wish.value)
            held.round = max(held.round, wish.ballot.round)
            self._persist(AcceptedRecord(gid, wish.ballot, wish.value))
            self._after_journal(Then("accepted", gid, wish.ballot, wish.ordinal))
            self._voted(held)

    def _voted(self, held: Held) -> None:
        raise AssertionError("the part on lineage is missing")

    def _drained(self, held: Held) -> bool:
        """Rule A1: nothing of the leader's is in flight any more."""
        return held.fence is Fence.SHUT

    def _holds(self, held: Held, tail: int) -> bool:
        """Rule A2: accepted implies holding groups 1 to T."""
        return held.tail >= tail

    def _end_session(self, held: Held) -> None:
        """Rule L5: who answers for its own generation acknowledges nothing more in it."""
        self._stop_leading(held, "the generation is being sealed")

    def _continue(self, then: Then) -> None:
        held = self._held.get(then.gid)
        if held is None or then.ballot is None:
            return
        assert then.what in ("promise", "accepted"), "nobody would go on with it"
        assert held.promised is not None and held.promised >= then.ballot, "a promise is kept"
        if then.what == "promise" and held.promised == then.ballot:
            self._send(then.ordinal, self._promise(held, then.ballot))
        elif then.what == "accepted":
            self._send(then.ordinal, Accepted(then.gid, then.ballot))

    def _promise(self, held: Held, ballot: Ballot) -> Promise:
        """Tail and accepted value as they are at one moment, after the fence."""
        assert held.accepted is None or held.accepted[0] <= ballot, "a later vote is another's"
        return Promise(held.generation.gid, ballot, held.tail, held.accepted, False)
