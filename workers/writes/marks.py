"""Marks: what each writer committed last in each slice, kept as events of `__commits`.

A mark is written in one group with the events that it stands for. Only the last one of each
(writer, topic, slice) counts; it is stored under a number, so that numbers can be used again. It
goes with its topic: who loads into a topic that was deleted begins anew.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgpack
from msgspec import Struct

from barco import limits
from barco.errors import BusyError, ConflictError, NotReadyError, TooManyRequestsError
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends, all_stable

COMMITS = "__commits"
MARK_BYTES = 192
"""What one takes in a snapshot of the log, less its names."""

Stream = tuple[str, int]
"""(topic, slice)."""

_Name = tuple[str, str, int]
"""(writer, topic, slice)."""


class Mark(Struct, frozen=True):
    """What (writer, topic) committed last in a slice, and how much of it is there."""

    number: int
    batch: int
    rows: int
    parts: int
    done: int
    at_us: int
    plan: str
    """The name of the plan that it was cut by."""

    @property
    def complete(self) -> bool:
        """All of it is there."""
        return self.done == self.parts


def packed(writer: str, stream: Stream, mark: Mark) -> tuple[bytes, bytes]:
    """Key and value of the mark's event."""
    topic, index = stream
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


ALL = range(limits.SLICES_PER_RANGE_MAX)


class Marks:
    """The marks of a shard, the one that was set last at the end.

    They are bounded by bytes: the oldest that is finished makes room. A number is free again when
    the event that empties it is under way, so that this never follows the next mark.
    """

    def __init__(
        self,
        bytes_max: int = limits.MARKS_BYTES_MAX,
        held: Callable[[str, Stream], bool] = lambda _writer, _stream: False,
        slices: range = ALL,
    ) -> None:
        self._bytes_max = bytes_max
        self._held = held
        """Whether a write that is planned may still use its number."""
        self._slices = slices
        """Those of the shard: what a plan has for others, others store."""
        self._marks: dict[_Name, Mark] = {}
        self._of: dict[str, dict[Stream, Mark]] = {}
        self._sizes: dict[_Name, int] = {}
        self._bytes = 0
        self._numbers: dict[_Name, int] = {}
        """Of marks, and of those that will be written."""
        self._next: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._stale: set[tuple[int, int]] = set()
        """(slice, number) of marks that are forgotten, and the log does not know it."""
        self.gone: list[tuple[int, int]] = []
        """Of those, the ones to be emptied now."""

    def __len__(self) -> int:
        return len(self._marks)

    def open(self, kept: Iterable[tuple[bytes, bytes]]) -> None:
        """Take up what the log holds."""
        found = internal.each(COMMITS, kept, self._read)
        for writer, stream, mark in sorted(found, key=lambda each: each[2].at_us):
            index = stream[1]
            self.set(writer, stream, mark)
            self._next[index] = max(self._next.get(index, 0), mark.number + 1)
        used = {(name[2], number) for name, number in self._numbers.items()}
        for index, end in self._next.items():
            self._free[index] = [n for n in range(end) if (index, n) not in used]

    def _read(self, given: Mapping[str, Any]) -> tuple[str, Stream, Mark]:
        names = internal.typed(given, {"writer": str, "topic": str, "slice": int})
        numbers = ("number", "batch", "rows", "parts", "done", "at_us")
        mark = Mark(**internal.typed(given, dict.fromkeys(numbers, int) | {"plan": str}))
        if mark.number >= limits.MARK_NUMBERS_MAX:
            raise ValueError(f"a slice has no mark {mark.number}")
        return names["writer"], (names["topic"], names["slice"]), mark

    def get(self, writer: str, stream: Stream) -> Mark | None:
        """The last one."""
        return self._marks.get((writer, *stream))

    def of(self, writer: str) -> dict[Stream, Mark]:
        """All of a writer."""
        return dict(self._of.get(writer, {}))

    def newest(self) -> Iterator[tuple[str, Stream, Mark]]:
        """All of them, with their writers; what was committed last comes first."""
        for (writer, topic, index), mark in reversed(self._marks.items()):
            yield writer, (topic, index), mark

    def unfinished(self) -> set[tuple[str, int]]:
        """(writer, batch) of the writes that have begun in a slice and are not all there."""
        return {(name[0], mark.batch) for name, mark in self._marks.items() if not mark.complete}

    def done(self, writer: str, batch: int, stream: Stream) -> bool:
        """Whether all of this batch, or a later one, is there; or it is to be stored elsewhere."""
        if stream[1] not in self._slices:
            return True
        mark = self._marks.get((writer, *stream))
        return mark is not None and (mark.batch > batch or (mark.batch == batch and mark.complete))

    def check(self, writer: str, batch: int, rows: Mapping[Stream, int]) -> None:
        """ConflictError if a slice has stored other counts of the batch, NotReadyError if it is not
        here."""
        for stream, count in rows.items():
            if stream[1] not in self._slices:
                raise NotReadyError("Slices of the write are not here (any more).")
            mark = self.get(writer, stream)
            if mark is not None and mark.batch == batch and mark.rows != count:
                raise ConflictError(
                    f"The write stored {mark.rows} events of {stream[0]} in slice {stream[1]} "
                    f"before, not {count}: it is not the same."
                )

    def set(self, writer: str, stream: Stream, mark: Mark) -> None:
        """It is stable."""
        name = (writer, *stream)
        self._drop(name)
        self._marks[name] = self._of.setdefault(writer, {})[stream] = mark
        self._numbers[name] = mark.number
        self._sizes[name] = MARK_BYTES + len(writer) + len(stream[0])
        self._bytes += self._sizes[name]
        self._stale.discard((stream[1], mark.number))

    def reserve(self, writer: str, stream: Stream, now_us: int) -> int:
        """The number for a mark; TooManyRequestsError: there is no room for one."""
        name = (writer, *stream)
        if name in self._numbers:
            return self._numbers[name]
        while self._bytes >= self._bytes_max:
            self._evict(now_us)
        index = stream[1]
        if self._free.get(index):
            number = self._free[index].pop()
        else:
            number = self._next.get(index, 0)
            if number >= limits.MARK_NUMBERS_MAX:
                raise TooManyRequestsError("Too many marks of writers wait to be emptied.")
            self._next[index] = number + 1
        self._numbers[name] = number
        return number

    def _evict(self, now_us: int) -> None:
        """Forgets the oldest that is finished."""
        for name, mark in self._marks.items():
            if mark.complete and not self._held(name[0], name[1:]):
                if mark.at_us + limits.MARK_SECONDS_MIN * 1e6 > now_us:
                    break
                self._forget(name)
                return
        raise TooManyRequestsError("Too many writers have committed in the last minutes.")

    def forget(self, topics: Collection[str]) -> None:
        """The marks of topics that are deleted."""
        for name in [name for name in self._marks if name[1] in topics]:
            self._forget(name)

    def _forget(self, name: _Name) -> None:
        self._stale.add((name[2], self._numbers[name]))
        self._drop(name)
        self.release(name[0], name[1:])

    def _drop(self, name: _Name) -> None:
        if self._marks.pop(name, None) is not None:
            self._bytes -= self._sizes.pop(name)
            streams = self._of[name[0]]
            del streams[name[1:]]
            if not streams:
                del self._of[name[0]]

    def release(self, writer: str, stream: Stream) -> None:
        """A number that was reserved, if no mark was written under it and nobody will."""
        name = (writer, *stream)
        if name not in self._numbers or name in self._marks or self._held(writer, stream):
            return
        slot = (stream[1], self._numbers.pop(name))
        if slot in self._stale:
            self.gone.append(slot)
        else:
            self._free.setdefault(slot[0], []).append(slot[1])

    def emptied(self, slot: tuple[int, int]) -> None:
        """The event that empties it is under way: the number may be used again."""
        self._stale.discard(slot)
        self._free.setdefault(slot[0], []).append(slot[1])


async def empty(marks: Marks, appends: Appends) -> None:
    """Has the log forget the marks that are gone. What it does not take now is left in `gone`."""
    waiting: list[asyncio.Future[int]] = []
    while marks.gone:
        index, number = marks.gone[-1]
        try:
            waiting.append(appends.start(COMMITS, index, f"{index}.{number}".encode(), b""))
        except BusyError:
            if not waiting:
                return
            await all_stable(waiting)
            waiting.clear()
        else:
            marks.emptied(marks.gone.pop())
    await all_stable(waiting)
