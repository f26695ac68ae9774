"""The processes that a broker needs for a ring that is wanted."""

from barco.cluster.ring.cut import Cut, Wanted
from barco.model.ranges import HeldRange
from barco.types import Ordinal


def wanted_ranges(wanted: Wanted, ordinal: Ordinal) -> tuple[HeldRange, ...]:
    """The ranges of which a broker shall be a member, with processes numbered from 0."""
    return tuple(
        held_range(wanted.cut, each.first, each.slices, each.members, number)
        for number, each in enumerate(wanted.held_by(ordinal))
    )


def held_range(
    cut: Cut, first: int, slices: int, members: tuple[int, ...], number: int = 0
) -> HeldRange:
    """A range that the cluster was not formatted with, as one of its members holds it."""
    return HeldRange(
        token=int(cut.token(first)),
        first=first,
        slices=slices,
        number=number,
        members=tuple(map(Ordinal, members)),
        genesis=False,
    )
