"""What one broker holds of one generation: its log's ends, its vote, its part in it."""

from collections import deque
from enum import IntEnum
from typing import NamedTuple

from barco.limits import JOIN_GROUPS_MAX, PATIENCE_SECONDS
from barco.model.generation import Ballot, Generation, GroupHead, Identity, Successor


class Fence(IntEnum):
    """Whether appends of the generation's leader are still taken."""

    OPEN = 0
    DRAINING = 1
    """No new ones; those in flight are awaited (rule A1)."""
    SHUT = 2


class Wish(NamedTuple):
    """A PREPARE or ACCEPT that waits for the drain, or for groups to arrive."""

    ballot: Ballot
    ordinal: int
    """Of the proposer."""
    value: Successor | None
    """None for a PREPARE."""


class Gone(NamedTuple):
    """The next group here is said to be removed by retention elsewhere."""

    received: int
    """The last one here."""
    until: float
    """So long the others are waited for."""
    said: set[int]
    """Who said so."""


class Leading:
    """The part of a leader in its own generation."""

    __slots__ = (
        *("appended", "built", "fenced", "fenced_at", "live", "moved_at", "pending", "recent"),
    )

    def __init__(self, followers: tuple[int, ...], now: float) -> None:
        self.built = 0
        self.pending: deque[GroupHead] = deque()
        """Built, not yet stable here; a handful, because the pipeline is bounded."""
        self.recent: deque[GroupHead] = deque(maxlen=JOIN_GROUPS_MAX)
        """The last ones built: a follower that lacks no more than these gets them, and is live."""
        self.appended = dict.fromkeys(followers, 0)
        """Ordinal to the last group that is stable there, as its APPENDED said."""
        self.live = dict.fromkeys(followers, True)
        """Gets every group as it is built; the others are catching up by FETCH."""
        self.fenced: set[int] = set()
        """Followers that take no more appends of this generation."""
        self.fenced_at = 0.0
        self.moved_at = now
        """When `committed` last moved, or the oldest waiting group was built."""

    def check(self) -> None:
        """What holds between two steps."""
        assert self.live.keys() == self.appended.keys(), "the followers are the record's"
        assert self.fenced <= self.appended.keys(), "only followers fence it"
        assert all(0 <= each <= self.built for each in self.appended.values()), "built, then copied"
        assert len(self.pending) <= self.built
        assert not self.pending or self.pending[-1].gseq == self.built, "what was built last waits"
        assert not self.recent or self.recent[-1].gseq == self.built, "and is the most recent"


class Held:
    """One generation as this broker holds it. Made by the machine, changed by all its parts."""

    __slots__ = (
        *("generation", "member", "concerned", "tail", "tail_crc", "received", "received_crc"),
        *("owed", "promised", "accepted", "decided", "suspect", "broken", "committed", "shown"),
        "witnessed",
        *("fence", "wish", "target", "sources", "asked", "fetch_at", "fetch_turn"),
        *("fetched_at", "expired"),
        *("refused_at", "refusals", "refusing", "left_alone"),
        *("born", "leading", "stopped", "good_at", "bad_at"),
        *("known_at", "lead_at", "retry_at", "bid_at", "bidder", "round", "sealed"),
        *("reach", "reach_at"),
        *("why", "accuser", "accused", "acquitted", "question_at"),
        *("counted", "answer_at"),
    )

    def __init__(self, generation: Generation, me: Identity, *, may_vote: bool, here: bool) -> None:
        self.generation = generation
        self.member = generation.has_member(me) and may_vote and here
        """This very disk may answer for it (rule A3), by this process (`here`)."""
        self.concerned = generation.seat(me.ordinal) is not None and here
        """This process is to hold a copy, under whatever disk."""
        assert self.concerned or not self.member, "who may answer for it has a seat"
        self.tail = self.tail_crc = 0
        """The last stable group here and its header_crc."""
        self.received = self.received_crc = 0
        """The last group stable or in flight."""
        self.owed = 0
        """The last group taken before the fence: APPENDED is owed up to it (rule F2)."""
        self.promised: Ballot | None = None
        self.accepted: tuple[Ballot, Successor] | None = None
        self.decided: Successor | None = None
        self.suspect = False
        """Corruption was found: it has no vote, until it is repaired and sealed (rule A4)."""
        self._trust()
        self.broken = False
        """An append failed here: it takes no more."""
        self.refused_at, self.refusals = -1, 0
        """After which group the next one was refused, and how often."""
        self.refusing = False
        """It was so too often: it takes no more, but nothing is wrong with the disk."""
        self.left_alone = False
        """This process led it until its followers took no more."""
        self.committed = 0
        """gseq up to which its leader is known to have committed it."""
        self.witnessed = 0
        """gseq up to which its own groups, as recovery found them, say that it was committed."""
        self.shown = 0
        """gseq of the last `Commit`."""
        self.fence = Fence.OPEN
        self.wish: Wish | None = None
        self.target = 0
        """Fetch up to here."""
        self.sources: tuple[int, ...] = ()
        """Who is asked first."""
        self.asked = 0
        """The last group of the newest `Fetch`: while it is not here, that is under way."""
        self.fetch_at = 0.0
        """When to ask again."""
        self.fetch_turn = 0
        self.fetched_at = -1.0
        """When a group last arrived in order."""
        self.expired: Gone | None = None
        self.born = 0
        """Serial of the journal record that made it known."""
        self.leading: Leading | None = None
        self.stopped = False
        """This process has led it and does not any more (rules L4 and L5)."""
        self.good_at = 0.0
        """When its leader was last heard to be committing, on the clock of the failure view."""
        self.bad_at = -1.0
        """Since when its leader says that it is not; negative: it does not say so."""
        self.known_at = 0.0
        self.lead_at = 0.0
        """When this process began to lead it."""
        self.retry_at = 0.0
        """No proposal before this."""
        self.bid_at = -PATIENCE_SECONDS
        """When a ballot was last taken up here."""
        self.bidder = -1
        """Whose it was: an ordinal."""
        self.round = 0
        """The highest of any ballot taken up here, or said to be promised elsewhere."""
        self.reach, self.reach_at = 0, 0.0
        """A ballot of this round was out of reach, and from when on another may be."""
        self.sealed = False

    def _trust(self) -> None:
        """Nobody has said anything of this log yet."""
        self.why, self.accuser = "", -1
        """Why it is suspect, and on whose word (an ordinal; negative: nobody's)."""
        self.accused = 0
        """Somebody who does not lead it says that this log ended with that group once. Until it is
        here, or the leader has denied it, there is no vote."""
        self.acquitted = False
        """The leader has: whatever it counted in an earlier process of this disk is here."""
        self.counted: dict[int, int] = {}
        """Of this process, after it has led it: `Leading.appended` as it was at the end."""
        self.question_at = 0.0
        """When to ask the leader (again)."""
        self.answer_at: dict[int, float] = {}
        """Of who leads it: ordinal to when that member's next GAP is answered."""

    def check(self) -> None:
        """What holds between two steps, whatever the others have said."""
        assert 0 <= self.tail <= self.received, "what is stable was taken"
        assert 0 <= self.shown <= self.tail or self.suspect, "readers see what is stable"
        assert self.target >= 0 and self.asked >= 0
        assert self.committed >= 0 and self.witnessed >= 0
        assert self.why or not self.suspect, "people are told why"
        assert self.stopped or not self.counted, "only who led it has counted"
        assert self.stopped or not self.left_alone, "nor was anybody else left alone"
        assert self.member or self.wish is None, "who has no voice is not asked (A3)"
        self._check_vote()
        self._check_end()
        leading = self.leading
        if leading is not None:
            assert not self.stopped, "a process leads a generation once"
            assert self.promised is None, "who promised does not lead (L5)"
            assert not self.suspect and not self.broken, "who leads can trust its log"
            assert self.shown == self.committed, "a leader shows what it counts"
            assert self.committed <= self.tail, "and counts what is stable here"
            assert self.member, "who leads has a voice"
            leading.check()

    def _check_vote(self) -> None:
        if self.promised is not None:
            assert self.fence is Fence.SHUT, "no promise before the drain (A1)"
            assert self.round >= self.promised.round, "the next ballot is higher"
        if self.accepted is not None:
            assert self.promised is not None, "a vote is a promise, too"
            assert self.promised >= self.accepted[0], "which is not taken back"
        if self.wish is not None:
            assert self.decided is None, "what is decided is told, not voted on"
            assert not self.suspect, "a suspect log has no vote (A4)"
            assert self.fence is not Fence.OPEN, "who waits for a vote drains"
            assert self.round >= self.wish.ballot.round, "the next ballot is higher"

    def _check_end(self) -> None:
        if self.decided is not None:
            assert self.fence is not Fence.OPEN, "nothing comes behind the end"
            assert self.leading is None, "nobody leads what has ended"
        if self.sealed:
            assert self.complete, "what is sealed lacks nothing"
            assert not self.suspect, "and is repaired (A4)"

    @property
    def shut(self) -> bool:
        """Whether no append of its leader may be taken (rules F1 and L2)."""
        return (
            self.promised is not None
            or self.decided is not None
            or self.fence is not Fence.OPEN
            or self.suspect
            or self.broken
            or self.refusing
        )

    @property
    def complete(self) -> bool:
        """Whether its successor is known and all its groups are stable here."""
        return self.decided is not None and self.tail >= self.decided.tail
