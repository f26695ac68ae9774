"""A follower: the leader's groups, in order, until the fence (rules F1 and F2)."""

from typing import NamedTuple

from barco.cluster.replica.catchup import Catchup
from barco.cluster.state.effects import Commit
from barco.cluster.state.events import Followed
from barco.cluster.state.held import Held
from barco.limits import PING_SECONDS
from barco.model.generation import Gid, Identity
from barco.protocol.append_frame import Append, Appended
from barco.protocol.replication import Fenced, Gap, Unknown, View


class Steady(NamedTuple):
    """Where a generation stands whose leader's next groups need no decision."""

    leader: Identity
    session: int
    gseq: int
    """The last group that was taken, stable or in flight."""
    header_crc: int
    committed: int


class Follower(Catchup):
    """Copies what the leader of a generation appends."""

    def steady(self, gid: Gid) -> Steady | None:
        """Until the next step: whether an `Append` that follows on this one would be taken, and
        `Appended` sent when it is stable. `Followed` then tells, before that step, what was."""
        held = self._held.get(gid)
        if held is None or not held.member or self._fences(held) or held.wish is not None:
            return None
        generation = held.generation
        if held.leading is not None or generation.leader == self._me:
            return None
        if held.owed != held.received or held.received < held.target or held.born > self._durable:
            return None
        return Steady(
            generation.leader,
            generation.session,
            held.received,
            held.received_crc,
            held.committed,
        )

    def _on_followed(self, event: Followed) -> None:
        held = self._held[event.gid]
        assert held.leading is None, "who leads follows nobody"
        if event.gseq > 0:  # What only became stable is no sign of life of the leader.
            self._note(held.generation.leader, held.generation.session)
        if event.gseq > held.received:
            self._has_come(held, event.gseq, event.header_crc)
            held.owed = event.gseq
        if event.tail > held.tail:
            held.tail, held.tail_crc = event.tail, event.tail_crc
        assert held.tail <= held.received, "what is stable was taken"
        self._hear_committed(held, event.committed)
        self._show(held)
        self._grown(held)

    def _on_append(self, sender: Identity, message: Append) -> None:
        held = self._held.get(message.gid)
        if held is None:
            self._send(sender.ordinal, Unknown(message.gid))
            return
        generation = held.generation
        if not held.member or sender != generation.leader or message.session != generation.session:
            return
        if self._fences(held):
            self._send(sender.ordinal, Fenced(message.gid, held.promised, held.decided))
            return
        self._hear_committed(held, message.committed)
        gseq = message.head.gseq
        if gseq > held.received:
            if self._take(held, message.head):
                held.owed = gseq
            else:
                self._send(sender.ordinal, Gap(message.gid, held.received))
                self._want(held, gseq)
        elif gseq <= held.tail:
            self._acknowledge(held)  # The answer was lost.

    def _fences(self, held: Held) -> bool:
        """Rule F1: whether a group of the leader is refused."""
        return held.shut

    def _stable_foreign(self, held: Held) -> None:
        self._acknowledge(held)
        self._show(held)

    def _acknowledge(self, held: Held) -> None:
        """Rule F2: only what is stable, and only what was taken before the fence."""
        assert held.leading is None, "who leads owes no answer"
        upto = min(held.tail, held.owed)
        # The generation's own record must be stable too, or a restart would forget the copy.
        if upto > 0 and held.member and held.born <= self._durable:
            generation = held.generation
            told = Appended(generation.gid, upto, generation.session)
            self._send(generation.leader.ordinal, told)

    def _hear_committed(self, held: Held, committed: int) -> None:
        if committed > held.committed:
            held.committed = committed
            self._show(held)

    def _show(self, held: Held) -> None:
        """Let readers see what is committed and here."""
        known = held.committed if held.decided is None else held.decided.tail
        upto = min(held.tail, known)
        if upto > held.shown:
            held.shown = upto
            self._effects.append(Commit(held.generation.gid, upto))

    def _hear_member(self, held: Held, view: View) -> None:
        """Another follower's ping. The leader may be out of reach: rule F3 knows whom to ask."""
        quiet = self._clock - held.fetched_at >= 2 * PING_SECONDS
        if not held.shut and held.member and quiet and view.tail > held.received:
            self._want(held, view.tail)

    def _hear_leader(self, held: Held, view: View) -> None:
        """The leader's ping: what was committed, and whether something was lost on the way."""
        self._hear_committed(held, view.committed)
        if view.committing:
            held.good_at, held.bad_at = self._clock, -1.0
        elif held.bad_at < 0:
            held.bad_at = self._clock
        if held.shut:
            return
        if view.tail > held.received and self._clock - held.fetched_at >= PING_SECONDS:
            self._want(held, view.tail)
        if view.committed < held.tail:
            self._acknowledge(held)
