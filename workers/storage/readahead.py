"""What was read ahead for a reader that goes on and on, and what one read takes of it."""

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

HEAD = struct.Struct("<12xI8xQ36xI")
"""Count, base offset and raw bytes, where the format has them in a chunk that was verified."""


@dataclass(slots=True)
class ReadResult:
    """Whole chunks: the first may begin before the offset asked for."""

    chunks: list[memoryview]
    next_offset: int
    """After the last event of the chunks; what was asked for when there are none."""
    epoch: int
    """Of the generation of all of them (0 when there are none)."""
    held: list[int] = field(default_factory=list)
    """Bytes of buffers that each chunk is the last to need."""

    @property
    def bytes(self) -> int:
        """Stored bytes of all chunks."""
        return sum(len(chunk) for chunk in self.chunks)


class Ready(NamedTuple):
    """A chunk that was read ahead."""

    chunk: memoryview
    raw_bytes: int
    end: int
    epoch: int
    held: int


@dataclass(slots=True, eq=False)
class Replay:
    """A reader that goes on and on: what is read ahead for it."""

    next_offset: int
    fetch_offset: int
    ready: deque[Ready] = field(default_factory=deque)
    held: int = 0
    """Bytes of buffers behind `ready`."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    failure: Exception | None = None
    timer: asyncio.TimerHandle | None = None
    used: float = 0.0


class Want(NamedTuple):
    """The bounds of one read."""

    stored: int
    raw: int | None
    more: bool

    def fits(self, chunks: int, stored: int, raw: int) -> bool:
        """Whether a read may end with so many chunks, of so many bytes."""
        if stored <= self.stored and (self.raw is None or raw <= self.raw):
            return True
        return chunks == 1 and not self.more


def from_ready(replay: Replay, want: Want) -> ReadResult:
    """Takes from what was read ahead, up to the end of a generation."""
    ready = replay.ready
    result = ReadResult([], replay.next_offset, ready[0].epoch)
    stored = raw = 0
    while ready and ready[0].epoch == result.epoch:
        stored += len(ready[0].chunk)
        raw += ready[0].raw_bytes
        if not want.fits(len(result.chunks) + 1, stored, raw):
            break
        taken = ready.popleft()
        replay.held -= taken.held
        result.chunks.append(taken.chunk)
        result.next_offset = taken.end
    return result


def fitting(result: ReadResult, want: Want) -> ReadResult:
    """The chunks of a result that a read may give."""
    stored = raw = 0
    for number, chunk in enumerate(result.chunks):
        stored += len(chunk)
        _, base, raw_bytes = HEAD.unpack_from(chunk)
        raw += raw_bytes
        if not want.fits(number + 1, stored, raw):
            return ReadResult(result.chunks[:number], base, result.epoch)
    return result
