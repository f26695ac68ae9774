"""Producers: `Producer` for threads, `AsyncProducer` for asyncio. One engine: sender.py.

Both are idempotent without being asked: every batch carries a producer id and a sequence, so a
retry is stored once, and events of one key keep the order of their `send` calls.
"""

import asyncio
import atexit
import concurrent.futures
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, Unpack

from barco.client.base.errors import BufferFullError, ClosedError
from barco.client.base.future import Delivery
from barco.client.base.loopthread import Closing, LoopThread
from barco.client.base.names import (
    DEFAULT_ENDPOINT,
    Bytes,
    Headers,
    check_timestamp,
    check_topic,
    due_us,
    to_headers,
    to_key,
    to_value,
)
from barco.client.base.settings import ProducerSettings, parted
from barco.client.sender import Parts, ProducerOptions, Sender, settle_once
from barco.client.wire.access import Access, Endpoints
from barco.client.wire.batching import Ack, SliceKey
from barco.client.wire.ring import Ring
from barco.model.delays import WAITING_PREFIX


class AsyncProducer:
    """Sends events from one asyncio loop.

        async with barco.AsyncProducer() as producer:
            ack = await producer.send("trips", b'{"id": 1}', key="taxi-7")

    `send` does not wait: the future it returns does. A loop that sends much awaits `drain()` now
    and then, as with asyncio's StreamWriter. Options: token, and see `ProducerOptions`.
    """

    def __init__(
        self, endpoint: Endpoints = DEFAULT_ENDPOINT, **options: Unpack[ProducerSettings]
    ) -> None:
        token, rest = parted(options)
        self._sender = Sender(Access.of(endpoint, token), ProducerOptions(**rest))

    async def start(self) -> Self:
        """Finds the brokers. `async with` does it."""
        await self._sender.start()
        return self

    def send(
        self,
        topic: str,
        value: Bytes | None,
        key: Bytes | None = None,
        timestamp_us: int | None = None,
        headers: Headers | None = None,
        *,
        deliver_at: datetime | None = None,
        deliver_after: float | timedelta | None = None,
    ) -> asyncio.Future[Ack]:
        """Takes one event; the future has its Ack once it is durable, or the reason why not.

        A `value` of None says that the key is no more. `headers`: at most 64 and 16 KiB, a mapping
        or pairs of names and values; names become lower case.

        `deliver_at` (with a time zone) or `deliver_after` (seconds): it waits until then, and the
        Ack has its id, `delayed`. Without `timestamp_us` (microseconds since 1970) the broker's
        clock counts. Raises
        BufferFullError if more than `buffer_bytes` wait already: await `drain()` to avoid it.
        """
        check_topic(topic)
        check_timestamp(timestamp_us)
        due = due_us(topic, timestamp_us, deliver_at, deliver_after)
        if due is not None:
            topic, timestamp_us = WAITING_PREFIX + topic, due  # Lanes, and sequences, of its own.
        key = None if key is None else to_key(key)
        value, packed = to_value(value), to_headers(headers)
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._sender.enqueue(topic, key, value, timestamp_us, future, packed)
        return future

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps_us: Sequence[int] | None = None,
    ) -> asyncio.Future[int]:
        """Takes many events, cheaply; the future has their number once all are durable.

        `keys` is None, or has one for each value, None where there is none; so `headers`, each as
        with `send`. `timestamps_us` is None, or has microseconds since 1970 for each value. Order
        is kept for each key.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        enqueue_many(self._sender, check_topic(topic), values, keys, headers, timestamps_us, future)
        return future

    async def drain(self) -> None:
        """Waits until at least half of the buffer is free."""
        await self._sender.below(self._sender.options.buffer_bytes // 2)

    async def flush(self) -> None:
        """Sends what waits, and returns when the fate of every event is known."""
        await self._sender.flush()

    async def close(self) -> None:
        """Flushes and closes. Idempotent."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Producer(Closing):
    """Sends events from any thread.

        with barco.Producer() as producer:
            future = producer.send("trips", b'{"id": 1}', key="taxi-7")
            print(future.result().offset)

    `send` returns at once unless the buffer is full: then it waits for room. Leaving the `with`
    block waits for every event. Options: see `ProducerOptions`.
    """

    def __init__(
        self, endpoint: Endpoints = DEFAULT_ENDPOINT, **options: Unpack[ProducerSettings]
    ) -> None:
        token, rest = parted(options)
        self._sender = Sender(Access.of(endpoint, token), ProducerOptions(**rest))
        self._thread = LoopThread("barco-producer")
        try:
            self._thread.run(self._sender.start())
        except BaseException:
            self._thread.close()
            raise
        atexit.register(self.close)  # A program that forgets to close loses nothing.

    def send(
        self,
        topic: str,
        value: Bytes | None,
        key: Bytes | None = None,
        timestamp_us: int | None = None,
        headers: Headers | None = None,
        *,
        deliver_at: datetime | None = None,
        deliver_after: float | timedelta | None = None,
    ) -> concurrent.futures.Future[Ack]:
        """Takes one event; the future has its Ack once it is durable, or the reason why not.

        A `value` of None says that the key is no more. `headers`: at most 64 and 16 KiB, a mapping
        or pairs of names and values; names become lower case.

        `deliver_at` (with a time zone) or `deliver_after` (seconds): it waits until then, and the
        Ack has its id, `delayed`. Without `timestamp_us` (microseconds since 1970) the broker's
        clock counts. Waits while
        more than `buffer_bytes` wait already; BufferFullError after the delivery time-out.
        """
        check_topic(topic)
        check_timestamp(timestamp_us)
        due = due_us(topic, timestamp_us, deliver_at, deliver_after)
        if due is not None:
            topic, timestamp_us = WAITING_PREFIX + topic, due  # Lanes, and sequences, of its own.
        key = None if key is None else to_key(key)
        value, packed = to_value(value), to_headers(headers)
        future: concurrent.futures.Future[Ack] = Delivery()
        try:
            self._sender.enqueue(topic, key, value, timestamp_us, future, packed)
        except BufferFullError:
            for _ in self._waits_for_room():
                try:
                    self._sender.enqueue(topic, key, value, timestamp_us, future, packed)
                    break
                except BufferFullError:
                    continue
        return future

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps_us: Sequence[int] | None = None,
    ) -> concurrent.futures.Future[int]:
        """Takes many events, cheaply; the future has their number once all are durable.

        `keys` is None, or has one for each value, None where there is none; so `headers`, each as
        with `send`. `timestamps_us` is None, or has microseconds since 1970 for each value. Order
        is kept for each key.
        """
        check_topic(topic)
        if self._sender.buffered_bytes() >= self._sender.options.buffer_bytes:
            next(self._waits_for_room())
        future: concurrent.futures.Future[int] = Delivery()
        enqueue_many(self._sender, topic, values, keys, headers, timestamps_us, future)
        return future

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends what waits, and returns when the fate of every event is known."""
        self._thread.run(self._sender.flush(), timeout_s)

    def close(self) -> None:
        """Flushes and closes. Idempotent."""
        if self._thread.closed:
            return
        atexit.unregister(self.close)
        try:
            self._thread.run(self._sender.close())
        finally:
            self._thread.close()

    def _waits_for_room(self) -> Iterator[None]:
        """Yields whenever there may be room, until the delivery time-out."""
        deadline = time.monotonic() + self._sender.options.delivery_timeout_s
        while not self._sender.in_loop_thread:
            left = deadline - time.monotonic()
            if left <= 0 or not self._sender.wait_for_room(left):
                break
            yield
        raise BufferFullError("no room for another event before the delivery time-out")


def enqueue_many(
    sender: Sender,
    topic: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
    timestamps_us: Sequence[int] | None,
    future: "asyncio.Future[int] | concurrent.futures.Future[int]",
) -> None:
    """Hands the events to the engine, slice by slice; `future` gets their number in the end."""
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(values)} values but {len(keys)} keys")
    if headers is not None and len(headers) != len(values):
        raise ValueError(f"{len(values)} values but headers of {len(headers)}")
    if timestamps_us is not None and len(timestamps_us) != len(values):
        raise ValueError(f"{len(values)} values but {len(timestamps_us)} timestamps")
    for time_us in timestamps_us or ():
        check_timestamp(time_us)
    times: Sequence[int] = timestamps_us or ()
    packed = () if headers is None else list(map(to_headers, headers))
    ring = sender.ring
    if ring is None:
        raise ClosedError("start the producer first")
    total = len(values)

    def resolve(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(total)
        else:
            future.set_exception(error)

    if not total:
        resolve(None)
        return
    parts: Parts = {None: ((), values, packed, times)}
    if keys is not None:
        parts = by_slice(ring, keys, values, packed, times)
    sender.enqueue_many(topic, parts, settle_once(total, resolve))


def by_slice(
    ring: Ring,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[bytes | None] = (),
    timestamps_us: Sequence[int] = (),
) -> Parts:
    """Keys, values, headers and timestamps of each slice, in their order; those without a key under
    None."""
    parts: dict[
        SliceKey | None,
        tuple[list[bytes], list[bytes | None], list[bytes | None], list[int]],
    ] = {}
    slice_of_key = ring.slice_of_key
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        at = None if key is None else slice_of_key(key)
        part = parts.get(at)
        if part is None:
            part = parts[at] = ([], [], [], [])
        if key is not None:
            part[0].append(key)
        part[1].append(value)
        if headers:
            part[2].append(headers[number])
        if timestamps_us:
            part[3].append(timestamps_us[number])
    return parts
