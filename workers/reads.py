"""Reading committed chunks of this worker's slices: from memory, else from disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barco import _native
from barco.errors import BarcoError, CorruptDataError
from barco.limits import CHUNK_RAW_BYTES_MAX
from barco.workers.seams import LogReaderLike, ReactorLike

if TYPE_CHECKING:
    from barco._native import ChunkInfo

STEP_BYTES = 2 * CHUNK_RAW_BYTES_MAX
"""How much is fetched at once where the budget counts uncompressed bytes: text compresses five to
twenty times, so fetching the whole budget would read much for nothing."""

Slot = tuple[str, int]
"""(topic, slice)."""

Bounds = tuple[int, int]
"""(start offset, stable end)."""

Chunk = bytes | memoryview
"""A stored chunk; a view of a read buffer when it came from disk."""


def chunk_head(chunk: Chunk, position: int = 0) -> "ChunkInfo":
    """What the header of the stored chunk at this position says; it is verified."""
    try:
        head = _native.chunk_info(chunk, position)
    except ValueError as error:
        raise CorruptDataError(f"A stored chunk is damaged: {error}.") from None
    if head is None:
        raise CorruptDataError("A stored chunk is cut off.")
    return head


def split_chunks(buffer: Chunk) -> Iterator[tuple[Chunk, "ChunkInfo"]]:
    """The chunks that stand back to back in a buffer; usually it is only one."""
    position = 0
    while position < len(buffer):
        head = chunk_head(buffer, position)
        if position == 0 and head["stored_bytes"] == len(buffer):
            yield buffer, head
            return
        yield buffer[position : position + head["stored_bytes"]], head
        position += head["stored_bytes"]


@dataclass(slots=True)
class Extent:
    """Consecutive events of one (topic, slice): stored chunks, of which [start, end) is meant."""

    topic: str
    slice: int
    start: int
    end: int
    high_watermark: int
    chunks: list[Chunk] = field(default_factory=list)
    cost: int = 0

    @property
    def more(self) -> bool:
        """Whether there are committed events after it."""
        return self.end < self.high_watermark


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

    async def read(
        self, topic: str, slice: int, start: int, budget: int, *, stored: bool
    ) -> Extent:
        """Events from `start` on. The first chunk always, more while they fit into the budget.

        The budget counts bytes as stored, or as they were before compression.
        """
        extent = Extent(topic, slice, start, start, 0)
        while extent.cost < budget:
            want = budget - extent.cost if stored else min(STEP_BYTES, budget - extent.cost)
            try:
                chunks, extent.high_watermark = await self._fetch(extent, want)
            except BarcoError:
                if extent.chunks:  # What is good first; the next read meets the error.
                    return extent
                raise
            taken = False
            for chunk in chunks:
                for piece, head in split_chunks(chunk):
                    cost = head["stored_bytes"] if stored else head["raw_bytes"]
                    if extent.chunks and extent.cost + cost > budget:
                        return extent
                    taken |= self._take(extent, piece, head, cost)
            if not taken or not extent.more:
                return extent
        return extent

    @staticmethod
    def _take(extent: Extent, chunk: Chunk, head: "ChunkInfo", cost: int) -> bool:
        end = head["base_offset"] + head["count"]
        if end <= extent.end:
            return False
        if not extent.chunks:
            # Later than asked for: retention has removed what was before it.
            extent.start = max(extent.start, head["base_offset"])
        elif head["base_offset"] != extent.end:
            raise CorruptDataError(
                f"Events {extent.end} to {head['base_offset']} of {extent.topic} are missing."
            )
        extent.chunks.append(chunk)
        extent.cost += cost
        extent.end = end
        return True

    async def _fetch(self, extent: Extent, want: int) -> tuple[Sequence[Chunk], int]:
        topic, slice, offset = extent.topic, extent.slice, extent.end
        tail = self._reactor.tail_read(topic, slice, offset, want)
        if tail is not None:
            return tail[0], tail[2]
        start, end = self.bounds(topic, slice)
        if offset >= end:
            return [], end
        result = await self._reader.read(topic, slice, max(offset, start), want)
        if not result.chunks and max(offset, self.bounds(topic, slice)[0]) < end:
            raise CorruptDataError(
                f"offsets {max(offset, start)} to {end - 1} of topic {topic}, slice {slice} cannot "
                "be found"
            )
        return result.chunks, end

    async def at_timestamp(self, topic: str, slice: int, timestamp_us: int) -> int:
        """The offset of the first event that is as late as this, else the stable end."""
        offset = await self._reader.by_timestamp(topic, slice, timestamp_us)
        if offset is None:
            offset = self._reactor.locate_timestamp(topic, slice, timestamp_us)
        start, end = self.bounds(topic, slice)
        if offset is None or start >= end:
            return end
        extent = await self.read(topic, slice, max(offset, start), 1, stored=True)
        for chunk in extent.chunks:
            for event_offset, event_timestamp, _, _ in _native.chunk_events(chunk):
                if event_timestamp >= timestamp_us:
                    return max(event_offset, extent.start)
        return extent.end
