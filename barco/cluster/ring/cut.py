"""The slices of a cluster, cut once when it is formatted, and where brokers stand among them.

A slice has one number for ever. Brokers stand at slices: one that joins stands in the middle of the
range of the one before it, and keeps that position, as it keeps its token on PolarStreams' ring.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from barco.model.placement import REPLICAS, Placement, slices_of_worker, worker_of_slice
from barco.types import SliceIndex, Token


@dataclass(frozen=True)
class Cut:
    """`brokers` at format time, with `slices_per_range` slices each."""

    brokers: int
    slices_per_range: int

    @cached_property
    def _placement(self) -> Placement:
        return Placement(self.brokers, self.slices_per_range)

    @property
    def slices(self) -> int:
        """Of the whole ring, numbered from 0."""
        return self.brokers * self.slices_per_range

    def token(self, number: int) -> Token:
        """Where a slice begins."""
        assert 0 <= number < self.slices
        index, within = divmod(number, self.slices_per_range)
        return self._placement.slice_bounds(index, SliceIndex(within))[0]

    def slice_at(self, token: int) -> int | None:
        """The slice that begins at this token; None if none does."""
        index, within = self._placement.locate(Token(token))
        number = index * self.slices_per_range + within
        return number if self.token(number) == token else None

    def range_of(self, number: int) -> int:
        """The token range at format time that a slice is in."""
        assert 0 <= number < self.slices
        return number // self.slices_per_range

    def position(self, ordinal: int) -> int:
        """The slice at which the range of this broker begins, in a ring of any size.

        A ring doubles by one broker behind each old one, so the size at which an ordinal appears
        says where it stands. ValueError where that ring has more brokers than there are slices.
        """
        size = full_size(ordinal + 1)
        if size > self.slices:
            raise ValueError(f"a ring of {self.slices} slices has no room for broker {ordinal}")
        index = ordinal if size <= 3 else 2 * (ordinal - size // 2) + 1
        return index * self.slices // size


def full_size(brokers: int) -> int:
    """The smallest whole ring, 1 or 3 * 2^k, of at least so many brokers."""
    assert brokers >= 1
    size = 1 if brokers == 1 else 3
    while size < brokers:
        size *= 2
    return size


class WantedRange(NamedTuple):
    """A range as the target has it: its slices, its owner and who follows, in that order."""

    first: int
    slices: int
    members: tuple[int, ...]

    @property
    def end(self) -> int:
        """The first slice after it."""
        return self.first + self.slices


class Wanted:
    """The ranges of a ring of these brokers: each from its position to the next broker's, divided
    among its workers; the two brokers after it follow."""

    def __init__(self, cut: Cut, workers: Mapping[int, int]) -> None:
        """workers: of each broker of the ring, by ordinal."""
        assert 0 in workers, "the first slice is broker 0's"
        self.cut = cut
        self.workers = dict(workers)
        stand = sorted((cut.position(ordinal), ordinal) for ordinal in workers)
        self._starts = [start for start, _ in stand]
        self._owners = [ordinal for _, ordinal in stand]
        assert self._starts[0] == 0, "broker 0 is the first"

    @property
    def brokers(self) -> tuple[int, ...]:
        """In the order of the ring."""
        return tuple(self._owners)

    def share(self, ordinal: int) -> range:
        """All slices of a broker, as many ranges as it has workers."""
        index = bisect_right(self._starts, self.cut.position(ordinal)) - 1
        assert self._owners[index] == ordinal, "it is part of the ring"
        return self._share(index)

    def at(self, number: int) -> WantedRange:
        """The range that holds a slice."""
        assert 0 <= number < self.cut.slices
        index = bisect_right(self._starts, number) - 1
        share, workers = self._share(index), self.workers[self._owners[index]]
        worker = worker_of_slice(
            SliceIndex(number - share.start), slices=len(share), workers=workers
        )
        within = slices_of_worker(worker, slices=len(share), workers=workers)
        return WantedRange(share.start + within.start, len(within), self._members(index))

    def ranges(self) -> list[WantedRange]:
        """All, in the order of the ring."""
        found, number = [], 0
        while number < self.cut.slices:
            found.append(self.at(number))
            number = found[-1].end
        assert number == self.cut.slices, "no range ends behind the ring"
        return found

    def borders(self, start: int, end: int) -> list[int]:
        """Where ranges begin after slice `start` and before slice `end`."""
        assert 0 <= start < end <= self.cut.slices
        found, number = [], self.at(start).end
        while number < end:
            found.append(number)
            number = self.at(number).end
        return found

    def held_by(self, ordinal: int) -> list[WantedRange]:
        """The ranges of which a broker shall be a member: its own, then those that it follows."""
        assert ordinal in self.workers, "it is part of the ring"
        index = self._owners.index(ordinal)
        found: list[WantedRange] = []
        for back in range(min(REPLICAS, len(self._owners))):
            share = self._share((index - back) % len(self._owners))
            number = share.start
            while number < share.stop:
                found.append(self.at(number))
                number = found[-1].end
        return found

    def _share(self, index: int) -> range:
        after = index + 1
        end = self._starts[after] if after < len(self._starts) else self.cut.slices
        assert self._starts[index] < end, "no two stand at one slice"
        return range(self._starts[index], end)

    def _members(self, index: int) -> tuple[int, ...]:
        count = len(self._owners)
        return tuple(self._owners[(index + seat) % count] for seat in range(min(REPLICAS, count)))
