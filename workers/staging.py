"""Writes that appear at once or not at all: staged by tasks, committed by a driver.

A write has a name, (writer, batch): a Spark query's id and its batch id, or a job's id and 0. Tasks
stage batches of events for slices of this shard, each task under the name of its attempt; nothing
of it is visible. The driver then takes two steps on every shard.

- prepare: names the attempts that won and how many events each (topic, slice) is to get. The counts
  are checked, and the staged events made stable together with the plan. From here on the write can
  be completed whatever happens to driver, tasks or this process.
- commit: each slice's events are appended in one group with their mark (native/commit.c), an event
  of `__commits` in the same slice that says what (writer, topic) committed there last. A group is
  recovered whole or not at all, so a commit that is repeated finds the mark and changes nothing.

A slice's share over COMMIT_PART_BYTES is several groups, each with the mark's count of parts: the
repetition goes on after the last of them. Readers may see such a share grow; they never see
events twice, nor any of an attempt that lost. What was begun is completed from the plan that it was
begun with, by this process alone when it starts again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barco import limits
from barco.errors import (
    BarcoError,
    BusyError,
    ConflictError,
    NotFoundError,
    RequestError,
    SequenceGapError,
    TooLargeError,
    TooManyRequestsError,
)
from barco.workers.appends import Appends
from barco.workers.marks import COMMITS, Mark, Marks, Place, packed
from barco.workers.seams import ReactorLike, SpoolLike

APPEND_SECONDS = 10.0
"""A log that takes nothing for so long: the driver is told to come again."""

_log = logging.getLogger("barco.staging")

Rows = dict[Place, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """One staged batch: its record in the spool, and what the core found out about it."""

    record: Any
    outline: tuple[int, int, int, int, int]

    @property
    def count(self) -> int:
        """How many events."""
        return self.outline[0]

    @property
    def cost(self) -> int:
        """What it takes of a group at most (native/group_build.c, run_bound)."""
        count, raw = self.outline[:2]
        stored: int = self.record.length
        return stored + stored // 200 + (4 + raw // 65_536 + count // 32_768) * 640


@dataclass(frozen=True, slots=True)
class Plan:
    """Which attempts won, and what each slice is to get."""

    attempts: tuple[str, ...]
    rows: Rows
    part_bytes: int
    """Of its own: what began with one setting goes on with it."""


@dataclass(slots=True)
class Write:
    """What is staged under one name."""

    writer: str
    batch: int
    file: Any
    touched: float
    attempts: dict[str, dict[Place, list[Piece]]] = field(default_factory=dict)
    plan: Plan | None = None
    committing: asyncio.Lock = field(default_factory=asyncio.Lock)
    pieces: int = 0
    bytes: int = 0

    def rows(self, attempts: Iterable[str]) -> Rows:
        """How many events these attempts staged."""
        found: Rows = {}
        for attempt in attempts:
            for place, pieces in self.attempts.get(attempt, {}).items():
                found[place] = found.get(place, 0) + sum(piece.count for piece in pieces)
        return found

    def share(self, place: Place) -> list[Piece]:
        """The planned pieces of a slice, in the plan's order."""
        assert self.plan is not None
        return [
            piece
            for attempt in self.plan.attempts
            for piece in self.attempts.get(attempt, {}).get(place, ())
        ]


class Staging:
    """The writes of one shard."""

    def __init__(
        self,
        reactor: ReactorLike,
        appends: Appends,
        spool: SpoolLike,
        *,
        now_us: Callable[[], int],
        part_bytes: int = limits.COMMIT_PART_BYTES,
        bytes_max: int = limits.STAGED_BYTES_MAX,
        seconds_max: float = limits.STAGED_SECONDS_MAX,
    ) -> None:
        self._reactor = reactor
        self._appends = appends
        self._spool = spool
        self._now_us = now_us
        self._part_bytes = part_bytes
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._writes: dict[tuple[str, int], Write] = {}
        self.marks = Marks()
        self._opening = asyncio.Lock()
        self._stopping = False
        self.expired = 0
        self.committed = 0

    # --- Life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """The shard's state is restored: take up its marks."""
        self.marks = Marks()
        self.marks.open(self._reactor.compacted(COMMITS))

    async def recover(self) -> list[Write]:
        """Take up what an earlier run staged; returns the writes to complete."""
        for file, records in await self._spool.recover():
            first = records[0].meta
            write = Write(first["writer"], first["batch"], file, self._now_us() / 1e6)
            for record in records[1:]:
                self._take(write, record)
            self._writes[write.writer, write.batch] = write
        return [write for write in self._writes.values() if self._begun(write)]

    def _take(self, write: Write, record: Any) -> None:
        meta = record.meta
        if meta["kind"] == "plan":
            rows = {(topic, index): count for topic, index, count in meta["rows"]}
            write.plan = Plan(tuple(meta["attempts"]), rows, meta["part_bytes"])
        else:
            piece = Piece(record._replace(meta={}), tuple(meta["outline"]))
            self._add(write, meta["attempt"], (meta["topic"], meta["slice"]), piece)

    @staticmethod
    def _add(write: Write, attempt: str, place: Place, piece: Piece) -> None:
        write.attempts.setdefault(attempt, {}).setdefault(place, []).append(piece)
        write.pieces += 1
        write.bytes += piece.record.length

    async def complete(self, writes: Sequence[Write]) -> None:
        """After a start: what had begun to be committed is committed to its end."""
        for write in writes:
            try:
                await self._apply(write)
            except BarcoError as error:
                _log.error("the write %s/%d: %s", write.writer, write.batch, error)

    async def expire(self) -> int:
        """Gives up what was left alone for too long; returns how many writes."""
        now = self._now_us() / 1e6
        late = [
            write
            for write in self._writes.values()
            if now - write.touched > self._seconds_max
            and not write.committing.locked()
            and not write.file.lock.locked()
            and not self._begun(write)
        ]
        for write in late:
            await self._forget(write)
            self.expired += 1
        return len(late)

    def stop(self) -> None:
        """The log takes nothing any more: commits under way are answered "not now"."""
        self._stopping = True

    def close(self) -> None:
        """The files stay for the next start."""
        self._spool.close([write.file for write in self._writes.values()])

    def stats(self) -> dict[str, int]:
        """Gauges and counters."""
        return {
            "staged_writes": len(self._writes),
            "staged_bytes": sum(write.bytes for write in self._writes.values()),
            "staged_writes_expired": self.expired,
            "staged_writes_committed": self.committed,
            "commit_marks": len(self.marks),
        }

    # --- Tasks -----------------------------------------------------------------------------------

    async def stage(
        self, writer: str, batch: int, attempt: str, place: Place, seq: int, body: bytes
    ) -> int:
        """Keep a batch for a slice; returns its number of events, 0 for one that is here already.

        `seq` counts what the attempt stages for the slice, from 0: a repetition is recognised, a
        gap is refused.
        """
        try:
            outline = self._reactor.check_batch(place[1], body)
        except OverflowError as error:
            raise TooLargeError(f"{error}: at most 1 MiB of values, or one event.") from None
        except ValueError as error:
            raise RequestError(f"The batch cannot be staged: {error}.") from None
        write = await self._write(writer, batch)
        async with write.file.lock:
            if write.file.closed:
                raise BusyError("The write was just finished.")
            write.touched = self._now_us() / 1e6
            if write.plan is not None and attempt in write.plan.attempts:
                raise ConflictError("The attempt is part of a commit already.")
            known = write.attempts.get(attempt, {}).get(place, [])
            if seq < len(known):
                return 0
            if seq > len(known):
                raise SequenceGapError("Something before it is missing.", expectedSeq=len(known))
            self._check_room(len(body))
            meta = {
                "kind": "batch",
                "attempt": attempt,
                "topic": place[0],
                "slice": place[1],
                "outline": outline,
            }
            record = await self._spool.append(write.file, meta, body)
            self._add(write, attempt, place, Piece(record._replace(meta={}), outline))
        return outline[0]

    def _check_room(self, more: int) -> None:
        writes = self._writes.values()
        if sum(write.bytes for write in writes) + more > self._bytes_max:
            raise BusyError("Too many bytes are staged: commit or give up some writes first.")
        if sum(write.pieces for write in writes) >= limits.STAGED_PIECES_MAX:
            raise TooManyRequestsError("Too many batches are staged: stage larger ones.")

    async def _write(self, writer: str, batch: int) -> Write:
        async with self._opening:
            write = self._writes.get((writer, batch))
            if write is not None:
                return write
            if len(self._writes) >= limits.STAGED_WRITES_MAX:
                raise TooManyRequestsError("Too many writes are staged: finish some first.")
            meta = {"kind": "write", "writer": writer, "batch": batch}
            file = await self._spool.create(f"{writer}/{batch}", meta)
            write = Write(writer, batch, file, self._now_us() / 1e6)
            self._writes[writer, batch] = write
            return write

    # --- Drivers ---------------------------------------------------------------------------------

    async def prepare(
        self, writer: str, batch: int, attempts: Sequence[str], rows: Rows
    ) -> dict[str, Any]:
        """The first step of a commit: everything is here, and stays. ConflictError: it is not."""
        left = {
            place: count
            for place, count in rows.items()
            if not self.marks.done(writer, batch, place)
        }
        self._check_counts(writer, batch, rows)
        if not left:
            return self.state(writer, batch)
        write = self._writes.get((writer, batch))
        if write is None:
            raise ConflictError("Nothing is staged for it: it expired, or was staged elsewhere.")
        async with write.committing:
            if write.file.closed:
                raise BusyError("The write was just finished, or given up.")
            await self._plan(write, attempts, rows, left)
        return self.state(writer, batch)

    async def _plan(
        self, write: Write, attempts: Sequence[str], rows: Rows, left: Mapping[Place, int]
    ) -> None:
        if not self._begun(write):
            staged = write.rows(attempts)
            for place in staged.keys() | left.keys():
                wanted, there = rows.get(place, 0), staged.get(place, 0)
                if wanted != there and not self.marks.done(write.writer, write.batch, place):
                    raise ConflictError(
                        f"{there} events of {place[0]} are staged for slice {place[1]}, not "
                        f"{wanted}: the write has to be done again."
                    )
            plan = Plan(tuple(attempts), dict(rows), self._part_bytes)
            if plan != write.plan:
                async with write.file.lock:
                    meta = {
                        "kind": "plan",
                        "attempts": plan.attempts,
                        "rows": [[*place, count] for place, count in rows.items()],
                        "part_bytes": plan.part_bytes,
                    }
                    await self._spool.append(write.file, meta, b"")
                    write.plan = plan
        assert write.plan is not None
        for place, count in left.items():
            if write.plan.rows.get(place, 0) != count:
                raise ConflictError(
                    f"The commit that has begun stores {write.plan.rows.get(place, 0)} events of "
                    f"{place[0]} in slice {place[1]}, not {count}."
                )
            self.marks.reserve(write.writer, place, self._now_us())
        async with write.file.lock:
            await self._spool.sync(write.file)
        write.touched = self._now_us() / 1e6

    async def commit(
        self, writer: str, batch: int, attempts: Sequence[str], rows: Rows
    ) -> dict[str, Any]:
        """Both steps; returns when all events are stable. Repeated, it changes nothing."""
        await self.prepare(writer, batch, attempts, rows)
        write = self._writes.get((writer, batch))
        if write is not None:
            await self._apply(write, rows)
        return self.state(writer, batch)

    async def abort(self, writer: str, batch: int) -> None:
        """Give it up. ConflictError: it has begun to be committed. Unknown ones are gone."""
        write = self._writes.get((writer, batch))
        if write is None:
            return
        if write.committing.locked() or self._begun(write):
            raise ConflictError("It has begun to be committed.")
        await self._forget(write)

    def state(self, writer: str, batch: int) -> dict[str, Any]:
        """What is known of a write; NotFoundError: nothing."""
        write = self._writes.get((writer, batch))
        marks = {
            place: mark for place, mark in self.marks.of(writer).items() if mark.batch >= batch
        }
        if write is None and not marks:
            raise NotFoundError("There is no such write.")
        committed: dict[str, dict[str, int]] = {}
        for (topic, index), mark in marks.items():
            if mark.batch == batch and mark.complete:
                committed.setdefault(topic, {})[str(index)] = mark.rows
        waiting = [] if write is None or write.plan is None else write.plan.rows
        state = "staged" if write is not None else "committed"
        if any(not self.marks.done(writer, batch, place) for place in waiting):
            state = "prepared"
        staged = 0
        if write is not None:
            staged = sum(sum(write.rows([attempt]).values()) for attempt in write.attempts)
        return {
            "writer": writer,
            "batch": str(batch),
            "state": state,
            "stagedRows": staged,
            "stagedBytes": write.bytes if write is not None else 0,
            "committed": committed,
        }

    def _begun(self, write: Write) -> bool:
        """Whether a slice of its plan has got something already."""
        if write.plan is None:
            return False
        marks = (self.marks.get(write.writer, place) for place in write.plan.rows)
        return any(mark is not None and mark.batch == write.batch for mark in marks)

    def _check_counts(self, writer: str, batch: int, rows: Rows) -> None:
        for place, count in rows.items():
            mark = self.marks.get(writer, place)
            if mark is not None and mark.batch == batch and mark.rows != count:
                raise ConflictError(
                    f"The write stored {mark.rows} events of {place[0]} in slice {place[1]} "
                    f"before, not {count}: it is not the same."
                )

    # --- Appending -------------------------------------------------------------------------------

    async def _apply(self, write: Write, wanted: Rows | None = None) -> None:
        """Stores what is planned and not there yet; the write is over then.

        If what is wanted was stored before, a plan of which nothing has begun is no longer needed.
        """
        async with write.committing:
            if write.file.closed:
                return
            writer, batch = write.writer, write.batch
            over = wanted is not None and all(
                self.marks.done(writer, batch, place) for place in wanted
            )
            if write.plan is None and not over:
                return
            if write.plan is not None and (self._begun(write) or not over):
                for place in sorted(write.plan.rows):
                    if not self.marks.done(writer, batch, place):
                        await self._apply_slice(write, place)
            await self._forget(write)
            self.committed += not over

    async def _apply_slice(self, write: Write, place: Place) -> None:
        assert write.plan is not None
        parts = _parts(write.share(place), write.plan.part_bytes)
        mark = self.marks.get(write.writer, place)
        done = mark.done if mark is not None and mark.batch == write.batch else 0
        rows = sum(piece.count for part in parts for piece in part)
        number = self.marks.reserve(write.writer, place, self._now_us())
        for part in parts[done:]:
            bodies = await self._spool.read(write.file, [piece.record for piece in part])
            batches = [(body, *piece.outline) for body, piece in zip(bodies, part, strict=True)]
            done += 1
            mark = Mark(number, write.batch, rows, len(parts), done, self._now_us())
            await self._append(place, batches, packed(write.writer, place, mark))
            self.marks.set(write.writer, place, mark)

    async def _append(
        self, place: Place, batches: list[tuple[Any, ...]], mark: tuple[bytes, bytes]
    ) -> None:
        until = asyncio.get_running_loop().time() + APPEND_SECONDS
        while True:
            try:
                future = self._appends.start_commit(*place, batches, mark=(COMMITS, *mark))
                break
            except BusyError:
                if self._stopping or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.01)
        await asyncio.shield(future)

    async def _forget(self, write: Write) -> None:
        if self._writes.get((write.writer, write.batch)) is write:
            del self._writes[write.writer, write.batch]
        for place in write.plan.rows if write.plan is not None else ():
            self.marks.release(write.writer, place)
        async with write.file.lock:
            await self._spool.remove(write.file)


def _parts(pieces: Sequence[Piece], limit: int) -> list[list[Piece]]:
    """Consecutive pieces that fit into one group each; the same for the same pieces."""
    parts: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not parts or piece.cost > room:
            parts.append([])
            room = limit
        parts[-1].append(piece)
        room -= piece.cost
    return parts
