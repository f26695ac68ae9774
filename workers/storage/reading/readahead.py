"""What was read ahead for a reader that goes on and on, and what one read takes of it."""

import asyncio
from collections import deque
from typing import NamedTuple

from msgspec import Struct, field

from barco import _native
from barco.limits import OFFSET_MAX

_ANY = 2**63 - 1
"""Bytes."""


class ChunkRun(NamedTuple):
    """Chunks back to back, of one generation."""

    chunks: memoryview
    raw_bytes: int
    end: int
    """The offset after their last event."""
    held: int
    """Bytes of the buffer that they are the last to need; 0: others need it as well."""


class ReadResult(Struct):
    """Whole chunks: the first may begin before the offset asked for."""

    runs: list[ChunkRun]
    next_offset: int
    """After the last event of the chunks; what was asked for when there are none."""
    epoch: int
    """Of the generation of all of them (0 when nothing is there)."""

    @property
    def chunks(self) -> list[memoryview]:
        """Chunks back to back, in one piece or more."""
        return [run.chunks for run in self.runs]

    @property
    def bytes(self) -> int:
        """Stored bytes of all chunks."""
        return sum(len(run.chunks) for run in self.runs)


class ReadAhead(NamedTuple):
    """What was read ahead."""

    run: ChunkRun
    epoch: int


class Replay(Struct, eq=False):
    """A reader that goes on and on: what is read ahead for it."""

    next_offset: int
    fetch_offset: int
    stop: int
    """Nothing is wanted from here on."""
    used: float
    ready: deque[ReadAhead] = field(default_factory=deque)
    held: int = 0
    """Bytes of buffers behind `ready`."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    failure: Exception | None = None
    timer: asyncio.TimerHandle | None = None

    def lacks(self, bytes_max: int) -> bool:
        """Whether more is to be read ahead, where so much may be ready."""
        return self.fetch_offset < self.stop and self.held <= bytes_max


class Want(NamedTuple):
    """The bounds of one read."""

    stored: int
    raw: int | None
    more: bool
    columns: int = -1
    stop: int = OFFSET_MAX


class _Taking:
    """What is left of the bounds while a read takes."""

    def __init__(self, want: Want) -> None:
        self._stored = want.stored
        self._raw = _ANY if want.raw is None else want.raw
        self._columns = want.columns
        self._one = not want.more
        """Whether one chunk is taken however large it is."""

    def take(self, run: ChunkRun) -> tuple[ChunkRun | None, ChunkRun | None]:
        """(what of the run fits, what is left of it)."""
        if len(run.chunks) <= self._stored and run.raw_bytes <= self._raw:
            size, raw, end = len(run.chunks), run.raw_bytes, run.end
        else:
            size, raw, end = _native.chunks_fit(
                run.chunks,
                max(self._stored, 0),
                max(self._raw, 0),
                _ANY,
                self._one,
                self._columns,
            )
        if size == 0:
            return None, run
        self._stored -= size
        self._raw -= raw
        self._one = False
        if size == len(run.chunks):
            return run, None
        left = ChunkRun(run.chunks[size:], run.raw_bytes - raw, run.end, run.held)
        return ChunkRun(run.chunks[:size], raw, end, 0), left


def from_ready(replay: Replay, want: Want) -> ReadResult:
    """Takes from what was read ahead, up to the end of a generation."""
    ready, taking = replay.ready, _Taking(want)
    result = ReadResult([], replay.next_offset, ready[0].epoch)
    while ready and ready[0].epoch == result.epoch:
        taken, left = taking.take(ready[0].run)
        if taken is not None:
            replay.held -= taken.held
            result.runs.append(taken)
            result.next_offset = taken.end
        if left is not None:
            ready[0] = ReadAhead(left, result.epoch)
            break
        ready.popleft()
    return result


def fitting(result: ReadResult, want: Want) -> ReadResult:
    """The chunks of a result that a read may give."""
    taking = _Taking(want)
    for number, run in enumerate(result.runs):
        taken, left = taking.take(run)
        if left is not None:
            runs = result.runs[:number] + ([taken] if taken is not None else [])
            start = _native.chunk_place(left.chunks)[0]
            return ReadResult(runs, start, result.epoch)
    return result
