"""Reading committed chunks of this worker's slices: from memory, else from disk."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from barco import _native
from barco.errors import BarcoError, CorruptDataError
from barco.limits import CHUNK_RAW_BYTES_MAX, OFFSET_MAX
from barco.model.queues import Leased
from barco.types import KiB, MiB
from barco.workers.seams import LogReaderLike, ReactorLike
from barco.workers.shard.waiting import breathe

if TYPE_CHECKING:
    from barco._native import ChunkInfo

STEP_BYTES = 2 * CHUNK_RAW_BYTES_MAX
"""How much is fetched at once where the budget counts uncompressed bytes: text compresses five to
twenty times, so fetching the whole budget would read much for nothing."""

PIECE_BYTES = 1 * MiB
"""Of one copy out of memory: larger ones would be mapped, faulted in and unmapped every time."""

STRETCH_BYTES = 256 * KiB
"""Of chunks that are rendered at once, about: a millisecond, and then others have their turn."""

REST_SHARE = 8
"""Of a budget of stored bytes: a smaller rest is not filled from the disk. Another look there costs
half a millisecond, and makes a reader of large answers look like one of many small ones."""

LOOKED_UP_AT_ONCE = 1024
"""Streams, of which the beginnings are looked for in one walk: the catalog remembers more."""

READ_SECONDS = 1.0
"""Of one answer, about: cut down to offsets, gigabytes of the disk fit into a budget, and who asks
waits for some seconds only."""

Slot = tuple[str, int]
"""(topic, slice)."""

Bounds = tuple[int, int]
"""(start offset, stable end)."""

Chunk = bytes | memoryview | _native.Lent
"""Stored chunks of one generation back to back: bytes of their own, a part of a read buffer (of
which the reader gives out only so many), or lent by the log until an answer has been sent."""


def chunk_head(chunk: Chunk, position: int = 0) -> "ChunkInfo":
    """What the header of the stored chunk at this position says; it is verified."""
    try:
        if isinstance(chunk, _native.Lent) and position == 0:
            head = chunk.head()  # It need not be moved for that.
        else:
            head = _native.chunk_info(chunk, position)
    except ValueError as error:
        raise CorruptDataError(f"A stored chunk is damaged: {error}.") from None
    if head is None:
        raise CorruptDataError("A stored chunk is cut off.")
    return head


def chunk_place(chunk: Chunk) -> tuple[int, int, int]:
    """(base offset, events, epoch) of the first chunk, whole or cut down to some columns."""
    if isinstance(chunk, _native.Lent):
        head = chunk_head(chunk)
        return head["base_offset"], head["count"], head["epoch"]
    try:
        return _native.chunk_place(chunk)
    except ValueError as error:
        raise CorruptDataError(f"A stored chunk is damaged: {error}.") from None


def chunk_begin(chunk: Chunk) -> int:
    """The offset of the first event of the first chunk, as `chunk_place` has it."""
    if not isinstance(chunk, _native.Lent):
        return chunk_place(chunk)[0]
    try:
        return chunk.begin()
    except ValueError as error:
        raise CorruptDataError(f"A stored chunk is damaged: {error}.") from None


def split_chunks(buffer: Chunk) -> Iterator[tuple[Chunk, "ChunkInfo"]]:
    """The chunks that stand back to back in a buffer, without copying them."""
    if not len(buffer):
        return
    head = chunk_head(buffer)
    if head["stored_bytes"] == len(buffer):
        yield buffer, head
        return
    view, position = memoryview(buffer), 0
    while position < len(view):
        head = chunk_head(view, position)
        yield view[position : position + head["stored_bytes"]], head
        position += head["stored_bytes"]


class Extent(Struct):
    """Consecutive events of one (topic, slice): stored chunks, of which [start, end) is meant.

    Each element of `chunks` holds one or more of them, back to back. The first may begin before
    `start`, and the last reach beyond `end`.
    """

    topic: str
    slice: int
    start: int
    end: int
    high_watermark: int
    chunks: list[Chunk] = field(default_factory=list)
    cost: int = 0
    columns: int | None = None
    """What the chunks are cut down to, as the core counts columns; None: they are whole."""
    leased: Leased | None = None
    """Of a queue: as what they were handed out."""

    @property
    def more(self) -> bool:
        """Whether there are committed events after it."""
        return self.end < self.high_watermark

    def join(self, after: "Extent") -> None:
        """Add what begins where this ends; a chunk that was cut there is in both."""
        chunks = after.chunks
        if self.chunks and chunks and chunk_place(chunks[0])[0] < self.end:
            head = chunk_head(chunks[0])
            rest = memoryview(chunks[0])[head["stored_bytes"] :]
            chunks = [rest, *chunks[1:]] if len(rest) else chunks[1:]
        self.chunks += chunks
        self.cost += after.cost
        self.end, self.high_watermark = after.end, after.high_watermark


class _Piece(NamedTuple):
    """Chunks back to back, of one generation, and the offset after their last event."""

    chunks: bytes | memoryview | _native.Lent
    end: int


def _pieces(
    stop: int, chunks: Sequence[bytes | memoryview], end: int, columns: int
) -> list[_Piece]:
    """Chunks that end at an offset, without those from `stop` on; one of them at least."""
    starts = [chunk_place(piece)[0] for piece in chunks[1:]]
    pieces = [_Piece(piece, after) for piece, after in zip(chunks, [*starts, end], strict=True)]
    while len(pieces) > 1 and starts[-1] >= stop:
        del pieces[-1], starts[-1]
    last, after = pieces[-1]
    if after > stop:
        size, _, after = _native.chunks_fit(last, OFFSET_MAX, OFFSET_MAX, stop, True, columns)
        pieces[-1] = _Piece(memoryview(last)[:size], after)
    return pieces


class Reads:
    """Committed events of the slices of this worker."""

    def __init__(self, reactor: ReactorLike, reader: LogReaderLike) -> None:
        self._reactor = reactor
        self._reader = reader

    def bounds(self, topic: str, slice: int) -> Bounds:
        """(start offset, stable end); (0, 0) if nothing was ever written there."""
        return self._reactor.stream_ends(topic, slice) or (0, 0)

    async def earliest(self, topic: str, slice: int) -> int:
        """The first offset that deletion and retention have left; the stable end if none is."""
        start, end = self.bounds(topic, slice)
        if start >= end:
            return end
        kept = await self._reader.earliest(topic, slice)
        return start if kept is None else min(max(start, kept), end)

    async def earliest_of(self, streams: Sequence[Slot]) -> list[int]:
        """`earliest` of each of many: they are looked for together, so many at once."""
        found = []
        for at in range(0, len(streams), LOOKED_UP_AT_ONCE):
            some = streams[at : at + LOOKED_UP_AT_ONCE]
            await self._reader.look_up(some)
            found += [await self.earliest(*stream) for stream in some]
        return found

    async def read(
        self,
        topic: str,
        slice: int,
        start: int,
        budget: int,
        *,
        stored: bool,
        columns: int | None = None,
        stop: int | None = None,
        frame: int = 0,
    ) -> Extent:
        """Events from `start` on: one always, more while they fit into the budget.

        The budget counts bytes as stored, and then the first chunk is whole; or as they are
        rendered, with so many bytes (`frame`) around each event, and the extent may end within a
        chunk. Chunks that are asked for as stored may be cut down to some columns, and end with
        the one that reaches `stop`: those are copied out of memory once, and what is not wanted
        not at all.
        """
        extent = Extent(topic, slice, start, start, 0, columns=columns)
        end = OFFSET_MAX if stop is None else stop
        until = time.monotonic() + READ_SECONDS
        while extent.cost < budget:
            left = budget - extent.cost
            try:
                fetched = self._from_memory(extent, left, stored, end)
                if fetched is None:
                    if stored and extent.chunks and left < budget // REST_SHARE:
                        return extent
                    fetched = await self._from_disk(extent, left, stored, end)
            except BarcoError:
                if extent.chunks:  # What is good first; the next read meets the error.
                    return extent
                raise
            took = False
            for piece in fetched:
                before = len(extent.chunks)
                if stored:
                    fits = self._take_all(extent, piece, budget)
                else:
                    fits = self._take_some(extent, piece, budget, frame)
                took |= len(extent.chunks) > before
                if not fits:
                    return extent
            if not took or not extent.more or extent.end >= end or time.monotonic() > until:
                return extent
            await breathe()
        return extent

    def at_once(self, topic: str, slice: int, start: int, budget: int, stop: int) -> Extent | None:
        """Stored chunks as `read` begins with, if they are in memory; None: they are not."""
        extent = Extent(topic, slice, start, start, 0)
        fetched = self._from_memory(extent, budget, True, stop)
        if fetched is None:
            return None
        for piece in fetched:
            self._take_all(extent, piece, budget)
        return extent

    def _take_all(self, extent: Extent, piece: "_Piece", budget: int) -> bool:
        """The piece as it is, only its first header is looked at; false: it does not fit."""
        if extent.chunks and extent.cost + len(piece.chunks) > budget:
            return False
        if piece.end > extent.end:
            self._join(extent, chunk_begin(piece.chunks))
            extent.chunks.append(piece.chunks)
            extent.cost += len(piece.chunks)
            extent.end = piece.end
        return True

    def _take_some(self, extent: Extent, piece: "_Piece", budget: int, frame: int) -> bool:
        """As many of its events as fit when they are rendered; false: the next one does not."""
        position, full = 0, False
        while position < len(piece.chunks) and not full:
            try:
                first, size, base, end, cost, full = _native.chunks_take(
                    piece.chunks,
                    position,
                    extent.end,
                    budget - extent.cost,
                    frame,
                    bool(extent.chunks),
                    STRETCH_BYTES,
                )
            except ValueError as error:
                raise CorruptDataError(f"A stored chunk cannot be read: {error}.") from None
            if not size:
                break
            self._join(extent, base)
            position = first + size
            whole = size == len(piece.chunks)
            extent.chunks.append(
                piece.chunks if whole else memoryview(piece.chunks)[first:position]
            )
            extent.cost += cost
            extent.end = end
        return not full

    @staticmethod
    def _join(extent: Extent, base_offset: int) -> None:
        """Before a chunk is added: it must begin where the last one ended."""
        if not extent.chunks:
            # Later than asked for: retention has removed what was before it.
            extent.start = max(extent.start, base_offset)
        elif base_offset != extent.end:
            raise CorruptDataError(
                f"Events {extent.end} to {base_offset} of {extent.topic} are missing."
            )

    def _from_memory(
        self, extent: Extent, left: int, stored: bool, stop: int
    ) -> "list[_Piece] | None":
        """The next chunks, None if they are on disk; sets the extent's high watermark."""
        columns = -1 if extent.columns is None else extent.columns
        size = min(left if stored else STEP_BYTES, left, PIECE_BYTES)
        tail = self._tail(extent.topic, extent.slice, extent.end, size, stored, columns, stop)
        if tail is None:
            return None
        chunks, end, extent.high_watermark = tail
        return [_Piece(chunks[0] if len(chunks) == 1 else b"".join(chunks), end)] if chunks else []

    async def _from_disk(
        self, extent: Extent, left: int, stored: bool, stop: int
    ) -> "list[_Piece]":
        """The next chunks; sets the extent's high watermark."""
        topic, slice, offset = extent.topic, extent.slice, extent.end
        want = left if stored else min(STEP_BYTES, left)
        columns = -1 if extent.columns is None else extent.columns
        start, end = self.bounds(topic, slice)
        extent.high_watermark = end
        if offset >= end:
            return []
        result = await self._reader.read(
            topic,
            slice,
            max(offset, start),
            want,
            raw_bytes_max=None if stored else left,
            more=bool(extent.chunks),
            columns=columns,
            stop=stop,
        )
        if not result.chunks:
            begin = max(offset, self.bounds(topic, slice)[0])
            if begin < end and not extent.chunks:
                error = self._reader.missing(topic, slice, begin, end)
                if error is not None:
                    raise error
            return []
        return _pieces(stop, result.chunks, result.next_offset, columns)

    def _tail(
        self,
        topic: str,
        slice: int,
        offset: int,
        size: int,
        stored: bool,
        columns: int,
        stop: int,
    ) -> tuple[Sequence[bytes | _native.Lent], int, int] | None:
        try:
            return self._reactor.tail_read(topic, slice, offset, size, stored, columns, stop)
        except ValueError as error:
            raise CorruptDataError(f"A stored chunk cannot be read: {error}.") from None

    async def at_timestamp(self, topic: str, slice: int, timestamp_us: int) -> int:
        """The offset of the first event that is as late as this, else the stable end."""
        offset = await self._reader.by_timestamp(topic, slice, timestamp_us)
        if offset is None:
            offset = self._reactor.locate_timestamp(topic, slice, timestamp_us)
        start, end = self.bounds(topic, slice)
        if offset is None or start >= end:
            return end
        extent = await self.read(topic, slice, max(offset, start), 1, stored=True)
        for chunk, head in (pair for piece in extent.chunks for pair in split_chunks(piece)):
            offset = _native.chunk_since(chunk, timestamp_us)
            if offset < head["base_offset"] + head["count"]:
                return max(offset, extent.start)
        return extent.end


def extent_to_list(extent: Extent, first_slice: int) -> list[Any]:
    """Plain values, for a frame; the slice is numbered through the ring."""
    return [
        extent.topic,
        first_slice + extent.slice,
        extent.start,
        extent.end,
        extent.high_watermark,
        extent.chunks,
        extent.cost,
        extent.columns,
    ]


def extent_from_list(given: Sequence[Any]) -> Extent:
    """The opposite."""
    return Extent(*given)
