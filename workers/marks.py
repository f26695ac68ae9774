"""Marks: what each writer committed last in each slice, kept as events of `__commits`.

A mark is written in one group with the events that it stands for. Only the last one of each
(writer, topic, slice) counts; it is stored under a number, so that numbers can be used again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from barco import limits
from barco.errors import TooManyRequestsError
from barco.workers import internal

COMMITS = "__commits"

Place = tuple[str, int]
"""(topic, slice)."""

_Name = tuple[str, str, int]
"""(writer, topic, slice)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What (writer, topic) committed last in a slice, and how much of it is there."""

    number: int
    batch: int
    rows: int
    parts: int
    done: int
    at_us: int
    plan: str = ""
    """The name of the plan that it was cut by; none in marks of earlier versions."""

    @property
    def complete(self) -> bool:
        """All of it is there."""
        return self.done == self.parts


def packed(writer: str, place: Place, mark: Mark) -> tuple[bytes, bytes]:
    """Key and value of the mark's event."""
    topic, index = place
    value = msgpack.packb(
        {
            "writer": writer,
            "topic": topic,
            "slice": index,
            "number": mark.number,
            "batch": mark.batch,
            "rows": mark.rows,
            "parts": mark.parts,
            "done": mark.done,
            "at_us": mark.at_us,
            "plan": mark.plan,
        }
    )
    return f"{index}.{mark.number}".encode(), value


class Marks:
    """The marks of a shard."""

    def __init__(self, per_slice: int = limits.MARKS_PER_SLICE_MAX) -> None:
        self._per_slice = per_slice
        self._marks: dict[_Name, Mark] = {}
        self._numbers: dict[_Name, int] = {}
        """Of marks, and of those that will be written."""
        self._next: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def open(self, kept: Iterable[tuple[bytes, bytes]]) -> None:
        """Take up what the log holds."""
        for writer, place, mark in internal.each(COMMITS, kept, self._read):
            index = place[1]
            self.set(writer, place, mark)
            self._next[index] = max(self._next.get(index, 0), mark.number + 1)
        used = {(name[2], number) for name, number in self._numbers.items()}
        for index, end in self._next.items():
            self._free[index] = [n for n in range(end) if (index, n) not in used]

    def _read(self, given: Mapping[str, Any]) -> tuple[str, Place, Mark]:
        names = internal.typed(given, {"writer": str, "topic": str, "slice": int})
        numbers = ("number", "batch", "rows", "parts", "done", "at_us")
        mark = Mark(
            **internal.typed(given, dict.fromkeys(numbers, int)),
            **internal.typed({"plan": ""} | dict(given), {"plan": str}),
        )
        if mark.number >= self._per_slice:
            raise ValueError(f"a slice has no mark {mark.number}")
        return names["writer"], (names["topic"], names["slice"]), mark

    def get(self, writer: str, place: Place) -> Mark | None:
        """The last one."""
        return self._marks.get((writer, *place))

    def of(self, writer: str) -> dict[Place, Mark]:
        """All of a writer."""
        return {name[1:]: mark for name, mark in self._marks.items() if name[0] == writer}

    def unfinished(self) -> set[tuple[str, int]]:
        """(writer, batch) of the writes that have begun in a slice and are not all there."""
        return {(name[0], mark.batch) for name, mark in self._marks.items() if not mark.complete}

    def done(self, writer: str, batch: int, place: Place) -> bool:
        """Whether all of this batch, or a later one, is there."""
        mark = self._marks.get((writer, *place))
        return mark is not None and (mark.batch > batch or (mark.batch == batch and mark.complete))

    def set(self, writer: str, place: Place, mark: Mark) -> None:
        """It is stable."""
        name = (writer, *place)
        self._marks[name] = mark
        self._numbers[name] = mark.number

    def reserve(self, writer: str, place: Place, now_us: int) -> int:
        """The number for a mark; TooManyRequestsError: every one is in use."""
        name = (writer, *place)
        if name in self._numbers:
            return self._numbers[name]
        index = place[1]
        if self._free.get(index):
            number = self._free[index].pop()
        elif self._next.get(index, 0) < self._per_slice:
            number = self._next.get(index, 0)
            self._next[index] = number + 1
        else:
            number = self._evict(index, now_us)
        self._numbers[name] = number
        return number

    def _evict(self, index: int, now_us: int) -> int:
        """The number of the oldest mark, which is forgotten."""
        old = [
            (mark.at_us, name)
            for name, mark in self._marks.items()
            if name[2] == index and mark.complete
        ]
        at_us, name = min(old, default=(now_us, ("", "", 0)))
        if at_us + limits.MARK_SECONDS_MIN * 1e6 > now_us:
            raise TooManyRequestsError("Too many writers have committed in the last day.")
        del self._marks[name]
        return self._numbers.pop(name)

    def release(self, writer: str, place: Place) -> None:
        """A number that was reserved, if no mark was written under it."""
        name = (writer, *place)
        if name in self._numbers and name not in self._marks:
            self._free.setdefault(place[1], []).append(self._numbers.pop(name))
