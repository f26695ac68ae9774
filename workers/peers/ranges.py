"""The ranges of the cluster and the processes that hold them, as this worker has been told.

Which ranges there are follows from the cut at format time, until routes say more. Which process of
a broker holds a range stands in that broker's table, which it tells by gossip; before it has been
heard its first table is the best guess.
"""

from collections.abc import Iterable, Sequence

from barco.model.options import WorkerOptions
from barco.model.ranges import (
    HeldRange,
    ProcessTable,
    first_ranges,
    first_table,
    peer_of,
)
from barco.model.replicas import Process
from barco.types import Ordinal


class RingRanges:
    """Which process holds which range. Ranges are named by their tokens."""

    def __init__(self, options: WorkerOptions) -> None:
        self._first = options.replicas
        self._me = options.process[0]
        self.own: ProcessTable = options.table
        """This broker's processes."""
        self.all: tuple[HeldRange, ...] = first_ranges(self._first)
        """Every range of the ring, in its order, as its owner holds it."""
        self._known = {held.token: held for held in self.all}
        self._shards = {held.token: shard for shard, held in enumerate(self.all)}
        self._of_slice = [held.token for held in self.all for _ in held.numbers]
        self._numbers: dict[Ordinal, dict[int, int]] = {}
        """By broker and token, as it has told, or guessed when it was asked for."""

    # --- What is told -------------------------------------------------------------------------

    def tell(self, ordinal: int, processes: Iterable[Sequence[int]]) -> bool:
        """Take a broker's table as (number of the process, token); true if that is news."""
        numbers = {token: number for number, token in processes}
        if ordinal == self._me or not numbers or numbers == self._of(Ordinal(ordinal)):
            return False  # What runs here the supervisor tells, and not the gossip.
        self._numbers[Ordinal(ordinal)] = numbers
        return True

    def tell_own(self, table: ProcessTable) -> None:
        """This broker's processes are others now."""
        self.own = table
        self._numbers.pop(self._me, None)

    # --- Ranges -----------------------------------------------------------------------------------

    def of_slice(self, number: int) -> int:
        """The range that a slice is in; `number` counts them in the whole ring."""
        return self._of_slice[number]

    def numbers_of(self, token: int) -> range:
        """The slices of a range, numbered in the whole ring; none of one that is not known here."""
        held = self._held(token)
        return range(0) if held is None else held.numbers

    def members(self, token: int) -> tuple[Ordinal, ...]:
        """The brokers that hold a range, in the order of succession; nobody if it is not known."""
        held = self._held(token)
        return () if held is None else held.members

    def shard_number(self, token: int) -> int | None:
        """The number of a range in the ring, as documents have it; None for one that is none yet:
        a process has been made for it, and nobody has decided it."""
        return self._shards.get(token)

    def known(self, token: int) -> bool:
        """Whether this is a range of the ring."""
        return token in self._known

    @property
    def seats(self) -> int:
        """How many brokers hold a range, at most."""
        return max(len(held.members) for held in self.all)

    # --- Processes ----------------------------------------------------------------------------

    def holders(self, token: int) -> tuple[Process, ...]:
        """The processes that hold a range, in the order of succession."""
        found = (self.holder(token, ordinal) for ordinal in self.members(token))
        return tuple(process for process in found if process is not None)

    def holder(self, token: int, ordinal: int) -> Process | None:
        """The process of a broker that holds a range, if it is a member and has told of one."""
        if ordinal not in self.members(token):
            return None
        number = self._of(Ordinal(ordinal)).get(token)
        return None if number is None else (Ordinal(ordinal), number)

    def owner(self, token: int) -> Process:
        """The process that is to lead a range; if its broker has told of none, where it was."""
        held = self._known[token]
        return self.holder(token, held.members[0]) or (held.members[0], held.number)

    def held_by(self, process: Process) -> int | None:
        """The token of the range that a process holds."""
        numbers = self._of(process[0])
        return next((token for token, number in numbers.items() if number == process[1]), None)

    def processes_of(self, ordinal: int) -> list[Process]:
        """The processes of a broker, by number."""
        return [(Ordinal(ordinal), n) for n in sorted(self._of(Ordinal(ordinal)).values())]

    @property
    def peers(self) -> list[int]:
        """This broker's processes, by their numbers in the cluster."""
        return [peer_of((self._me, number)) for number in self.own.numbers]

    def _held(self, token: int) -> HeldRange | None:
        """One of the ring, or for which this broker has a process."""
        return self._known.get(token) or self.own.holding(token)

    @property
    def speaker(self) -> int:
        """The number of the process that speaks for this broker, where one is enough: the first
        that has a range of the ring."""
        known = (held.number for held in self.own if self.known(held.token))
        return min(known, default=self.own.numbers[0])

    def _of(self, ordinal: Ordinal) -> dict[int, int]:
        """A broker's processes by token, as it has told; else as it was formatted."""
        known = self._numbers.get(ordinal)
        if known is None:
            if ordinal == self._me:
                table: Iterable[HeldRange] = self.own
            elif ordinal < self._first.placement.size:
                table = first_table(self._first, ordinal)
            else:
                return {}  # It came later, and has not told yet.
            known = self._numbers[ordinal] = {held.token: held.number for held in table}
        return known
