"""What was forgotten: a journal of which something is lost, or a directory that is an old copy.

Who has forgotten may have voted, and acknowledged groups, in any generation that was open then. For
all of these it is suspect (rule A4), also where their very records are lost and come again from
others. Which ones these are, the others know: who had its vote or its groups knows the generation.
So when each has answered a ping of this process, what they had open by then is the end of it, and
in what begins later this member takes part as ever. Until then it takes part in nothing.

A peer notices an old copy by the position of the journal, which it has heard before. It keeps that
in memory: if all of them have started anew since, or are away, nobody notices (docs/findings.md).
"""

from barco.cluster.effects import Warn
from barco.cluster.peers import Peer
from barco.cluster.standing import Standing
from barco.model.generation import Identity
from barco.protocol.replication import DoubtRecord, Ping, RolledBack
from barco.types import Epoch

UNKNOWN = Epoch(2**63 - 1)
"""Nobody has said yet which epochs are concerned."""

POSITION_MAX = 2**62
"""Of no journal: whoever names it is wrong."""


class Doubt(Standing):
    """Learns that something was forgotten, and up to where."""

    _positions: dict[Identity, tuple[int, int]]
    """Session and position of each disk's journal, as last heard."""

    def _start_doubt(self) -> None:
        self._positions = {}
        self._began_in_doubt = self._doubted == UNKNOWN

    def forgetful(self) -> bool:
        """Whether this member takes part in nothing, until the others have answered."""
        return self._doubted == UNKNOWN

    def _hear_position(self, peer: Peer, message: Ping) -> None:
        session, position = self._positions.get(peer.identity, (peer.session, 0))
        if peer.session != session and message.position < position:
            self._send(peer.identity.ordinal, RolledBack(peer.session, position))
            return
        self._positions[peer.identity] = (peer.session, max(position, message.position))

    def _on_rolled_back(self, sender: Identity, message: RolledBack) -> None:
        if message.session != self._session or message.position >= POSITION_MAX:
            return  # An earlier process is meant, whose words came late.
        if message.position <= self._base:
            return
        self._base = message.position
        if self._began_in_doubt:
            self._persist(DoubtRecord(self._doubted, message.position))
            return
        self._began_in_doubt = True
        self._doubted = UNKNOWN
        self._persist(DoubtRecord(UNKNOWN, message.position))
        self._effects.append(
            Warn(
                f"this data directory is an old copy: broker {sender.ordinal} has heard of votes"
                " that it does not hold. It counts as lost for the generations that are open,"
                " until others have followed"
            )
        )
        for held in self._held.values():
            if self._forgotten(held):
                self._stop_leading(held, "its votes are forgotten")
                held.suspect, held.wish = True, None
                self._drain(held)
        self._ping_at = self._now
        self._settle_doubt()

    def _settle_doubt(self) -> None:
        """Once every other member has answered this process, it is known what may be forgotten."""
        if self._doubted != UNKNOWN:
            return
        known = [gid.epoch for gid in (*self._held, *self._found, *self._decided)]
        for ordinal in self._members_besides():
            peer = self._peers.get(ordinal)
            if peer is None or peer.ping is None or peer.ping.echo_us <= int(self._started * 1e6):
                return
            known += [view.gid.epoch for view in peer.ping.views]
        self._doubted = max(known)
        self._persist(DoubtRecord(self._doubted, self._base))

    def _members_besides(self) -> set[int]:
        """All who may know a generation that this member knew."""
        ordinals: set[int] = {m.ordinal for each in self._settings.ranges for m in each.members}
        ordinals |= {m.ordinal for held in self._open() for m in held.generation.members}
        return ordinals - {self._me.ordinal}
