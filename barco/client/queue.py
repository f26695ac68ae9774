"""Queues: `Queue` for threads, `AsyncQueue` for asyncio.

Whoever takes part leases events, works on them, and acknowledges them one by one: there may be more
of them than slices, and none has to know of the others. What is not acknowledged in time, or given
back, goes to somebody else, with a count of how often it was given.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack
from urllib.parse import quote, urlencode

from barco.client.base.errors import BadAnswerError, ClosedError, response_error
from barco.client.base.loopthread import Closing, LoopThread
from barco.client.base.names import DEFAULT_ENDPOINT, check_topic
from barco.client.consuming.enrolment import ANSWER_GRACE_S, CHUNKS_TYPE, PAUSE_FIRST_S, PAUSE_MAX_S
from barco.client.wire.access import Access, Endpoints
from barco.client.wire.codec import Event, decode_chunks
from barco.client.wire.discovery import Directory
from barco.client.wire.http1 import Request, Response
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, ConflictError, OutcomeUnknownError, RequestError
from barco.model.placement import Placement
from barco.model.queues import LEASE_MS_MAX, LEASED_DEFAULT, NAMED_RUNS_MAX, Leased, parse_leases
from barco.types import Token

WAIT_S_MAX = 30.0
"""Of one request that waits for events."""


class QueueTerms(TypedDict, total=False):
    """How a queue is made: see `Queue.make`."""

    start: Literal["earliest", "latest"]
    max_in_flight: int
    lease_seconds: float
    ordered: Literal["key", "no"]
    max_deliveries: int
    retry_seconds: float
    dead: str


_TERMS = {
    "max_in_flight": ("maxInFlight", 1),
    "lease_seconds": ("leaseMs", 1000),
    "ordered": ("ordered", 0),
    "max_deliveries": ("maxDeliveries", 1),
    "retry_seconds": ("retryMs", 1000),
    "dead": ("dead", 0),
}
"""As HTTP has them, and how many of its units make one of ours."""


class QueueEvent(NamedTuple):
    """An event that this program has, for a while."""

    event: Event
    id: str
    """What it is acknowledged by."""
    deliveries: int
    """How many times it was given to somebody, this time included."""

    @property
    def value(self) -> bytes | None:
        """The event's."""
        return self.event.value

    @property
    def key(self) -> bytes | None:
        """The event's."""
        return self.event.key


class AsyncQueue:
    """A queue of one topic, in one asyncio loop.

        async with barco.AsyncQueue("orders", group="billing") as queue:
            async for job in queue:
                await handle(job.event)
                await queue.ack(job)

    What iteration has given and is not acknowledged is given back where an exception ends the
    block. The group has to be a queue: `make` makes it one, so does PUT /v1/groups/GROUP.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        endpoint: Endpoints = DEFAULT_ENDPOINT,
        *,
        token: str = "",
        lease_seconds: float | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """lease_seconds: for which events are wanted, from 1 to the queue's own. timeout_s: of
        everything that is tried again while brokers are busy or away."""
        self.topic, self.group = check_topic(topic), group
        if timeout_s <= 0:
            raise ValueError("timeout_s is positive")
        if lease_seconds is not None and not 1 <= lease_seconds <= LEASE_MS_MAX / 1000:
            raise ValueError(f"lease_seconds is from 1 to {LEASE_MS_MAX / 1000:g}")
        self._lease_seconds, self._timeout_s = lease_seconds, timeout_s
        access = Access.of(endpoint, token)
        self._endpoints = list(access.endpoints)
        self._directory = Directory(access)
        self._pool = Pool(access, connections_max=4)
        self._ring: Placement | None = None
        self._mine: dict[str, QueueEvent] = {}
        self._closed = False
        self._started = False

    async def start(self) -> Self:
        """Finds the brokers. `async with` does it."""
        if self._closed:
            raise ClosedError("the queue is closed")
        brokers = await self._directory.brokers(self._timeout_s)
        self._endpoints = list(brokers.consume)
        random.shuffle(self._endpoints)
        self._ring, self._started = brokers.ring, True
        return self

    async def make(self, **settings: Unpack[QueueTerms]) -> dict[str, Any]:
        """Makes the group a queue of the topic, or gives it other settings: all that are not given
        are as they are if never said.

        start: with which event a new one begins, "earliest" (else) or "latest". ordered="key":
        events of one key one after the other. max_deliveries: an event that was given so often and
        not acknowledged goes to `dead`, else to TOPIC.dead; retry_seconds: before the second time,
        and twice as long each time. max_in_flight: of each slice.
        """
        start = settings.get("start", "earliest")
        query = {"type": "queue", "topic": self.topic}
        query["onNewGroup"] = "startFromLatest" if start == "latest" else "startFromEarliest"
        for name, value in settings.items():
            told, factor = _TERMS.get(name, ("", 0))
            if told:
                query[told] = str(
                    round(factor * value) if isinstance(value, int | float) else value
                )
        target = f"/v1/groups/{quote(self.group, safe='')}?{urlencode(query)}"
        answer = await self._insist(Request("PUT", target))
        document: dict[str, Any] = json.loads(answer.body)
        return document

    async def lease(self, most: int = LEASED_DEFAULT, wait_s: float = 0.0) -> list[QueueEvent]:
        """Up to so many events; waits so long for the first one. [] if there is none."""
        self._check()
        deadline = time.monotonic() + wait_s
        pause = PAUSE_FIRST_S
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                jobs = await self._lease(most, min(left, WAIT_S_MAX))
                if jobs or time.monotonic() >= deadline:
                    return jobs
                pause = PAUSE_FIRST_S
            except BarcoError as error:
                if not error.retryable:
                    raise
                self._next_broker()
                if time.monotonic() + pause >= max(deadline, 0.0):
                    if wait_s > 0:
                        return []
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    async def ack(self, *jobs: QueueEvent) -> None:
        """Done, durably: nobody gets them again. It can come late."""
        await self._tell("ack", jobs)

    async def nack(
        self, *jobs: QueueEvent, delay_s: float | None = None, reason: str | None = None
    ) -> None:
        """Not done: somebody gets them again, after the delay. ConflictError: its `events` are
        those whose time was over."""
        more: dict[str, Any] = {} if delay_s is None else {"delayMs": round(1000 * delay_s)}
        await self._tell("nack", jobs, more | ({} if reason is None else {"reason": reason}))

    async def extend(self, *jobs: QueueEvent, seconds: float | None = None) -> None:
        """Keeps them for so long from now on, 1 s at least. ConflictError as of `nack`."""
        more = {} if seconds is None else {"leaseMs": round(1000 * seconds)}
        await self._tell("extend", jobs, more, keep=True)

    async def close(self, *, give_back: bool = True) -> None:
        """What was leased and not acknowledged goes to others, at once. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if give_back and self._mine:
                await self._tell("nack", list(self._mine.values()), {"delayMs": 0})
        except BarcoError:
            pass  # Their time ends by itself.
        finally:
            self._pool.close()
            self._directory.close()

    async def __aiter__(self) -> AsyncIterator[QueueEvent]:
        """Events for ever."""
        while True:
            for job in await self.lease(wait_s=WAIT_S_MAX):
                yield job

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _check(self) -> None:
        if self._closed or not self._started:
            raise ClosedError("the queue is closed" if self._closed else "start it first")

    def _next_broker(self) -> None:
        self._endpoints.append(self._endpoints.pop(0))

    def _target(self, what: str, query: Mapping[str, str]) -> str:
        given = urlencode({"topic": self.topic, **query})
        return f"/v1/queue/{quote(self.group, safe='')}/{what}?{given}"

    async def _lease(self, most: int, wait_s: float) -> list[QueueEvent]:
        query = {"max": str(most), "waitMs": str(int(1000 * wait_s))}
        if self._lease_seconds is not None:
            query["leaseMs"] = str(round(1000 * self._lease_seconds))
        request = Request("POST", self._target("lease", query), (("Accept", CHUNKS_TYPE),))
        answer = await self._ask(request, wait_s + ANSWER_GRACE_S)
        if answer.status == 204:
            return []
        try:
            runs = parse_leases(answer.headers.get("barco-lease", "").split(","))
        except RequestError as error:
            raise BadAnswerError(f"not a lease: {error}") from error
        jobs = self._jobs(decode_chunks(answer.body, {}, self._ring), runs)
        self._mine |= {job.id: job for job in jobs}
        return jobs

    def _jobs(self, events: Iterable[Event], runs: Iterable[Leased]) -> list[QueueEvent]:
        """The events that are meant: chunks have others around them."""
        of = {
            (run.slice, at): Leased(run.slice, run.epoch, at, at + 1, run.times)
            for run in runs
            for at in range(run.start, run.end)
        }
        jobs = []
        for event in events:
            leased = of.pop((self._number(event), event.offset), None)
            if leased is not None:
                jobs.append(QueueEvent(event, leased.name, leased.times))
        if of:
            raise BadAnswerError(f"{len(of)} events of a lease did not come")
        return jobs

    def _number(self, event: Event) -> int:
        """Of its slice, in the ring."""
        if self._ring is None:
            return event.slice
        index, _ = self._ring.locate(Token(event.token))
        return index * self._ring.slices_per_range + event.slice

    async def _tell(
        self,
        what: str,
        jobs: Iterable[QueueEvent],
        more: Mapping[str, Any] | None = None,
        *,
        keep: bool = False,
    ) -> None:
        names = [job.id for job in jobs]
        if not names:
            return
        headers = (("Content-Type", "application/json"),)
        lost: ConflictError | None = None
        for at in range(0, len(names), NAMED_RUNS_MAX):
            some = names[at : at + NAMED_RUNS_MAX]
            body = json.dumps({"events": some, **(more or {})}).encode()
            try:
                await self._insist(Request("POST", self._target(what, {}), headers, body))
            except ConflictError as error:  # All else is changed; these are not ours any more.
                if lost is not None:
                    error.fields["events"] = [*_events(lost), *_events(error)]
                lost = error
            if not keep:
                for name in some:
                    self._mine.pop(name, None)
        if lost is not None:
            raise lost

    async def _insist(self, request: Request) -> Response:
        """At another broker while one is busy or away, until a deadline."""
        deadline = time.monotonic() + self._timeout_s
        pause, perhaps = PAUSE_FIRST_S, False
        while True:
            try:
                return await self._ask(request, max(0.1, deadline - time.monotonic()))
            except BarcoError as error:
                if perhaps and isinstance(error, ConflictError) and "/nack?" in request.target:
                    return Response(204, {}, b"")  # It was done, and the answer was lost.
                self._next_broker()
                perhaps |= error.written is not False
                again = error.retryable or isinstance(error, OutcomeUnknownError)
                if not again or time.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    async def _ask(self, request: Request, timeout_s: float) -> Response:
        answer = await self._pool.request(self._endpoints[0], request, timeout_s=timeout_s)
        if not answer.ok:
            what = request.target.partition("?")[0].rpartition("/")[2]
            raise response_error(answer.status, answer.headers, answer.body, what)
        return answer


def _events(error: ConflictError) -> list[str]:
    """Those whose time was over."""
    named = error.fields.get("events")
    return named if isinstance(named, list) else []


class Queue(Closing):
    """A queue of one topic, for threads.

        with barco.Queue("orders", group="billing") as queue:
            for job in queue:
                handle(job.event)
                queue.ack(job)

    See AsyncQueue.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        endpoint: Endpoints = DEFAULT_ENDPOINT,
        *,
        token: str = "",
        lease_seconds: float | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._queue = AsyncQueue(
            topic, group, endpoint, token=token, lease_seconds=lease_seconds, timeout_s=timeout_s
        )
        self._thread = LoopThread("barco-queue")
        try:
            self._thread.run(self._queue.start())
        except BaseException:
            self._thread.close()
            raise

    def make(self, **settings: Unpack[QueueTerms]) -> dict[str, Any]:
        """Makes the group a queue of the topic: see AsyncQueue."""
        return self._thread.run(self._queue.make(**settings))

    def lease(self, most: int = LEASED_DEFAULT, wait_s: float = 0.0) -> list[QueueEvent]:
        """Up to so many events; waits so long for the first one. [] if there is none."""
        return self._thread.run(self._queue.lease(most, wait_s))

    def ack(self, *jobs: QueueEvent) -> None:
        """Done, durably."""
        self._thread.run(self._queue.ack(*jobs))

    def nack(
        self, *jobs: QueueEvent, delay_s: float | None = None, reason: str | None = None
    ) -> None:
        """Not done: somebody gets them again, after the delay."""
        self._thread.run(self._queue.nack(*jobs, delay_s=delay_s, reason=reason))

    def extend(self, *jobs: QueueEvent, seconds: float | None = None) -> None:
        """Keeps them for so long from now on."""
        self._thread.run(self._queue.extend(*jobs, seconds=seconds))

    def close(self, *, give_back: bool = True) -> None:
        """What was leased and not acknowledged goes to others, at once. Idempotent."""
        if self._thread.closed:
            return
        try:
            self._thread.run(self._queue.close(give_back=give_back))
        finally:
            self._thread.close()

    def __iter__(self) -> Iterator[QueueEvent]:
        """Events for ever."""
        while True:
            yield from self.lease(wait_s=WAIT_S_MAX)
