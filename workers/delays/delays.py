"""Delayed events of a worker's slices: each stream is looked at when its next one is due."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from barco.errors import (
    BarcoError,
    BusyError,
    NotFoundError,
    NotReadyError,
    OutcomeUnknownError,
    TooManyRequestsError,
)
from barco.model.delays import WAITING_PREFIX
from barco.workers.delays.marks import DELAYS, DelayMark, Key, Name, read_cancelled, read_mark
from barco.workers.delays.stream import DelayedStream, Figures, Shared
from barco.workers.seams import ReactorLike
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends
from barco.workers.shard.reads import Reads

NEAR_TOTAL = 131_072
"""Waiting events of a worker that are known one by one: some 17 MB."""

NEAR_MIN, NEAR_MAX = 16, 8_192
"""Of one stream: more would take the loop tens of milliseconds where they are sorted."""

CANCELLED_MAX = 10_000
"""Of a worker, until they would have been due: each is a value in the state of the shard."""

Args = Mapping[str, Any]

BUSY_SECONDS, TROUBLE_SECONDS = 0.2, 5.0
"""Until it is tried again: there was no room; or something is wrong."""

TELL_SECONDS = 60.0
PAUSE_SECONDS_MAX = 30.0
"""Then the clock is looked at anew: it may have been set."""

log = logging.getLogger("barco.delays")


class Delays:
    """Of the slices of one worker, while it leads them."""

    def __init__(
        self,
        reactor: ReactorLike,
        *,
        reads: Reads,
        appends: Appends,
        wall_us: Callable[[], int],
    ) -> None:
        self._reactor, self._wall_us = reactor, wall_us
        self._shared = Shared(reactor, reads, appends, wall_us, self._near_max)
        self.epoch = 0
        """Of the generation that is led; 0: none is."""
        self._streams: dict[Name, DelayedStream] = {}
        self._marks: dict[Name, DelayMark] = {}
        """Of streams that are not there yet."""
        self._cancelled: dict[Name, list[Key]] = {}
        """By stream what was cancelled, of those that are not there yet."""
        self._tasks: dict[Name, asyncio.Task[None]] = {}
        self._timers: dict[Name, asyncio.TimerHandle] = {}
        self._told: dict[Name, float] = {}

    @property
    def figures(self) -> Figures:
        """Since the start."""
        return self._shared.figures

    def stats(self) -> dict[str, int]:
        """For the metrics."""
        return {
            "delayed_delivered": self.figures.delivered,
            "delayed_cancelled": self.figures.cancelled,
            "delayed_lost": self.figures.lost,
            "delayed_known": sum(len(stream.index) for stream in self._streams.values()),
        }

    def _near_max(self) -> int:
        return max(NEAR_MIN, min(NEAR_MAX, NEAR_TOTAL // max(1, len(self._streams))))

    # --- Beginning and ending ---------------------------------------------------------------------

    def open(self, epoch: int) -> None:
        """A generation is open, and its first group committed: take up what its log holds."""
        self.close()
        self.epoch = epoch
        kept = self._reactor.compacted(DELAYS)
        self._marks = dict(filter(None, internal.each(DELAYS, kept, read_mark)))
        for name, key in filter(None, internal.each(DELAYS, kept, read_cancelled)):
            self._cancelled.setdefault(name, []).append(key)
        self._reactor.delayed_news()
        self._take_up(self._reactor.delayed_streams())

    def close(self) -> None:
        """Another worker leads now, which has what was stable."""
        self.epoch = 0
        for task in self._tasks.values():
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        for table in (
            *(self._streams, self._marks, self._cancelled),
            *(self._tasks, self._timers, self._told),
        ):
            table.clear()

    # --- What comes -------------------------------------------------------------------------------

    def look(self) -> None:
        """Something became stable: perhaps an event that is to wait."""
        if self.epoch:
            self._take_up(self._reactor.delayed_news())

    def _take_up(self, streams: Iterable[tuple[str, int, int, int]]) -> None:
        for topic, index, start, end in streams:
            name = (topic.removeprefix(WAITING_PREFIX), index)
            stream = self._streams.get(name)
            if stream is None:
                mark = self._marks.pop(name, DelayMark())
                stream = DelayedStream(self._shared, name, self.epoch, mark)
                stream.seen = max(stream.seen, start)
                self._streams[name] = stream
                self._take_cancelled(stream)
            if end > stream.end:
                stream.end = end
                self._kick(stream)

    def _take_cancelled(self, stream: DelayedStream) -> None:
        for key in self._cancelled.pop(stream.name, ()):
            if stream.mark.is_done(key):
                stream.forget(key[1])
            else:
                stream.cancelled.add(key[1])

    async def topic_deleted(self, topic: str) -> None:
        """What waits for it is not delivered, durably. BarcoError: some of it may be."""
        self.look()
        for stream in [each for name, each in self._streams.items() if name[0] == topic]:
            async with stream.lock:
                await stream.drop()
            self._kick(stream)

    def operations(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """By the names that frames carry."""
        return {"delay_cancel": self._cancel}

    async def _cancel(self, args: Args) -> None:
        """{"topic", "slice": its index, "epoch", "offset"}: it is not delivered."""
        if not self.epoch:
            raise NotReadyError("This worker does not lead the shard (any more).")
        stream = self._streams.get((args["topic"], args["slice"]))
        if stream is None:
            raise NotFoundError("No such event waits: it was delivered, or never there.")
        if sum(len(each.cancelled) for each in self._streams.values()) >= CANCELLED_MAX:
            raise TooManyRequestsError(
                f"{CANCELLED_MAX} cancelled events of this worker wait for their time already."
            )
        async with stream.lock:
            await stream.cancel(args["epoch"], args["offset"])

    # --- Turns ------------------------------------------------------------------------------------

    def _kick(self, stream: DelayedStream) -> None:
        name = stream.name
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if name not in self._tasks and self._streams.get(name) is stream and not stream.lost:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._run(stream))

    async def _run(self, stream: DelayedStream) -> None:
        name, epoch, end = stream.name, self.epoch, -1
        pause: float | None = 0.0
        try:
            while pause == 0.0 or end != stream.end:
                end = stream.end
                pause = await self._step(stream)
        finally:
            if self.epoch == epoch and self._streams.get(name) is stream:
                self._tasks.pop(name, None)
                if pause is not None and not stream.lost:
                    loop = asyncio.get_running_loop()
                    self._timers[name] = loop.call_later(pause, self._kick, stream)

    async def _step(self, stream: DelayedStream) -> float | None:
        """Seconds until the next one; None: until there is more."""
        try:
            async with stream.lock:
                due = await stream.step()
        except OutcomeUnknownError as error:
            stream.lost = True
            self._tell(stream, error)
            return None
        except BusyError:
            return BUSY_SECONDS
        except BarcoError as error:
            self._tell(stream, error)
            return TROUBLE_SECONDS
        except Exception:
            log.exception("%s/%d: what is due waits", *stream.name)
            return TROUBLE_SECONDS
        if due is None:
            return None
        return min(PAUSE_SECONDS_MAX, max(0.0, (due - self._wall_us()) / 1e6))

    def _tell(self, stream: DelayedStream, error: BarcoError) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._told.get(stream.name, now):
            self._told[stream.name] = now + TELL_SECONDS
            log.error("%s/%d: what is due waits: %s", *stream.name, error)
