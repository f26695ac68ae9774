"""From ordinals and the ring's size to tokens, leaders and followers; from tokens to slices.

A pure function of its arguments, the same on every broker and client (PolarStreams' ring). A ring
has 1 broker (developer mode) or 3 * 2^k. The token of ring index i of n is
TOKEN_MIN + UNIT * (RING_SIZE_MAX / n) * i, so a broker keeps its token when the ring doubles.
"""

from functools import cache

from msgspec import Struct

from barco.limits import SLICES_PER_RANGE_MAX
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.types import Ordinal, SliceIndex, Token

RING_SIZE_MAX = 3 * 2**12
RING_UNIT = (2**64 - 1) // RING_SIZE_MAX
"""The range of one broker in the largest ring; 4,095 tokens at the very top are left over."""

REPLICAS = 3
"""A leader and the two brokers after it on the ring."""


def ring_size_valid(size: int) -> bool:
    """Whether a ring of so many brokers can be: 1, or 3 * 2^k up to RING_SIZE_MAX."""
    return size == 1 or (
        0 < size <= RING_SIZE_MAX and size % 3 == 0 and (size // 3).bit_count() == 1
    )


@cache
def ring_order(size: int) -> tuple[Ordinal, ...]:
    """The ordinals in ring order. Doubling puts each new broker behind an old one."""
    assert ring_size_valid(size)
    if size <= 3:
        return tuple(Ordinal(each) for each in range(size))
    half = ring_order(size // 2)
    return tuple(ordinal for i, old in enumerate(half) for ordinal in (old, Ordinal(size // 2 + i)))


class Placement(Struct, frozen=True):
    """Who leads what in a ring of `size` brokers whose ranges have `slices_per_range` slices."""

    size: int
    slices_per_range: int

    def __post_init__(self) -> None:
        assert ring_size_valid(self.size), f"no ring has {self.size} brokers"
        assert 1 <= self.slices_per_range <= SLICES_PER_RANGE_MAX

    @property
    def range_width(self) -> int:
        """How many tokens one broker's range has (the last one a few more)."""
        return 2**64 if self.size == 1 else RING_UNIT * (RING_SIZE_MAX // self.size)

    @property
    def slice_width(self) -> int:
        """How many tokens one slice has."""
        return self.range_width // self.slices_per_range

    def token(self, index: int) -> Token:
        """Where the range of this ring index starts."""
        assert 0 <= index < self.size
        return Token(TOKEN_MIN + self.range_width * index)

    def leader(self, index: int) -> Ordinal:
        """The broker of this ring index."""
        return ring_order(self.size)[index % self.size]

    def replicas(self, index: int) -> tuple[Ordinal, ...]:
        """Leader and followers of this ring index, in the order of succession."""
        return tuple(self.leader(index + step) for step in range(min(REPLICAS, self.size)))

    def index_of(self, ordinal: Ordinal) -> int:
        """The ring index of a broker; ValueError if it is not part of the ring."""
        return ring_order(self.size).index(ordinal)

    def locate(self, token: Token) -> tuple[int, SliceIndex]:
        """The ring index and the slice that hold a token."""
        assert TOKEN_MIN <= token <= TOKEN_MAX
        index = min((token - TOKEN_MIN) // self.range_width, self.size - 1)
        found = (token - self.token(index)) // self.slice_width
        # The few tokens that division leaves over belong to slice 0, as PolarStreams has it.
        return index, SliceIndex(found if found < self.slices_per_range else 0)

    def slice_bounds(self, index: int, slice: SliceIndex) -> tuple[Token, int]:
        """First token of a slice, and the first after it (2^63 at the end of the ring)."""
        assert 0 <= slice < self.slices_per_range
        start = self.token(index) + self.slice_width * slice
        if slice + 1 < self.slices_per_range:
            return Token(start), start + self.slice_width
        return Token(start), self.token(index + 1) if index + 1 < self.size else TOKEN_MAX + 1


def worker_of_slice(slice: SliceIndex, *, slices: int, workers: int) -> int:
    """Which worker of a broker leads a slice of its range: contiguous runs, as equal as can be."""
    assert 0 <= slice < slices and 1 <= workers <= slices
    return slice * workers // slices


def slices_of_worker(worker: int, *, slices: int, workers: int) -> range:
    """The inverse of worker_of_slice()."""
    assert 0 <= worker < workers <= slices
    first, last = (-(-each * slices // workers) for each in (worker, worker + 1))
    return range(first, last)


def ring_slices(brokers: int, slices_per_range: int) -> list[tuple[int, int]]:
    """Every slice of the ring in token order: (token of its range, index in the range)."""
    placement = Placement(brokers, slices_per_range)
    return [
        (placement.token(place), index)
        for place in range(brokers)
        for index in range(slices_per_range)
    ]
