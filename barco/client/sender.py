"""Drives the batching machine: linger timers, one task for each busy lane, retries, the ring.

Lives in one asyncio loop. `enqueue` and `enqueue_many` may be called from any thread (that is how
the synchronous face avoids a hop between threads for every event); everything else belongs to the
loop's thread. One lock guards the machine and is held for a few microseconds at a time.
"""

import asyncio
import logging
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from barco.client.base import forks
from barco.client.base.errors import (
    NOT_WRITTEN,
    UNKNOWN,
    BufferFullError,
    ClosedError,
    DeliveryError,
    TransportError,
)
from barco.client.wire import delivery
from barco.client.wire.access import Access
from barco.client.wire.batching import (
    Batch,
    BatchAck,
    Batcher,
    DoneCallback,
    Lane,
    Limits,
    SliceKey,
    Waiter,
    sizes_of,
)
from barco.client.wire.codec import encode_batch
from barco.client.wire.discovery import Directory
from barco.client.wire.earlier import EarlierEpochs
from barco.client.wire.http1 import Request, Response
from barco.client.wire.ring import Ring
from barco.client.wire.transport import Pool
from barco.errors import BarcoError
from barco.model.delays import WAITING_PREFIX
from barco.model.token import TOKEN_MIN

_log = logging.getLogger("barco.client")

_PRODUCER_ID = re.compile(r"[A-Za-z0-9_.-]{0,60}", re.ASCII)
BATCH_TYPE = "application/vnd.barco.batch"
Parts = Mapping[
    SliceKey | None,
    tuple[Sequence[bytes], Sequence[bytes | None], Sequence[bytes | None], Sequence[int]],
]
"""Keys, values, headers and timestamps (of both none at all, or of each event, as they are stored)
of each slice; under None, those without a key (and no keys)."""

REFRESH_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 10.0
"""For one try. Shorter than the delivery deadline, so that a lost answer leaves time for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches, waits and gives up. The defaults suit most uses."""

    linger_ms: float = 5.0
    """How long the first event of a batch waits for company; 0 sends at once."""
    batch_bytes: int = 256 * 1024
    """Keys and values of one batch, uncompressed. Brokers store up to 1 MiB as it comes."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Memory for events that are not acknowledged; over it `send` waits or refuses."""
    delivery_timeout_s: float = 30.0
    """From `send` to giving up, retries included."""
    compress: bool = True
    """LZ4, here instead of in the broker."""
    connections: int = 2
    """For each endpoint."""
    pipeline: int = 16
    """Requests on one connection before an answer."""
    producer_id: str = ""
    """A name that stays: who begins under it fences whoever had it before, so that nothing which
    is still on its way of that one comes in behind. At most 60 letters, digits, '_', '.' and '-'.
    Empty: a new one each time."""

    def __post_init__(self) -> None:
        if self.linger_ms < 0 or self.delivery_timeout_s <= 0:
            raise ValueError("linger_ms and delivery_timeout_s are times: not negative")
        if not _PRODUCER_ID.fullmatch(self.producer_id):
            raise ValueError("a producer_id has at most 60 letters, digits, '_', '.' and '-'")
        for name in ("batch_bytes", "buffer_bytes", "connections", "pipeline"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")


class Sender:
    """The producer's engine; AsyncProducer and Producer are its two faces."""

    def __init__(self, access: Access, options: ProducerOptions) -> None:
        self.options = options
        self.ring: Ring | None = None
        self._lock = threading.RLock()  # Guards the machine; a callback may send again under it.
        self._room = threading.Condition(self._lock)
        self._directory = Directory(access)
        self._pool = Pool(
            access, connections_max=options.connections, pipeline_max=options.pipeline
        )
        batch_bytes = min(options.batch_bytes, options.buffer_bytes)
        limits = Limits(batch_bytes, options.linger_ms / 1000)
        # A producer's sequence is one for each topic and slice: events with keys and events
        # without go there separately, so they are two producers.
        named = options.producer_id
        ids = (named, f"{named}.nk") if named else (secrets.token_hex(16), secrets.token_hex(16))
        self._batcher = Batcher(limits, *ids)
        self._earlier = EarlierEpochs(self._pool, access) if named else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refreshing: asyncio.Future[Ring] | None = None
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        self._timers: dict[Lane, asyncio.TimerHandle] = {}
        self._settled: set[asyncio.Future[None]] = set()
        self._chance = random.Random()  # Jitter: no secret, no test depends on it.
        self._thread = 0
        self._born = forks.count
        self._closed = False

    # From any thread

    def enqueue(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_us: int | None,
        waiter: Waiter,
        headers: bytes | None = None,
    ) -> None:
        """Takes one event. BufferFullError if there is no room, ClosedError after the end."""
        ring = self._open()
        slice_key = None if key is None else ring.slice_of_key(key)
        batcher = self._batcher
        size = len(value or b"") + len(headers or b"")
        with self._lock:
            self._check_room(size)
            if slice_key is None:
                lane = batcher.keyless_lane(topic, ring.slices, size, timestamp_us)
            else:
                lane = batcher.keyed_lane(topic, slice_key)
            batch = batcher.add(lane, key, value, timestamp_us, time.monotonic(), headers)
            batch.waiters.append((len(batch) - 1, waiter))
            news = batcher.news()
        if news:
            self._wake(news)

    def enqueue_many(self, topic: str, parts: Parts, on_done: DoneCallback) -> None:
        """Takes many events at once: all of them, or BufferFullError and none."""
        ring = self._open()
        batcher = self._batcher
        with self._lock:
            self._check_room(0)
            now = time.monotonic()
            for slice_key, (keys, values, headers, times) in parts.items():
                if slice_key is not None:
                    lane = batcher.keyed_lane(topic, slice_key)
                    batcher.extend(lane, keys, values, on_done, now, headers, times)
                    continue
                for turn, at in enumerate(self._pieces(values, headers)):
                    piece = values[at]
                    size = len(piece[0] or b"")
                    lane = batcher.keyless_lane(topic, ring.slices, size, rotate=turn > 0)
                    batcher.extend(lane, (), piece, on_done, now, headers[at], times[at])
            news = batcher.news()
        if news:
            self._wake(news)

    def wait_for_room(self, timeout_s: float) -> bool:
        """Blocks until half of the buffer is free, at most so long. Not for the loop's thread."""
        forks.check(self._born)
        half = self.options.buffer_bytes // 2
        with self._room:
            return self._room.wait_for(lambda: self._batcher.buffered_bytes <= half, timeout_s)

    def _open(self) -> Ring:
        """The ring. ClosedError after the end and before the start, ForkedError in a child."""
        forks.check(self._born)
        if self.ring is None or self._closed or self._loop is None:
            raise ClosedError("the producer is closed" if self._closed else "start it first")
        return self.ring

    @property
    def in_loop_thread(self) -> bool:
        """True in callbacks of futures, where waiting would wait for itself."""
        return threading.get_ident() == self._thread

    def buffered_bytes(self) -> int:
        """The memory that unacknowledged events hold."""
        return self._batcher.buffered_bytes

    # From the loop's thread

    async def start(self) -> None:
        """Finds the brokers; DiscoveryError if none answers within the delivery deadline."""
        if self._closed:
            raise ClosedError("the producer is closed")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.ring = await self._directory.ring(self.options.delivery_timeout_s)

    async def flush(self) -> None:
        """Sends everything that was enqueued, without lingering, and waits for its fate."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            batches = self._batcher.seal_all()
            news = self._batcher.news()
        left = len(batches)

        def on_done(count: int, error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not settled.done():
                settled.set_result(None)

        for batch in batches:
            batch.on_done.append((on_done, 0))
        self._look_at(news)
        if batches:
            await settled

    async def below(self, buffered_bytes: int) -> None:
        """Waits until unacknowledged events hold at most that much memory."""
        while self._batcher.buffered_bytes > buffered_bytes:
            await self._next_settled()

    async def close(self) -> None:
        """Flushes, then closes the connections. Idempotent."""
        if not self._closed:
            self._closed = True
            await self.flush()
        self._pool.close()
        self._directory.close()

    def _pieces(
        self, values: Sequence[bytes | None], headers: Sequence[bytes | None]
    ) -> Iterator[slice]:
        """Runs of about a batch each, so that events without a key spread over the slices."""
        total = sum(sizes_of(values)) + sum(sizes_of(headers))
        count = max(1, len(values) * self.options.batch_bytes // max(1, total))
        for first in range(0, len(values), count):
            yield slice(first, first + count)

    def _check_room(self, size: int) -> None:
        free = self.options.buffer_bytes - self._batcher.buffered_bytes
        if free <= 0 or (size > free and self._batcher.buffered_bytes):
            raise BufferFullError(
                f"{self._batcher.buffered_bytes} bytes wait to be acknowledged:"
                " wait for some of them, or give the producer a larger buffer_bytes"
            )

    async def _next_settled(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._settled.add(waiter)
        try:
            await waiter
        finally:
            self._settled.discard(waiter)

    def _wake(self, lanes: list[Lane]) -> None:
        assert self._loop is not None
        if self.in_loop_thread:
            self._look_at(lanes)
        else:
            self._loop.call_soon_threadsafe(self._look_at, lanes)

    def _look_at(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            self._look(lane)

    def _look(self, lane: Lane) -> None:
        """Starts the lane's task if something can go, or a timer for when something will."""
        if lane in self._tasks:
            return
        now = time.monotonic()
        with self._lock:
            batch = lane.take(now, self._batcher.limits.linger_s)
            deadline = lane.deadline(self._batcher.limits.linger_s)
        timer = self._timers.pop(lane, None)
        if timer is not None:
            timer.cancel()
        assert self._loop is not None
        if batch is not None:
            self._tasks[lane] = self._loop.create_task(self._run(lane, batch))
        elif deadline is not None:
            delay = max(0.0, deadline - now)
            self._timers[lane] = self._loop.call_later(delay, self._look, lane)

    async def _run(self, lane: Lane, batch: Batch | None) -> None:
        """Sends the lane's batches one after the other until none is ready."""
        while batch is not None:
            await self._deliver(lane, batch)
            with self._lock:
                batch = lane.take(time.monotonic(), self._batcher.limits.linger_s)
        del self._tasks[lane]
        self._look(lane)

    async def _deliver(self, lane: Lane, batch: Batch) -> None:
        ack: BatchAck | None = None
        error: BaseException | None = None
        try:
            ack = await self._attempts(lane, batch)
        except BarcoError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - whatever it is, nobody may wait for ever.
            _log.exception("a batch for topic %s could not be sent", lane.topic)
            batch.maybe_written = True
            error = DeliveryError(f"the producer failed: {failure!r}", outcome=UNKNOWN)
        except asyncio.CancelledError:
            batch.maybe_written = True
            error = DeliveryError("the producer was closed", outcome=UNKNOWN)
            raise
        finally:
            self._settle(lane, batch, ack, error)

    def _settle(
        self, lane: Lane, batch: Batch, ack: BatchAck | None, error: BaseException | None
    ) -> None:
        with self._lock:
            if error is None:
                lane.acknowledged(batch)
            else:
                lane.given_up(batch)
            self._batcher.forget(batch)
            self._room.notify_all()
        batch.resolve(ack, error)
        for waiter in list(self._settled):
            if not waiter.done():
                waiter.set_result(None)

    async def _attempts(self, lane: Lane, batch: Batch) -> BatchAck:
        """One batch, tried until it is acknowledged, refused, or out of time."""
        deadline = batch.opened_at + self.options.delivery_timeout_s
        body = encode_batch(
            batch.values,
            batch.keys if lane.keyed else None,
            {"timestamp": batch.timestamps_us} if batch.timestamps_us else None,
            self.options.compress,
            batch.all_headers(),
        )
        if self._earlier is not None:
            await self._earlier.continue_with(lane, max(0.05, deadline - time.monotonic()))
        while True:
            batch.attempts += 1
            answer = await self._try(lane, batch, body, deadline)
            verdict = delivery.judge(batch, answer, f"topic {lane.topic}")
            if verdict.next is delivery.Next.DONE:
                assert verdict.ack is not None
                return verdict.ack
            assert verdict.error is not None
            if verdict.next is delivery.Next.FAIL:
                raise verdict.error
            if verdict.next is delivery.Next.RESEQUENCE:
                lane.resequence(batch)
                continue
            pause = delivery.pause_s(batch.attempts, verdict.retry_after_s, self._chance)
            if time.monotonic() + pause >= deadline:
                raise self._late(batch, verdict.error) from verdict.error
            await asyncio.sleep(pause)
            if verdict.next is delivery.Next.REROUTE:
                await self._refresh()

    async def _try(
        self, lane: Lane, batch: Batch, body: bytes, deadline: float
    ) -> Response | TransportError:
        assert self.ring is not None and batch.sequence is not None
        topic = lane.topic.removeprefix(WAITING_PREFIX)
        due = () if topic == lane.topic else (("Barco-Deliver-At", "timestamp"),)
        request = Request(
            "POST",
            f"/v1/topic/{topic}/messages{'' if lane.keyed else _slice_query(lane.slice)}",
            (
                ("Content-Type", BATCH_TYPE),
                ("Producer-Id", lane.producer_id),
                ("Producer-Epoch", str(lane.producer_epoch)),
                ("Producer-Seq", str(batch.sequence)),
                *due,
            ),
            body,
        )
        left = max(0.05, deadline - time.monotonic())
        try:
            return await self._pool.request(
                self.ring.endpoint(lane.slice), request, timeout_s=min(REQUEST_TIMEOUT_S, left)
            )
        except TransportError as error:
            return error

    async def _refresh(self) -> None:
        """Asks who owns what, once for all lanes that want to know. An unreachable directory is
        no reason to stop trying."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._directory.ring(REFRESH_TIMEOUT_S))
        try:
            self.ring = await asyncio.shield(self._refreshing)
        except BarcoError:
            return

    def _late(self, batch: Batch, last: BarcoError) -> DeliveryError:
        outcome = UNKNOWN if batch.maybe_written else NOT_WRITTEN
        known = "it may be stored" if batch.maybe_written else "it is not stored"
        return DeliveryError(
            f"no acknowledgement in {self.options.delivery_timeout_s:g} s"
            f" and {batch.attempts} tries ({known}): {last}",
            outcome=outcome,
        )


def _slice_query(at: SliceKey) -> str:
    """Where events without a key go. The token matters in a cluster only."""
    token = "" if at.token == TOKEN_MIN else f"&token={at.token}"
    return f"?slice={at.slice}{token}"


def settle_once(count: int, resolve: Callable[[BaseException | None], None]) -> DoneCallback:
    """A callback for `enqueue_many` that calls `resolve` once, when `count` events are settled,
    with the first error if there was one."""
    left, first = count, None

    def on_done(done: int, error: BaseException | None) -> None:
        nonlocal left, first
        left -= done
        first = first or error
        if left == 0:
            resolve(first)

    return on_done
