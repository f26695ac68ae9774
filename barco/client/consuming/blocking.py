"""A consumer of a group, for threads: the one for asyncio, in a thread with a loop of its own."""

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack

from barco.client.base.loopthread import LoopThread
from barco.client.base.names import DEFAULT_ENDPOINT
from barco.client.base.settings import ConsumerSettings, TopicSlice
from barco.client.consuming.assignment import Rebalance
from barco.client.consuming.consumer import AsyncConsumer, unless_lost
from barco.client.consuming.enrolment import POLL_WAIT_S_MAX
from barco.client.consuming.handling import Handling, HandlingTerms
from barco.client.consuming.paused import SeekTo
from barco.client.wire.access import Endpoints
from barco.client.wire.codec import Event


class Consumer:
    """A member of a consumer group, for threads (one at a time).

        with barco.Consumer("trips", group="billing", start="earliest") as consumer:
            for event in consumer:
                handle(event)

    See AsyncConsumer for when an event counts as handled. Options: see `ConsumerOptions`; its
    functions are called in the thread that polls or closes.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        group: str = "default",
        endpoint: Endpoints = DEFAULT_ENDPOINT,
        **options: Unpack[ConsumerSettings],
    ) -> None:
        told = (options.get("on_assigned"), options.get("on_revoked"))
        if any(map(inspect.iscoroutinefunction, told)):
            raise ValueError("a Consumer calls functions, an AsyncConsumer coroutine functions too")
        self._consumer = AsyncConsumer(topics, group, endpoint, **options)
        self._thread = LoopThread("barco-consumer")
        try:
            self._thread.run(self._consumer.start())
        except BaseException:
            self._thread.close()
            raise

    def poll(self, timeout_s: float = 1.0) -> list[Event]:
        """The next events, [] if there are none in time; commits what was returned before."""
        deadline = time.monotonic() + timeout_s
        while isinstance(found := self._thread.run(self._consumer.step(deadline)), Rebalance):
            self._tell(found)
        return found

    @property
    def assignment(self) -> frozenset[TopicSlice]:
        """The slices that it reads, as the program was told; none if it does not ask for that."""
        return self._consumer.assignment

    @property
    def paused(self) -> frozenset[TopicSlice]:
        """The slices that `pause` has named, whoever reads them."""
        return self._consumer.paused

    def pause(self, *slices: TopicSlice) -> None:
        """Nothing of these slices comes until `resume`: see `AsyncConsumer.pause`."""
        self._consumer.pause(*slices)

    def resume(self, *slices: TopicSlice) -> None:
        """The contrary of `pause`; of all slices if none is named."""
        self._consumer.resume(*slices)

    def seek(self, topic: str, to: SeekTo) -> None:
        """Goes back or ahead in the slices of a topic that this consumer reads: see
        `AsyncConsumer.seek`."""
        self._thread.run(self._consumer.seek(topic, to))

    def _tell(self, move: Rebalance) -> None:
        for _ in move.calls(self._consumer.options):
            pass
        self._consumer._assignment.done(move)

    def keep(self, rest: Sequence[Event]) -> None:
        """Gives back the end of the last poll's events: they count as not taken."""
        self._consumer.keep(rest)

    def commit(self) -> bool:
        """Commits what the last poll returned, durably. False: what iteration has taken of it so
        far is committed, and that is not all. See `AsyncConsumer.commit`."""
        return self._thread.run(self._consumer.commit())

    def commit_to(self, *events: Event) -> None:
        """Commits durably all up to these events, each in its slice."""
        self._thread.run(self._consumer.commit_to(*events))

    def reject(self, event: Event, *, reason: str = "", count: int = 1, dead: str = "") -> None:
        """Gives an event up: it is a dead letter, and all up to it is committed, in one step. See
        `AsyncConsumer.reject`."""
        self._thread.run(self._consumer.reject(event, reason=reason, count=count, dead=dead))

    def handle(self, handler: Callable[[Event], object], **terms: Unpack[HandlingTerms]) -> None:
        """Calls the handler with each event, for ever, in this thread: see
        `AsyncConsumer.handle`."""
        handling = Handling(**terms)
        for event in self:
            failed = 0
            while True:
                self._consumer._beats.called()
                try:
                    handler(event)
                    break
                except Exception as error:  # noqa: BLE001 - whatever it is, the event failed.
                    failed += 1
                    if handling.is_over(failed, error):
                        verdict = handling.verdict(failed, error)
                        call = self._consumer.reject(event, **verdict)
                        self._thread.run(unless_lost(call))
                        break
                time.sleep(handling.pause(failed))

    def close(self, *, commit: bool = True) -> None:
        """Leaves the group. What was taken is committed, unless `commit` is False. Idempotent."""
        if self._thread.closed:
            return
        try:
            try:
                if (end := self._consumer._assignment.end()) is not None:
                    self._tell(end)
            finally:
                self._thread.run(self._consumer._close(commit=commit))
        finally:
            self._thread.close()

    def __iter__(self) -> Iterator[Event]:
        """Events for ever."""
        while True:
            ahead = self._consumer._ahead
            if self._consumer._changed or not ahead:
                ahead.extend(self.poll(POLL_WAIT_S_MAX))
            while ahead and not self._consumer._changed:
                self._consumer._beats.called()
                yield ahead.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(commit=kind is None)
