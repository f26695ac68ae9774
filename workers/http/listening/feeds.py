"""Feeds: what is read and rendered once for all listeners of a slice, or of a topic, of a worker.

A feed begins at the end of its slices when somebody listens, and ends some seconds after the last
one has gone. Its newest text is in the core (native/broker/feed.h), which gives it to listeners.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from barco import _native
from barco.errors import BarcoError, BusyError, NotReadyError, PeerError
from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import NDJSON
from barco.workers.http.base.render import frame_bytes, runs
from barco.workers.http.listening.places import Place, around, listed, offsets
from barco.workers.shard.reads import extent_from_list

READ_BYTES = 64 * 1024
"""Of a slice, at a time: what is rendered of it is given on before more is read."""

TEXT_BYTES = 256 * 1024
"""Of text that is made at once, about."""

READERS_MAX = 2048
"""Slices that feeds of a worker read, all together: each waits at the worker that has it."""

MARKS_MAX = 64
"""Places where a listener that has caught up may join."""

PAUSE_S = 0.005
"""Between two reads of a slice that goes on: what came meanwhile is read at once."""

RETRY_S = 0.2
"""After nobody could be asked."""

WAIT_S = 15.0
"""For events, at another worker: then it is asked again, as it may not lead any more."""

IDLE_S = 10.0
"""Without listeners, until a feed ends."""

ROOM_TRIES = 100
"""While the core has no room, and ends those who hold too much."""

_log = logging.getLogger("barco.http")

Ask = Callable[[int, dict[str, Any]], Awaitable[tuple[Any, int]]]
"""The answer of a worker that holds a slice, and which one it was."""


class StreamsLike(Protocol):
    """The core's part of it (`barco._native.Reactor`)."""

    def connected(self, request_id: int, /) -> bool:
        """Whether the client is there."""

    def feed_open(self, place: str, /) -> int | None:
        """A feed's number; None: there are too many."""

    def feed_close(self, feed: int, /) -> None:
        """End the connections of its listeners."""

    def feed_push(self, feed: int, place: str, text: bytes, /) -> tuple[int, int] | None:
        """Where its text begins and ends; None: no room just now."""

    def stream(self, request_id: int, headers: bytes, /) -> bool:
        """Whether the connection listens from now on."""

    def stream_write(self, request_id: int, text: bytes, /) -> bool:
        """Whether it is still there; when it is sent is told."""

    def stream_join(self, request_id: int, feed: int, place: int, /) -> bool:
        """Whether it hears the feed from there."""

    def stream_end(self, request_id: int, /) -> None:
        """Hang up."""


class Rendered(NamedTuple):
    """Lines of events of one generation, and the place behind them."""

    lines: bytes
    offset: int
    after: Place


class ReadOfFeed(NamedTuple):
    """What was read of a slice."""

    pieces: list[Rendered]
    worker: int
    """Who has the slice: there is waited for what follows."""
    more: bool
    """Whether there is more already."""


class Feed:
    """What listeners of some slices of a topic hear."""

    def __init__(self, topic: str, numbers: Sequence[int], *, whole: bool) -> None:
        self.topic, self.numbers, self.whole = topic, numbers, whole
        self.number = -1
        """The core's."""
        self.places: dict[int, Place] = {}
        self.marks: OrderedDict[tuple[int, ...], int] = OrderedDict()
        """Where in its text the newest places are."""
        self.ended = False
        self.listeners = 0
        self.idle = 0.0
        """Since when nobody listens, or it was looked at."""
        self.moved = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def text(self, number: int, places: dict[int, Place], piece: Rendered) -> bytes:
        """The piece as events; `places` are those of all slices before it."""
        before, behind = around(places, number) if self.whole else ("", "")
        epoch = piece.after.epoch
        return _native.frame_events(piece.lines, piece.offset, epoch, before, behind, self.whole)

    def id_of(self, places: dict[int, Place]) -> str:
        """The place as an id."""
        if self.whole:
            return listed(places)
        at = places[self.numbers[0]]
        return str(Cursor(Epoch(at.epoch), Offset(at.offset)))

    def mark(self, place: int, first: int) -> None:
        """This is where it is now; text before `first` is gone."""
        self.marks[offsets(self.places, self.numbers)] = place
        while len(self.marks) > MARKS_MAX or next(iter(self.marks.values())) < first:
            self.marks.popitem(last=False)
        self.moved.set()
        self.moved = asyncio.Event()


class Feeds:
    """All feeds of a worker."""

    def __init__(self, context: Context, streams: StreamsLike, ask: Ask) -> None:
        self._context, self._streams, self._ask = context, streams, ask
        self._feeds: dict[tuple[str, tuple[int, ...]], asyncio.Task[Feed]] = {}

    async def get(self, topic: str, numbers: Sequence[int], *, whole: bool) -> Feed:
        """The feed, which begins now if there is none."""
        key = (topic, tuple(numbers))
        task = self._feeds.get(key)
        if task is None:
            if len(numbers) + sum(len(slices) for _, slices in self._feeds) > READERS_MAX:
                raise BusyError("This worker reads as many slices for listeners as it may.")
            task = asyncio.create_task(self._open(key, Feed(topic, numbers, whole=whole)))
            self._feeds[key] = task
        return await asyncio.shield(task)

    async def _open(self, key: tuple[str, tuple[int, ...]], feed: Feed) -> Feed:
        try:
            asked = (self.end_of(feed.topic, number) for number in feed.numbers)
            feed.places = dict(zip(feed.numbers, await asyncio.gather(*asked), strict=True))
            number = self._streams.feed_open(feed.id_of(feed.places))
            if number is None:
                raise BusyError("This worker has as many feeds for listeners as it may.")
        except BaseException:
            self._feeds.pop(key, None)
            raise
        feed.number = number
        feed.mark(0, 0)
        feed.idle = asyncio.get_running_loop().time()
        feed.tasks = [asyncio.create_task(self._pump(feed, each)) for each in feed.numbers]
        return feed

    async def place(self, topic: str, number: int, begin: str | int) -> Place:
        """Where that is in a slice; CursorExpiredError: the events are gone."""
        args = {"topic": topic, "slice": self._context.index(number), "from": begin}
        answer, _ = await self._ask(number, {**args, "budget": 0, "stored": False})
        return Place(answer["epoch"], answer["offset"])

    async def end_of(self, topic: str, number: int) -> Place:
        """Where the slice ends now."""
        return await self.place(topic, number, "latest")

    async def read(self, feed: Feed, number: int, offset: int, stop: int) -> ReadOfFeed:
        """Some events from there on, rendered."""
        args = {
            "topic": feed.topic,
            "slice": self._context.index(number),
            "from": offset,
            "budget": READ_BYTES,
            "stored": False,
            "frame": frame_bytes(NDJSON, feed.topic),
        }
        granted = await self._context.memory.take(READ_BYTES)
        try:
            answer, worker = await self._ask(number, {**args, "budget": granted})
            if answer["extent"] is None:
                return ReadOfFeed([], worker, more=False)
            pieces = []
            extent = extent_from_list(answer["extent"])
            for run in runs([extent], self._context.ring):
                at, end = run.start, min(run.end, stop)
                while at < end:
                    lines, after = _native.render_ndjson(run.chunks, at, end, run.token, TEXT_BYTES)
                    if after <= at:
                        break
                    pieces.append(Rendered(lines, at, Place(run.epoch, after)))
                    at = after
            return ReadOfFeed(pieces, worker, more=extent.more)
        finally:
            self._context.memory.give_back(granted)

    async def _pump(self, feed: Feed, number: int) -> None:
        """Reads one slice for all who listen, until they are gone or it can not be read."""
        loop = asyncio.get_running_loop()
        while not feed.ended:
            if feed.listeners:
                feed.idle = loop.time()
            elif loop.time() - feed.idle > IDLE_S:
                self.end(feed)
                return
            try:
                found = await self.read(feed, number, feed.places[number].offset, 2**63)
                for piece in found.pieces:
                    if not await self._push(feed, number, piece):
                        self.end(feed)
                        return
                if found.pieces or found.more:
                    await asyncio.sleep(PAUSE_S)
                if not found.more:
                    await self._wait(feed, number, found.worker)
            except (NotReadyError, BusyError, PeerError):
                await asyncio.sleep(RETRY_S)
            except BarcoError as error:  # Retention was faster, or the topic is gone.
                _log.warning("listeners of %s are ended: %s", feed.topic, error)
                self.end(feed)
            except Exception:  # noqa: BLE001 - a bug in one feed must not be silent.
                _log.exception("the feed of %s failed", feed.topic)
                self.end(feed)

    async def _wait(self, feed: Feed, number: int, worker: int) -> None:
        offset = feed.places[number].offset
        wait = {"topic": feed.topic, "slice": self._context.index(number), "offset": offset}
        waits = {worker: {**wait, "timeout": WAIT_S}}
        began = asyncio.get_running_loop().time()
        woken = await self._context.siblings.first_true("wait", waits, WAIT_S)
        if not woken and asyncio.get_running_loop().time() - began < RETRY_S:
            await asyncio.sleep(RETRY_S)

    async def _push(self, feed: Feed, number: int, piece: Rendered) -> bool:
        for _ in range(ROOM_TRIES):
            # In one go: other slices of the feed go on meanwhile.
            text = feed.text(number, feed.places, piece)
            span = self._streams.feed_push(feed.number, feed.id_of(feed.places), text)
            if span is not None:
                feed.places[number] = piece.after
                feed.mark(span[1], span[0])
                return True
            await asyncio.sleep(PAUSE_S)
            if feed.ended:
                return False
        return False

    def end(self, feed: Feed) -> None:
        """Its listeners are let go: they come back with their ids."""
        if feed.ended:
            return
        feed.ended = True
        self._feeds.pop((feed.topic, tuple(feed.numbers)), None)
        self._streams.feed_close(feed.number)
        feed.moved.set()
        for task in feed.tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def close(self) -> None:
        """The worker stops."""
        for task in list(self._feeds.values()):
            if not task.done():
                task.cancel()
            with suppress(BaseException):
                self.end(await task)
