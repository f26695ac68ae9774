"""Which ranges a broker holds, and which of its processes holds which: its table. Pure.

A range is a run of slices that has one log, named by its first token; a process holds one range's
log. Its number is its port and nothing else: what it holds stands in the table, and follows from no
count. The first table comes from the cut of the ring at format time (`first_table`).
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from barco.limits import PROCESSES_MAX
from barco.model.placement import Placement
from barco.model.replicas import Process, Replicas
from barco.types import Ordinal, SliceIndex, Token


class HeldRange(Struct, frozen=True, kw_only=True):
    """A range, and the process of one broker that holds its log."""

    token: int
    """Where it begins: the first token of its first slice."""
    first: int
    """The number of its first slice in the whole ring."""
    slices: int
    """How many it has."""
    number: int
    """Of the process: what is added to the first port of each kind."""
    members: tuple[Ordinal, ...]
    """The brokers that hold it, in the order of succession."""
    genesis: bool = True
    """Whether the cluster was formatted with this range. One that was made later has no generation
    before it hears of one, and promises nothing until then."""

    @property
    def numbers(self) -> range:
        """Its slices, numbered in the whole ring."""
        return range(self.first, self.first + self.slices)


class ProcessTable(Struct, frozen=True):
    """All processes of one broker, by number."""

    entries: tuple[HeldRange, ...]

    def __post_init__(self) -> None:
        numbers, tokens = list(self.numbers), {held.token for held in self.entries}
        assert numbers == sorted(set(numbers)) and len(tokens) == len(numbers)

    def __iter__(self) -> Iterator[HeldRange]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the processes, ascending."""
        return tuple(held.number for held in self.entries)

    def at(self, number: int) -> HeldRange:
        """What the process of that number holds; KeyError if there is none."""
        for held in self.entries:
            if held.number == number:
                return held
        raise KeyError(number)

    def holding(self, token: int) -> HeldRange | None:
        """The entry of the range that begins at this token."""
        return next((held for held in self.entries if held.token == token), None)

    def owned_by(self, ordinal: Ordinal) -> tuple[HeldRange, ...]:
        """The ranges that this broker is to lead: it is the first of their members."""
        return tuple(held for held in self.entries if held.members[0] == ordinal)

    def with_range(self, held: HeldRange) -> "ProcessTable":
        """The table with a process more, of the lowest number that is free, whatever `held` says.

        ValueError if the range has a process already, or if there is no number left.
        """
        if self.holding(held.token) is not None:
            raise ValueError(f"the range at {held.token} has a process already")
        taken = set(self.numbers)
        free = next((number for number in range(PROCESSES_MAX) if number not in taken), None)
        if free is None:
            raise ValueError(f"a broker has at most {PROCESSES_MAX} processes")
        entries = (*self.entries, replace(held, number=free))
        return ProcessTable(tuple(sorted(entries, key=lambda each: each.number)))

    def without(self, token: int) -> "ProcessTable":
        """The table without the process of this range; its number is free again."""
        assert self.holding(token) is not None, "what is taken out is in it"
        return ProcessTable(tuple(held for held in self.entries if held.token != token))


def directory_of(token: int) -> str:
    """What a range's directory is called: by its token, signed, as answers spell it."""
    return f"range-{token}"


def peer_of(process: Process) -> int:
    """One number for a process of the cluster, the same wherever and whenever it is asked for."""
    assert 0 <= process[1] < PROCESSES_MAX
    return process[0] * PROCESSES_MAX + process[1]


def process_of(peer: int) -> Process:
    """The process of that number."""
    ordinal, number = divmod(peer, PROCESSES_MAX)
    return Ordinal(ordinal), number


def token_of_slice(cut: Placement, number: int) -> int:
    """The first token of a slice; `number` counts them in the whole ring."""
    index, within = divmod(number, cut.slices_per_range)
    return int(cut.slice_bounds(index, SliceIndex(within))[0])


def end_of_slice(cut: Placement, number: int) -> int:
    """The first token behind a slice; 2^63 behind the last one."""
    index, within = divmod(number, cut.slices_per_range)
    return cut.slice_bounds(index, SliceIndex(within))[1]


def slices_between(cut: Placement, token: int, end: int) -> range:
    """The slices of the tokens from `token` to before `end` (2^63 behind the last one), numbered in
    the token range, at format time, in which they begin.

    ValueError: they do not begin and end between slices of one such range.
    """
    index, within = cut.locate(Token(token))
    first = index * cut.slices_per_range + within
    slices = range(within, cut.slices_per_range)
    ends = {end_of_slice(cut, first + more): within + more + 1 for more in range(len(slices))}
    if token != token_of_slice(cut, first) or end not in ends:
        raise ValueError(f"tokens {token} to {end} are no slices of one token range")
    return range(within, ends[end])


@cache
def first_ranges(replicas: Replicas) -> tuple[HeldRange, ...]:
    """The ranges of the whole ring as it is formatted, in its order, each as its owner holds it."""
    return tuple(_first(replicas, shard, 0) for shard in range(replicas.shards))


@cache
def first_table(replicas: Replicas, ordinal: Ordinal) -> ProcessTable:
    """A broker's processes as the cluster is formatted: of its own range and of those it follows.

    The only broker of a ring of one counts as broker 0.
    """
    numbers = range(replicas.processes)
    held = [
        (replicas.shard_of((ordinal, number)), number // replicas.workers) for number in numbers
    ]
    return ProcessTable(tuple(_first(replicas, shard, seat) for shard, seat in held))


def _first(replicas: Replicas, shard: int, seat: int) -> HeldRange:
    """A range as it is formatted, at the broker that has this seat in it."""
    numbers, holders = replicas.numbers_of(shard), replicas.holders(shard)
    return HeldRange(
        token=token_of_slice(replicas.placement, numbers.start),
        first=numbers.start,
        slices=len(numbers),
        number=holders[seat][1],
        members=tuple(holder for holder, _ in holders),
    )


def flaw(table: ProcessTable, cut: Placement, ordinal: Ordinal) -> str | None:
    """What can not be in this broker's table, in words; None: it is sound."""
    if not len(table):
        return "it has no range"
    slices = cut.size * cut.slices_per_range
    for held in table:
        what = f"the range at {held.token}"
        if not 0 <= held.number < PROCESSES_MAX:
            return f"{what} has process {held.number}"
        if not (0 <= held.first and 1 <= held.slices <= slices - held.first):
            return f"{what} has {held.slices} slices from {held.first} on, of {slices}"
        if held.token != token_of_slice(cut, held.first):
            return f"{what} does not begin with slice {held.first}"
        if ordinal not in held.members or len(set(held.members)) != len(held.members):
            return f"{what} has members {list(held.members)}"
    return None


def to_plain(table: ProcessTable) -> list[dict[str, Any]]:
    """For JSON. Tokens are text: they have more digits than some readers of JSON keep."""
    return [
        asdict(held) | {"token": str(held.token), "members": list(held.members)} for held in table
    ]


def from_plain(given: Any) -> ProcessTable:
    """The opposite; ValueError for what is no table. `flaw` looks at what it says."""
    if not isinstance(given, list):
        raise ValueError("a table is a list")  # noqa: TRY004 - of what came from outside.
    found = sorted(map(_entry, given), key=lambda held: held.number)
    if len({held.number for held in found}) < len(found):
        raise ValueError("two processes have one number")
    if len({held.token for held in found}) < len(found):
        raise ValueError("two processes hold one range")
    return ProcessTable(tuple(found))


def _entry(given: Any) -> HeldRange:
    names = set(HeldRange.__struct_fields__)
    if not isinstance(given, dict) or given.keys() != names:
        raise ValueError(f"an entry of a table has {', '.join(sorted(names))}")
    token, members = given["token"], given["members"]
    if not isinstance(token, str) or str(int(token)) != token:
        raise ValueError("a token is a decimal number, as text")
    numbers = [given["first"], given["slices"], given["number"]]
    if not isinstance(members, list) or any(type(each) is not int for each in numbers + members):
        raise ValueError("slices, processes and members are numbers")
    if type(given["genesis"]) is not bool or not members:
        raise ValueError("a range has members, and a genesis or none")
    ordinals = tuple(Ordinal(each) for each in members)
    return HeldRange(**given | {"token": int(token), "members": ordinals})
