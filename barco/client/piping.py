"""The engine of a pipeline: reads, stages what the function makes of it, and has one note decide
both the outputs of a batch and where its input ended. `pipeline.py` has the faces.

A batch goes in five steps: stage, prepare, decide, commit, and then the next one. Killed before the
note: nothing of the batch was, and it is made again. Killed behind it: whoever begins next under
the name reads the note, commits what it names (which changes nothing where that is done), and reads
on from where it says. Who begins decides a batch of his own first, which is empty: so no other
process of this name can decide anything more.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from barco.client.admin import AsyncAdmin
from barco.client.base.errors import BadAnswerError
from barco.client.base.settings import Start
from barco.client.outputs import Output, Outputs
from barco.client.reader import AsyncReader, start_of
from barco.client.wire.access import Access
from barco.client.wire.batching import SliceKey
from barco.client.wire.codec import Event
from barco.client.wire.staged import AgainError, Attempt, Rows, StagedWrites
from barco.errors import BarcoError, ConflictError
from barco.model.note import NOTE_BYTES_MAX
from barco.types import KiB, MiB

READ_BYTES_MIN, READ_BYTES_MAX = 64 * KiB, 1 * MiB
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
CLAIMS_MAX = 20
SETTLE_SECONDS = 30.0
"""After so long without events a pipeline notes that nothing is left to commit: a shard does not
remember for ever what was."""
TELL_SECONDS = 1.0

_log = logging.getLogger("barco.pipeline")

Positions = dict[str, dict[SliceKey, str]]
"""By topic and slice: the cursor of the next event to read."""


class PipelineError(BarcoError):
    """The pipeline can not go on; the text says why, and what to do."""

    slug = "pipeline"
    title = "The pipeline cannot go on"


class PipelineFencedError(PipelineError):
    """Another pipeline of this name was started later, and goes on."""

    slug = "pipeline-fenced"
    title = "Another pipeline of this name has taken over"


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """How far a pipeline is, since it was started."""

    batch: int
    """The number of the last one that was committed, of all that its name has had."""
    read: int
    written: int
    positions: Mapping[str, Mapping[SliceKey, str]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotedState:
    """What a note says."""

    owner: str
    positions: Positions
    attempt: str = ""
    rows: Rows = field(default_factory=dict)
    """Empty: there is nothing to commit."""

    def packed(self) -> str:
        """As text. PipelineError: the ring has too many slices."""
        told = {
            "pipeline": 1,
            "owner": self.owner,
            "attempt": self.attempt,
            "positions": _by_token(self.positions),
            "rows": _by_token(self.rows),
        }
        text = json.dumps(told, separators=(",", ":"))
        if len(text) > NOTE_BYTES_MAX:
            raise PipelineError(
                f"the positions of all slices take {len(text)} bytes, of {NOTE_BYTES_MAX} that a "
                "note has: read fewer topics"
            )
        return text

    @classmethod
    def parse(cls, text: str) -> "NotedState":
        """The inverse; PipelineError: no pipeline has written that."""
        try:
            told = json.loads(text)
            if told["pipeline"] != 1:
                raise ValueError(f"version {told['pipeline']}")
            positions = _by_slice(told["positions"], str)
            rows = _by_slice(told["rows"], int)
            return cls(str(told["owner"]), positions, str(told["attempt"]), rows)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(
                f"the note under this name is none of a pipeline that this version knows: {error!r}"
            ) from error


def _by_token(given: Mapping[str, Mapping[SliceKey, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for topic, slices in given.items():
        tokens = found.setdefault(topic, {})
        for key, value in slices.items():
            tokens.setdefault(str(key.token), {})[str(key.slice)] = value
    return found


def _by_slice(given: Any, kind: type[Any]) -> dict[str, dict[SliceKey, Any]]:
    return {
        str(topic): {
            SliceKey(int(token), int(index)): kind(value)
            for token, slices in tokens.items()
            for index, value in slices.items()
        }
        for topic, tokens in given.items()
    }


class SourceReader:
    """The events of some topics from some positions on, as they come."""

    def __init__(
        self, access: Access, positions: Positions, *, read_bytes: int, follow: bool
    ) -> None:
        self._readers = []
        self._next: dict[asyncio.Task[list[Event]], Any] = {}
        for topic, cursors in positions.items():
            start = {(key.token, key.slice): cursor for key, cursor in cursors.items()}
            reader = AsyncReader(topic, access, start=start, follow=follow, read_bytes=read_bytes)
            self._readers.append(reader)
            self._go_on(reader.batches())

    def _go_on(self, batches: Any) -> None:
        self._next[asyncio.ensure_future(anext(batches))] = batches

    async def next(self, timeout_s: float) -> list[Event] | None:
        """Events of one slice, in their order; none if there are none in time. None: there are no
        more."""
        if not self._next:
            return None
        done, _ = await asyncio.wait(
            self._next, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            batches = self._next.pop(task)
            try:
                events = task.result()
            except StopAsyncIteration:
                return [] if self._next else None
            self._go_on(batches)  # Meanwhile the next is on its way: one at a time for a topic.
            return events
        return []

    async def close(self) -> None:
        """Stops reading."""
        for task in self._next:
            task.cancel()
        await asyncio.gather(*self._next, return_exceptions=True)
        self._next.clear()
        for reader in self._readers:
            await reader.close()


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """What a pipeline reads, writes and is called; `PipelineOptions` in short."""

    access: Access
    sources: tuple[str, ...]
    sink: str
    name: str
    start: Start
    batch_bytes: int
    batch_s: float
    buffer_bytes: int
    timeout_s: float
    compress: bool
    group: str


class Engine:
    """One run of a pipeline."""

    def __init__(self, plan: PipelinePlan, *, follow: bool) -> None:
        self._plan = plan
        self._follow = follow
        self._owner = secrets.token_hex(16)
        self._writes = StagedWrites(plan.access, plan.name, plan.timeout_s)
        self._admin = AsyncAdmin(plan.access, timeout_s=plan.timeout_s)
        self._input: SourceReader | None = None
        self._outputs: Outputs | None = None
        self._batch = -1
        self._positions: Positions = {}
        """As they are decided."""
        self._ahead: Positions = {}
        """Where what was processed since then ends."""
        self._offered: PipelineProgress | None = None
        """A decision was asked for that stores what is staged: so far it leads."""
        self._read_bytes = self._read = 0
        self._begun_at = self._decided_at = time.monotonic()
        self._settled = True
        self._telling: asyncio.Task[None] | None = None
        self._told_at = 0.0
        self._told: Positions = {}
        self.progress = PipelineProgress(-1, 0, 0, {})
        """As it is decided, and visible."""

    # --- Beginning, and beginning again ----------------------------------------------------------

    async def start(self) -> None:
        """Take the name over, finish what the last one of it has decided, and go on behind that."""
        for _ in range(CLAIMS_MAX):
            state = await self._finish()
            positions = state.positions if state is not None else {}
            await self._fill(positions)
            if await self._claim(positions):
                self.progress = PipelineProgress(self._batch, 0, 0, positions)
                return
        raise PipelineError(f"others go on to start pipelines of the name {self._plan.name}")

    async def again(self, error: BarcoError) -> None:
        """After trouble: from where the last note says. PipelineFencedError: it is another's."""
        _log.warning("pipeline %s: %s; the batch is made again", self._plan.name, error)
        until, pause = time.monotonic() + self._plan.timeout_s, PAUSE_FIRST_S
        while True:
            try:
                state = await self._finish()
                if state is None or state.owner != self._owner:
                    break
                attempt = None if self._outputs is None else self._outputs.attempt.name
                if self._offered is not None and state.attempt == attempt:
                    self.progress = self._offered  # It was stored, whatever the answer was.
                if await self._claim(state.positions):
                    return
            except BarcoError as later:
                if not later.retryable or time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
        raise PipelineFencedError(
            f"another pipeline of the name {self._plan.name} was started, and goes on: this one has"
            " stored nothing since then"
        )

    async def _claim(self, positions: Positions) -> bool:
        """Decides an empty batch, and begins the one behind it: what anybody has asked for before,
        this engine too, and that is still on its way, comes too late then. False: it was first."""
        try:
            await self._writes.decide(self._batch + 1, NotedState(self._owner, positions).packed())
        except ConflictError:
            return False
        self._batch += 1
        self._positions = positions
        self._settled = True
        with suppress(BarcoError):
            await self._writes.abandon(self._batch)  # What was staged for it.
        await self._begin()
        return True

    async def _finish(self) -> NotedState | None:
        """What the last note says, when all that it decided is visible."""
        decided = await self._writes.last()
        if decided is None:
            self._batch = -1
            return None
        state = NotedState.parse(decided.note)
        self._batch = decided.batch
        if state.rows:
            await self._commit(Attempt(decided.batch, state.attempt), state.rows)
        return state

    async def _commit(self, attempt: Attempt, rows: Rows) -> None:
        try:
            await self._writes.commit(attempt, rows)
        except ConflictError as error:
            raise PipelineError(
                f"batch {attempt.batch} of {self._plan.name} is decided, and a shard has neither "
                "its events nor a trace of them: it was left for longer than a week, its topic was "
                "deleted, or more disks were lost than there may be. To begin anew: DELETE "
                f"/v1/writes/{self._plan.name}. {error}"
            ) from error

    async def _fill(self, positions: Positions) -> None:
        """Where nothing was read yet it begins as the option says: now, and not at a restart.

        What the name has read of other topics, which it is not told to read now, stays: it is to go
        on there if it is told to again.
        """
        for topic in self._plan.sources:
            known = positions.setdefault(topic, {})
            for told in await self._slices(topic):
                try:
                    key = SliceKey(int(told["token"]), int(told["index"]))
                    ends = {"earliest": str(told["start"]), "latest": str(told["end"])}
                except (KeyError, ValueError, TypeError) as error:
                    raise BadAnswerError(f"the slices of {topic}: {error!r}") from error
                if key in known:
                    continue
                try:
                    start = start_of(self._plan.start, key)
                except KeyError:
                    raise PipelineError(
                        f"start has no cursor for {tuple(key)} of {topic}"
                    ) from None
                known[key] = ends.get(start, start)

    async def _slices(self, topic: str) -> Sequence[Mapping[str, Any]]:
        return await self._admin.slices(topic)

    async def _begin(self) -> None:
        """The next batch, read from the positions that are decided."""
        if self._input is not None:
            await self._input.close()
        positions = {topic: self._positions[topic] for topic in self._plan.sources}
        slices = sum(map(len, positions.values())) or 1
        share = self._plan.buffer_bytes // (2 * slices)
        read_bytes = max(READ_BYTES_MIN, min(READ_BYTES_MAX, share))
        self._input = SourceReader(
            self._plan.access, positions, read_bytes=read_bytes, follow=self._follow
        )
        await self._empty()

    async def _empty(self) -> None:
        """Nothing is processed since the last batch."""
        self._writes.begin()
        attempt = Attempt(self._batch + 1, secrets.token_hex(16))
        ring = await self._writes.ring()
        self._outputs = Outputs(attempt, ring, self._plan.sink, self._plan.compress)
        self._ahead = {}
        self._offered = None
        self._read_bytes = self._read = 0

    # --- A batch ---------------------------------------------------------------------------------

    async def next(self, timeout_s: float) -> list[Event] | None:
        """The next events of one slice; none if there are none in time. None: there are no more."""
        assert self._input is not None, "start() first"
        if self._ahead:
            timeout_s = min(timeout_s, max(0.0, self._begun_at + self._plan.batch_s - _now()))
        return await self._input.next(timeout_s)

    def add(self, event: Event, outputs: Sequence[Output]) -> None:
        """An event was processed, and these came of it."""
        assert self._outputs is not None, "start() first"
        if not self._ahead:
            self._begun_at = _now()
        for each in outputs:
            if each.topic in self._plan.sources:
                raise ValueError(f"a pipeline that reads {each.topic} does not write there")
            self._outputs.add(each)
        key = SliceKey(event.token, event.slice)
        self._ahead.setdefault(event.topic, {})[key] = event.next_cursor
        self._read += 1
        self._read_bytes += len(event.value or b"") + len(event.key or b"")

    @property
    def full(self) -> bool:
        """Whether so much waits that it is to be staged."""
        return self._outputs is not None and self._outputs.held >= self._plan.buffer_bytes // 4

    @property
    def room(self) -> int:
        """Bytes of events and outputs that may be processed before one looks again."""
        return min(self._plan.batch_bytes - self._read_bytes, self._plan.buffer_bytes // 4)

    @property
    def due(self) -> bool:
        """Whether the batch is large, or old, enough to be committed."""
        old = _now() >= self._begun_at + self._plan.batch_s
        return bool(self._ahead) and (old or self._read_bytes >= self._plan.batch_bytes)

    @property
    def busy(self) -> bool:
        """Whether something was processed that is not committed."""
        return bool(self._ahead)

    async def stage(self) -> None:
        """What waits is kept by the brokers; nobody sees it."""
        assert self._outputs is not None, "start() first"
        await self._outputs.stage(self._writes)

    async def commit(self) -> PipelineProgress | None:
        """The batch is stored, with where its input ends; None: there was none."""
        outputs = self._outputs
        assert outputs is not None, "start() first"
        if not self._ahead:
            await self._settle()
            return None
        await outputs.stage(self._writes)
        rows = outputs.rows
        if rows:
            await self._writes.prepare(outputs.attempt, rows)
        positions = {
            topic: {**cursors, **self._ahead.get(topic, {})}
            for topic, cursors in self._positions.items()
        }
        before = self.progress
        read, written = before.read + self._read, before.written + outputs.count
        self._offered = PipelineProgress(self._batch + 1, read, written, positions)
        await self._decide(NotedState(self._owner, positions, outputs.attempt.name, rows))
        if rows:
            await self._commit(outputs.attempt, rows)
        self.progress = self._offered
        await self._empty()
        self._tell_soon()
        return self.progress

    async def _decide(self, state: NotedState) -> None:
        try:
            await self._writes.decide(self._batch + 1, state.packed())
        except ConflictError as error:
            raise AgainError(f"somebody else was first: {error}") from error
        self._batch += 1
        self._positions = state.positions
        self._decided_at = _now()
        self._settled = not state.rows

    async def _settle(self, *, now: bool = False) -> None:
        """Notes that nothing is left to commit, when that has been so for a while."""
        if not self._settled and (now or _now() > self._decided_at + SETTLE_SECONDS):
            await self._decide(NotedState(self._owner, self._positions))
            await self._empty()

    # --- Ending ----------------------------------------------------------------------------------

    async def end(self) -> None:
        """All that was committed is so for good; what was not is given up."""
        await self._settle(now=True)
        self._told_at = 0.0
        self._tell_soon()
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=2.0)

    async def abandon(self) -> None:
        """What is staged is given up, as far as brokers answer at once; the rest expires.

        Not what a decision was asked for: it may be stored, whatever was answered. And of the
        attempt's own batch, which is the one behind this engine's last decision: if another has
        taken over, that one is its claim, and empty. What `_batch` says may be the other's by then,
        and the batch behind it what the other is storing just now.
        """
        if self._outputs is not None and self._ahead and self._offered is None:
            with suppress(BarcoError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._writes.abandon(self._outputs.attempt.batch)

    async def close(self) -> None:
        """Closes every connection."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        if self._input is not None:
            await self._input.close()
        self._writes.close()
        await self._admin.close()

    # --- For whoever watches the lag -----------------------------------------------------------

    def _tell_soon(self) -> None:
        idle = self._telling is None or self._telling.done()
        if self._plan.group and idle and _now() > self._told_at + TELL_SECONDS:
            self._told_at = _now()
            self._telling = asyncio.ensure_future(self._tell(self._positions))

    async def _tell(self, positions: Positions) -> None:
        """The group's positions, which nobody reads from."""
        try:
            numbers = {key: number for number, key in enumerate((await self._writes.ring()).slices)}
            for topic in self._plan.sources:
                cursors = positions[topic]
                before = self._told.get(topic, {})
                news = {numbers[k]: c for k, c in cursors.items() if before.get(k) != c}
                if news:
                    await self._admin.seek(self._plan.group, topic, news)
                    self._told[topic] = dict(cursors)
        except (BarcoError, KeyError) as error:
            _log.info("pipeline %s: its positions were not told: %s", self._plan.name, error)


_now = time.monotonic
