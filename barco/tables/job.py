"""Reads a topic from where a table has it, and commits what came, a table's file at a time.

Slices are read side by side, each in its order, as Arrow's record batches that the broker's C
makes; nothing here runs once per event.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from barco import _native
from barco.arrow.decode import Decoder, Origin, Projection
from barco.client.admin import AsyncAdmin
from barco.client.base.errors import BadAnswerError
from barco.client.consuming.enrolment import CHUNKS_TYPE
from barco.client.slice_reads import SliceReads
from barco.client.wire.access import Access
from barco.client.wire.codec import parse_skips
from barco.client.wire.transport import Pool
from barco.errors import CursorExpiredError, OperatorError
from barco.protocol.cursor import Cursor
from barco.tables.shape import Shape
from barco.tables.sink import Reached, Sink

READ_BYTES = 2 << 20
"""Stored bytes of one answer."""
SIDE_BY_SIDE = 16
"""Slices that are read at a time: each may hold an answer that is not committed yet."""
BATCH_BYTES = 4 << 20
"""Unpacked keys and values of one record batch."""
EVENTS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("token", pa.int64()),
        ("slice", pa.int32()),
        ("epoch", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)
WAIT_S = 5.0
"""One question for new events; a slice's turn ends then, so that all have theirs."""
LOOKS, LOOK_AGAIN_S = 5, 2.0
TIMEOUT_S = 30.0
"""How long trouble with a slice is waited out."""


_WANTED = Projection(tuple(EVENTS.names), EVENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to export, and how often."""

    topic: str
    batch_bytes: int = 64 << 20
    """Of Arrow's, gathered for one commit, about."""
    follow: bool = False
    every_s: float = 60.0
    """With `follow`: what came is committed at the latest then."""
    start: str = "earliest"
    """Of a slice that the table does not have yet: earliest, or timestamp:<µs>."""


@dataclass(slots=True)
class Report:
    """What was done."""

    events: int = 0
    commits: int = 0
    kept_whole: int = 0
    """Events that did not fit their columns."""
    not_text: int = 0
    """Keys and values that are no UTF-8."""
    gone: list[str] = field(default_factory=list)
    """In words: events that retention took before they were exported."""


class Export:
    """One run. `tell` hears of each commit: what was done so far, and where the rows are."""

    def __init__(
        self,
        access: Access,
        options: Options,
        sink: Sink,
        shape: Shape,
        tell: Callable[[Report, str], None],
    ) -> None:
        self._access = access
        self._options = options
        self._sink = sink
        self._shape = shape
        self._tell = tell
        self.told = Report()

    async def run(self) -> Report:
        """To the end as it is now, or for ever. BarcoError: what was committed stays."""
        admin = AsyncAdmin(self._access)
        pool = Pool(self._access, connections_max=SIDE_BY_SIDE)
        try:
            progress = self._begin()
            await self._export(await self._slices(admin, pool, progress), progress)
        finally:
            pool.close()
            await admin.close()
        return self.told

    def _begin(self) -> Reached:
        mine = Reached(self._options.topic, self._shape.asked)
        before = self._sink.progress()
        if before is None:
            return mine
        if before.topic != mine.topic:
            raise OperatorError(f"the topic {before.topic} was exported there before")
        if before.columns != mine.columns:
            raise OperatorError(
                f"columns were asked for as {before.columns!r} before, and as {mine.columns!r} now"
            )
        return before

    async def _slices(self, admin: AsyncAdmin, pool: Pool, progress: Reached) -> list["_Slice"]:
        for left in range(LOOKS - 1, -1, -1):
            reads = [
                _Slice(pool, self._options, told, progress)
                for told in await admin.slices(self._options.topic)
            ]
            short = [each.name for each in reads if each.ends_before()]
            if not short:
                return reads
            if left:  # Whoever leads since a moment may not know yet how much is committed.
                await asyncio.sleep(LOOK_AGAIN_S)
        raise OperatorError(
            f"slice {short[0]} of {self._options.topic} has fewer events than were exported: it is"
            " of another cluster, or has lost some; take another table"
        )

    async def _export(self, reads: Sequence["_Slice"], progress: Reached) -> None:
        tables: list[pa.Table] = []
        size, since = 0, time.monotonic()
        cursors = dict(progress.cursors)
        turns = asyncio.Semaphore(SIDE_BY_SIDE)
        running = {asyncio.ensure_future(each.next(turns)): each for each in reads if not each.done}
        try:
            while running or tables:
                left = self._left(since) if tables else None
                done, _ = (
                    await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    if running
                    else (set(), set())
                )
                for task in done:
                    read = running.pop(task)
                    table = task.result()
                    cursors[read.name] = read.position
                    self._hear(read)
                    if table is not None:
                        tables.append(table)
                        size += table.nbytes
                    if not read.done:
                        running[asyncio.ensure_future(read.next(turns))] = read
                late = tables and self._left(since) == 0
                if size >= self._options.batch_bytes or late or not running:
                    await self._commit(tables, replace(progress, cursors=dict(cursors)))
                    tables, size, since = [], 0, time.monotonic()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _left(self, since: float) -> float | None:
        if not self._options.follow:
            return None
        return max(0.0, since + self._options.every_s - time.monotonic())

    async def _commit(self, tables: list[pa.Table], progress: Reached) -> None:
        if not tables:
            return
        # In a thread: connections are answered meanwhile, and brokers are not made to wait.
        events = pa.concat_tables(tables)
        where = await asyncio.to_thread(self._write, events, progress)
        self.told.events += len(events)
        self.told.commits += 1
        self._tell(self.told, where)

    def _write(self, events: pa.Table, progress: Reached) -> str:
        shaped = self._shape.rows(events)
        self.told.kept_whole += shaped.kept_whole
        self.told.not_text += shaped.not_text
        return self._sink.commit(shaped.table, progress)

    def _hear(self, read: "_Slice") -> None:
        self.told.gone.extend(read.gone)
        read.gone.clear()


class _Slice(SliceReads):
    """The events of one slice as Arrow's."""

    def __init__(self, pool: Pool, options: Options, told: Any, progress: Reached) -> None:
        super().__init__(pool, options.topic, told, CHUNKS_TYPE, TIMEOUT_S)
        origin = Origin(options.topic, self.key.token, self.key.slice, self.key.slice)
        self._decoder = Decoder(_WANTED, origin, BATCH_BYTES)
        self.name = f"{self.key.token}.{self.key.slice}"
        self.position = progress.cursors.get(self.name, options.start)
        self.gone: list[str] = []
        self._start = options.start
        self._follow = options.follow
        self.done = not self._follow and (self.end == 0 or self.at_end())

    def ends_before(self) -> bool:
        """Whether it has less than what was read of it."""
        return self.position != self._start and Cursor.parse(self.position).offset > self.end

    async def next(self, turns: asyncio.Semaphore) -> pa.Table | None:
        """The next events; None: there are none yet, or no more (then `done`)."""
        async with turns:
            try:
                answer = await self.answer(
                    READ_BYTES, WAIT_S if self._follow else 0.0, whole=not self._follow
                )
            except CursorExpiredError as error:
                self._pass_over(error)
                return None
        if not self._follow:
            self.done = self.at_end()
        if answer.status == 204:
            return None
        try:
            return self._table(answer.body, answer.headers.get("barco-start", ""))
        except ValueError as error:
            raise BadAnswerError(f"the events of slice {self.name}: {error}") from error

    def _table(self, chunks: bytes, skips: str) -> pa.Table:
        """From where the answer is meant to begin, which may be within its first chunk."""
        start = next(iter(parse_skips(skips).values()), _native.chunk_place(chunks)[0])
        end = Cursor.parse(self.position).offset
        batches = list(self._decoder.batches(chunks, start, end, projected=False))
        if not batches or batches[-1][1] != end:
            raise ValueError(f"they do not reach {end}, which the answer says comes next")
        return pa.Table.from_batches([batch for batch, _ in batches], EVENTS)

    def _pass_over(self, error: CursorExpiredError) -> None:
        """Retention was faster: that is told, and what is left is exported."""
        try:
            earliest = Cursor.parse(str(error.fields["earliest"]))
            gone = earliest.offset - Cursor.parse(self.position).offset
        except (KeyError, ValueError) as unread:
            raise BadAnswerError(f"slice {self.name} does not say what is left") from unread
        self.gone.append(f"{gone:,} events of slice {self.name} up to {earliest}")
        self.position = str(earliest)
        self.done = not self._follow and self.at_end()
