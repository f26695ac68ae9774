"""What the tasks of a write have staged, and what each shard is to store of it: rows by slice, and
who holds them. A ring that grows or shrinks meanwhile has others hold them: then it is cut anew."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from barco.client.wire.batching import SliceKey
from barco.client.wire.ring import Ring
from barco.errors import BarcoError

Rows = dict[str, dict[int, int]]
"""By topic and slice: how many events."""


Shares = dict[tuple[str, int], "WriteShare"]
"""By the first process that holds it, and what its slices' numbers are counted from."""


class MovedError(BarcoError):
    """Slices have gone to other processes since the ring was read."""

    slug = "moved"
    title = "The slices are elsewhere"


@dataclass
class Staged(WriterCommitMessage):
    """What one task did, for the driver."""

    writer: str
    partition: int
    attempt: str
    rows: dict[str, Rows] = field(default_factory=dict)
    """By shard, which is named by the endpoint of the first process that holds it."""
    holders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each shard, all of them."""
    missed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Those that do not have all of it."""
    tokens: dict[str, int] = field(default_factory=dict)
    """By shard, what the numbers of its slices are counted from."""

    def held(self, home: str, holders: tuple[str, ...], missed: tuple[str, ...]) -> None:
        """Who has a copy of a shard's rows, and who of them does not."""
        self.holders[home] = holders
        self.missed[home] = missed

    def add(self, home: str, topic: str, slice_key: SliceKey, count: int) -> None:
        """So many events more were staged there."""
        self.tokens[home] = slice_key.token
        slices = self.rows.setdefault(home, {}).setdefault(topic, {})
        slices[slice_key.slice] = slices.get(slice_key.slice, 0) + count


@dataclass
class WriteShare:
    """What one shard is to store."""

    home: str
    token: int
    holders: tuple[str, ...]
    missed: set[str] = field(default_factory=set)
    attempts: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    later: int | None = None
    """The batch that the writer had stored there before, if it is a later one."""

    def body(self, state: str) -> bytes:
        """The request for a step."""
        told = {"state": state, "attempts": self.attempts, "rows": self.rows}
        return json.dumps(told).encode()

    def add(self, task: Staged) -> None:
        """A task's part of it."""
        self.attempts.append(task.attempt)
        self.missed |= set(task.missed.get(self.home, ()))
        for topic, slices in task.rows[self.home].items():
            into = self.rows.setdefault(topic, {})
            for index, count in slices.items():
                into[index] = into.get(index, 0) + count

    def by_holders(self, ring: Ring) -> Iterator[tuple[tuple[str, ...], str, int, int]]:
        """For each topic and slice: who holds it by this ring, and how many events."""
        for topic, slices in self.rows.items():
            for index, count in slices.items():
                yield ring.holders[SliceKey(self.token, index)], topic, index, count

    @property
    def ready(self) -> list[str]:
        """Who is to prepare: those that have everything, if they are enough, else everybody."""
        found = [each for each in self.holders if each not in self.missed]
        return found if len(found) >= needed_of(self.holders) else list(self.holders)


def needed_of(holders: Sequence[str]) -> int:
    """How many copies of what is staged are enough: what one broker takes with it is not lost."""
    return len(holders) // 2 + 1


def is_parted(shares: Shares) -> bool:
    """Whether a slice's events are in two shares, for its tasks knew different holders: what one of
    them stored would be all of it to the slice, and the other's were another write."""
    seen = set[tuple[int, str, int]]()
    for share in shares.values():
        of = {(share.token, topic, at) for topic, slices in share.rows.items() for at in slices}
        if seen & of:
            return True
        seen |= of
    return False


def cut_anew(shares: Shares, ring: Ring) -> None:
    """The same rows and attempts, by who holds the slices: who has got them since asks the others
    for what was staged. One share for each process that leads, for it has one plan for a write."""
    found: Shares = {}
    for share in shares.values():
        for holders, topic, index, count in share.by_holders(ring):
            of = holders[0], share.token
            part = found.setdefault(of, WriteShare(*of, holders))
            slices = part.rows.setdefault(topic, {})
            slices[index] = slices.get(index, 0) + count
            part.missed |= share.missed & set(holders)
            part.attempts += [each for each in share.attempts if each not in part.attempts]
    shares.clear()
    shares.update(found)
