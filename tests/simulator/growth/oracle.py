"""The invariants where each process holds one range, and a leader may hold no parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.model.generation import Generation, Gid, Identity

from ..broker import Broker
from ..oracle import Oracle

if TYPE_CHECKING:
    from .world import GrowthWorld


class RingOracle(Oracle):
    """I1 to I14; what a child begins with is checked by what clients see (E1)."""

    world: GrowthWorld

    def members(self, gid: Gid) -> list[tuple[Identity, Broker]]:
        """Each member with its process of that range."""
        found: list[tuple[Identity, Broker]] = []
        for member in self.generations[gid].members:
            process = self.world.process(member.ordinal, gid.token)
            found.append((member if member.disk_uuid else process.disk.identity, process))
        return found

    def fault_free(self) -> bool:
        """Whether every copy is whole again: another broker may lose its disk then (D2)."""
        names = set(self.world.identities.values())
        if self.rotten or any(
            member not in names for each in self.opened.values() for member in each.members
        ):
            return False
        return all(
            process.disk.holds(gid, value.tail)
            for gid, value in self.decided.items()
            for _, process in self.members(gid)
        )

    def led(self, broker: Broker, generation: Generation) -> None:
        """I8 and I14, of what is to be here: parents of which this process is a member."""
        self.leads += 1
        if self.generations.get(generation.gid) != generation:
            self.fail("P3", f"broker {broker.ordinal} opens {generation.gid}, never decided")
        for gid, tail in self._continued(generation):
            own = gid.token == generation.gid.token
            if not own or not self.generations[gid].has_member(broker.disk.identity):
                self.world.seen.note("a leader that holds no parent")
            elif not broker.disk.holds(gid, tail):
                self.fail("I8", f"broker {broker.ordinal} opens {generation.gid} without {gid}")
