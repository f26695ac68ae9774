"""Where in a (topic, slice) a time or an amount of bytes begins, by the indexes alone.

Whole chunks, and no event is read: what retention asks of every topic every minute must be cheap.
"""

import asyncio

from barco.workers.storage.index.catalog import Catalog, SegmentKey, StreamPart
from barco.workers.storage.index.sidecar import Sidecar, Stream
from barco.workers.storage.reading.reader import Locate, LocateTimestamp

_ROWS = 4096
"""Index entries looked at before the event loop gets its turn."""

SPLITS_MAX = 1024
"""Pieces that one slice is cut into at most: larger pieces then, so that an answer stays small."""

_SAMPLES = 1024
"""Index entries of one sealed segment that tell how its bytes are spread: sizes are a hint."""

Size = tuple[int, int]
"""(base offset, stored bytes) of a chunk."""


def newest_within(sizes: list[Size], bytes_max: int) -> tuple[int | None, int]:
    """(base offset of the oldest chunk that is kept, bytes left over).

    The newest chunks are kept as long as they fit; None when not even the last one does.
    """
    kept = None
    for base_offset, stored_bytes in reversed(sizes):
        if stored_bytes > bytes_max:
            break
        bytes_max -= stored_bytes
        kept = base_offset
    return kept, bytes_max


class StreamExtents:
    """Looks through sealed segments by their sidecars, through the open ones by the core's index.

    The core forgets a segment some time after it was sealed. Where that happens in the middle of a
    look, less is counted than there is, so that too much is kept: the next look puts it right.
    """

    def __init__(
        self, catalog: Catalog, *, locate: Locate, locate_appended: LocateTimestamp
    ) -> None:
        self._catalog = catalog
        self._locate = locate
        self._locate_appended = locate_appended
        self._totals: dict[tuple[SegmentKey, str, int], int] = {}

    async def begins(self, topic: str, slice_: int, from_offset: int) -> int | None:
        """The lowest offset from this one on that is here; None when there is none."""
        part = await self._catalog.part_at(topic, slice_, from_offset)
        if part is not None:
            return max(from_offset, part.first_offset)
        rows = self._locate(topic, slice_, from_offset, 1)
        return max(from_offset, rows[0][3]) if rows else None

    async def since(self, topic: str, slice_: int, time_us: int) -> int | None:
        """The first chunk that may have been appended at or after a time; None when all are older.

        By the log's own clock: what timestamps the events were given does not matter.
        """
        end = 0
        # Again until nothing is new: what is sealed meanwhile, the core may have forgotten.
        while todo := [p for p in await self._catalog.parts(topic, slice_) if p.end_offset > end]:
            for part in todo:
                end = part.end_offset
                if part.newest_us < time_us:
                    continue
                found = await self._sidecar(part, topic, slice_)
                offset = found[0].locate_appended(found[1], time_us) if found else None
                if offset is not None:
                    return offset
        return self._locate_appended(topic, slice_, time_us)

    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None:
        """The oldest chunk of those newest ones that together take at most `bytes_max` bytes.

        The newest of all always counts as fitting. None when there is nothing.
        """
        parts = list(await self._catalog.parts(topic, slice_))
        sizes = await self._open_sizes(topic, slice_, parts[-1].end_offset if parts else 0)
        kept, left = newest_within(sizes, bytes_max)
        if sizes and kept != sizes[0][0]:
            return sizes[-1][0] if kept is None else kept
        for part in reversed(parts):
            found = await self._sidecar(part, topic, slice_)
            if found is None:
                return kept
            total = await self._total(part, *found)
            if total <= left:
                left -= total
                kept = part.first_offset
                continue
            older, _ = newest_within(await _sealed_sizes(*found), left)
            if older is None and kept is None:
                return found[0].sizes(found[1], found[1].entry_count - 1, 1)[0][0]
            return kept if older is None else older
        return kept

    async def splits(
        self, topic: str, slice_: int, start: int, piece_bytes: int
    ) -> tuple[int, list[Size]]:
        """(stored bytes from `start` on, where to cut them into pieces of about `piece_bytes`).

        Each cut is (first offset after it, bytes before it since the last one). For planning: what
        large segments hold is estimated.
        """
        cuts = _Cuts(piece_bytes)
        end = start
        for part in list(await self._catalog.parts(topic, slice_)):
            found = await self._sidecar(part, topic, slice_)
            if part.end_offset <= start or found is None:
                continue
            for base, stored in _sampled(*found):
                if base >= start:
                    cuts.add(base, stored)
            end = part.end_offset
            await asyncio.sleep(0)
        for base, stored in await self._open_sizes(topic, slice_, end):
            cuts.add(base, stored)
        return cuts.total, cuts.found

    def forget(self) -> None:
        """Drops what is remembered of segments that are gone."""
        for key in [key for key in self._totals if self._catalog.get(key[0]) is None]:
            del self._totals[key]

    async def _open_sizes(self, topic: str, slice_: int, from_offset: int) -> list[Size]:
        sizes: list[Size] = []
        while rows := self._locate(topic, slice_, from_offset, _ROWS):
            sizes += [(base, stored) for _, _, stored, base, _ in rows]
            from_offset = rows[-1][3] + rows[-1][4]
            if len(rows) < _ROWS:
                break
            await asyncio.sleep(0)
        return sizes

    async def _sidecar(
        self, part: StreamPart, topic: str, slice_: int
    ) -> tuple[Sidecar, Stream] | None:
        if self._catalog.get(part.key) is None:
            return None
        sidecar = await self._catalog.sidecar(part.key)
        stream = sidecar.find(topic, slice_)
        return None if stream is None else (sidecar, stream)

    async def _total(self, part: StreamPart, sidecar: Sidecar, stream: Stream) -> int:
        """Stored bytes of a sealed segment's share; it never changes, so it is remembered."""
        name = (part.key, stream.topic, stream.slice)
        total = self._totals.get(name)
        if total is None:
            sizes = await _sealed_sizes(sidecar, stream)
            total = self._totals[name] = sum(stored for _, stored in sizes)
        return total


class _Cuts:
    """Cuts a run of chunks into pieces; doubles their size when there are too many."""

    def __init__(self, piece_bytes: int) -> None:
        self.found: list[Size] = []
        self.total = 0
        self._piece_bytes = piece_bytes
        self._since = 0

    def add(self, base_offset: int, stored_bytes: int) -> None:
        """The next chunk."""
        if self._since >= self._piece_bytes:
            self.found.append((base_offset, self._since))
            self._since = 0
            if len(self.found) > SPLITS_MAX:
                if len(self.found) % 2:
                    self._since = self.found.pop()[1]
                pairs = zip(self.found[::2], self.found[1::2], strict=True)
                self.found = [(second[0], first[1] + second[1]) for first, second in pairs]
                self._piece_bytes *= 2
        self._since += stored_bytes
        self.total += stored_bytes


def _sampled(sidecar: Sidecar, stream: Stream) -> list[Size]:
    """Base offsets and sizes of a segment's chunks, of some that stand for their neighbours."""
    count = stream.entry_count
    step = 1 + count // _SAMPLES
    if step == 1:
        return sidecar.sizes(stream, 0, count)
    rows = range(0, count, step)
    sizes = [sidecar.sizes(stream, row, 1)[0] for row in rows]
    pairs = zip(rows, sizes, strict=True)
    return [(base, stored * min(step, count - row)) for row, (base, stored) in pairs]


async def _sealed_sizes(sidecar: Sidecar, stream: Stream) -> list[Size]:
    sizes: list[Size] = []
    while len(sizes) < stream.entry_count:
        sizes += sidecar.sizes(stream, len(sizes), _ROWS)
        await asyncio.sleep(0)
    return sizes
