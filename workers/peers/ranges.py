"""The ranges of the cluster and the processes that hold them, as this worker has been told.

Which ranges there are the routes say, and where none was heard the cut at format time. Which
process of a broker holds a range stands in that broker's table, which it tells by gossip; before it
has been heard its first table is the best guess.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.heard import HeardRoutes
from barco.cluster.ring.routes import RangeRoute, RouteTable
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


class RingRange(NamedTuple):
    """A range of the ring as it is now. It may be what later routes have left of one: until those
    of the rest are heard, that is led by whoever led the whole."""

    token: int
    """Where it begins: the first token of its first slice."""
    first: int
    """The number of its first slice in the whole ring."""
    slices: int
    members: tuple[Ordinal, ...]
    """In the order of succession."""
    route: RangeRoute | None
    """What says so; None: the cut at format time."""

    @property
    def numbers(self) -> range:
        """Its slices, numbered in the whole ring."""
        return range(self.first, self.first + self.slices)


class ToldBroker(NamedTuple):
    """What a broker has told of itself."""

    numbers: Mapping[int, int]
    """Of its processes, by the token of the range that each holds."""
    sessions: Mapping[int, int]
    """Of those that are ready, by token."""
    disk: bytes = b""
    """Its uuid, 16 bytes; empty before it was heard."""
    up: bool = True


class RingRanges:
    """Which process holds which range. Ranges are named by their tokens."""

    def __init__(self, options: WorkerOptions) -> None:
        self._first = options.replicas
        self.me = self._me = options.process[0]
        self._disk = bytes.fromhex(options.disk_uuid)
        self.cut = Cut(options.ring_size, options.slices_per_range)
        self.own: ProcessTable = options.table
        """This broker's processes."""
        self.reached: Callable[[int], bool] = lambda peer: False
        """Whether this process of this broker, by its number in the cluster, can be asked now."""
        self.heard = HeardRoutes(self.cut, self._me, self._present)
        firsts = first_ranges(self._first)
        self._shards = {held.token: shard for shard, held in enumerate(firsts)}
        self._cut_into = [held for held in firsts for _ in held.numbers]
        self._starts = [int(self.cut.token(number)) for number in range(self.cut.slices)]
        self._brokers: dict[Ordinal, ToldBroker] = {}
        """As they have told, or guessed when they were asked for."""
        self._sessions: Mapping[int, int] = {}
        """Of this broker's processes that are ready, by number."""
        self.all: tuple[RingRange, ...] = ()
        """Every range of the ring, in its order."""
        self.look()

    # --- What is told -------------------------------------------------------------------------

    def tell(
        self,
        ordinal: int,
        processes: Iterable[Sequence[int]],
        disk_uuid: str = "",
        *,
        up: bool = True,
    ) -> bool:
        """Take a broker's table as (number of the process, token, session or 0); true if it has
        other processes than were known. disk_uuid: 32 hexadecimal digits."""
        told = list(processes)
        numbers = {token: number for number, token, *_ in told}
        if ordinal == self._me:
            return False  # What runs here the supervisor tells, and not the gossip.
        before = self._of(Ordinal(ordinal))
        sessions = {token: session for _, token, session in told if session}
        news = bool(numbers) and numbers != before.numbers
        disk = bytes.fromhex(disk_uuid)
        self._brokers[Ordinal(ordinal)] = ToldBroker(
            numbers or before.numbers, sessions, disk, up=up
        )
        return news

    def tell_own(self, table: ProcessTable, sessions: Mapping[int, int] | None = None) -> None:
        """This broker's processes are others now. sessions: of those that are ready, by number."""
        self.own = table
        self._sessions = sessions or {}
        self._brokers.pop(self._me, None)

    def look(self) -> None:
        """Routes have changed: these are the ranges now."""
        routes, found = self.heard.routes, list[RingRange]()
        source: RangeRoute | HeldRange | None = None
        for number, cut_into in enumerate(self._cut_into):
            route = routes.at(number)
            if (route or cut_into) == source:
                found[-1] = found[-1]._replace(slices=found[-1].slices + 1)
                continue
            source = route or cut_into
            members = tuple(map(Ordinal, source.members))
            found.append(RingRange(self._starts[number], number, 1, members, route))
        assert sum(each.slices for each in found) == self.cut.slices
        self.all = tuple(found)
        self._known = {each.token: each for each in found}
        self._at = [each for each in found for _ in each.numbers]

    # --- Ranges -----------------------------------------------------------------------------------

    @property
    def routes(self) -> RouteTable:
        """For each slice the route that counts; another table after each change."""
        return self.heard.routes

    def of_slice(self, number: int) -> int:
        """The range that a slice is in; `number` counts them in the whole ring."""
        return self._at[number].token

    def at(self, token: int) -> RingRange | None:
        """The range that begins at this token, if there is one now."""
        return self._known.get(token)

    def numbers_of(self, token: int) -> range:
        """The slices of a range, numbered in the whole ring; none of one that is not known here."""
        held = self._known.get(token) or self.own.holding(token)
        return range(0) if held is None else held.numbers

    def members(self, token: int) -> tuple[Ordinal, ...]:
        """The brokers that hold a range, in the order of succession; nobody if it is not known."""
        held = self._known.get(token) or self.own.holding(token)
        return () if held is None else held.members

    def shard_number(self, token: int) -> int | None:
        """Which range of the first cut begins at this token, as documents count them; None for
        one that was made later."""
        return self._shards.get(token)

    def shard_of(self, number: int) -> int:
        """In which range of the first cut a slice was, as documents count them."""
        return self._shards[self._cut_into[number].token]

    def known(self, token: int) -> bool:
        """Whether this is a range of the ring. One that a process was only made for is none; nor is
        one that is history."""
        return token in self._known

    @property
    def seats(self) -> int:
        """How many brokers hold a range, at most."""
        return max(len(each.members) for each in self.all)

    # --- Processes ----------------------------------------------------------------------------

    def holders(self, token: int) -> tuple[Process, ...]:
        """The processes that hold a range, in the order of succession; of one that is none of the
        ring (any more), all that have told of it."""
        members = self.members(token)
        if not members:
            return tuple(self.processes_of_token(token))
        found = (self.process_at(ordinal, token) for ordinal in members)
        return tuple(process for process in found if process is not None)

    def holder(self, token: int, ordinal: int) -> Process | None:
        """The process of a broker that holds a range, if it is a member and has told of one."""
        return self.process_at(ordinal, token) if ordinal in self.members(token) else None

    def process_at(self, ordinal: int, token: int) -> Process | None:
        """The process of a broker that has a range's log, whoever its members are now."""
        number = self._of(Ordinal(ordinal)).numbers.get(token)
        return None if number is None else (Ordinal(ordinal), number)

    def processes_of_token(self, token: int) -> list[Process]:
        """Of all brokers that have told of one: who may have history of this range."""
        brokers = {self._me, *map(Ordinal, range(self.cut.brokers)), *self._brokers}
        found = (self.process_at(ordinal, token) for ordinal in sorted(brokers))
        return [process for process in found if process is not None]

    def left_of(self, token: int, count: int) -> list[int]:
        """So many tokens before this one, the nearest first: of ranges, and of what brokers have
        processes for, which may be history."""
        brokers = {self._me, *map(Ordinal, range(self.cut.brokers)), *self._brokers}
        known = {each for ordinal in brokers for each in self.tokens_of(ordinal)} | set(self._known)
        return sorted((each for each in known if each < token), reverse=True)[:count]

    def owner(self, token: int) -> Process:
        """The process that is to lead a range; if its broker has told of none, where it was."""
        held = self._known[token]
        owner, first = held.members[0], self._cut_into[held.first]
        told = self.holder(token, owner)
        return told or (owner, first.number if owner == first.members[0] else 0)

    def held_by(self, process: Process) -> int | None:
        """The token of the range that a process holds."""
        numbers = self._of(process[0]).numbers
        return next((token for token, number in numbers.items() if number == process[1]), None)

    def processes_of(self, ordinal: int) -> list[Process]:
        """The processes of a broker, by number."""
        return [(Ordinal(ordinal), n) for n in sorted(self._of(Ordinal(ordinal)).numbers.values())]

    def session_of(self, ordinal: int, token: int) -> int:
        """Of a broker's process for this range, as it said when it was ready; 0: it is not, or has
        not been heard."""
        told = self._of(Ordinal(ordinal))
        return told.sessions.get(token, 0) if told.up else 0

    def ready(self, ordinal: int, token: int) -> bool:
        """Whether a broker's process for this range has said that it is ready."""
        return self.session_of(ordinal, token) != 0

    def is_coming(self, ordinal: int, token: int) -> bool:
        """Whether a broker is up, and its process for this range is not ready."""
        return self._of(Ordinal(ordinal)).up and not self.ready(ordinal, token)

    def disk_of(self, ordinal: int) -> bytes:
        """The uuid of a broker's disk, 16 bytes; empty if it has not been heard."""
        return self._of(Ordinal(ordinal)).disk

    def tokens_of(self, ordinal: Ordinal) -> list[int]:
        """The ranges that a broker has processes for, those that are history among them."""
        return sorted(self._of(ordinal).numbers)

    def slice_at(self, token: int) -> int:
        """The number of the slice that begins at this token, in the whole ring."""
        return bisect_left(self._starts, token)

    @property
    def peers(self) -> list[int]:
        """This broker's processes, by their numbers in the cluster."""
        return [peer_of((self._me, number)) for number in self.own.numbers]

    @property
    def speaker(self) -> int:
        """The number of the process that speaks for this broker, where one is enough: the first
        that has a range of the ring."""
        known = (held.number for held in self.own if self.known(held.token))
        return min(known, default=self.own.numbers[0])

    def _present(self, token: int) -> bool:
        held = self.own.holding(token)
        return held is not None and self.reached(peer_of((self._me, held.number)))

    def _of(self, ordinal: Ordinal) -> ToldBroker:
        """A broker as it has told; else as it was formatted. One that came later has nothing."""
        known = self._brokers.get(ordinal)
        if known is not None:
            return known
        if ordinal == self._me:
            numbers = {held.token: held.number for held in self.own}
            pairs = ((held.token, self._sessions.get(held.number, 0)) for held in self.own)
            sessions = {token: session for token, session in pairs if session}
            known = ToldBroker(numbers, sessions, self._disk)
        elif ordinal < self.cut.brokers:
            table = first_table(self._first, ordinal)
            known = ToldBroker({held.token: held.number for held in table}, {})
        else:
            return ToldBroker({}, {})
        self._brokers[ordinal] = known
        return known
