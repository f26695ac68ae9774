"""What stands in the places of a log's groups, and what a start makes of it.

What it makes is the product's own (`barco.workers.storage.index.verdict`): here is what a walk over
the groups sees, where a group is its head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barco.cluster.state.core import Recovered
from barco.model.generation import Gid, GroupHead
from barco.workers.storage.index import verdict
from barco.workers.storage.index.verdict import Judged, Recorded, Start

if TYPE_CHECKING:
    from .disk import Disk


class Spot(NamedTuple):
    """The place of a group."""

    head: GroupHead
    header: bool = True
    """The checksum of its header is right."""
    body: bool = True
    """And that of its body."""
    lacks: bool = False
    """Sectors of it are zeros that were none: never stored, or gone."""
    stands: bool = True
    """Not all of it is zeros."""

    @property
    def sound(self) -> bool:
        return self.header and self.body


def _blank(head: GroupHead) -> Spot:
    return Spot(head, header=False, body=False, lacks=True, stands=False)


def torn(
    left: Sequence[GroupHead], done: Collection[int], upto: Mapping[int, int], rng: Random
) -> tuple[Spot, ...]:
    """Of appends that a crash has met, the first of which did not arrive."""
    hole, spots = left[0].gseq, []
    for head in left:
        if upto.get(head.header_crc, 0) >= hole:
            break  # It waits for what its header says is stable (`log_submit_taken`).
        if head.gseq > hole and (head.gseq in done or rng.random() < 0.3):
            spots.append(Spot(head))
        else:
            ways = (
                _blank(head),
                Spot(head, header=False, body=False, lacks=True),
                Spot(head, body=False, lacks=True),
            )
            spots.append(rng.choice(ways))
    return tuple(spots)


def rotten(log: Sequence[GroupHead], rng: Random, *, known: bool, sealed: bool) -> tuple[Spot, ...]:
    """These groups, the first of which is damaged. `known`: later headers say that it was stable;
    `sealed`: where the log ends is noted. Else only what lacks no sector tells of itself."""
    ways = [Spot(log[0], header=False), Spot(log[0], body=False)]
    if known or sealed:
        ways = [ways[0], _blank(log[0]), Spot(log[0], body=False, lacks=True)]
    spots = [rng.choice(ways), *map(Spot, log[1:])]
    if sealed and rng.random() < 0.3:
        spots = [_blank(head) for head in log]
    return tuple(spots)


class Recovery:
    """What one start finds on one disk, by the product's own verdicts."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.found: dict[Gid, Recovered] = {}
        """What the machine is told."""
        self.current: dict[int, tuple[Gid, int]] = {}
        """By token what the core gets, and up to which group it has that."""
        self.judged: list[tuple[Gid, int, Judged]] = []
        """With the tail that was seen."""
        gids = disk.logs.keys()
        for token in sorted({gid.token for gid in gids}):
            self._go_through(sorted((g for g in gids if g.token == token), reverse=True))

    def _go_through(self, gids: list[Gid]) -> None:
        """The generations of a range, newest first, as `ReplicaStore.recover` does."""
        start = Start()
        for gid in gids:
            known = self.recorded(gid)
            if not start.looks(known):
                self.found[gid] = Recovered(*start.unseen(known))
                continue
            seen = self.seen(gid, known.tail)
            judged = start.saw(known, seen, self.judge(seen, known.tail))
            self.judged.append((gid, seen.tail, judged))
            if judged.told:
                self.found[gid] = Recovered(*self.told(judged))
            if judged.loads:
                self.current[gid.token] = gid, seen.tail

    def recorded(self, gid: Gid) -> Recorded:
        """What is noted of it."""
        tail = self.disk.sealed.get(gid)
        expired = bool(tail) and self.disk.begins.get(gid, 1) > (tail or 0)
        return Recorded(gid.epoch, tail, expired)

    def told(self, judged: Judged) -> verdict.Found:
        """What the machine is told."""
        return judged.found

    def judge(self, seen: verdict.Seen, wanted: int | None) -> str:
        """How its log ends."""
        return verdict.judge(seen, wanted)

    def seen(self, gid: Gid, wanted: int | None) -> verdict.Seen:
        """What a walk over its groups comes to."""
        disk = self.disk
        log, behind = disk.logs.get(gid, []), disk.behind.get(gid, ())
        at = chained(log, behind)
        end = behind[at - 1].head if at else log[-1] if log else GroupHead(0, 0, 0, 0)
        if wanted is not None and end.gseq > wanted:
            end = log[wanted - 1]  # It is not looked at what is behind it.
        headers = [spot.head for spot in behind if spot.header]
        headers += log[-1:]  # Of those before none says more.
        durable = max((disk.upto.get(each.header_crc, 0) for each in headers), default=0)
        rest = behind[at:]
        return verdict.Seen(
            end.gseq,
            end.header_crc,
            min(disk.witness.get(gid, 0), end.gseq),
            durable,
            bool(rest) and not rest[0].sound and not rest[0].lacks,
            False,
            any(spot.stands for spot in rest),
        )

    def carry_out(self) -> None:
        """What follows for the files: damage is not cleared away."""
        disk = self.disk
        for gid, tail, judged in self.judged:
            log, behind = disk.log(gid), disk.behind.get(gid, ())
            at = chained(log, behind)
            if at and tail > len(log):
                disk.seen.note("a log goes on behind what was mended")
                disk.put(gid, [spot.head for spot in behind[:at]])
            if judged.clears:
                disk.behind.pop(gid, None)
            if judged.found.sealed and judged.loads:
                del log[tail:]  # What the core has ends there.
            disk.seen.note("a start finds a torn log", when=judged.clears and len(behind) > at)
            disk.seen.note("a start finds a corrupt log", when=judged.found.suspect)
            disk.seen.note("a start finds damage in what has ended", when=judged.mends)


def chained(log: Sequence[GroupHead], behind: Sequence[Spot]) -> int:
    """How many of the places behind a log go on with it."""
    gseq, crc, count = len(log), log[-1].header_crc if log else 0, 0
    for spot in behind:
        head = spot.head
        if not spot.sound or (head.gseq, head.prev_crc) != (gseq + 1, crc):
            break
        gseq, crc, count = head.gseq, head.header_crc, count + 1
    return count
