"""What has ended and is damaged on a simulated disk is mended from the others (`storage.scrub`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.model.generation import Gid

if TYPE_CHECKING:
    from .disk import Disk
    from .world import World

MEND_SECONDS = 0.5


class Mending:
    """The part of a broker that looks after its disk."""

    world: World
    disk: Disk
    ordinal: int
    life: int
    paused: bool

    def look_again(self, life: int) -> None:
        """For as long as something is damaged."""
        if self.disk.damaged():
            self.world.at(self.world.time + MEND_SECONDS, self.look_after, life)

    def look_after(self, life: int) -> None:
        """It is repaired in place, from whoever has it (`storage.scrub`)."""
        if life == self.life:
            for gid in [] if self.paused else self.disk.damaged():
                self.mend(gid)
            self.look_again(life)

    def mend(self, gid: Gid) -> None:
        """The groups up to its tail, if somebody in reach has them."""
        disk, world = self.disk, self.world
        mine, tail = disk.log(gid), disk.sealed[gid]
        crc = mine[-1].header_crc if mine else 0
        for broker in world.brokers:
            other, link = broker.disk, (self.ordinal, broker.ordinal)
            reached = broker.replica is not None and not world.cuts & {link, link[::-1]}
            first = len(mine) + 1
            if not reached or not other.holds(gid, tail) or other.begins.get(gid, 1) > first:
                continue
            groups = other.log(gid)[len(mine) : tail]
            if groups and groups[0].prev_crc == crc:
                disk.put(gid, groups)
                world.seen.note("what has ended is mended")
                world.oracle.stored(self, gid, mine)
                return
