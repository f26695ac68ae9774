"""Listening: the events of a slice, or of a topic, as they come (server-sent events)."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from barco.errors import BarcoError, NotReadyError, RequestError, TopicNotFoundError
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import (
    EVENT_STREAM,
    Request,
    Response,
    check_topic,
    choose,
    problem_response,
)
from barco.workers.http.base.render import CONSUME_FORMATS
from barco.workers.http.handlers.read import Read, parse_cursor, parse_place
from barco.workers.http.listening.feeds import Feed, Feeds, StreamsLike
from barco.workers.http.listening.places import Place, offsets, parse_listed

SLICES_MAX = 64
"""Of a topic that is heard as a whole: its ids have a place for each."""

CATCHING_UP = 32
"""Listeners that are read for at a time; the others have their turn then."""

BEGIN_TRIES, BEGIN_PAUSE_S = 100, 0.02
"""While answers to earlier requests of the connection are still to be sent."""

NOTHING_YET = "0.0.0"
"""The id of a topic's place before its first event: an empty one would be none."""

GONE, SENT, BEHIND = range(3)
"""News of a listener, as the core counts them (HEARER_GONE, ...)."""

_log = logging.getLogger("barco.http")

_LISTED = re.compile(r"[0-9]+\.", re.ASCII)
"""How ids of topics begin, and no time does."""

_NOT_HERE = ("to", "waitMs", "maxBytes", "columns", "where")


class Listener(Struct, eq=False):
    """One of them, as long as its connection stands."""

    feed: Feed
    request: Request
    sent: asyncio.Future[bool] | None = None
    """Waited for until all that was written for it alone is sent; false: it is gone."""
    task: asyncio.Task[None] | None = None
    """Reads for it, while it is behind its feed."""


class Listen:
    """Handlers of streams, and who listens."""

    def __init__(self, context: Context, read: Read) -> None:
        self._context, self._read = context, read
        self._streams: StreamsLike | None = None
        self._feeds: Feeds | None = None
        self._listeners: dict[int, Listener] = {}
        self._turns = asyncio.Semaphore(CATCHING_UP)
        self.still: Callable[[Request], bool] = lambda _request: True
        """Whether who asked may hear that now; set by who knows the users."""

    def by(self, streams: StreamsLike) -> None:
        """The core's part of it."""
        self._streams = streams
        self._feeds = Feeds(self._context, streams, self._read.ask)

    async def slice(self, request: Request) -> Response:
        """Events of one slice: a stream where that is asked for, else as far as there are any."""
        kind = choose(request.header("accept"), (*CONSUME_FORMATS, EVENT_STREAM))
        if kind != EVENT_STREAM:
            return await self._read.events(request)
        topic = check_topic(request.variables["topic"])
        for name in _NOT_HERE:
            if request.value(name) is not None:
                raise RequestError(f"A stream of events has no end: {name} is not for it.")
        number = self._read.number(request.variables["token"], request.variables["index"])
        return await self._listen(request, topic, (number,), whole=False)

    async def topic(self, request: Request) -> Response:
        """Events of all slices of a topic."""
        topic = check_topic(request.variables["topic"])
        choose(request.header("accept"), (EVENT_STREAM,))
        numbers = tuple(self._context.numbers)
        if len(numbers) > SLICES_MAX:
            raise RequestError(
                f"The topic has {len(numbers)} slices, and is heard as a whole with at most "
                f"{SLICES_MAX}: listen to its slices (/v1/topic/{topic}/slices)."
            )
        return await self._listen(request, topic, numbers, whole=True)

    async def _listen(
        self, request: Request, topic: str, numbers: Sequence[int], *, whole: bool
    ) -> Response:
        streams, feeds = self._streams, self._feeds
        if streams is None or feeds is None:
            raise NotReadyError("Nobody can listen yet.")
        begin = request.header("last-event-id") or request.value("from") or "latest"
        places = await self._places(feeds, topic, numbers, begin, whole=whole)
        if not await self._context.topic_exists(topic):
            raise TopicNotFoundError(f"There is no topic {topic}.")
        headers = (
            ("Content-Type", EVENT_STREAM),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
        )
        response = Response(200, b"", headers)
        if request.method == "HEAD":
            return response
        feed = await feeds.get(topic, numbers, whole=whole)
        wanted = places if places is not None else dict(feed.places)
        # Who is cut off before there was an event goes on here too, and misses nothing.
        begins = f"id: {feed.id_of(wanted) or NOTHING_YET}\n\n".encode()

        async def begin_at(number: int) -> Response | None:
            for _ in range(BEGIN_TRIES):
                if not self.still(request):
                    return problem_response(NotReadyError("What this user may do has changed."))
                if streams.stream(number, response.head()):
                    streams.stream_write(number, begins)
                    listener = Listener(feed, request)
                    self._listeners[number] = listener
                    feed.listeners += 1
                    self._begin(number, listener, wanted)
                    return None
                if not streams.connected(number):
                    return None
                await asyncio.sleep(BEGIN_PAUSE_S)
            return problem_response(NotReadyError("Earlier requests of it are not answered yet."))

        return replace(response, stream=begin_at)

    async def _places(
        self, feeds: Feeds, topic: str, numbers: Sequence[int], begin: str, *, whole: bool
    ) -> dict[int, Place] | None:
        """Where to begin; None: where the feed is."""
        if begin == "latest":
            return None
        given: dict[int, Place] | None = None
        if whole and _LISTED.match(begin):
            given = parse_listed(begin, numbers)
            # Of a slice that had no events nothing was missed but what retention took.
            wanted: dict[int, str | int] = {n: at.offset or "earliest" for n, at in given.items()}
        else:
            place = parse_place(begin)
            wanted = dict.fromkeys(numbers, place)
            if isinstance(place, int) and whole:
                raise RequestError("A topic is heard on from the id of one of its events.")
            if isinstance(place, int):
                given = {numbers[0]: Place(parse_cursor(begin).epoch, place)}
        asked = (feeds.place(topic, number, at) for number, at in wanted.items())
        found = dict(zip(wanted, await asyncio.gather(*asked), strict=True))
        if given is None:
            # The generation of what was before is not known: none.
            return {number: Place(0, at.offset) for number, at in found.items()}
        return {
            number: at if at.offset else Place(0, found[number].offset)
            for number, at in given.items()
        }

    # --- Those who listen -----------------------------------------------------------------------

    def _begin(self, number: int, listener: Listener, places: dict[int, Place]) -> None:
        if not self._joins(number, listener, places):
            listener.task = asyncio.create_task(self._catch_up(number, listener, places))

    def _joins(self, number: int, listener: Listener, places: dict[int, Place]) -> bool:
        feed, streams = listener.feed, self._streams
        assert streams is not None
        mark = feed.marks.get(offsets(places, feed.numbers))
        return (
            mark is not None and not feed.ended and streams.stream_join(number, feed.number, mark)
        )

    async def _catch_up(self, number: int, listener: Listener, places: dict[int, Place]) -> None:
        """Reads for one that is behind its feed, until it is where the feed is, or was just now."""
        feed, streams = listener.feed, self._streams
        assert streams is not None
        try:
            while number in self._listeners and not feed.ended:
                if self._joins(number, listener, places):
                    return
                aim = dict(feed.places)
                behind = [n for n in feed.numbers if places[n].offset < aim[n].offset]
                if not behind:  # It was at another broker, which was further.
                    await feed.moved.wait()
                for each in behind:
                    stop = aim[each].offset
                    if not await self._catch_up_slice(number, listener, places, each, stop):
                        return  # It is gone, which may not have been heard of yet.
        except BarcoError:
            pass  # It comes back with its id, and is told then what is wrong.
        except Exception:  # noqa: BLE001 - nobody else would see it; the listener goes on waiting.
            _log.exception("a listener of %s failed", feed.topic)
        streams.stream_end(number)

    async def _catch_up_slice(
        self, number: int, listener: Listener, places: dict[int, Place], each: int, stop: int
    ) -> bool:
        """False: nobody is there any more."""
        feed, feeds, streams = listener.feed, self._feeds, self._streams
        assert feeds is not None and streams is not None
        while places[each].offset < stop and number in self._listeners and not feed.ended:
            async with self._turns:
                found = await feeds.read(feed, each, places[each].offset, stop)
            if not found.pieces:  # Who has it is behind whoever had it before.
                await asyncio.sleep(BEGIN_PAUSE_S)
            for piece in found.pieces:
                text = feed.text(each, places, piece)
                listener.sent = asyncio.get_running_loop().create_future()
                if not streams.stream_write(number, text) or not await listener.sent:
                    return False
                places[each] = piece.after
        return True

    def hear(self, number: int, news: int, place: str | None) -> None:
        """What the core tells of a listener; of one that is behind its feed, where it is."""
        listener = self._listeners.get(number)
        if listener is None:
            return
        if news == GONE:
            del self._listeners[number]
            listener.feed.listeners -= 1
        if listener.sent is not None and not listener.sent.done():
            listener.sent.set_result(news == SENT)
        if news == GONE and listener.task is not None:
            listener.task.cancel()
        if news == BEHIND:
            feed, text = listener.feed, place or ""
            if feed.whole:
                places = parse_listed(text, feed.numbers)
            else:
                cursor = parse_cursor(text)
                places = {feed.numbers[0]: Place(cursor.epoch, cursor.offset)}
            self._begin(number, listener, places)

    def users_changed(self) -> None:
        """Those who may not hear any more what they asked for are ended."""
        known: dict[tuple[str | None, str], bool] = {}
        for number, listener in list(self._listeners.items()):
            key = (listener.request.header("authorization"), listener.feed.topic)
            if key not in known:
                known[key] = self.still(listener.request)
            if self._streams is not None and not known[key]:
                self._streams.stream_end(number)

    async def close(self) -> None:
        """The worker stops; the core has ended the connections."""
        for listener in list(self._listeners.values()):
            if listener.task is not None:
                listener.task.cancel()
        if self._feeds is not None:
            await self._feeds.close()
