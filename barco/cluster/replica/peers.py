"""How a replica sees the other members: pings, silence, doubt (rule P1).

Times are those of a clock that never jumps: a process that was stopped for a while itself must not
take the others for dead. Safety does not depend on anything in this file.

How long a peer may be silent is learned from it: several times the longest gap between two of its
messages lately, within bounds. One that always came in time is missed sooner than one on a machine
that has other things to do.
"""

import math

from barco.cluster.state.core import Core
from barco.cluster.state.held import Held
from barco.limits import (
    CONSUMER_CONTACT_SECONDS_MAX,
    DOUBT_SECONDS_MAX,
    LISTEN_SECONDS,
    PACE_SECONDS,
    PING_SECONDS,
    SILENCE_GAPS,
    SILENCE_SECONDS_MAX,
    SILENCE_SECONDS_MIN,
    STALL_SECONDS_MAX,
    STEP_SECONDS_MAX,
)
from barco.model.generation import Identity
from barco.protocol.replication import Ping, View
from barco.types import Epoch

SILENCE_STEP_SECONDS = 0.001
"""After the moment in which a peer has been silent for too long it is looked at."""


class Peer:
    """Another broker's replica of the same range."""

    __slots__ = (
        *("echo_us", "epoch", "heard_at", "identity", "lost", "ping", "session", "silence"),
        *("stamp_us", "_gap", "_gap_before", "_turn_at"),
    )

    def __init__(self, identity: Identity, session: int, clock: float) -> None:
        self.identity = identity
        self.session = session
        self.heard_at = clock
        self.silence = SILENCE_SECONDS_MAX
        """After so long without a word it is down: nothing is known of its pace at first."""
        self._gap = SILENCE_SECONDS_MAX / SILENCE_GAPS
        self._gap_before = 0.0
        self._turn_at = clock + PACE_SECONDS
        self.lost = False
        """Its connection was reset or refused since it was last heard of."""
        self.ping: Ping | None = None
        self.epoch = Epoch(0)
        """The highest one that its pings have named as open."""
        self.stamp_us = 0
        """Of its last ping, to be echoed."""
        self.echo_us = 0
        """The newest stamp of ours that came back while it took our appends."""

    def heard(self, clock: float, *, late: bool = False) -> None:
        """A sign of life. How long it took is remembered for one to two spans of PACE_SECONDS;
        `late`: not that, because it was this process that stood still."""
        assert clock >= self.heard_at, "the clock of the failure view does not go back"
        gap = clock - self.heard_at
        self.heard_at = clock
        self.lost = False
        if clock >= self._turn_at:
            self._turn_at = clock + PACE_SECONDS
            self._gap_before, self._gap = self._gap, 0.0
        elif gap <= self._gap:
            return
        # What was longer was an absence, which says nothing about its pace.
        if gap <= SILENCE_SECONDS_MAX and not late:
            self._gap = max(self._gap, gap)
        silence = SILENCE_GAPS * max(self._gap, self._gap_before)
        self.silence = min(max(silence, SILENCE_SECONDS_MIN), SILENCE_SECONDS_MAX)
        assert 0 <= self._gap <= SILENCE_SECONDS_MAX, "an absence is no gap"


class Peers(Core):
    """The failure view."""

    _peers: dict[int, Peer]
    _lost: set[int]
    """Ordinals never heard of whose connection was refused."""
    _ping_at: float
    _resigned: bool
    _unable_until: float
    _back_until: float
    """This process stood still itself: until then it only listens."""

    def _start_peers(self) -> None:
        self._peers, self._lost = {}, set()
        self._back_until = self._now
        self._ping_at = self._now
        self._resigned = False
        self._unable_until = self._now

    def _advance_clock(self, now: float) -> None:
        passed = now - self._now
        if passed > 0:  # The clock of a machine may stand still; it is not trusted to.
            self._clock += min(STEP_SECONDS_MAX, passed)
            self._now = now
            if passed > STALL_SECONDS_MAX:
                self._back_until = now + LISTEN_SECONDS

    def _note(self, sender: Identity, session: int) -> Peer:
        """A sign of life."""
        assert sender.ordinal != self._me.ordinal, "nobody is a peer of itself"
        peer = self._peers.get(sender.ordinal)
        if peer is None or peer.session != session or peer.identity != sender:
            peer = self._peers[sender.ordinal] = Peer(sender, session, self._clock)
            self._lost.discard(sender.ordinal)
        peer.heard(self._clock, late=self._now < self._back_until)
        return peer

    def _link_lost(self, ordinal: int) -> None:
        if self._now < self._back_until:
            return  # A peer hung up on this process as it did not read. If it is gone, that is told
            # again, for it is dialled all the time.
        assert ordinal != self._me.ordinal, "nobody dials itself"
        peer = self._peers.get(ordinal)
        if peer.lost if peer is not None else ordinal in self._lost:
            return
        if peer is None:
            self._lost.add(ordinal)
        else:
            peer.lost = True
        self._ping_at = self._now  # Others have to know what is seen here.

    def _down(self, ordinal: int) -> bool:
        """Silent for too long, or its process is gone."""
        peer = self._peers.get(ordinal)
        if peer is None:
            since = self._expected.get(ordinal, 0.0)
            return ordinal in self._lost or self._clock - since > SILENCE_SECONDS_MAX
        return peer.lost or self._clock - peer.heard_at > peer.silence

    def _doubt(self, ordinal: int, held: Held) -> bool:
        """Down, unable, or not getting this generation's groups committed."""
        if self._down(ordinal):
            return True
        peer = self._peers.get(ordinal)
        if peer is None or peer.ping is None:
            return False
        if not peer.ping.able:
            return True
        leader = held.generation.leader
        if ordinal == leader.ordinal and peer.session == held.generation.session:
            return held.bad_at >= 0 and self._clock - held.bad_at > DOUBT_SECONDS_MAX
        return not held.leading and self._clock - held.good_at > SILENCE_SECONDS_MAX

    def _doubts(self) -> tuple[int, ...]:
        """What a ping says of the owners and leaders of the open generations."""
        found: set[int] = set()
        for held in self._open():
            generation = held.generation
            for identity in (generation.members[0], generation.leader):
                if identity.ordinal != self._me.ordinal and self._doubt(identity.ordinal, held):
                    found.add(identity.ordinal)
        return tuple(sorted(found))

    def _hears(self, held: Held) -> int:
        """How many of the other members of a generation are not down."""
        others = (member.ordinal for member in held.generation.members)
        return sum(1 for each in others if each != self._me.ordinal and not self._down(each))

    def _able(self) -> bool:
        """Whether this broker would lead."""
        if self._resigned or self._now < self._unable_until:
            return False
        return not any(held.suspect or held.broken for held in self._open())

    def _committing(self, held: Held) -> bool:
        """As the leader of this generation."""
        leading = held.leading
        if leading is None or held.shut:
            return False
        # (Of what is led alone nothing is told when it is built.)
        assert not leading.appended or held.committed <= leading.built
        if leading.built > held.committed and self._clock - leading.moved_at > STALL_SECONDS_MAX:
            return False
        if not leading.appended:
            return True
        for ordinal in leading.appended:
            peer = self._peers.get(ordinal)
            if peer is None or ordinal in leading.fenced or peer.lost:
                continue
            if self._clock - peer.heard_at <= STALL_SECONDS_MAX:
                return True
        return False

    def _ping_all(self) -> None:
        self._ping_at = self._now + PING_SECONDS
        for other in self._peers.values():  # Who falls silent is told of at once.
            left = other.silence - (self._clock - other.heard_at)
            if 0 <= left < PING_SECONDS:
                self._ping_at = min(self._ping_at, self._now + left + SILENCE_STEP_SECONDS)
        opened, unended = self._open(), self._unended()
        ordinals = {member.ordinal for held in opened for member in held.generation.members}
        ordinals |= {member.ordinal for held in unended for member in held.generation.members}
        for generation in self._settings.ranges:
            if not opened:
                ordinals |= {member.ordinal for member in generation.members}
        if self._settings.token is not None:  # Who holds what has ended may lack some of it.
            heard = [peer.identity.ordinal for peer in self._peers.values()]
            ordinals |= {ordinal for ordinal in heard if not self._down(ordinal)}
        ordinals.discard(self._me.ordinal)
        if not ordinals:  # The only member. While it leads there is nothing to wait for either.
            if opened and all(held.leading is not None for held in opened):
                self._ping_at = math.inf
            return
        views = tuple(
            View(
                held.generation.gid,
                held.tail,
                held.committed,
                held.shut,
                held.leading is not None,
                self._committing(held),
                held.generation.session,
            )
            for held in (*opened, *unended)
        )
        doubts, able, stamp = self._doubts(), self._able(), self._stamp()
        for ordinal in sorted(ordinals):
            peer = self._peers.get(ordinal)
            echo = peer.stamp_us if peer is not None else 0
            told = (able, doubts, stamp, echo, self._position(), views, self._asides)
            self._send(ordinal, Ping(self._settings.replaces, *told))

    def _stamp(self) -> int:
        """Of this moment, for a ping: microseconds of this process, counted from a number of its
        own. So an echo of what an earlier one sent is told from an answer, also after a start of
        the machine, whose clock begins anew."""
        return (self._session >> 2) + int((self._now - self._started) * 1e6) + 1

    def _echoed(self, echo_us: int) -> float | None:
        """When this process sent that stamp, on the clock of `now`; None: it never did."""
        passed = echo_us - (self._session >> 2)
        if not 0 < passed <= self._stamp() - (self._session >> 2):
            return None
        return self._started + passed / 1e6

    def _contact(self, held: Held) -> bool:
        """Whether a follower has answered lately, by this process's own clock."""
        leading = held.leading
        assert leading is not None
        if not leading.appended:
            return True
        echoes = [self._peers[each].echo_us for each in leading.appended if each in self._peers]
        sent = [at for echo in echoes if (at := self._echoed(echo)) is not None]
        return bool(sent) and self._now - max(sent) < CONSUMER_CONTACT_SECONDS_MAX
