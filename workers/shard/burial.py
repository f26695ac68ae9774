"""Dead letters: an event that was given for the last time, as it goes to another topic."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from barco import _native
from barco.errors import BarcoError
from barco.model.queues import DEAD_PREFIX
from barco.protocol.cursor import Cursor
from barco.types import Epoch, MiB, Offset
from barco.workers.seams import ReactorLike
from barco.workers.shard.reads import Reads, split_chunks

AT_ONCE = 64
"""Dead letters of one append."""

BYTES_AT_ONCE = 1 * MiB


class LastPlace(NamedTuple):
    """Where an event was given for the last time."""

    group: str
    topic: str
    slice: int
    number: int
    """The slice's, in the ring."""


class Letter(NamedTuple):
    """One event, ready to be appended; without a batch it is gone by itself."""

    offset: int
    batch: tuple[Any, ...] | None


async def letters(
    reads: Reads, reactor: ReactorLike, origin: LastPlace, dying: Iterable[tuple[int, int, str]]
) -> list[Letter]:
    """Of (offset, count, reason) as many as are appended at once. What cannot be one is left out,
    and stays where it is."""
    found: list[Letter] = []
    size = 0
    for offset, count, reason in dying:
        if len(found) == AT_ONCE or size > BYTES_AT_ONCE:
            break
        try:
            batch = await _batch(reads, origin, offset, count, reason)
            if batch is None:
                found.append(Letter(offset, None))
                continue
            checked = reactor.check_batch(origin.slice, batch, True)  # Accepted once.
        except (BarcoError, RuntimeError, ValueError, OverflowError):
            continue
        size += len(batch)
        found.append(Letter(offset, (batch, *checked)))
    return found


async def _batch(
    reads: Reads, origin: LastPlace, offset: int, count: int, reason: str
) -> bytes | None:
    """The event with its headers and ours; None: retention has removed it."""
    extent = await reads.read(origin.topic, origin.slice, offset, 1, stored=True, stop=offset + 1)
    for chunk, head in (pair for piece in extent.chunks for pair in split_chunks(piece)):
        if not head["base_offset"] <= offset < head["base_offset"] + head["count"]:
            continue
        stored = _native.chunk_events(memoryview(chunk))[offset - head["base_offset"]]
        _, time_us, key, value, *more = stored
        told = {
            "reason": reason,
            "count": str(count),
            "group": origin.group,
            "topic": origin.topic,
            "slice": str(origin.number),
            "cursor": str(Cursor(Epoch(head["epoch"]), Offset(offset))),
        }
        ours = [(DEAD_PREFIX + name, text.encode()) for name, text in told.items()]
        kept = [pair for pair in (more[0] if more else ()) if not pair[0].startswith(DEAD_PREFIX)]
        try:
            headers = _native.headers_encode([*kept, *ours])
        except ValueError:  # It had as many as an event may have.
            headers = _native.headers_encode(ours)
        return _native.batch_encode([value], [key], {"timestamp": [time_us]}, headers=[headers])
    return None
