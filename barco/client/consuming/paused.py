"""Slices that a consumer keeps and wants nothing of for now, and places that it goes to."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

from barco.client.base.settings import TopicSlice
from barco.model.placement import Placement
from barco.types import Token

PAUSED_MAX = 1_000
"""Each poll names them."""

SeekTo = Literal["earliest", "latest"] | datetime | int | Mapping[TopicSlice, str]
"""An end, a time (with its zone, or microseconds since 1970), or cursors of some slices, as
`Event.next_cursor` has them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Paused:
    """Of one consumer."""

    def __init__(self) -> None:
        self.slices: frozenset[TopicSlice] = frozenset()

    def add(self, slices: Iterable[TopicSlice]) -> None:
        """ValueError: more than a poll can name."""
        more = self.slices.union(slices)
        if len(more) > PAUSED_MAX:
            raise ValueError(f"at most {PAUSED_MAX:,} slices can be paused")
        self.slices = more

    def remove(self, slices: Iterable[TopicSlice]) -> None:
        """These, or all if none is named."""
        named = frozenset(slices)
        self.slices = self.slices - named if named else frozenset()

    def told(self, ring: Placement | None) -> list[tuple[str, str]]:
        """As parameters of a poll."""
        numbers: dict[str, list[int]] = {}
        for each in sorted(self.slices):
            numbers.setdefault(each.topic, []).append(number_of(each, ring))
        return [
            ("paused", f"{topic}/{','.join(map(str, those))}") for topic, those in numbers.items()
        ]


def number_of(which: TopicSlice, ring: Placement | None) -> int:
    """The number of a slice in the ring; of a single broker its own."""
    if ring is None:
        return which.slice
    index, _ = ring.locate(Token(which.token))
    return index * ring.slices_per_range + which.slice


def places(
    topic: str, to: SeekTo, mine: Iterable[TopicSlice], ring: Placement | None
) -> dict[str, str]:
    """Where to go in each slice of a topic, as the API has it, for those that the consumer reads.
    ValueError: it does not read one that is named, or that is no place."""
    of_topic = {each for each in mine if each.topic == topic}
    if isinstance(to, Mapping):
        if not of_topic.issuperset(to):
            raise ValueError(f"this consumer does not read {sorted(set(to) - of_topic)}")
        return {str(number_of(each, ring)): cursor for each, cursor in to.items()}
    return dict.fromkeys((str(number_of(each, ring)) for each in of_topic), place_of(to))


def place_of(to: str | datetime | int) -> str:
    """An end or a time, as the API has it; ValueError: it is none."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise ValueError("a datetime has to have a time zone")
        to = (to - _EPOCH) // timedelta(microseconds=1)
    if isinstance(to, int):
        if not -(2**63) < to < 2**63:
            raise ValueError(f"a time is microseconds since 1970, not {to}")
        return f"timestamp:{to}"
    if to not in ("earliest", "latest"):
        raise ValueError(
            f'{to!r} is none of "earliest", "latest", a datetime, microseconds since 1970'
        )
    return to
