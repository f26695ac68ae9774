"""Writes that appear at once or not at all: staged by tasks, committed by a driver.

A write has a name, (writer, batch): a Spark query's id and its batch id, or a job's id and 0. Tasks
stage batches of events for slices of this shard, each task under the name of its attempt; nothing
of it is visible. The driver then takes two steps on every shard.

- prepare: names the attempts that won and how many events each (topic, slice) is to get. The counts
  are checked, and the staged events made stable together with the plan. From here on the write can
  be completed whatever happens to driver, tasks or this process.
- commit: each slice's events are appended in one group with their mark (native/broker/commit.c),
  an event of `__commits` in the same slice that says what (writer, topic) committed there last. A
  group is recovered whole or not at all, so a commit that is repeated finds the mark and changes
  nothing.

A slice's share over COMMIT_PART_BYTES is several groups, each with the mark's count of parts: the
repetition goes on after the last of them. Readers may see such a share grow; they never see
events twice, nor any of an attempt that lost. What was begun is completed from the plan that it was
begun with, by this process alone when it starts again.

In a cluster tasks stage with every process that holds the shard, and the driver has them all
prepare; two are enough. The leader commits: events and mark are replicated in its log like any
group, so the next leader knows from its log what is there, and has a copy of the rest, or gets it
from another holder (`Staging.bring`). Marks are read anew whenever a process begins to lead, and
what waited for an earlier leadership of its own ends there (`_same`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from barco import limits
from barco.errors import (
    BarcoError,
    BusyError,
    ConflictError,
    NotFoundError,
    NotReadyError,
    SequenceGapError,
    TooManyRequestsError,
)
from barco.workers.seams import ReactorLike, SpoolLike
from barco.workers.shard.appends import Appends
from barco.workers.writes.copies import Ask, bring
from barco.workers.writes.marks import ALL, COMMITS, Mark, Marks, Stream, empty, packed
from barco.workers.writes.staged import (
    NOBODYS,
    PLANS_MAX,
    CommitPlan,
    Piece,
    Rows,
    Write,
    WriterRoom,
    checked,
    left_alone,
    make_room,
    parts_of,
    state_of,
    stats_of,
    too_many,
)

APPEND_SECONDS = 10.0
"""A log that takes nothing for so long: the driver is told to come again."""

_log = logging.getLogger("barco.staging")


class Staging:
    """The writes of one shard."""

    def __init__(
        self,
        reactor: ReactorLike,
        appends: Appends,
        spool: SpoolLike,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        part_bytes: int = limits.COMMIT_PART_BYTES,
        bytes_max: int = limits.STAGED_BYTES_MAX,
        seconds_max: float = limits.STAGED_SECONDS_MAX,
    ) -> None:
        self._reactor = reactor
        self._appends = appends
        self._spool = spool
        self._now_us = now_us
        self.monotonic = monotonic
        self._part_bytes = part_bytes
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self.writes: dict[tuple[str, int], Write] = {}
        self.slices = ALL  # Of the shard; what was staged for others, others ask for.
        self.marks = Marks(held=self._holds)
        self.others: Sequence[Ask] = ()
        self.before: Sequence[Ask] = ()
        """Who else holds the shard, and what it was split off; set by the host of a replica."""
        self.leads = False
        self._term = 0
        self._opening = asyncio.Lock()
        self._stopping = False
        self.expired = 0
        self.committed = 0

    # --- Life ------------------------------------------------------------------------------------

    def open(self, deleted: Collection[str] = ()) -> None:
        """The shard's state is restored, and it is led here: take up its marks.

        Those of deleted topics go: who led before may have died before it said so (`tidy` does).
        """
        self._read_marks()
        self.marks.forget(deleted)
        self.leads = True
        self._term += 1

    def rest(self) -> None:
        """Somebody else leads the shard, or nobody yet: nothing is committed, copies are kept."""
        self.leads = False
        self._term += 1

    def _read_marks(self) -> None:
        self.marks = Marks(held=self._holds, slices=self.slices)
        self.marks.open(self._reactor.compacted(COMMITS))

    def _holds(self, writer: str, stream: Stream) -> bool:
        return any(
            write.writer == writer and any(stream in plan.rows for plan in write.plans.values())
            for write in self.writes.values()
        )

    def _look(self) -> None:
        """Marks of another leader come in with its groups."""
        if not self.leads:
            self._read_marks()

    def _same(self, term: int) -> None:
        if term != self._term or not self.leads:
            raise NotReadyError("The shard is not led here any more.")

    async def recover(self) -> list[Write]:
        """Take up what an earlier run staged; returns the writes to complete."""
        for file, records in await self._spool.recover():
            first = records[0].meta
            write = Write(first["writer"], first["batch"], file, self.monotonic())
            for record in records[1:]:
                self._take(write, record)
            self.writes[write.writer, write.batch] = write
        return self.begun()

    def _take(self, write: Write, record: Any) -> None:
        meta = record.meta
        if meta["kind"] == "plan":
            write.adopt(CommitPlan.of(meta))
        else:
            piece = Piece(record._replace(meta={}), tuple(meta["outline"]))
            write.add(meta["attempt"], (meta["topic"], meta["slice"]), piece)

    def begun(self) -> list[Write]:
        """Those that a slice has got something of, by a plan that is here."""
        return [write for write in self.writes.values() if self._begun(write) is not None]

    async def complete(self, writes: Sequence[Write]) -> None:
        """After a start: what had begun to be committed is committed to its end."""
        for write in writes:
            try:
                await self._apply(write, self._term)
            except BarcoError as error:
                _log.error("the write %s/%d: %s", write.writer, write.batch, error)

    async def take_over(self) -> None:
        """Where another process led the shard before: completes what that has begun."""
        here = {(write.writer, write.batch) for write in self.begun()}
        for name in self.marks.unfinished() - here:
            try:
                await bring(self, *name, ())
            except BarcoError:
                continue  # Told by `bring`; it is tried again before long.
        if self.leads:
            await self.complete(self.begun())

    async def expire(self) -> int:
        """Gives up what was left alone for too long; returns how many writes."""
        self._look()
        now, late = self.monotonic(), 0
        for write in [write for write in self.writes.values() if write.idle]:
            plan = write.plan
            over = plan is not None and write.within(self.slices) and self._over(write, plan)
            if over and (self.leads or write.over):
                await self._forget(write)
            elif now - write.touched > max(self._seconds_max, write.keep_s) and (
                self._begun(write) is None
            ):
                await self._forget(write)
                late += 1
            else:
                write.over = over
        self.expired += late
        return late

    async def tidy(self) -> int:
        """What is due from time to time: `expire`, and what could not be completed before."""
        if self.leads and self.marks.unfinished():
            await self.take_over()
        if self.leads:
            await empty(self.marks, self._appends)
        return await self.expire()

    async def topic_deleted(self, topic: str) -> None:
        """What was stored there is forgotten with it: the same write begins anew."""
        if self.leads:
            self.marks.forget({topic})
            await empty(self.marks, self._appends)

    def stop(self) -> None:
        """The log takes nothing any more: commits under way are answered "not now"."""
        self._stopping = True

    def close(self) -> None:
        """The files stay for the next start."""
        self._spool.close([write.file for write in self.writes.values()])

    def stats(self) -> dict[str, int]:
        """Gauges and counters."""
        ended = {"staged_writes_expired": self.expired, "staged_writes_committed": self.committed}
        return stats_of(self.writes.values(), len(self.marks)) | ended

    # --- Tasks -----------------------------------------------------------------------------------

    async def stage(
        self,
        writer: str,
        batch: int,
        attempt: str,
        stream: Stream,
        seq: int,
        body: bytes,
        near: Callable[[int], None] | None = None,
        whose: WriterRoom = NOBODYS,
        look: Callable[[], Awaitable[None]] | None = None,
        brought: bool = False,
    ) -> int:
        """Keep batches for a slice; returns their events, less those of batches already here.

        `seq`: the number of the first one, of those for the slice: a repetition is known, a gap is
        refused. `near`, then `look` raise what a time or value is refused with. `brought`: copied.
        """
        batches = await checked(self._reactor.check_batch, stream[1], body, near, look)
        write = await self._write(writer, batch, whose)
        async with write.file.lock:
            if write.file.closed:
                raise BusyError("The write was just finished.")
            write.touched = self.monotonic()
            if not brought and any(attempt in plan.attempts for plan in write.plans.values()):
                raise ConflictError("The attempt is part of a commit already.")
            if seq > (known := len(write.attempts.get(attempt, {}).get(stream, ()))):
                raise SequenceGapError("Something before it is missing.", expectedSeq=known)
            del batches[: known - seq]
            if not (more := sum(len(each) for each, _ in batches)):
                return 0
            meta = {"kind": "batch", "attempt": attempt, "topic": stream[0], "slice": stream[1]}
            entries = [(meta | {"outline": outline}, each) for each, outline in batches]
            room = make_room(self.writes, write, more, self._bytes_max, self._drop_idle, whose)
            async with room:
                records = await self._spool.append_all(write.file, entries)
            for record, (_, outline) in zip(records, batches, strict=True):
                write.add(attempt, stream, Piece(record._replace(meta={}), outline))
        return sum(outline[0] for _, outline in batches)

    async def _drop_idle(self, among: Collection[Write], but: Write | None = None) -> bool:
        """Gives up what was left alone for longest, if that is long enough; false: nothing was."""
        now = self.monotonic()
        if found := left_alone(among, now - limits.STAGED_IDLE_SECONDS, now):
            self._look()
        for write in found:
            if write is not but and self._begun(write) is None:
                await self._forget(write)
                self.expired += 1
                return True
        return False

    async def _write(self, writer: str, batch: int, whose: WriterRoom) -> Write:
        async with self._opening:
            write = self.writes.get((writer, batch))
            if write is not None:
                return write
            if (full := too_many(self.writes.values(), whose)) and not await self._drop_idle(full):
                raise TooManyRequestsError("Too many writes are staged: finish some first.")
            meta = {"kind": "write", "writer": writer, "batch": batch}
            file = await self._spool.create(f"{writer}/{batch}", meta)
            write = Write(writer, batch, file, self.monotonic())
            self.writes[writer, batch] = write
            return write

    # --- Drivers ---------------------------------------------------------------------------------

    async def prepare(
        self, writer: str, batch: int, attempts: Sequence[str], rows: Rows, keep_s: int = 0
    ) -> dict[str, Any]:
        """The first step of a commit: everything is here, and stays. ConflictError: it is not."""
        self._look()
        left = {
            stream: count
            for stream, count in rows.items()
            if not self.marks.done(writer, batch, stream)
        }
        self.marks.check(writer, batch, rows)
        if not left:
            return self.state(writer, batch)
        if self._lacks(writer, batch, attempts, left):
            await bring(self, writer, batch, attempts)
        plan = CommitPlan(tuple(attempts), dict(rows), self._part_bytes, keep_s)
        write = self.writes.get((writer, batch))
        if write is None:
            raise ConflictError("Nothing is staged for it: it expired, or was staged elsewhere.")
        async with write.committing:
            if write.file.closed:
                raise BusyError("The write was just finished, or given up.")
            await self._plan(write, plan, left)
        return self.state(writer, batch)

    async def _plan(self, write: Write, asked: CommitPlan, left: Mapping[Stream, int]) -> None:
        plan = self._begun(write)
        if plan is None:
            staged = write.rows(asked.attempts)
            for stream in staged.keys() | left.keys():
                wanted, there = asked.rows.get(stream, 0), staged.get(stream, 0)
                if wanted != there and not self.marks.done(write.writer, write.batch, stream):
                    raise ConflictError(
                        f"{there} events of {stream[0]} are staged for slice {stream[1]}, not "
                        f"{wanted}: the write has to be done again."
                    )
            if (plan := asked) != write.plan:
                if self.leads:
                    write.plans.clear()
                elif len(write.plans) >= PLANS_MAX:
                    del write.plans[next(iter(write.plans))]
                await self.keep_plan(write, plan)
        for stream, count in left.items():
            if plan.rows.get(stream, 0) != count:
                raise ConflictError(
                    f"The commit that has begun stores {plan.rows.get(stream, 0)} events of "
                    f"{stream[0]} in slice {stream[1]}, not {count}."
                )
            if self.leads:
                self.marks.reserve(write.writer, stream, self._now_us())
        async with write.file.lock:
            await self._spool.sync(write.file)
        write.touched = self.monotonic()

    async def keep_plan(self, write: Write, plan: CommitPlan) -> None:
        """The last one from now on."""
        async with write.file.lock:
            await self._spool.append(write.file, plan.record(), b"")
            write.adopt(plan)

    def _lacks(self, writer: str, batch: int, attempts: Sequence[str], left: Rows) -> bool:
        """Whether something of these attempts is not here that a commit needs."""
        if (write := self.writes.get((writer, batch))) is None:
            return True
        staged = write.rows(attempts)
        short = any(staged.get(stream, 0) < count for stream, count in left.items())
        return short and self._begun(write) is None

    async def commit(
        self, writer: str, batch: int, attempts: Sequence[str], rows: Rows
    ) -> dict[str, Any]:
        """Both steps; returns when all events are stable. Repeated, it changes nothing."""
        term = self._term
        self._same(term)
        await self.prepare(writer, batch, attempts, rows)
        if (write := self.writes.get((writer, batch))) is not None:
            await self._apply(write, term, rows)
        self._same(term)
        return self.state(writer, batch)

    def touch(self, writer: str, batch: int) -> dict[str, Any]:
        """Its tasks are alive: it does not expire for a while."""
        if (write := self.writes.get((writer, batch))) is not None:
            write.touched = self.monotonic()
        return self.state(writer, batch)

    async def abort(self, writer: str, batch: int) -> None:
        """Give it up. ConflictError: it has begun to be committed. Unknown ones are gone."""
        if (write := self.writes.get((writer, batch))) is None:
            return
        self._look()
        if write.committing.locked() or self._begun(write) is not None:
            raise ConflictError("It has begun to be committed.")
        await self._forget(write)

    def state(self, writer: str, batch: int) -> dict[str, Any]:
        """What is known of a write; NotFoundError: nothing."""
        return state_of(self.marks, self.writes.get((writer, batch)), writer, batch)

    def _begun(self, write: Write) -> CommitPlan | None:
        """The plan by which a slice has got something already, and not all have."""
        for plan in reversed(write.plans.values()):
            if self._over(write, plan):
                continue
            for mark in (self.marks.get(write.writer, stream) for stream in plan.rows):
                if mark is not None and (mark.batch, mark.plan) == (write.batch, plan.name):
                    return plan
        return None

    def _over(self, write: Write, plan: CommitPlan) -> bool:
        """Whether all of it is stored."""
        return all(self.marks.done(write.writer, write.batch, stream) for stream in plan.rows)

    # --- Appending -------------------------------------------------------------------------------

    async def _apply(self, write: Write, term: int, wanted: Rows | None = None) -> None:
        """Stores what is planned and not there yet; the write is over then.

        If what is wanted was stored before, a plan of which nothing has begun is no longer needed.
        """
        async with write.committing:
            if write.file.closed:
                return
            self._same(term)
            writer, batch = write.writer, write.batch
            over = wanted is not None and all(
                self.marks.done(writer, batch, stream) for stream in wanted
            )
            begun = self._begun(write)
            plan = begun or write.plan
            if plan is None and not over:
                return
            if plan is not None and (begun is not None or not over):
                for stream in sorted(plan.rows):
                    if not self.marks.done(writer, batch, stream):
                        await self._apply_slice(write, plan, stream, term)
            if write.within(self.slices):
                await self._forget(write)
            self.committed += not over

    async def _apply_slice(self, write: Write, plan: CommitPlan, stream: Stream, term: int) -> None:
        mark = self.marks.get(write.writer, stream)
        done = 0
        if mark is not None and mark.batch == write.batch:
            done = mark.done
            if mark.plan != plan.name:
                plan = await self._plan_of(write, mark, term)
        parts = parts_of(write.share(plan, stream), plan.part_bytes)
        rows = sum(piece.count for part in parts for piece in part)
        number = self.marks.reserve(write.writer, stream, self._now_us())
        for part in parts[done:]:
            bodies = await self._spool.read(write.file, [piece.record for piece in part])
            batches = [(body, *piece.outline) for body, piece in zip(bodies, part, strict=True)]
            done += 1
            at_us = self._now_us()
            mark = Mark(number, write.batch, rows, len(parts), done, at_us, plan.name)
            await self._append(stream, batches, packed(write.writer, stream, mark), term)
            self._same(term)
            self.marks.set(write.writer, stream, mark)

    async def _plan_of(self, write: Write, mark: Mark, term: int) -> CommitPlan:
        """The one by which a slice has begun; only the rest of its own share fits."""
        if mark.plan not in write.plans:
            await bring(self, write.writer, write.batch, ())
            self._same(term)
        if mark.plan not in write.plans:
            raise BusyError("A part of it is stored, and the rest is not at hand here.")
        return write.plans[mark.plan]

    async def _append(
        self, stream: Stream, batches: list[tuple[Any, ...]], mark: tuple[bytes, bytes], term: int
    ) -> None:
        until = asyncio.get_running_loop().time() + APPEND_SECONDS
        while True:
            self._same(term)
            try:
                future = self._appends.start_commit(*stream, batches, mark=(COMMITS, *mark))
                break
            except BusyError:
                if self._stopping or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.01)
        await asyncio.shield(future)

    async def _forget(self, write: Write) -> None:
        name = (write.writer, write.batch)
        if self.writes.get(name) is write:
            del self.writes[name]
        for stream in {stream for plan in write.plans.values() for stream in plan.rows}:
            self.marks.release(write.writer, stream)
        async with write.file.lock:
            await self._spool.remove(write.file)

    # --- Copies ----------------------------------------------------------------------------------

    async def piece(self, writer: str, batch: int, attempt: str, stream: Stream, seq: int) -> bytes:
        """A staged batch as it came; NotFoundError: it is not here."""
        write = self.writes.get((writer, batch))
        known = write.attempts.get(attempt, {}).get(stream, []) if write is not None else []
        if write is None or seq >= len(known):
            raise NotFoundError("The batch is not staged here.")
        (body,) = await self._spool.read(write.file, [known[seq].record])
        return body
