"""Queues: the settings of one, and how its events are named while somebody has them.

An event that was handed out is `slice.epoch.offset.count`: the number of its slice in the ring, the
generation of the leader that gave it, its place, and how many times it was given. Neighbours of one
count are said at once, with how many they are behind it: so what an answer has fits into a header,
and nobody has to remember it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from barco.errors import RequestError
from barco.types import KiB

WINDOW_MAX = 16_384
"""Events of a slice from the oldest that is not acknowledged to the last that was handed out."""

IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX = 1_000, 10_000
"""Handed out of one slice and neither acknowledged nor given back."""

LEASE_MS_MIN, LEASE_MS_DEFAULT, LEASE_MS_MAX = 1_000, 30_000, 3_600_000
DELAY_MS_MAX = 86_400_000
"""Before an event that was given back is given again."""

DELIVERIES_MAX = 1_000
LEASED_DEFAULT, LEASED_MAX = 100, 1_000
"""Events of one answer."""

RUNS_MAX = 128
"""Of one answer, as its header names them."""

NAMED_RUNS_MAX, NAMED_EVENTS_MAX = 10_000, 16_384
"""Of one acknowledgement: each of its events costs a microsecond or two."""

GRAVEYARD = ".dead"
"""Behind a topic's name: its dead letters, if no other topic is named."""

DEAD_PREFIX = "barco-dead-"
"""Of the headers that tell of a death, and of what has become of the letter."""

MARK, MARKED_OFFSET = "mark", "offset"
"""Behind that prefix, what a mark says: what has become of a letter of its slice, and of which."""

LETTERS_MAX = 100
"""Dead letters that are sent again or dropped by one request: each is read by itself."""

REASON_BYTES_MAX = 256
QUEUE_VALUE_BYTES_MAX = 4 * KiB
"""What is kept of a slice of a queue, as one event."""

_RUN = re.compile(r"(\d{1,9})\.(\d{1,10})\.(\d{1,19})\.(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)


class QueueSettings(Struct, frozen=True):
    """How a queue hands out events."""

    in_flight: int = IN_FLIGHT_DEFAULT
    """Of each slice."""
    lease_ms: int = LEASE_MS_DEFAULT
    """For so long an event is with who got it, at most, unless that is extended."""
    ordered: bool = False
    """Events of one key one after the other, each when the one before is acknowledged."""
    deliveries: int = 0
    """Then it goes to the dead letters; 0: it is given again for ever."""
    retry_ms: int = 0
    """Before it is given for the second time; twice as long before each one more."""
    dead: str = ""
    """The topic of dead letters."""

    def packed(self) -> list[Any]:
        """Plain values."""
        return list(astuple(self))

    @classmethod
    def read(cls, given: Sequence[Any]) -> "QueueSettings":
        """The opposite; ValueError: these are none."""
        kinds = (int, int, bool, int, int, str)
        if len(given) != len(kinds) or any(type(v) is not k for v, k in zip(given, kinds)):
            raise ValueError("no settings of a queue")
        found = cls(*given)
        if not (0 < found.in_flight <= IN_FLIGHT_MAX and 0 < found.lease_ms <= LEASE_MS_MAX):
            raise ValueError("settings of a queue are out of bounds")
        if not (0 <= found.deliveries <= DELIVERIES_MAX and 0 <= found.retry_ms <= DELAY_MS_MAX):
            raise ValueError("settings of a queue are out of bounds")
        if len(found.dead) > 127:
            raise ValueError("no topic has such a name")
        return found

    def told(self) -> dict[str, Any]:
        """For documents."""
        return {
            "type": "queue",
            "maxInFlight": self.in_flight,
            "leaseMs": self.lease_ms,
            "ordered": "key" if self.ordered else "no",
            "maxDeliveries": self.deliveries,
            "retryMs": self.retry_ms,
            "dead": self.dead or None,
        }

    def pause_ms(self, count: int) -> int:
        """Before an event is given again that was given so many times."""
        return min(self.retry_ms << min(count - 1, 32), DELAY_MS_MAX) if count > 0 else 0


class Leased(NamedTuple):
    """Neighbours that were handed out together, for the same time."""

    slice: int
    """Numbered in the ring; at the slice's own leader within its token range."""
    epoch: int
    start: int
    end: int
    times: int
    """How many times each of them was given, this one included."""

    @property
    def prefix(self) -> str:
        """Of the names of each of them: what stands before the offset."""
        return f"{self.slice}.{self.epoch}."

    @property
    def name(self) -> str:
        """As clients give it back."""
        first = f"{self.prefix}{self.start}.{self.times}"
        return first if self.end == self.start + 1 else f"{first}.{self.end - self.start}"


def parse_leased(name: Any) -> Leased:
    """What a client has given back; RequestError: it is no such name."""
    found = _RUN.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise RequestError("An event of a queue is named slice.epoch.offset.count, as it came.")
    of, since, first, times, neighbours = found.groups("1")
    index, epoch, start, count, more = int(of), int(since), int(first), int(times), int(neighbours)
    if start + more >= 2**63 or not 0 < more <= WINDOW_MAX or epoch >= 2**32:
        raise RequestError("No event has such a name.")
    return Leased(index, epoch, start, start + more, count)


def parse_leases(names: Iterable[Any]) -> list[Leased]:
    """Of all of them."""
    found = [parse_leased(name) for name in names]
    _check_number(found)
    return found


def check_leases(found: Sequence[Leased]) -> None:
    """RequestError: they are too many, or none, or are not numbers at all."""
    if any(type(each) is not int or each < 0 for run in found for each in run):
        raise RequestError("An event of a queue is named by numbers.")
    _check_number(found)


def _check_number(found: Sequence[Leased]) -> None:
    if not 0 < len(found) <= NAMED_RUNS_MAX:
        raise RequestError(f"1 to {NAMED_RUNS_MAX:,} events or runs of them are named at once.")
    if sum(max(1, run.end - run.start) for run in found) > NAMED_EVENTS_MAX:
        raise RequestError(f"At most {NAMED_EVENTS_MAX:,} events are named at once.")


def by_slice(runs: Iterable[Leased]) -> Mapping[int, list[Leased]]:
    """What is of each slice."""
    found: dict[int, list[Leased]] = {}
    for run in runs:
        found.setdefault(run.slice, []).append(run)
    return found
