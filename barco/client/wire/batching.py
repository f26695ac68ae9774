"""The producer's batching, as a pure machine: events in, batches out, in order for each lane.

A *lane* is one topic and slice, with or without keys. At most one of its batches is on its way at
a time, so that the order holds whatever is retried; the others wait behind it. Time is an argument
and nothing here does I/O or takes a lock: sender.py drives it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import NamedTuple, Protocol

from barco.model.delays import WAITING_PREFIX

EVENT_OVERHEAD_BYTES = 96
"""What an event weighs in memory beside its bytes (two object headers, list slots, a future)."""
EVENTS_PER_BATCH_MAX = 65_536
"""Bounds the time one answer keeps the loop busy; brokers take more."""
TIMESTAMP_SPAN_US_MAX = 365 * 86_400_000_000
"""One that is refused for being far from now (as milliseconds are, in 1970) refuses its batch:
those of now are not in it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is full, or old enough to go."""

    batch_bytes_max: int = 256 * 1024
    linger_s: float = 0.005


class SliceKey(NamedTuple):
    """A slice of the ring: the start of its token range, and its index there."""

    token: int
    slice: int


class Ack(NamedTuple):
    """Where an event is stored. `offset` is None if an earlier try had stored it already, and for
    one that waits until it is due: `delayed` is its id then, by which it can be cancelled."""

    topic: str
    token: int
    slice: int
    epoch: int
    offset: int | None
    delayed: str | None = None


@dataclass(frozen=True, slots=True)
class BatchAck:
    """What the broker said about a batch: its first offset, or None for a duplicate."""

    epoch: int
    start_offset: int | None
    waits_in: int | None = None
    """They wait until they are due: the number of their slice in the ring."""

    def of(self, topic: str, at: "SliceKey", index: int) -> Ack:
        """What is said of one event of the batch."""
        if self.start_offset is None:
            return Ack(topic, at.token, at.slice, self.epoch, None)
        offset = self.start_offset + index
        if self.waits_in is None:
            return Ack(topic, at.token, at.slice, self.epoch, offset)
        id = f"{self.waits_in}.{self.epoch}.{offset}"
        return Ack(topic, at.token, at.slice, self.epoch, None, id)


DoneCallback = Callable[[int, BaseException | None], None]
"""Told how many events were acknowledged, or why they were not."""


class Waiter(Protocol):
    """The part of a Future (asyncio's or concurrent's) that the machine needs."""

    def done(self) -> bool: ...
    def set_result(self, result: Ack, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


EachHeaders = list[bytes | None]
"""Of one event after the other, as they are stored; None: it has none."""


@dataclass(slots=True, eq=False)
class Batch:
    """Consecutive events of one lane. Either all have timestamps or none has."""

    lane: "Lane"
    opened_at: float
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    headers: EachHeaders = field(default_factory=list)
    """Of the first so many events, as they are stored; none of the others has any."""
    timestamps_us: list[int] = field(default_factory=list)
    waiters: list[tuple[int, Waiter]] = field(default_factory=list)
    on_done: list[tuple[DoneCallback, int]] = field(default_factory=list)
    bytes: int = 0
    weight: int = 0
    timestamp_low: int = 0
    timestamp_high: int = 0
    sequence: int | None = None
    attempts: int = 0
    maybe_written: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def takes(self, timestamp_us: int | None) -> bool:
        """True if an event with this timestamp can be in the batch."""
        if timestamp_us is None or not self.timestamps_us:
            return (timestamp_us is None and not self.timestamps_us) or not self.values
        low = min(self.timestamp_low, timestamp_us)
        return max(self.timestamp_high, timestamp_us) - low <= TIMESTAMP_SPAN_US_MAX

    def stamp(self, timestamp_us: int) -> None:
        """Notes the timestamp of the event that is being added."""
        if self.timestamps_us:
            self.timestamp_low = min(self.timestamp_low, timestamp_us)
            self.timestamp_high = max(self.timestamp_high, timestamp_us)
        else:
            self.timestamp_low = self.timestamp_high = timestamp_us
        self.timestamps_us.append(timestamp_us)

    def stamp_many(self, timestamps_us: Sequence[int]) -> int:
        """Notes the timestamps of the first of these events that can be in the batch, one at least;
        how many they are."""
        count = len(timestamps_us)
        low, high = min(timestamps_us), max(timestamps_us)
        if self.timestamps_us:
            low, high = min(low, self.timestamp_low), max(high, self.timestamp_high)
        if high - low <= TIMESTAMP_SPAN_US_MAX:
            self.timestamp_low, self.timestamp_high = low, high
            self.timestamps_us += timestamps_us
            return count
        for number, timestamp_us in enumerate(timestamps_us):
            if number and not self.takes(timestamp_us):
                return number
            self.stamp(timestamp_us)
        return count

    def all_headers(self) -> EachHeaders | None:
        """One for each event; None: none has any."""
        if not self.headers:
            return None
        return self.headers + [None] * (len(self.values) - len(self.headers))

    def resolve(self, ack: BatchAck | None, error: BaseException | None) -> None:
        """Tells everybody who waits for an event of the batch. May call the user's code."""
        at = self.lane.slice
        for index, waiter in self.waiters:
            if waiter.done():
                continue
            if ack is None or error is not None:
                waiter.set_exception(error or AssertionError("neither answer nor error"))
                continue
            waiter.set_result(ack.of(self.lane.topic.removeprefix(WAITING_PREFIX), at, index))
        for callback, count in self.on_done:
            callback(count, error)


class Lane:
    """The events on their way to one slice of one topic, and the producer's sequence there."""

    __slots__ = (
        "in_flight", "keyed", "next_sequence", "open", "producer_epoch", "producer_id", "sealed",
        "slice", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, slice_key: SliceKey, *, keyed: bool, producer_id: str) -> None:
        self.topic = topic
        self.slice = slice_key
        self.keyed = keyed
        self.producer_id = producer_id
        self.producer_epoch = 0
        self.next_sequence = 0
        self.open: Batch | None = None
        self.sealed: deque[Batch] = deque()
        self.in_flight: Batch | None = None

    def take(self, now: float, linger_s: float) -> Batch | None:
        """The next batch to send, if none is on its way and one is full or old enough."""
        if self.in_flight is not None:
            return None
        if self.sealed:
            batch = self.sealed.popleft()
        elif self.open is not None and now >= self.open.opened_at + linger_s:
            batch, self.open = self.open, None
        else:
            return None
        assert batch.values and batch.sequence is None
        batch.sequence = self.next_sequence
        self.in_flight = batch
        return batch

    def acknowledged(self, batch: Batch) -> None:
        """The broker has the batch: the next one gets the next sequence."""
        assert batch is self.in_flight and batch.sequence == self.next_sequence
        self.next_sequence += 1
        self.in_flight = None

    def given_up(self, batch: Batch) -> None:
        """The batch failed for good. If it may be stored, a new epoch fences what is still going
        round of it, so that it cannot come in behind later events."""
        assert batch is self.in_flight
        self.in_flight = None
        if batch.maybe_written:
            self.renew()

    def resequence(self, batch: Batch) -> None:
        """The broker has forgotten this producer (idle for longer than it remembers): begin a new
        epoch with this batch, which was never tried before."""
        assert batch is self.in_flight and not batch.maybe_written
        self.renew()
        batch.sequence = self.next_sequence

    def renew(self) -> None:
        """Starts a new epoch of the producer for this lane."""
        self.producer_epoch += 1
        self.next_sequence = 0

    def deadline(self, linger_s: float) -> float | None:
        """When the open batch will be old enough; None if there is none."""
        return None if self.open is None else self.open.opened_at + linger_s


def sizes_of(pieces: Sequence[bytes | None]) -> list[int]:
    """How many bytes each is; None: 0."""
    try:
        return list(map(len, pieces))  # type: ignore[arg-type]
    except TypeError:
        return [0 if each is None else len(each) for each in pieces]


_NOTHING: list[Lane] = []


class Batcher:
    """All lanes of a producer. The ids (32 hex digits) are for events with and without a key."""

    def __init__(self, limits: Limits, keyed_id: str, keyless_id: str) -> None:
        assert keyed_id != keyless_id
        self.limits = limits
        self.buffered_bytes = 0
        self._keyed_id = keyed_id
        self._keyless_id = keyless_id
        self._lanes: dict[tuple[str, SliceKey, bool], Lane] = {}
        self._sticky: dict[str, int] = {}
        self._news: list[Lane] = []

    def news(self) -> list[Lane]:
        """The lanes that the driver should look at since it last asked: a batch was opened, so
        there is a deadline, or sealed, so it can go."""
        if not self._news:
            return _NOTHING
        news, self._news = self._news, []
        return news

    def keyed_lane(self, topic: str, slice_key: SliceKey) -> Lane:
        """The lane of events with keys that hash to the slice."""
        return self._lane(topic, slice_key, keyed=True)

    def keyless_lane(
        self,
        topic: str,
        slices: Sequence[SliceKey],
        size: int,
        timestamp_us: int | None = None,
        *,
        rotate: bool = False,
    ) -> Lane:
        """The lane for an event without a key: one slice for a batch, then the next slice.
        `rotate`: the next slice in any case."""
        turn = self._sticky.get(topic, 0)
        lane = self._lane(topic, slices[turn % len(slices)], keyed=False)
        if not rotate and lane.open is not None and self._fits(lane.open, size, timestamp_us):
            return lane
        self.seal(lane)
        self._sticky[topic] = turn + 1
        return self._lane(topic, slices[(turn + 1) % len(slices)], keyed=False)

    def add(
        self,
        lane: Lane,
        key: bytes | None,
        value: bytes | None,
        timestamp_us: int | None,
        now: float,
        headers: bytes | None = None,
    ) -> Batch:
        """Puts an event into the lane, and says which batch it is in (as the last)."""
        size = 0 if value is None else len(value)
        if key is not None:
            size += len(key)
        if headers is not None:
            size += len(headers)
        batch = self._batch_for(lane, size, timestamp_us, now)
        if headers is not None:
            batch.headers += [None] * (len(batch.values) - len(batch.headers))
            batch.headers.append(headers)
        batch.values.append(value)
        if key is not None:
            batch.keys.append(key)
        if timestamp_us is not None:
            batch.stamp(timestamp_us)
        self._weigh(batch, size, 1)
        assert not lane.keyed or len(batch.keys) == len(batch.values)
        self._seal_if_full(lane, batch)
        return batch

    def extend(
        self,
        lane: Lane,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        on_done: DoneCallback,
        now: float,
        headers: Sequence[bytes | None] = (),
        timestamps_us: Sequence[int] = (),
    ) -> None:
        """Puts many events into the lane, in order; `keys` is empty or as long as `values`, and so
        are `headers` and `timestamps_us`. `on_done` is called once for each batch that they end up
        in, with how many of them it holds."""
        assert len(keys) == (len(values) if lane.keyed else 0)
        sizes = sizes_of(values)
        if keys:
            sizes = list(map(add, sizes, map(len, keys)))
        if headers:
            sizes = list(map(add, sizes, sizes_of(headers)))
        ends = list(accumulate(sizes))
        first = 0
        while first < len(values):
            time_us = timestamps_us[first] if timestamps_us else None
            batch = self._batch_for(lane, sizes[first], time_us, now)
            done_bytes = ends[first] - sizes[first]
            room = self.limits.batch_bytes_max - batch.bytes
            last = max(first + 1, bisect_right(ends, done_bytes + room, first))
            last = min(last, first + EVENTS_PER_BATCH_MAX - len(batch))
            if timestamps_us:
                last = first + batch.stamp_many(timestamps_us[first:last])
            if headers:
                batch.headers += [None] * (len(batch.values) - len(batch.headers))
                batch.headers += headers[first:last]
            batch.values += values[first:last]
            batch.keys += keys[first:last]
            batch.on_done.append((on_done, last - first))
            self._weigh(batch, ends[last - 1] - done_bytes, last - first)
            self._seal_if_full(lane, batch)
            first = last

    def seal(self, lane: Lane) -> None:
        """Closes the lane's open batch, so that it can go at once."""
        if lane.open is not None:
            lane.sealed.append(lane.open)
            lane.open = None
            self._news.append(lane)

    def seal_all(self) -> list[Batch]:
        """Closes every open batch. Returns all batches whose fate is not known yet."""
        batches: list[Batch] = []
        for lane in self._lanes.values():
            self.seal(lane)
            if lane.in_flight is not None:
                batches.append(lane.in_flight)
            batches += lane.sealed
        return batches

    def forget(self, batch: Batch) -> None:
        """Frees the memory of a batch whose fate is known."""
        self.buffered_bytes -= batch.weight
        assert self.buffered_bytes >= 0

    def _weigh(self, batch: Batch, size: int, count: int) -> None:
        weight = size + count * EVENT_OVERHEAD_BYTES
        batch.bytes += size
        batch.weight += weight
        self.buffered_bytes += weight

    def _seal_if_full(self, lane: Lane, batch: Batch) -> None:
        if batch.bytes >= self.limits.batch_bytes_max or len(batch) >= EVENTS_PER_BATCH_MAX:
            self.seal(lane)

    def _batch_for(self, lane: Lane, size: int, timestamp_us: int | None, now: float) -> Batch:
        batch = lane.open
        if batch is not None and self._fits(batch, size, timestamp_us):
            return batch
        self.seal(lane)
        lane.open = Batch(lane, now)
        self._news.append(lane)
        return lane.open

    def _fits(self, batch: Batch, size: int, timestamp_us: int | None) -> bool:
        return batch.takes(timestamp_us) and batch.bytes + size <= self.limits.batch_bytes_max

    def _lane(self, topic: str, slice_key: SliceKey, *, keyed: bool) -> Lane:
        lane = self._lanes.get((topic, slice_key, keyed))
        if lane is None:
            producer_id = self._keyed_id if keyed else self._keyless_id
            lane = Lane(topic, slice_key, keyed=keyed, producer_id=producer_id)
            self._lanes[topic, slice_key, keyed] = lane
        return lane
