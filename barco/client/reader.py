"""Reading without a group: replay from a cursor, a time or either end. Nothing is committed.

Every slice is read from its owner, all of them at once, each in its own order; between slices
there is no order. What a reader has seen it can take up again: `Event.next_cursor`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from barco.client.admin import AsyncAdmin
from barco.client.base.errors import BadAnswerError
from barco.client.base.loopthread import LoopThread
from barco.client.base.names import DEFAULT_ENDPOINT, check_topic
from barco.client.base.settings import ReaderSettings, Start, parted
from barco.client.consuming.enrolment import CHUNKS_TYPE
from barco.client.consuming.paused import place_of
from barco.client.slice_reads import SliceReads
from barco.client.wire.access import Access, Endpoints
from barco.client.wire.batching import SliceKey
from barco.client.wire.codec import Event, decode_chunks, parse_skips
from barco.client.wire.transport import Pool
from barco.model.placement import Placement
from barco.model.token import TOKEN_MIN
from barco.protocol.cursor import Cursor

FOLLOW_WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """How much to read, and how."""

    start: Start = "earliest"
    """With cursors by slice: only those slices are read."""
    follow: bool = False
    """Go on with new events for ever; otherwise stop at the end as it was at the start."""
    read_bytes: int = 2 * 1024 * 1024
    """Stored bytes of one request."""
    quiet_s: float | None = None
    """With `follow`: stop when nothing came for so long."""
    timeout_s: float = 30.0
    """How long trouble with a slice is waited out."""

    def __post_init__(self) -> None:
        for place in starts(self.start):
            if place in ("earliest", "latest") or place.startswith("timestamp:"):
                continue
            Cursor.parse(place)


class _SliceReader(SliceReads):
    """The events of one slice."""

    def __init__(
        self,
        pool: Pool,
        topic: str,
        place: Mapping[str, Any],
        ring: Placement | None,
        options: ReaderOptions,
    ) -> None:
        super().__init__(pool, topic, place, CHUNKS_TYPE, options.timeout_s)
        self._ring = ring
        self._options = options
        self.position = start_of(options.start, self.key)
        self.done = not options.follow and self.end == 0

    async def next(self) -> list[Event]:
        """The next events; [] if there are none yet, or no more (then `done`)."""
        follow = self._options.follow
        answer = await self.answer(
            self._options.read_bytes, FOLLOW_WAIT_S if follow else 0.0, whole=not follow
        )
        events: list[Event] = []
        if answer.status != 204:
            skips = parse_skips(answer.headers.get("barco-start", ""))
            events = decode_chunks(answer.body, skips, self._ring)
        if not follow:
            self.done = self.at_end()
            events = [event for event in events if event.offset < self.end]
        return events


class AsyncReader:
    """Reads a topic in one asyncio loop: `async for event in reader`. See `read`."""

    def __init__(
        self, topic: str, endpoint: Endpoints = DEFAULT_ENDPOINT, **options: Unpack[ReaderSettings]
    ) -> None:
        self.topic = check_topic(topic)
        token, rest = parted(options)
        access = Access.of(endpoint, token)
        self.options = ReaderOptions(**rest)
        self._admin = AsyncAdmin(access)
        self._pool = Pool(access, connections_max=64)
        self._tasks: dict[asyncio.Task[list[Event]], _SliceReader] = {}

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Events as they come from the slices, a request's worth at a time."""
        places = await self._admin.slices(self.topic)
        ring = _ring_of(places)
        if isinstance(self.options.start, Mapping):
            wanted = self.options.start
            places = [p for p in places if _asked_for(wanted, int(p["token"]), int(p["index"]))]
        readers = [
            _SliceReader(self._pool, self.topic, each, ring, self.options) for each in places
        ]
        for reader in readers:
            self._go_on(reader)
        quiet_s = self.options.quiet_s if self.options.follow else None
        last = time.monotonic()
        while self._tasks:
            left = None if quiet_s is None else max(0.0, last + quiet_s - time.monotonic())
            done, _ = await asyncio.wait(
                self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if left == 0 and not done:
                return
            for task in done:
                reader = self._tasks.pop(task)
                events = task.result()
                self._go_on(reader)  # Meanwhile the next is on its way.
                if events:
                    yield events
                    last = time.monotonic()

    async def close(self) -> None:
        """Stops reading. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._pool.close()
        await self._admin.close()

    def _go_on(self, reader: _SliceReader) -> None:
        if not reader.done:
            self._tasks[asyncio.ensure_future(reader.next())] = reader

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for events in self.batches():
            for event in events:
                yield event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def read(
    topic: str, endpoint: Endpoints = DEFAULT_ENDPOINT, **options: Unpack[ReaderSettings]
) -> Iterator[Event]:
    """The events of a topic from `start` to the end that it has now, or on for ever (`follow`).

        for event in barco.read("trips", start=1_700_000_000_000_000):
            ...

    `start` is "earliest", "latest", a time (a datetime, or microseconds since 1970), or {slice:
    cursor} with cursors of earlier events (`event.next_cursor`). Within a slice the order is that
    of the offsets; nothing is committed anywhere. Options: see `ReaderOptions`.
    """
    for events in read_batches(topic, endpoint, **options):
        yield from events


def read_batches(
    topic: str, endpoint: Endpoints = DEFAULT_ENDPOINT, **options: Unpack[ReaderSettings]
) -> Iterator[list[Event]]:
    """As `read`, a request's worth of one slice at a time."""
    reader = AsyncReader(topic, endpoint, **options)
    thread = LoopThread("barco-reader")
    batches = reader.batches()
    try:
        while True:
            try:
                yield thread.run(anext(batches))  # type: ignore[arg-type]
            except StopAsyncIteration:
                return
    finally:
        thread.run(reader.close())
        thread.close()


def starts(start: Start) -> list[str]:
    """The places in a start, as the API spells them."""
    if isinstance(start, Mapping):
        return [str(cursor) for cursor in start.values()]
    return [place_of(start)]


def start_of(start: Start, key: SliceKey) -> str:
    """Where to begin in this slice."""
    if isinstance(start, Mapping):
        table: Mapping[Any, str] = start
        return str(table.get((key.token, key.slice)) or table[key.slice])
    return starts(start)[0]


def _asked_for(wanted: Mapping[Any, str], token: int, index: int) -> bool:
    return (token, index) in wanted or (token == TOKEN_MIN and index in wanted)


def _ring_of(places: Sequence[Mapping[str, Any]]) -> Placement | None:
    """The ring whose slices these are; None for a single broker's."""
    try:
        size = len({int(place["token"]) for place in places})
        return Placement(size, len(places) // size) if size > 1 else None
    except (KeyError, ValueError, TypeError, AssertionError) as error:
        raise BadAnswerError(f"the slices of a topic: {error!r}") from error
