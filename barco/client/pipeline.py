"""Pipelines: read, process, write, each event exactly once. `Pipeline` for threads, `AsyncPipeline`
for asyncio. One engine: piping.py."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
import queue
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, Unpack

from barco.client.base.loopthread import LoopThread
from barco.client.base.names import DEFAULT_ENDPOINT, check_topic
from barco.client.base.settings import Start
from barco.client.outputs import EVENT_BYTES, Output
from barco.client.piping import Engine, PipelineError, PipelinePlan, PipelineProgress
from barco.client.reader import ReaderOptions
from barco.client.wire.access import Access, Endpoints
from barco.client.wire.codec import Event
from barco.errors import BarcoError
from barco.limits import WRITER_NAME_BYTES_MAX
from barco.types import MiB

Made: TypeAlias = Output | Iterable[Output] | None
"""What a function makes of an event."""

Work: TypeAlias = Callable[[Sequence[Event], int], Coroutine[Any, Any, list[Sequence[Output]]]]

LEAVE_SECONDS = 5.0
EVENTS_TOGETHER_MAX = 1024
LOOK_SECONDS = 0.2
"""How soon `stop` is seen when nothing comes."""

_log = logging.getLogger("barco.pipeline")
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.:-]+", re.ASCII)


class PipelineSettings(TypedDict, total=False):
    """See `PipelineOptions`."""

    start: Start
    batch_seconds: float
    batch_bytes: int
    buffer_bytes: int
    timeout_s: float
    compress: bool
    group: str | None
    on_progress: Callable[[PipelineProgress], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """How a pipeline reads, and how large its batches are."""

    start: Start = "earliest"
    """Where the name begins when it is new: "earliest", "latest", microseconds since 1970, or
    {(token, slice): cursor}. Later it goes on where it was."""
    batch_seconds: float = 0.2
    """How long the first event of a batch waits for company; each batch costs some round trips."""
    batch_bytes: int = 8 * MiB
    """Keys and values read, at which a batch is committed at once."""
    buffer_bytes: int = 32 * MiB
    """Memory for what is read ahead and what is not staged yet. One event always fits."""
    timeout_s: float = 60.0
    """How long trouble with brokers is waited out."""
    compress: bool = True
    """LZ4, here instead of in the broker."""
    group: str | None = None
    """The consumer group whose positions show the lag; None: of the pipeline's name; "": none."""
    on_progress: Callable[[PipelineProgress], None] | None = None
    """Called after each batch, when it is committed."""

    def __post_init__(self) -> None:
        ReaderOptions(start=self.start)  # It says what is wrong.
        if self.batch_seconds < 0 or self.timeout_s <= 0:
            raise ValueError("batch_seconds and timeout_s are times: not negative")
        if self.batch_bytes < 1 or self.buffer_bytes < 1:
            raise ValueError("batch_bytes and buffer_bytes are at least 1")


class AsyncPipeline:
    """Reads topics, has a function make events of theirs, and writes those, each exactly once.

        pipeline = barco.AsyncPipeline("trips", "long-trips", "long-trips")
        await pipeline.run(lambda event: barco.Output(event.value, event.key))

    The name is what it goes on by after a stop, a crash or on another machine: of those that run
    under one name the one that was started last goes on. The function is called again for events of
    which nothing was stored yet. See `PipelineOptions`.
    """

    def __init__(
        self,
        source: str | Sequence[str],
        sink: str,
        name: str,
        endpoint: Endpoints = DEFAULT_ENDPOINT,
        *,
        token: str = "",
        **options: Unpack[PipelineSettings],
    ) -> None:
        sources = (source,) if isinstance(source, str) else tuple(source)
        if not sources or len(set(sources)) < len(sources):
            raise ValueError("a pipeline reads at least one topic, and each once")
        self.sources = tuple(map(check_topic, sources))
        self.sink = check_topic(sink)
        if self.sink in self.sources:
            raise ValueError(f"a pipeline that reads {sink} does not write there")
        if not _NAME.fullmatch(name) or len(name) > WRITER_NAME_BYTES_MAX:
            raise ValueError(
                f"{name[:160]!r} is no name of a pipeline: 1 to {WRITER_NAME_BYTES_MAX} of a-z A-Z"
                " 0-9 _ . : -, but not . or .."
            )
        self.name = name
        self.options = PipelineOptions(**options)
        if isinstance(self.options.start, Mapping) and len(sources) > 1:
            raise ValueError("cursors to start at are those of one topic: read one")
        self._access = Access.of(endpoint, token)
        self._stopping = False
        self._running = False
        self._theirs: BarcoError | None = None

    def stop(self) -> None:
        """Have `run` commit what it has processed and return, from any thread or handler of a
        signal. It ends between two calls of the function."""
        self._stopping = True

    async def run(
        self, function: Callable[[Event], Made | Awaitable[Made]], *, to_end: bool = False
    ) -> PipelineProgress:
        """Until `stop`; with `to_end` until the end that the topics have now. Returns how much was
        read and written.

        What the function raises ends it: nothing of that batch is stored, and the next run of the
        name begins with its first event. PipelineFencedError: another one was started.
        """
        return await self.run_with(self.working(function), to_end=to_end)

    async def run_with(self, work: Work, *, to_end: bool) -> PipelineProgress:
        """As `run`; `work` makes outputs of the first events that it is given, of one at least, as
        long as these and those weigh less than its room."""
        if self._running:
            raise PipelineError(
                "it runs already: another one has an object, and a name, of its own"
            )
        self._running, self._stopping = True, False
        engine = Engine(self._plan(), follow=not to_end)
        try:
            await engine.start()
            more = True
            while more and not self._stopping:
                try:
                    more = await self._some(engine, work)
                    if self._stopping or not more or engine.due or not engine.busy:
                        self._told(await engine.commit())
                except BarcoError as error:
                    if not error.retryable or error is self._theirs:
                        raise
                    await engine.again(error)
                    more = True
            await engine.end()
            return engine.progress
        except BaseException:
            await engine.abandon()
            raise
        finally:
            self._running = False
            await engine.close()

    async def _some(self, engine: Engine, work: Work) -> bool:
        """Has some events processed, if there are any; false: there are no more."""
        events = await engine.next(LOOK_SECONDS)
        done = 0
        while events and done < len(events) and not self._stopping:
            with self._calling():
                made = await work(events[done : done + EVENTS_TOGETHER_MAX], engine.room)
            for event, outputs in zip(events[done:], made, strict=False):
                engine.add(event, outputs)
            done += len(made)
            if engine.full:
                await engine.stage()
            if engine.due and not self._stopping:
                self._told(await engine.commit())
        return events is not None

    def working(self, function: Callable[[Event], Made | Awaitable[Made]]) -> Work:
        """The function, for events one behind the other, as many as are enough for now."""

        async def work(events: Sequence[Event], room: int) -> list[Sequence[Output]]:
            found: list[Sequence[Output]] = []
            until = time.monotonic() + self.options.batch_seconds
            for event in events:
                made = function(event)
                if inspect.isawaitable(made):
                    made = await made
                found.append(outputs_of(made))
                room -= weight_of(event, found[-1])
                if self._stopping or room <= 0 or time.monotonic() > until:
                    break
            return found

        return work

    def _told(self, progress: PipelineProgress | None) -> None:
        if progress is not None:
            _log.debug("pipeline %s: %r", self.name, progress)
            if self.options.on_progress is not None:
                with self._calling():
                    self.options.on_progress(progress)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Code that is not ours: what that raises ends the run, even if it is an error of a broker
        after which this would try again (a producer's, which the function has of its own)."""
        try:
            yield
        except BarcoError as error:
            self._theirs = error
            raise

    def _plan(self) -> PipelinePlan:
        options = self.options
        return PipelinePlan(
            access=self._access,
            sources=self.sources,
            sink=self.sink,
            name=self.name,
            start=options.start,
            batch_bytes=options.batch_bytes,
            batch_s=options.batch_seconds,
            buffer_bytes=options.buffer_bytes,
            timeout_s=options.timeout_s,
            compress=options.compress,
            group=self.name if options.group is None else options.group,
        )


class Pipeline:
    """As AsyncPipeline, for threads; the function is called in the one that calls `run`.

        def long(event: barco.Event) -> barco.Output | None:
            return barco.Output(event.value, event.key) if len(event.value) > 100 else None

        barco.Pipeline("trips", "long-trips", "long-trips").run(long)

    Options: see `PipelineOptions`.
    """

    def __init__(
        self,
        source: str | Sequence[str],
        sink: str,
        name: str,
        endpoint: Endpoints = DEFAULT_ENDPOINT,
        *,
        token: str = "",
        **options: Unpack[PipelineSettings],
    ) -> None:
        self._pipeline = AsyncPipeline(source, sink, name, endpoint, token=token, **options)

    def run(self, function: Callable[[Event], Made], *, to_end: bool = False) -> PipelineProgress:
        """Until `stop`, or to the end; see AsyncPipeline.run."""
        todo: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        work = self._pipeline.working(function)

        async def elsewhere(events: Sequence[Event], room: int) -> list[Sequence[Output]]:
            task = _Task(events, room, asyncio.get_running_loop().create_future())
            todo.put(task)
            return await task.made

        async def run() -> PipelineProgress:
            try:
                return await self._pipeline.run_with(elsewhere, to_end=to_end)
            finally:
                todo.put(None)

        thread = LoopThread("barco-pipeline")
        try:
            running = thread.start(run())
            try:
                while (task := todo.get()) is not None:
                    _have_done(task, work)
            except BaseException:
                running.cancel()  # A signal: what is staged is given up.
                with contextlib.suppress(concurrent.futures.CancelledError, BarcoError):
                    running.result(LEAVE_SECONDS)
                raise
            return running.result()
        finally:
            thread.close()

    def stop(self) -> None:
        """Have `run` commit what it has processed and return; see AsyncPipeline.stop."""
        self._pipeline.stop()


@dataclass(frozen=True, slots=True)
class _Task:
    """Events for the thread that called `run`, and what it makes of them."""

    events: Sequence[Event]
    room: int
    made: asyncio.Future[list[Sequence[Output]]]


def _have_done(task: _Task, work: Work) -> None:
    """In this thread, where there is no loop: the function waits for nothing that one would do."""
    loop = task.made.get_loop()
    steps = work(task.events, task.room)
    try:
        steps.send(None)
    except StopIteration as ended:
        loop.call_soon_threadsafe(_settle, task.made, ended.value, None)
    except Exception as error:  # noqa: BLE001 - raised by `run`.
        loop.call_soon_threadsafe(_settle, task.made, None, error)
    else:
        steps.close()
        wrong = TypeError("a function that awaits is for barco.AsyncPipeline")
        loop.call_soon_threadsafe(_settle, task.made, None, wrong)


def _settle(future: asyncio.Future[Any], made: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(made)
    else:
        future.set_exception(error)


def weight_of(event: Event, outputs: Sequence[Output]) -> int:
    """Of an event and what was made of it, in bytes."""
    return EVENT_BYTES + len(event.value or b"") + sum(len(each.value) for each in outputs)


def outputs_of(made: Any) -> Sequence[Output]:
    """What came of an event as a list; TypeError: it is no outputs."""
    if made is None:
        return ()
    if not isinstance(made, Output | Iterable):
        raise TypeError(f"the function returns Outputs, not {type(made).__name__}")
    found = (made,) if isinstance(made, Output) else tuple(made)
    for each in found:
        if not isinstance(each, Output):
            raise TypeError(f"the function returns Outputs, not {type(each).__name__}")
        if not isinstance(each.value, bytes | bytearray | memoryview | str):
            kind = type(each.value).__name__
            raise TypeError(f"an Output's value is bytes or str, not {kind}")
    return found
