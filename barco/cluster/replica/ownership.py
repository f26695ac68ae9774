"""Who proposes, and when: the owner, else the next in line, else nobody (rule P1)."""

from barco.cluster.replica.proposer import Proposer
from barco.cluster.state.held import Held
from barco.limits import (
    DOUBT_SECONDS_MAX,
    RESEND_SECONDS,
    RETURN_GROUPS_MAX,
    RETURN_SECONDS,
)
from barco.model.generation import Kind


class Ownership(Proposer):
    """Looks at the open generations after every event that may matter."""

    def _drive(self) -> None:
        if self._now < self._back_until:
            return  # What it knows of the others is as old as its absence was long.
        for held in self._open():
            if held.generation.gid in self._proposals or self._now < held.retry_at:
                continue
            if self._has_cause(held):
                held.retry_at = self._now + RESEND_SECONDS
                # What they refuse they cannot hold: their own promises make a value that they can.
                self._propose(held, without_me=held.left_alone)

    def _has_cause(self, held: Held) -> bool:
        if not self._able() or self._hears(held) + 1 < held.generation.quorum:
            return False
        if self._is_unheard(held):
            return False  # Its own vote would have to wait.
        if held.leading is not None:
            return self._must_relead(held)
        if self._names_me(held) and not held.stopped and not held.shut:
            return False  # About to be opened.
        seat = held.generation.seat(self._me.ordinal)
        if seat == 0:
            return self._owner_acts(held)
        return seat == 1 and self._next_acts(held)

    def _must_relead(self, held: Held) -> bool:
        """A leader seals its own generation to take something in that its record does not have."""
        leading = held.leading
        assert leading is not None
        if leading.fenced and self._clock - leading.fenced_at > DOUBT_SECONDS_MAX:
            return True  # A follower that takes no more of it will take the next one.
        if self._members(held.generation) != held.generation.members:
            return True
        return self._handed(held.generation.end, held.generation) is not None

    def _owner_acts(self, held: Held) -> bool:
        """The owner takes its range at once if nobody leads it, or when it has caught up."""
        if not self._led(held):
            return True
        since = max(self._started, held.known_at)
        return self._now - since >= RETURN_SECONDS and self._caught_up(held)

    def _led(self, held: Held) -> bool:
        """Whether a process leads it or will, as far as anybody in reach can tell."""
        leader = held.generation.leader
        if self._names_me(held) and not held.stopped and not held.shut:
            return True  # As soon as its parents' groups are all here.
        if leader.ordinal == self._me.ordinal or held.generation.is_genesis:
            return False
        peer = self._peers.get(leader.ordinal)
        if peer is not None and peer.session != held.generation.session:
            return False
        if not self._doubt(leader.ordinal, held):
            return True
        return any(
            ordinal != leader.ordinal
            and not self._down(ordinal)
            and other.ping is not None
            and leader.ordinal not in other.ping.doubts
            and any(view.gid == held.generation.gid for view in other.ping.views)
            for ordinal, other in self._peers.items()
        )

    def _caught_up(self, held: Held) -> bool:
        if held.shut or any(self._lacks(gid) for gid, _ in self._ancestors(held.generation)):
            return False
        known = max(held.committed, held.target)
        return held.tail + RETURN_GROUPS_MAX >= known and held.committed > 0

    def _next_acts(self, held: Held) -> bool:
        """Rule P1: only if the third member, too, sees the owner as down or not committing."""
        owner, third = (held.generation.members[seat].ordinal for seat in (0, 2))
        if not self._doubt(owner, held):
            return False
        peer = self._peers.get(third)
        if peer is None or self._down(third) or peer.ping is None:
            return False
        return owner in peer.ping.doubts

    def _absorb(self, held: Held, donor: Held) -> None:
        """Merge, first half: seal the right neighbour. `_must_relead` does the second."""
        assert donor.generation.gid.token == held.generation.end, "it is the right neighbour"
        gid = donor.generation.gid
        if held.leading is None or donor.decided is not None or gid in self._proposals:
            return
        self._propose(donor, Kind.HANDOFF)
