"""What a start makes of the logs that it finds (rules S3, S5 and A4). Pure: no files, no bytes.

`judge` says how a log ends, by what a walk over its groups has seen (`scan`). `Start` goes through
the generations of a shard, newest first: which of them are walked at all, what the machine is told
of each, and what happens to what stands behind its end. The simulator's disks are judged here too.
"""

from typing import NamedTuple

END, TORN, SEALED, CORRUPT = "end", "torn", "sealed", "corrupt"
"""Only zeros behind it; what was never acknowledged; at the agreed tail; groups are lost."""


class Seen(NamedTuple):
    """What a walk over the groups of one generation has come to."""

    tail: int = 0
    """The last group of the chain (rule S3); 0: there is none."""
    header_crc: int = 0
    """Of that group; 0 without one."""
    committed: int = 0
    """gseq up to which the groups that were walked say that it was committed."""
    durable: int = 0
    """D of rule S5: the highest `durable_upto` of all valid headers, also behind the end."""
    rotten: bool = False
    """What stands where the chain ends lacks no sector: it was whole once (`torn`)."""
    missing: bool = False
    """A segment is gone, or the first groups are."""
    remains: bool = False
    """Something other than zeros stands behind the end."""


def stable_upto(seen: Seen, wanted: int | None) -> int:
    """gseq up to which the groups are known to have been stable here, at least.

    `wanted`: the agreed tail, where there is one.
    """
    assert seen.tail >= 0 and seen.durable >= 0
    return max(seen.durable, wanted or 0, seen.tail + 1 if seen.rotten else 0)


def judge(seen: Seen, wanted: int | None) -> str:
    """How the log ends: END, TORN, SEALED or CORRUPT. `wanted` as in `stable_upto`."""
    if seen.tail == wanted:
        return SEALED
    if seen.missing or seen.tail < stable_upto(seen, wanted):
        return CORRUPT
    return TORN if seen.remains else END


class Recorded(NamedTuple):
    """What the lineage says of a generation."""

    epoch: int
    tail: int | None
    """T, where that all of it is here has been noted; else None."""
    expired: bool
    """Retention has removed all of it."""


class Found(NamedTuple):
    """What the machine is told of a generation's log (`Recovered`)."""

    tail: int
    header_crc: int
    suspect: bool
    """It ends in corruption, and is open: no vote (rule A4)."""
    sealed: bool
    """As lineage.log has it."""
    committed: int = 0
    """gseq up to which the groups that were walked say that it was committed."""


class Judged(NamedTuple):
    """What follows from what was seen of one."""

    found: Found
    told: bool
    """There is something to tell of it."""
    loads: bool
    """The core goes on from its end."""
    clears: bool
    """What stands behind its end was never acknowledged, and goes. Else it stays: it tells the next
    start that the log was longer once."""
    mends: bool
    """It has ended, and is damaged: repaired in place from the members, while they vote on."""


class Start:
    """One start of a process: the generations of its shard, newest first."""

    def __init__(self) -> None:
        self.current = 0
        """Epoch of the generation that the core has; 0: none yet."""
        self.hurt: list[int] = []
        """Epochs that have ended and are damaged."""
        self._last = 0

    def looks(self, known: Recorded) -> bool:
        """Whether its groups are walked. Not where all of it is history, for that is read with its
        checksums anyway, and nobody votes on it; but for the newest, which the core begins with."""
        assert not self._last or known.epoch < self._last, "newest first"
        self._last = known.epoch
        if known.expired:
            return False
        return known.tail is None or bool(known.tail and not self.current and not self.hurt)

    def unseen(self, known: Recorded) -> Found:
        """What is told of one that is not walked."""
        return Found(known.tail or 0, 0, suspect=False, sealed=True)

    def saw(self, known: Recorded, seen: Seen, ends: str) -> Judged:
        """Of one that was; `ends` as `judge` has it."""
        corrupt = ends == CORRUPT
        loads = bool(seen.tail) and not self.current
        if known.tail is not None:
            assert corrupt or ends == SEALED, "it is whole, or it is damaged"
            if corrupt:
                self.hurt.append(known.epoch)
                return Judged(self.unseen(known), told=True, loads=False, clears=False, mends=True)
            found = self.unseen(known)._replace(header_crc=seen.header_crc)
        else:
            found = Found(seen.tail, seen.header_crc, corrupt, False, seen.committed)
        if loads:
            self.current = known.epoch
        clears = known.tail is None and not corrupt
        return Judged(found, bool(found.tail) or corrupt, loads, clears, mends=False)
