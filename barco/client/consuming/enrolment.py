"""One consumer's registration with one broker, and how it joins and polls there."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote, urlencode

from barco import limits
from barco.client.base.errors import BadAnswerError, response_error
from barco.client.base.settings import TopicSlice
from barco.client.consuming.paused import Paused
from barco.client.wire.codec import Event, decode_chunks, parse_skips
from barco.client.wire.delivery import retry_after
from barco.client.wire.http1 import Request, Response
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, BusyError, NotRegisteredError
from barco.model.placement import Placement

CHUNKS_TYPE = "application/vnd.barco.chunks"
POLL_WAIT_S_MAX = 30.0
"""One long poll; brokers hold up to 60 s, proxies between often less."""
ANSWER_GRACE_S = 10.0
JOIN_GRACE_S = 1.0
"""A broker that takes longer is not waited for alone."""
SESSION_S_MIN = limits.CONSUMER_SESSION_MS_MIN / 1000
SESSION_S_MAX = limits.CONSUMER_SESSION_MS_MAX / 1000
BEAT_S_MAX = 1.0
"""For one broker to hear a heartbeat; then the next one is told."""
LEAVE_S_MAX = 5.0
"""For the commits of a consumer that leaves, and as long for its goodbyes."""
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 2.0

_log = logging.getLogger("barco.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer joins and polls. The defaults suit most uses."""

    start: Literal["latest", "earliest"] = "latest"
    """Where a group begins that is new to a slice: "latest" or "earliest"."""
    consumer_id: str = ""
    """A name that is unique in the cluster; made from the host's name if empty."""
    poll_bytes: int = 1024 * 1024
    """Stored bytes of one poll, about; a single larger chunk is still returned."""
    session_seconds: float = 30.0
    """How long the brokers hear nothing before others of the group get the slices and what was not
    committed: 5 s to 10 min. It bounds a crash: while the program is busy heartbeats are sent."""
    busy_seconds_max: float = 3600.0
    """A program that calls nothing for so long hangs: no more heartbeats. 0: none at all."""
    request_timeout_s: float = 30.0
    """For finding brokers, registering, committing, leaving: retries included."""
    weight: int = 1
    """1 to 100: of two consumers the one of twice the weight gets twice as many slices."""
    on_assigned: Callable[[list[TopicSlice]], Any] | None = None
    """Called by `poll` with slices that it reads from now on, before their first events. Of an
    AsyncConsumer it may be a coroutine function."""
    on_revoked: Callable[[list[TopicSlice]], Any] | None = None
    """Called by `poll` with slices that it reads no more, before others get events of them; at
    `close` with all. Only once the session has ended (`busy_seconds_max`) may it come too late."""

    def __post_init__(self) -> None:
        if self.start not in ("latest", "earliest"):
            raise ValueError('start is "latest" or "earliest"')
        if self.poll_bytes < 1 or self.request_timeout_s <= 0:
            raise ValueError("poll_bytes and request_timeout_s are positive")
        if not 1 <= self.weight <= limits.CONSUMER_WEIGHT_MAX:
            raise ValueError(f"weight is from 1 to {limits.CONSUMER_WEIGHT_MAX}")
        if self.busy_seconds_max < 0:
            raise ValueError("busy_seconds_max is 0, for no heartbeats, or a time")
        if not SESSION_S_MIN <= self.session_seconds <= SESSION_S_MAX:
            raise ValueError(f"session_seconds is from {SESSION_S_MIN:g} to {SESSION_S_MAX:g}")

    @property
    def wants_moves(self) -> bool:
        """Whether the program wants to hear which slices it reads."""
        return self.on_assigned is not None or self.on_revoked is not None


class Enrolment:
    """This consumer's registration with one broker, and its polls there."""

    def __init__(
        self,
        pool: Pool,
        endpoint: str,
        ring: Placement | None,
        topics: Sequence[str],
        group: str,
        options: ConsumerOptions,
        paused: Paused,
    ) -> None:
        self.endpoint = endpoint
        self._paused = paused
        self._ring = ring
        self._pool = pool
        self._options = options
        self._who = ("consumerId", options.consumer_id)
        start = "startFromEarliest" if options.start == "earliest" else "startFromLatest"
        registration = [self._who, ("group", group), ("onNewGroup", start)]
        registration += [("sessionMs", str(round(options.session_seconds * 1000)))]
        if options.weight != 1:
            registration += [("weight", str(options.weight))]
        registration += [("topic", topic) for topic in topics]
        self._register = _request("PUT", "register", registration)
        self._delivery = ""  # The last answer that arrived.
        self._before = ""
        self.placement: str | None = None
        """Of what the program knows that it is to read; None: it does not ask."""
        self._told: str | None = None

    @property
    def has_news(self) -> bool:
        """Whether the broker has said that it is to read something else."""
        return self.placement is not None and self._told not in (None, self.placement)

    async def assignment(self) -> dict[str, Any]:
        """What it is to read, as this broker has it, and a name for it."""
        answer = await self._ask(_request("GET", "assignment", [self._who]), ANSWER_GRACE_S)
        try:
            found = json.loads(answer.body)
            self._told = str(found["placement"])
            assert isinstance(found["slices"], dict)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise BadAnswerError(f"GET /v1/consumer/assignment: {error!r}") from error
        return dict(found)

    def refuse(self) -> None:
        """What the last poll returned is to come again: as if it had not arrived."""
        self._delivery = self._before

    async def register(self) -> None:
        """Joins the group. Tries again while brokers are busy or away."""
        self._delivery = ""
        answer = await self._insist(self._register)
        if missing := answer.headers.get("barco-missing-topics"):
            # Else who has misspelt a name waits for ever.
            _log.warning("there is no topic %s yet: the consumer waits for it to be made", missing)

    async def poll(self, wait_s: float) -> list[Event]:
        """The next events, [] if there are none in time. Commits what the last poll returned."""
        query = [
            self._who,
            ("waitMs", str(int(wait_s * 1000))),
            ("maxBytes", str(self._options.poll_bytes)),
            ("delivery", self._delivery),
            ("scope", "broker"),  # The others are asked as well.
        ]
        query += self._paused.told(self._ring)
        if self.placement is not None:
            query.append(("placement", self.placement))
        request = _request("POST", "poll", query, ("Accept", CHUNKS_TYPE))
        answer = await self._ask(request, wait_s + ANSWER_GRACE_S)
        events: list[Event] = []
        if answer.status != 204:
            skips = parse_skips(answer.headers.get("barco-start", ""))
            events = decode_chunks(answer.body, skips, self._ring)
        self._before = self._delivery
        self._delivery = answer.headers.get("barco-delivery", self._delivery)
        self._told = answer.headers.get("barco-placement", self._told)
        return events

    async def commit(self) -> None:
        """Commits what the last poll returned; returns when that is durable."""
        query = [self._who, ("delivery", self._delivery)]
        await self._insist(_request("POST", "commit", query))

    async def commit_to(self, events: Iterable[Event]) -> None:
        """Commits all up to these events, one of each slice; returns when that is durable. The
        broker passes it on to whoever leads the slices."""
        positions = [self._named(event) | {"cursor": event.next_cursor} for event in events]
        await self._tell("commit", {"positions": positions})

    async def seek(self, group: str, topic: str, slices: dict[str, str]) -> None:
        """Moves the group's positions in these slices of a topic, by their numbers in the ring;
        durably."""
        target = f"/v1/groups/{quote(group, safe='')}/positions"
        body = json.dumps({"topic": topic, "to": {"slices": slices}}).encode()
        request = Request("PUT", target, (("Content-Type", "application/json"),), body)
        await self._ask(request, self._options.request_timeout_s)

    async def reject(self, event: Event, more: dict[str, Any]) -> None:
        """An event becomes a dead letter, and all up to it is committed; durably."""
        place = self._named(event) | {"offset": str(event.offset)}
        await self._tell("reject", {"events": [place], **more})

    def _named(self, event: Event) -> dict[str, Any]:
        named: dict[str, Any] = {"topic": event.topic, "slice": event.slice}
        return named if self._ring is None else named | {"token": str(event.token)}

    async def _tell(self, what: str, document: dict[str, Any]) -> None:
        request = _request("POST", what, [self._who], ("Content-Type", "application/json"))
        body = json.dumps(document).encode()
        await self._ask(replace(request, body=body), self._options.request_timeout_s)

    async def heartbeat(self) -> None:
        """Says that the consumer is alive."""
        await self._ask(_request("POST", "heartbeat", [self._who]), BEAT_S_MAX)

    async def goodbye(self, *, commit: bool) -> None:
        """Leaves the group, with or without committing what the last poll returned.

        What is in an answer that has not arrived is never committed.
        """
        what = ("commit", "true" if commit else "false")
        query = [self._who, what, ("delivery", self._delivery)]
        await self._insist(_request("POST", "goodbye", query))

    async def _insist(self, request: Request) -> Response:
        """Registering, committing and leaving can be repeated: until they work, or a deadline."""
        deadline = time.monotonic() + self._options.request_timeout_s
        pause = PAUSE_FIRST_S
        while True:
            try:
                return await self._ask(request, max(0.1, deadline - time.monotonic()))
            except BarcoError as error:
                if not error.retryable or time.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    async def _ask(self, request: Request, timeout_s: float) -> Response:
        answer = await self._pool.request(self.endpoint, request, timeout_s=timeout_s)
        if not answer.ok:
            what = request.target.partition("?")[0].rpartition("/")[2]
            error = response_error(answer.status, answer.headers, answer.body, what)
            if answer.status == 409 and "slices" not in error.fields:
                error = NotRegisteredError(error.detail, **error.fields)
            if isinstance(error, BusyError):
                error.fields["retry_after_s"] = retry_after(answer)
            raise error
        return answer


async def join(members: Sequence[Enrolment]) -> None:
    """Registers at one broker, which tells the others before it answers; at the next one as
    well if that takes long. A broker that has not heard of it refuses a poll, which registers.
    """
    waiting = random.sample(members, len(members))
    joining: set[asyncio.Task[None]] = set()
    failure: BaseException | None = None
    try:
        while waiting or joining:
            if waiting:
                joining.add(asyncio.ensure_future(waiting.pop().register()))
            done, joining = await asyncio.wait(
                joining,
                timeout=JOIN_GRACE_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                if (failure := task.exception()) is None:
                    return
                if not isinstance(failure, BarcoError) or not failure.retryable:
                    raise failure
        assert failure is not None, "there is at least one broker"
        raise failure
    finally:
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)


def _request(
    method: str, what: str, query: list[tuple[str, str]], *headers: tuple[str, str]
) -> Request:
    return Request(method, f"/v1/consumer/{what}?{urlencode(query)}", headers)
