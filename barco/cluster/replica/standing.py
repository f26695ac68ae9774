"""What a replica says of the open generations: who leads, who follows, how far, and how sure.

For /status, for readiness, and for a stop that waits for somebody to hand over to. Nothing that
the protocol decides depends on it.
"""

from typing import Any

from barco.cluster.replica.ownership import Ownership
from barco.cluster.state.held import Held
from barco.limits import JOIN_GROUPS_MAX


class Standing(Ownership):
    """Questions; no answer changes anything."""

    def status(self) -> list[dict[str, Any]]:
        """The open generations, for /status and the metrics, as plain values."""
        return [
            {
                "token": held.generation.gid.token,
                "epoch": held.generation.gid.epoch,
                "leader": held.generation.leader.ordinal,
                "leading": held.leading is not None,
                "fenced": held.shut,
                "suspect": held.suspect,
                "why": held.why if held.suspect else "",
                "accuser": held.accuser if held.suspect else -1,
                "tail": held.tail,
                "committed": held.committed,
                "followers": self._followers(held),
                "down": [o for o in self._others(held) if self._down(o)],
                "catching_up": len(self._lacking),
                "committing": self._commits(held),
                "caught_up": self._has_all(held),
            }
            for held in self._open()
        ]

    def heir(self) -> bool:
        """Whether somebody in reach would lead after this process (rule P1), were it to resign."""
        for held in self._open():
            if held.leading is None or len(held.generation.members) == 1:
                continue
            owner, *others = (member.ordinal for member in held.generation.members)
            heir = others[0] if owner == self._me.ordinal else owner
            # Rule P1: the next in line needs the third's word that the owner has gone.
            agreed = owner != self._me.ordinal or not any(self._down(each) for each in others)
            if agreed and self._would(heir):
                return True
        return False

    def disks(self) -> dict[int, str]:
        """The disk_uuid of each member of the open generations, by ordinal."""
        members = (member for held in self._open() for member in held.generation.members)
        return {each.ordinal: each.disk_uuid.hex() for each in members if each.disk_uuid}

    def _would(self, ordinal: int) -> bool:
        peer = self._peers.get(ordinal)
        if peer is None or peer.ping is None or self._down(ordinal):
            return False
        return peer.ping.able

    def _followers(self, held: Held) -> dict[int, dict[str, Any]]:
        """By ordinal: how many groups it lacks, and why, if it does not get them as they come.

        synced: it has acknowledged this generation, lacks no more than is on its way, and is there.
        """
        leading = held.leading
        if leading is None:
            return {}
        found: dict[int, dict[str, Any]] = {}
        for ordinal, gseq in leading.appended.items():
            state = "live" if leading.live[ordinal] else "behind"
            if self._down(ordinal):
                state = "down"
            elif ordinal in leading.fenced:
                state = "fenced"
            assert gseq <= leading.built, "nobody has what was not built"
            lacks = leading.built - gseq
            synced = state == "live" and gseq > 0 and lacks <= JOIN_GROUPS_MAX
            found[ordinal] = {"state": state, "lacks": lacks, "synced": synced}
        return found

    def _others(self, held: Held) -> list[int]:
        ordinals = [member.ordinal for member in held.generation.members]
        return [ordinal for ordinal in ordinals if ordinal != self._me.ordinal]

    def _commits(self, held: Held) -> bool:
        """Whether its leader gets groups committed, as far as is known here."""
        if held.leading is not None:
            return held.committed > 0 and self._committing(held)
        leader = held.generation.leader
        peer = self._peers.get(leader.ordinal)
        if peer is None or peer.ping is None or peer.session != held.generation.session:
            return False
        gid = held.generation.gid
        view = next((each for each in peer.ping.views if each.gid == gid), None)
        told = view is not None and view.committing and view.committed > 0
        return told and not self._down(leader.ordinal)

    def _has_all(self, held: Held) -> bool:
        """Whether this copy lacks nothing but what is on its way."""
        if held.leading is not None:
            return True
        return held.tail > 0 and not held.shut and held.generation.gid not in self._lacking
