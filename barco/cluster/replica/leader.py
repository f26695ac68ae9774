"""A leader: its groups to both followers, and what is committed (rules L1 to L5)."""

from barco.cluster.replica.follower import Follower
from barco.cluster.state.effects import Commit, Drain, StopLeading
from barco.cluster.state.events import Built, Stable
from barco.cluster.state.held import Fence, Held
from barco.cluster.state.plausible import ROUNDS_AHEAD_MAX
from barco.limits import PING_SECONDS, STEP_DOWN_SECONDS
from barco.model.generation import Identity
from barco.protocol.append_frame import Appended
from barco.protocol.replication import Fenced, Gap, Shrunk, View

GAP_ANSWER_SECONDS = PING_SECONDS / 2
"""A follower gets one answer to its GAPs in so long, for each generation. It asks at most once in
PING_SECONDS (half of that: two that a busy machine brings close together are both answered)."""


class Leader(Follower):
    """Leads the generations that name this very process."""

    def _on_built(self, event: Built) -> None:
        """Rule L1: the group is on its way to this disk; send it to the followers beside."""
        held = self._held[event.gid]
        leading = held.leading
        if leading is None:
            return  # Stopped while it was being built: nobody will ever count it.
        assert event.head.gseq == leading.built + 1, "groups are numbered without gaps"
        if leading.built == held.committed:
            leading.moved_at = self._clock
        leading.built = event.head.gseq
        assert held.committed < leading.built, "what is new is not committed"
        leading.pending.append(event.head)
        leading.recent.append(event.head)
        append = self._append_of(held, event.head)
        for ordinal, live in leading.live.items():
            if live:
                self._send(ordinal, append)

    def _on_stable(self, event: Stable) -> None:
        held = self._held[event.gid]
        leading = held.leading
        # (Of what is led alone nothing is told when it is built.)
        assert leading is None or not leading.appended or event.gseq <= leading.built
        held.tail, held.tail_crc = event.gseq, event.header_crc
        if held.received < event.gseq:
            held.received, held.received_crc = event.gseq, event.header_crc
        if leading is not None:
            pending = leading.pending
            while pending and pending[0].gseq <= event.gseq:
                pending.popleft()
            self._commit(held)
        else:
            self._stable_foreign(held)
        self._grown(held)

    def _grown(self, held: Held) -> None:
        """Something may wait for groups of this generation."""

    def _on_appended(self, sender: Identity, message: Appended) -> None:
        held = self._held.get(message.gid)
        if held is None or held.leading is None or sender not in held.generation.members:
            return
        if self._is_other(held, message.session):
            return  # Of a generation with the same name.
        self._count(held, sender.ordinal, message.gseq)

    def _count(self, held: Held, ordinal: int, gseq: int) -> None:
        leading = held.leading
        assert leading is not None
        if gseq > leading.appended.get(ordinal, gseq):
            if leading.appended[ordinal] < held.committed:
                leading.moved_at = self._clock  # It was away. Another would wait for it as well.
            leading.appended[ordinal] = min(gseq, leading.built)
            self._commit(held)

    def _commit(self, held: Held) -> None:
        """Rule L3: stable here by the leader's own append, and at one follower at least."""
        leading = held.leading
        assert leading is not None
        if not self._may_commit(held):
            return
        upto = self._committable(held)
        if upto > held.committed:
            assert held.shown <= held.committed < upto <= held.tail, "nothing is taken back"
            held.committed = held.shown = upto
            leading.moved_at = self._clock
            self._effects.append(Commit(held.generation.gid, upto))

    def _may_commit(self, held: Held) -> bool:
        """Rule L5: nothing is acknowledged after this member's own promise."""
        return held.promised is None and held.decided is None

    def _committable(self, held: Held) -> int:
        leading = held.leading
        assert leading is not None
        return min(held.tail, max(leading.appended.values(), default=held.tail))

    def _on_gap(self, sender: Identity, message: Gap) -> None:
        """A follower that lost something catches up by FETCH and delays nobody meanwhile."""
        held = self._held.get(message.gid)
        if held is None or not held.generation.has_member(sender) or not self._names_me(held):
            return
        leading = held.leading
        if leading is not None and sender.ordinal in leading.live:
            leading.live[sender.ordinal] = False
        if self._now < held.answer_at.get(sender.ordinal, self._now):
            return  # It asks again, and each ping that shows a shorter log is answered as well.
        held.answer_at[sender.ordinal] = self._now + GAP_ANSWER_SECONDS
        # Perhaps it has acknowledged more than it has, or was told so: it looks for itself.
        self._send(sender.ordinal, Shrunk(message.gid, self._acknowledged_by(held, sender)))

    def _acknowledged_by(self, held: Held, member: Identity) -> int:
        """The last group that this disk is known to have acknowledged to this leader."""
        if member not in held.generation.members:
            return 0
        counted = held.leading.appended if held.leading is not None else held.counted
        return counted.get(member.ordinal, 0)

    def _hear_follower(self, held: Held, ordinal: int, view: View) -> None:
        """Rule F3: who got of the other follower what it lacked asks nothing of its leader.

        It is sent its last group again, and acknowledges what nobody had heard that it has.
        """
        leading = held.leading
        assert leading is not None
        if leading.live[ordinal] or ordinal in leading.fenced or held.shut:
            return
        if view.tail == leading.built:
            self._join(held, ordinal, view.tail)

    def _on_fenced(self, sender: Identity, message: Fenced) -> None:
        held = self._held.get(message.gid)
        if held is None or sender not in held.generation.members:
            return
        if message.ballot is not None:
            self._hear_round(held, message.ballot, ROUNDS_AHEAD_MAX)
        if message.successor is not None:
            self._told_decided(sender, message.gid, message.successor)
        if held.leading is not None:
            self._follower_fenced(held, sender.ordinal)

    def _follower_fenced(self, held: Held, ordinal: int) -> None:
        leading = held.leading
        assert leading is not None
        if ordinal not in leading.appended or ordinal in leading.fenced:
            return
        if not leading.fenced:
            leading.fenced_at = self._clock
        leading.fenced.add(ordinal)
        leading.live[ordinal] = False
        if len(leading.fenced) == len(leading.appended):
            held.left_alone = True
            self._stop_leading(held, "both followers are fenced")

    def _stop_leading(self, held: Held, reason: str) -> None:
        """Callers that wait get "unknown". This process never leads the generation again."""
        if held.leading is None:
            return
        assert self._names_me(held) and not held.stopped, "led once, by the process it names"
        held.counted = held.leading.appended
        held.leading = None
        held.stopped = True
        held.good_at = self._clock
        self._effects.append(StopLeading(held.generation.gid, reason))
        self._ping_at = self._now

    def _drain(self, held: Held) -> None:
        """Shut the generation; `Drained` tells when what is in flight has landed (rule A1)."""
        if not self._is_kept(held):
            held.fence = Fence.SHUT  # There is no log here.
        elif held.fence is Fence.OPEN:
            held.fence = Fence.DRAINING
            self._effects.append(Drain(held.generation.gid))

    def _stalled(self) -> None:
        """Rule L4: a leader that gets nothing committed makes room for another."""
        for held in self._open():
            leading = held.leading
            if leading is None or leading.built <= held.committed:
                continue
            if self._clock - leading.moved_at > STEP_DOWN_SECONDS:
                self._stop_leading(held, f"nothing was committed for {STEP_DOWN_SECONDS} s")
