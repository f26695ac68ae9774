"""A consumer of a group, for asyncio; `barco.client.consuming.blocking` has the one for threads.

The broker decides who reads which slice. A poll commits what the poll before it returned, so every
event is delivered at least once; a lost answer is given again, because each poll names the last
answer that arrived. A consumer that the group has forgotten registers again by itself.
"""

import asyncio
import inspect
import logging
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from types import TracebackType
from typing import Any, Self, Unpack

from barco.client.base.errors import ClosedError
from barco.client.base.names import DEFAULT_ENDPOINT, check_topic
from barco.client.base.settings import ConsumerSettings, TopicSlice, parted
from barco.client.consuming.assignment import Assignment, Rebalance, slices_of
from barco.client.consuming.enrolment import (
    LEAVE_S_MAX,
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    POLL_WAIT_S_MAX,
    ConsumerOptions,
    Enrolment,
    join,
)
from barco.client.consuming.handling import Handling, HandlingTerms
from barco.client.consuming.heartbeats import Heartbeats
from barco.client.consuming.paused import Paused, SeekTo, places
from barco.client.wire.access import Access, Endpoints
from barco.client.wire.codec import Event
from barco.client.wire.discovery import Directory
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, ConflictError, NotFoundError, NotRegisteredError
from barco.model.placement import Placement
from barco.model.queues import REASON_BYTES_MAX

_log = logging.getLogger("barco.client")


class AsyncConsumer:
    """A member of a consumer group, in one asyncio loop.

        async with barco.AsyncConsumer("trips", group="billing", start="earliest") as consumer:
            async for event in consumer:
                handle(event)

    An event counts as handled when the next batch is asked for, at `commit`, and at the end of the
    `async with` block if it was taken; not if an exception ends the block. Options: see
    `ConsumerOptions`; with `on_assigned` or `on_revoked` the program hears which slices it reads.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        group: str = "default",
        endpoint: Endpoints = DEFAULT_ENDPOINT,
        **options: Unpack[ConsumerSettings],
    ) -> None:
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        if not self.topics:
            raise ValueError("give at least one topic")
        for topic in self.topics:
            check_topic(topic)
        token, rest = parted(options)
        if not rest.get("consumer_id"):
            rest["consumer_id"] = f"{socket.gethostname()[:64]}-{secrets.token_hex(8)}"
        self.options = ConsumerOptions(**rest)
        self.group = group
        self._access = Access.of(endpoint, token)
        self._directory = Directory(self._access)
        self._pool = Pool(self._access, connections_max=2)
        self._members: list[Enrolment] = []
        self._ring: Placement | None = None
        self._polls: dict[Enrolment, asyncio.Task[list[Event]]] = {}
        self._ahead: deque[Event] = deque()  # Polled, and not taken by iteration yet.
        self._batch: list[Event] = []  # All that the last poll returned.
        self._gave: list[Enrolment] = []  # The brokers that it came from.
        self._paused = Paused()
        self._changed = False  # What was asked for before is not what is wanted now.
        self._closed = False
        self._assignment = Assignment(None, wanted=False)
        self._refused = 0
        self._beats = Heartbeats(
            self._beat, self.options.session_seconds, self.options.busy_seconds_max
        )

    async def start(self) -> Self:
        """Finds the brokers and joins the group. `async with` does it."""
        if self._closed:
            raise ClosedError("the consumer is closed")
        brokers = await self._directory.brokers(self.options.request_timeout_s)
        self._members = [
            Enrolment(
                self._pool,
                endpoint,
                brokers.ring,
                self.topics,
                self.group,
                self.options,
                self._paused,
            )
            for endpoint in brokers.consume
        ]
        self._ring = brokers.ring
        self._assignment = Assignment(brokers.ring, wanted=self.options.wants_moves)
        await join(self._members)
        self._beats.start()
        return self

    async def _beat(self) -> None:
        await self._anywhere(lambda member: member.heartbeat())

    async def _anywhere(self, ask: Callable[[Enrolment], Awaitable[None]]) -> None:
        """At one broker, which tells the others; at the next one if that does not answer."""
        failure: BarcoError | None = None
        for member in random.sample(self._members, len(self._members)):
            try:
                return await ask(member)
            except BarcoError as error:
                if not error.retryable and not isinstance(error, NotFoundError):
                    raise  # Of a ring that is being upgraded only some are too old for it.
                failure = error
        assert failure is not None, "there is at least one broker"
        raise failure

    async def poll(self, timeout_s: float = 1.0) -> list[Event]:
        """The next events: those that iteration has not taken yet, else from the broker.

        Waits up to `timeout_s` for the first; [] if there is none. Asking the broker commits what
        was returned before. Trouble with a broker is waited out until then; a refusal is raised.
        """
        deadline = time.monotonic() + timeout_s
        while isinstance(found := await self.step(deadline), Rebalance):
            await self._tell(found)
        return found

    @property
    def assignment(self) -> frozenset[TopicSlice]:
        """The slices that it reads, as the program was told; none if it does not ask for that."""
        return self._assignment.slices

    @property
    def paused(self) -> frozenset[TopicSlice]:
        """The slices that `pause` has named, whoever reads them."""
        return self._paused.slices

    def pause(self, *slices: TopicSlice) -> None:
        """Nothing of these slices comes until `resume`; they stay with this consumer, if they are,
        and what iteration has not taken of them comes later. At most 1,000. For a program that can
        not take more of some, and polls on for the others and to stay a member."""
        self._paused.add(slices)
        self._changed = True

    def resume(self, *slices: TopicSlice) -> None:
        """The contrary of `pause`; of all slices if none is named."""
        self._paused.remove(slices)
        self._changed = True

    async def seek(self, topic: str, to: SeekTo) -> None:
        """Goes back or ahead in the slices of a topic that this consumer reads: the next events are
        from there, and the group's positions are. What was taken before is committed. ValueError: a
        slice is not this consumer's."""
        self._beats.called()
        await self._ask_anew(whole=True)
        found: list[frozenset[TopicSlice]] = []

        async def ask(member: Enrolment) -> None:
            found.append(slices_of(await member.assignment(), self._ring))

        await self._insist(ask)
        slices = places(check_topic(topic), to, found[-1], self._ring)
        if slices:
            await self._insist(lambda member: member.seek(self.group, topic, slices))

    async def _ask_anew(self, *, whole: bool = False) -> None:
        """What was polled and not taken comes again, by what is wanted now. whole: what was taken
        is committed in any case, and not by the next poll."""
        if not self._members:
            return
        polls, self._polls = self._polls, {}
        for task in polls.values():
            task.cancel()
        await asyncio.gather(*polls.values(), return_exceptions=True)
        for member, task in polls.items():
            if not task.cancelled() and not task.exception():
                member.refuse()
        if self._ahead or (whole and self._batch):
            await unless_lost(self.commit_to(*self._taken()))
            for member in self._gave:
                member.refuse()
            self._ahead.clear()
            self._batch = []
        self._changed = False

    async def _tell(self, move: Rebalance) -> None:
        for told in move.calls(self.options):
            if inspect.isawaitable(told):
                await told
        self._assignment.done(move)

    async def step(self, deadline: float) -> list[Event] | Rebalance:
        """The next events; or of what the program is to be told before. For `poll`."""
        self._beats.called()
        if self._changed:
            await self._ask_anew()
        if self._ahead:
            rest = list(self._ahead)
            self._ahead.clear()
            return rest
        while True:
            if self._closed or not self._members:
                raise ClosedError("the consumer is closed" if self._closed else "start it first")
            if self.options.wants_moves:
                try:
                    move = await self._assignment.news(self._members, self._polls, self._anywhere)
                except NotRegisteredError as error:
                    await self._lost(error)
                    continue
                except BarcoError as error:
                    if not error.retryable:
                        raise
                    if time.monotonic() + PAUSE_FIRST_S >= deadline:
                        return []
                    await asyncio.sleep(PAUSE_FIRST_S)
                    continue
                if move is not None:
                    return move
            refused = self._refused
            events = self._collect(await self._poll_all(deadline))
            if events or not (self._is_to_tell(self._members) or self._refused > refused):
                return events
            if self._refused > refused:
                if time.monotonic() >= deadline:
                    return []
                await asyncio.sleep(PAUSE_FIRST_S)  # Until the brokers agree.

    def _is_to_tell(self, members: Iterable[Enrolment]) -> bool:
        news = any(member.has_news and member not in self._polls for member in members)
        return news or self._assignment.lost

    async def _lost(self, error: NotRegisteredError) -> None:
        """The group has forgotten it: it is a member again, and hears anew what it reads."""
        if self._assignment.lost:
            return  # Another poll has heard of it, too.
        _log.info("registering again: %s", error)
        self._assignment.lose()
        await self._anywhere(lambda member: member.register())

    async def _poll_all(self, deadline: float) -> set[asyncio.Task[list[Event]]]:
        """Until one of the brokers has something; the polls that are done."""
        for member, task in list(self._polls.items()):
            if task.done() and not task.exception() and not task.result():
                del self._polls[member]  # It ended early, for news that have been told since.
        for member in self._members:
            if member not in self._polls:
                polling = self._poll_member(member, deadline)
                self._polls[member] = asyncio.ensure_future(polling)
        done: set[asyncio.Task[list[Event]]] = set()
        pending = set(self._polls.values())
        while pending and not any(task.exception() or task.result() for task in done):
            if done and self._assignment.lost:
                break
            if any(member.has_news for member, task in self._polls.items() if task in done):
                break
            finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            done |= finished
        return done

    def keep(self, rest: Sequence[Event]) -> None:
        """Gives back the end of the last poll's events: they count as not taken."""
        assert not self._ahead and list(rest) == self._batch[len(self._batch) - len(rest) :]
        self._ahead.extend(rest)

    async def commit(self) -> bool:
        """Commits what the last poll returned, durably. False: what iteration has taken of it so
        far is committed, and that is not all.

        ConflictError names `slices` that are not with this consumer any more: their events come
        again, everything else is committed.
        """
        self._beats.called()
        if self._ahead:
            await self.commit_to(*self._taken())
            return False
        await asyncio.gather(*(each.commit() for each in self._members if each not in self._polls))
        return True

    async def commit_to(self, *events: Event) -> None:
        """Commits durably all up to these events, each in its slice: they are processed, what was
        returned after them is not yet. ConflictError as of `commit`."""
        self._beats.called()
        last: dict[tuple[str, int, int], Event] = {}
        for event in events:
            stream = (event.topic, event.token, event.slice)
            if stream not in last or last[stream].offset < event.offset:
                last[stream] = event
        if last:
            await self._insist(lambda member: member.commit_to(last.values()))

    async def reject(
        self, event: Event, *, reason: str = "", count: int = 1, dead: str = ""
    ) -> None:
        """Gives an event up: it goes to `dead`, else to TOPIC.dead, and all up to it in its slice
        is committed, durably and in one step. count: how often it was tried. ConflictError as of
        `commit`."""
        self._beats.called()
        more: dict[str, Any] = {"count": count} | ({"dead": dead} if dead else {})
        if reason:
            more["reason"] = reason.encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore")
        await self._insist(lambda member: member.reject(event, more))

    async def handle(
        self, handler: Callable[[Event], Awaitable[object]], **terms: Unpack[HandlingTerms]
    ) -> None:
        """Calls the handler with each event, for ever. An exception of it is a failed try: after
        `max_deliveries` tries the event is a dead letter (0, which is the default: it is tried for
        ever), and those behind it go on. Between tries it waits `retry_seconds` (else 0.1 s), each
        time twice as long, a minute at most. dead: else TOPIC.dead."""
        handling = Handling(**terms)
        async for event in self:
            failed = 0
            while True:
                self._beats.called()
                try:
                    await handler(event)
                    break
                except Exception as error:  # noqa: BLE001 - whatever it is, the event failed.
                    failed += 1
                    if handling.is_over(failed, error):
                        await unless_lost(self.reject(event, **handling.verdict(failed, error)))
                        break
                await asyncio.sleep(handling.pause(failed))

    async def _insist(self, ask: Callable[[Enrolment], Awaitable[None]]) -> None:
        """At any broker, until a deadline."""
        deadline = time.monotonic() + self.options.request_timeout_s
        pause = PAUSE_FIRST_S
        while True:
            try:
                return await self._anywhere(ask)
            except BarcoError as error:
                if not error.retryable or time.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    async def close(self, *, commit: bool = True) -> None:
        """Leaves the group. Idempotent.

        What was taken is committed, to the event, unless `commit` is False: then all that the last
        poll returned is delivered again, to whoever gets its slices.
        """
        if self._closed:
            return
        try:
            if (end := self._assignment.end()) is not None:
                await self._tell(end)
        finally:
            await self._close(commit=commit)

    async def _close(self, *, commit: bool) -> None:
        self._closed = True
        await self._beats.close()
        # What a poll has brought that nobody has collected, nobody will see: it must go to another
        # consumer. A poll that is cut off is different: its answer is known not to have arrived.
        for task in self._polls.values():
            task.cancel()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)
        unseen = [m for m, task in self._polls.items() if not task.cancelled()]
        try:
            if commit and self._ahead:
                commit = False
                await self._part("a commit", [self.commit_to(*self._taken())])
            seen = [member for member in self._members if commit and member not in unseen]
            if len(self._members) > 1:
                # The first goodbye is one to all brokers: each commits its own part before.
                await self._part("a commit", [member.commit() for member in seen])
            farewells = [member.goodbye(commit=member in seen) for member in self._members]
            await self._part("a goodbye", farewells)
        finally:
            self._pool.close()
            self._directory.close()

    async def _part(self, what: str, calls: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Makes the calls. A broker that does not answer holds nobody up for long: others wait for
        the slices, which it leads no longer or will find free by this consumer's silence."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        if not tasks:
            return
        done, late = await asyncio.wait(
            tasks, timeout=min(LEAVE_S_MAX, self.options.request_timeout_s)
        )
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _warn(self.group, [task.exception() for task in done])
        if late:
            _log.warning(
                "leaving group %s: %s had no answer at %d brokers", self.group, what, len(late)
            )

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events for ever."""
        while True:
            if self._changed or not self._ahead:
                self._ahead.extend(await self.poll(POLL_WAIT_S_MAX))
            while self._ahead and not self._changed:
                self._beats.called()  # A batch may take longer than a program may be busy.
                yield self._ahead.popleft()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(commit=kind is None)

    def _taken(self) -> list[Event]:
        """The part of the last batch that iteration has taken."""
        return self._batch[: len(self._batch) - len(self._ahead)]

    def _collect(self, done: set[asyncio.Task[list[Event]]]) -> list[Event]:
        events: list[Event] = []
        failure: BaseException | None = None
        self._gave = []
        for member, task in list(self._polls.items()):
            if task in done:
                del self._polls[member]
                failure = failure or task.exception()
                if task.exception() is None and self._assignment.covers(task.result()):
                    events += task.result()
                    self._gave.append(member)
                elif task.exception() is None:
                    member.refuse()
                    self._refused += 1
        if failure is not None and not events:
            raise failure
        self._batch = events
        return events

    async def _poll_member(self, member: Enrolment, deadline: float) -> list[Event]:
        """Polls one broker until it has events, or the deadline; waits its trouble out."""
        pause = PAUSE_FIRST_S
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                events = await member.poll(min(left, POLL_WAIT_S_MAX))
                if events or member.has_news or time.monotonic() >= deadline:
                    return events
                pause = PAUSE_FIRST_S
            except NotRegisteredError as error:
                if self.options.wants_moves:
                    await self._lost(error)
                    return []
                _log.info("registering again: %s", error)
                await member.register()
            except BarcoError as error:
                if not error.retryable:
                    raise
                if time.monotonic() + pause >= deadline:
                    return []
                told = error.fields.get("retry_after_s") or 0.0
                await asyncio.sleep(min(max(pause, told), PAUSE_MAX_S))
                pause = min(2 * pause, PAUSE_MAX_S)


async def unless_lost(call: Awaitable[None]) -> None:
    """An event whose slice has gone to another consumer is that one's."""
    try:
        await call
    except ConflictError as error:
        _log.warning("an event that failed is with others now: %s", error)


def _warn(group: str, results: Sequence[BaseException | None]) -> None:
    """Trouble at the end is no reason to fail: the group forgets a silent consumer by itself."""
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ConflictError):
            _log.warning("leaving group %s: %s", group, result)
