"""Retention of single topics: events before a point stop to exist, though segments stay.

A segment holds many topics and is deleted as a whole, when the broker's own retention says so.
What a topic wants sooner than that is done by its start offset: nothing before it is served. As
there, age is by the log's own clock since the append.
"""

from typing import Protocol

from msgspec import Struct

from barco.workers.shard.reads import Bounds, Slot

HOUR_US = 3600 * 1_000_000


class StreamLimit(Struct, frozen=True):
    """What one (topic, slice) is to keep; 0 means no limit."""

    slot: Slot
    oldest_us: int
    """What was appended before this moment may go; microseconds, by the log's own clock."""
    bytes_max: int
    """Stored bytes of this slice alone."""


class TopicSettings(Protocol):
    """The settings of topics (`barco.workers.shard.topics.TopicRegistry`)."""

    def names(self) -> list[str]:
        """Every topic with settings or events."""

    def retention(self, topic: str) -> tuple[int | None, int | None]:
        """(hours, bytes); None where the broker's own setting holds."""


class Extents(Protocol):
    """Where times and sizes begin (`barco.workers.storage.reading.extents.StreamExtents`)."""

    async def since(self, topic: str, slice_: int, time_us: int) -> int | None:
        """The first chunk that may have been appended as late as this; None when all are older."""

    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None:
        """The oldest of the newest chunks that fit; None when there is nothing."""

    def forget(self) -> None:
        """Drops what is remembered of segments that are gone."""


class Streams(Protocol):
    """The part of the reactor that is needed."""

    def stream_ends(self, topic: str, slice: int) -> Bounds | None:
        """(start offset, stable end)."""

    def truncate_stream(self, topic: str, slice: int, start_offset: int) -> None:
        """Events before this offset are gone."""


def plan(
    topics: TopicSettings, slices: range, slices_in_all: int, now_us: int
) -> list[StreamLimit]:
    """The slices that have something to keep to, of topics with a retention of their own.

    A topic's bytes are shared evenly by all of its slices, here and on other workers.
    """
    wishes = []
    for topic in topics.names():
        hours, size = topics.retention(topic)
        if not hours and not size:
            continue
        oldest_us = now_us - hours * HOUR_US if hours else 0
        share = max(1, size // slices_in_all) if size else 0
        wishes += [StreamLimit((topic, index), oldest_us, share) for index in slices]
    return wishes


class TopicRetention:
    """Enforces the topics' own retention on one shard."""

    def __init__(
        self,
        topics: TopicSettings,
        streams: Streams,
        extents: Extents,
        *,
        slices: range,
        slices_in_all: int,
    ) -> None:
        self._topics = topics
        self._streams = streams
        self._extents = extents
        self._slices = slices
        self._slices_in_all = slices_in_all

    async def run_once(self, now_us: int) -> int:
        """Moves the start of every slice that has too much; returns the number of events gone."""
        gone = 0
        for wish in plan(self._topics, self._slices, self._slices_in_all, now_us):
            gone += await self._enforce(wish)
        self._extents.forget()
        return gone

    async def _enforce(self, wish: StreamLimit) -> int:
        topic, index = wish.slot
        start, end = self._streams.stream_ends(topic, index) or (0, 0)
        if start >= end:
            return 0
        first = start
        if wish.oldest_us > 0:
            # What is appended while this looks is newer than `end`, and stays.
            since = await self._extents.since(topic, index, wish.oldest_us)
            first = max(first, end if since is None else min(since, end))
        if wish.bytes_max > 0 and first < end:
            within = await self._extents.within(topic, index, wish.bytes_max)
            first = max(first, min(within or 0, end))
        if first > start:
            self._streams.truncate_stream(topic, index, first)
        return first - start
