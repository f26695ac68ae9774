"""The whole history of a slice: what is here, and what other processes hold.

A range that was split off, or that this broker became a member of, begins with a state; the events
of the generations before stay where they were written. What was split off and taken in again lies
elsewhere between two generations that are here. Positions go on through all of them, so a reader
asks for an offset, and nothing is given before what is elsewhere and comes first has been.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from barco.errors import BarcoError
from barco.limits import OFFSET_MAX
from barco.workers.seams import LogReaderLike, ReadResultLike

Size = tuple[int, int]
"""(base offset, stored bytes before it)."""

Begins = Callable[[str, int, int], Awaitable[int | None]]
"""Of a (topic, slice): the lowest offset from one on that is here; None: nothing is."""


class Elsewhere(Protocol):
    """What other processes hold of a slice's history. Each call raises a BarcoError where nobody
    can be asked: then it is not known whether there is something."""

    def needed(self, slice_: int) -> bool:
        """Whether there are generations of it that were never here, or are not all here yet."""

    def between(self, slice_: int, after: int, before: int) -> bool:
        """Whether some of these lie between two epochs: of a slice's generations each has a later
        one than that which it continues."""

    async def read(
        self,
        topic: str,
        slice_: int,
        from_offset: int,
        max_bytes: int,
        *,
        raw_bytes_max: int | None,
        columns: int,
        stop: int,
    ) -> ReadResultLike | None:
        """As the reader here; None: nothing before `stop` is left."""

    async def earliest(self, topic: str, slice_: int) -> int | None:
        """The lowest offset that is left; None: none is."""

    async def by_timestamp(self, topic: str, slice_: int, timestamp_us: int) -> int | None:
        """As the reader here."""

    async def since(self, topic: str, slice_: int, time_us: int) -> int | None:
        """The first chunk that may have been appended as late as this; None: all are older."""

    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None:
        """The oldest of the newest chunks that fit; None: there is nothing."""

    async def splits(
        self, topic: str, slice_: int, start: int, piece_bytes: int
    ) -> tuple[int, list[Size]]:
        """(stored bytes from `start` on, where to cut them), about."""


class StoredReader(LogReaderLike, Protocol):
    """What is here (`barco.workers.storage.reading.reader.LogReader`)."""

    async def epoch_before(self, topic: str, slice_: int, offset: int, /) -> int:
        """The last generation that has a chunk before this offset here; 0: none has."""
        ...


class WholeReader:
    """A `LogReaderLike` of both."""

    def __init__(self, here: StoredReader, begins: Begins) -> None:
        self._here = here
        self._begins = begins
        self.elsewhere: Elsewhere | None = None
        """Set by the host of a replica."""
        self._gone: set[tuple[str, int]] = set()
        """Streams of which nothing more is here, and when it was last asked nothing elsewhere."""

    async def read(
        self,
        topic: str,
        slice_: int,
        from_offset: int,
        max_bytes: int,
        /,
        *,
        raw_bytes_max: int | None = None,
        more: bool = False,
        columns: int = -1,
        stop: int = OFFSET_MAX,
    ) -> ReadResultLike:
        """Chunks of one generation that hold `from_offset` or, when retention was there, the next
        events after it."""
        elsewhere = self._elsewhere(slice_)
        self._gone.discard((topic, slice_))
        if elsewhere is not None:
            first = await self._begins(topic, slice_, from_offset)
            if first is None:
                before = await self._here.epoch_before(topic, slice_, from_offset)
                if not elsewhere.between(slice_, before, OFFSET_MAX):
                    first = from_offset  # Behind what is here nothing is elsewhere.
            if first != from_offset:
                found = await elsewhere.read(
                    topic,
                    slice_,
                    from_offset,
                    max_bytes,
                    raw_bytes_max=raw_bytes_max,
                    columns=columns,
                    stop=stop if first is None else min(first, stop),
                )
                if found is not None:
                    return found
                if first is None:
                    self._gone.add((topic, slice_))
        return await self._here.read(
            topic,
            slice_,
            from_offset,
            max_bytes,
            raw_bytes_max=raw_bytes_max,
            more=more,
            columns=columns,
            stop=stop,
        )

    def missing(self, topic: str, slice_: int, first: int, end: int, /) -> BarcoError | None:
        """As the reader here; None where retention has removed elsewhere all that there was, which
        the state here does not say."""
        if (topic, slice_) in self._gone:
            return None
        return self._here.missing(topic, slice_, first, end)

    async def look_up(self, streams: Sequence[tuple[str, int]], /) -> None:
        """Of those that are here; what was here before is asked for elsewhere, by each stream."""
        await self._here.look_up(streams)

    async def earliest(self, topic: str, slice_: int, /) -> int | None:
        """The lowest offset that is left anywhere; OFFSET_MAX: there were some elsewhere, and none
        is left."""
        elsewhere = self._elsewhere(slice_)
        if elsewhere is None:
            return await self._here.earliest(topic, slice_)
        found = _first(
            await elsewhere.earliest(topic, slice_), await self._begins(topic, slice_, 0)
        )
        return OFFSET_MAX if found is None else found

    async def by_timestamp(self, topic: str, slice_: int, timestamp_us: int, /) -> int | None:
        """An offset at or shortly before the first event that is as late as this."""
        here = await self._here.by_timestamp(topic, slice_, timestamp_us)
        if (elsewhere := self._elsewhere(slice_)) is None:
            return here
        return _first(await elsewhere.by_timestamp(topic, slice_, timestamp_us), here)

    def _elsewhere(self, slice_: int) -> Elsewhere | None:
        elsewhere = self.elsewhere
        return elsewhere if elsewhere is not None and elsewhere.needed(slice_) else None


class StoredExtents(Protocol):
    """What is here (`barco.workers.storage.reading.extents.StreamExtents`)."""

    async def begins(self, topic: str, slice_: int, from_offset: int) -> int | None: ...
    async def since(self, topic: str, slice_: int, time_us: int) -> int | None: ...
    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None: ...
    async def splits(
        self, topic: str, slice_: int, start: int, piece_bytes: int
    ) -> tuple[int, list[Size]]: ...
    def forget(self) -> None: ...


class WholeExtents:
    """Where times and sizes begin in both. What can not be asked is an error for retention, which
    comes again, and left out for who only plans."""

    def __init__(self, here: StoredExtents, elsewhere: Elsewhere) -> None:
        self._here = here
        self._elsewhere = elsewhere

    async def since(self, topic: str, slice_: int, time_us: int) -> int | None:
        """The first chunk that may have been appended as late as this; None when all are older."""
        here = await self._here.since(topic, slice_, time_us)
        if not self._elsewhere.needed(slice_):
            return here
        return _first(await self._elsewhere.since(topic, slice_, time_us), here)

    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None:
        """The oldest of the newest chunks that fit; None when there is nothing."""
        kept = await self._here.within(topic, slice_, bytes_max)
        if not self._elsewhere.needed(slice_):
            return kept
        first = await self._here.begins(topic, slice_, 0)
        if kept is not None and first is not None and kept > first:
            return kept
        taken = 0
        if first is not None:
            taken, _ = await self._here.splits(topic, slice_, first, OFFSET_MAX)
        left = max(0, bytes_max - taken)
        found = await self._elsewhere.within(topic, slice_, left) if left else None
        if found is not None and first is not None and found > first:
            # Some of what is here is older: counted as newer, it would take the place of others.
            found = await self._elsewhere.within(topic, slice_, bytes_max)
        return kept if found is None else found

    async def splits(
        self, topic: str, slice_: int, start: int, piece_bytes: int
    ) -> tuple[int, list[Size]]:
        """(stored bytes from `start` on, where to cut them into pieces of about `piece_bytes`)."""
        total, cuts = await self._here.splits(topic, slice_, start, piece_bytes)
        first = await self._here.begins(topic, slice_, start)
        if not self._elsewhere.needed(slice_) or first == start:
            return total, cuts
        try:
            before, found = await self._elsewhere.splits(topic, slice_, start, piece_bytes)
        except BarcoError:
            return total, cuts
        if first is not None:  # Where what is here begins is a good place to cut.
            cuts.append((first, max(0, before - sum(size for at, size in found if at < first))))
        merged = {at: (at, size) for at, size in sorted(found + cuts)}
        return before + total, [merged[at] for at in sorted(merged)]

    def forget(self) -> None:
        """Drops what is remembered of segments that are gone."""
        self._here.forget()


def _first(elsewhere: int | None, here: int | None) -> int | None:
    """The lower of two offsets, as far as there are any."""
    return min((each for each in (elsewhere, here) if each is not None), default=None)


def late(of: Callable[[], Any]) -> Begins:
    """`begins` of extents that are there only once recovery is done."""

    async def begins(topic: str, slice_: int, from_offset: int) -> int | None:
        found: int | None = await of().begins(topic, slice_, from_offset)
        return found

    return begins
