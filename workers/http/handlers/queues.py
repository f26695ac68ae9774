"""Queues: a group whose events are leased and acknowledged one by one, at any broker."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from msgspec import MsgspecError, Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from barco import limits
from barco.errors import (
    BarcoError,
    ConflictError,
    NotReadyError,
    RequestError,
    TopicNotFoundError,
)
from barco.model.queues import (
    DELAY_MS_MAX,
    DELIVERIES_MAX,
    IN_FLIGHT_DEFAULT,
    IN_FLIGHT_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    RUNS_MAX,
    Leased,
    QueueSettings,
    parse_leases,
)
from barco.types import KiB
from barco.workers.http.base.context import Context, as_not_ready
from barco.workers.http.base.known import check_names, missing_told
from barco.workers.http.base.messages import (
    JSON,
    RETRY_AFTER_S,
    Part,
    Request,
    Response,
    Soon,
    check_group,
    check_topic,
    json_response,
    parse_number,
)
from barco.workers.http.base.render import CHUNKS, render
from barco.workers.http.base.waiting import LeaderWait
from barco.workers.http.consuming.leases import LeasesAsked, check_lease_ms, queue_of
from barco.workers.http.consuming.rejects import reason_of
from barco.workers.http.handlers.topics import Topics
from barco.workers.shard.reads import Chunk, Extent, chunk_place, extent_from_list

LEASE = "Barco-Lease"
HELD_BY = "Barco-Held-By"
OVER = 4
OVER_BYTES = 64 * KiB
"""An answer of text may be so many times as long as what was stored; the rest is not given."""

LEASE_SECONDS_MAX = 2.0
"""For one leader to hand something out; then the next one is asked."""

_PAUSE_S = 0.02
_START = ("startFromEarliest", "startFromLatest")


class Handed(Struct):
    """What one leader has handed out."""

    runs: list[Leased] = field(default_factory=list)
    extents: list[Extent] = field(default_factory=list)
    held: str | None = None
    reserved: int = 0
    """Memory to be given back when the extents are gone."""


class QueueRoutes:
    """Handlers of /v1/queue, and of groups that become queues."""

    def __init__(self, context: Context, topics: Topics) -> None:
        self._context, self._topics = context, topics
        self._turn = 0
        self._asked = LeasesAsked()
        self._releasing: set[asyncio.Future[None]] = set()

    # --- Settings -------------------------------------------------------------------------------

    async def put(self, request: Request) -> Response:
        """Make a group a queue of some topics, or give it other settings."""
        group = check_group(request.variables["group"])
        if request.required("type") != "queue":
            raise RequestError("The type is queue: groups of consumers are made by registering.")
        topics = list(dict.fromkeys(check_topic(topic) for topic in request.values("topic")))
        if not topics:
            raise RequestError("A queue is of at least one topic.")
        start = request.value("onNewGroup") or _START[0]
        if start not in _START:
            raise RequestError(f"onNewGroup is one of {', '.join(_START)}.")
        settings = _settings(request)
        await self._context.membership.refresh()
        if group in self._context.membership.groups():
            raise ConflictError(
                "The group has members, who poll: a queue needs a group of its own."
            )
        exists = self._context.topic_exists
        missing = [topic for topic in topics if not await exists(topic, patient=True)]
        if missing and not self._context.options.auto_create:
            raise TopicNotFoundError(f"There is no topic {missing[0]}.")
        packed, graves = {}, {""}
        for topic in topics:
            own = settings
            if settings.deliveries:
                dead = await self._topics.graveyard(request.user, topic, request.value("dead"))
                own = replace(settings, dead=dead)
                graves.add(dead)
            packed[topic] = own.packed()
        args: dict[str, Any] = {"group": group, "topics": packed, "start": start}
        # All leaders have room for it, or none of them begins.
        await self._context.change_all("queue_set", {**args, "look": True})
        args |= await self._context.begin_group(request, "queue_set", args)
        await self._context.change_all("queue_set", args)
        told = replace(settings, dead=max(graves) if len(graves) == 2 else "").told()
        response = json_response({"group": group, "topics": topics, **told})
        return replace(response, headers=(*response.headers, *missing_told(missing)))

    # --- Handing out ----------------------------------------------------------------------------

    async def lease(self, request: Request) -> Response:
        """Events for whoever asks, for some time; from one leader, by turns."""
        asked = self._asked.of(request)
        args = asked.args
        with self._context.polling() if asked.wait_ms else nullcontext():
            found = await self._until(args, asked.budget, asked.wait_ms / 1000)
            response: Response | None = None
            try:
                response = await self._response(asked.kind, args, found)
            finally:
                self._context.memory.give_back(found.reserved)
                if response is None:  # Nobody gets them.
                    await asyncio.shield(self._release(args, found.runs))
        return response

    def lease_at_once(self, request: Request) -> Response | None:
        """The answer of `lease`, where this worker has what is to be given, in memory, and its turn
        has come; None: that is seen by `lease` alone."""
        asked, context = self._asked.of(request), self._context
        leaders = context.leaders.leading()
        if asked.kind != CHUNKS or not leaders:
            return None
        if leaders[(self._turn + 1) % len(leaders)] != context.peer:
            return None
        if not (budget := context.memory.at_once(asked.budget)):
            return None
        runs, extents = context.service.leases.lease_at_once(
            asked.group, asked.topic, asked.most, budget, asked.lease_ms
        )
        if not runs:
            return None
        self._turn += 1
        parts: list[Part] = [chunk for extent in extents for chunk in extent.chunks]
        return self._given(CHUNKS, asked.args, runs, parts)

    async def _until(self, args: Mapping[str, Any], budget: int, wait_s: float) -> Handed:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        first: set[int] = set()
        while True:
            found = await self._look(args, budget, first)
            left = deadline - loop.time()
            if found.runs or left <= 0:
                return found
            waiting = {"group": args["group"], "topic": args["topic"], "timeout": left}
            asked = dict.fromkeys(self._leaders(), waiting)
            looked, first = bool(first), set()
            if not looked and asked:
                first = await self._context.siblings.first_true("queue_wait", asked, left)
            if not first and loop.time() < deadline:
                await asyncio.sleep(min(_PAUSE_S, left))

    def _leaders(self) -> list[int]:
        """Who leads a range, each once; by turns another one is the first."""
        found = self._context.leaders.leading()
        self._turn += 1
        turn = self._turn % max(1, len(found))
        return [*found[turn:], *found[:turn]]

    async def _look(self, args: Mapping[str, Any], budget: int, first: set[int]) -> Handed:
        """What the first of them has that has something."""
        leaders = sorted(self._leaders(), key=lambda worker: worker not in first)
        granted = await self._context.memory.take(budget)
        failures: list[BarcoError] = []
        found = Handed()
        try:
            for worker in leaders:
                try:
                    given = await self._context.siblings.call(
                        worker,
                        "queue_lease",
                        {**args, "budget": granted},
                        LEASE_SECONDS_MAX,
                        partial(self._too_late, args),
                    )
                except BarcoError as error:
                    failures.append(error)
                    continue
                found.held = found.held or given["held"]
                if given["runs"]:
                    found.runs = [Leased(*each) for each in given["runs"]]
                    found.extents = [extent_from_list(each) for each in given["extents"]]
                    found.reserved, granted = granted, 0
                    return found
        finally:
            self._context.memory.give_back(granted)
        if not leaders:
            raise NotReadyError("Nobody leads a part of the ring at the moment.")
        if len(failures) == len(leaders):
            fault = next((each for each in failures if each.status >= 500), failures[0])
            raise as_not_ready(fault)
        return found

    def _too_late(self, args: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """A leader has handed something out to nobody: the next one gets it now."""
        runs = [Leased(*each) for each in given["runs"]]
        task = asyncio.ensure_future(self._release(args, runs))
        self._releasing.add(task)
        task.add_done_callback(self._released)

    def _released(self, task: "asyncio.Future[None]") -> None:
        self._releasing.discard(task)
        if not task.cancelled():
            task.exception()  # Nobody leads the slice: then its time ends.

    async def _response(self, kind: str, args: Mapping[str, Any], found: Handed) -> Response:
        if not found.runs:
            headers = [("Cache-Control", "no-store"), ("Retry-After", str(RETRY_AFTER_S))]
            headers += [(HELD_BY, found.held)] if found.held else []
            return Response(204, b"", tuple(headers))
        if kind == CHUNKS:
            parts = await render(kind, found.extents, self._context.ring)
            return self._given(kind, args, found.runs, parts)
        cut = _cut(found)
        most = OVER * sum(extent.cost for extent in found.extents) + OVER_BYTES
        parts = await render(kind, cut, self._context.ring, most)
        runs, rest = _rendered(cut)
        await self._release(args, rest)
        return self._given(kind, args, runs, parts)

    def _given(
        self, kind: str, args: Mapping[str, Any], runs: Sequence[Leased], parts: list[Part]
    ) -> Response:
        headers = (
            ("Cache-Control", "no-store"),
            ("Content-Type", kind),
            (LEASE, ",".join([run.name for run in runs])),
        )

        async def undo() -> None:
            await self._release(args, runs)

        return Response(200, self._context.memory.counted(parts), headers, undo)

    async def _release(self, args: Mapping[str, Any], runs: Sequence[Leased]) -> None:
        """They never left: others get them now. Where that is not heard, their time ends."""
        if runs:
            asked = self._by_owner(args, runs)
            await self._context.siblings.broadcast("queue_release", asked, 1.0)

    # --- Taking back ----------------------------------------------------------------------------

    async def ack(self, request: Request) -> Response:
        """These are done; 204 when that is as durable as an event."""
        runs, _ = _named(request, ())
        return await self._change("queue_ack", _queue(request), runs, repeat=True)

    def ack_at_once(self, request: Request) -> Response | Soon | None:
        """The answer of `ack`, where this worker leads all slices that are named; None: that is
        `ack`'s."""
        if request.header("content-type") not in (JSON, None):
            return None
        try:
            named = _ACKNOWLEDGED.decode(request.body)
        except MsgspecError:
            return None
        runs = named.runs()
        group, topic = queue_of(request)
        context = self._context
        for index in {run.slice for run in runs}:
            if index not in context.numbers or context.owner(index) != context.peer:
                return None
        soon = Soon(Response(204))
        soon.left = context.service.leases.acknowledge(group, topic, runs, soon.ended)
        return soon if soon.left else soon.response

    async def nack(self, request: Request) -> Response:
        """These are to be given again."""
        runs, given = _named(request, ("delayMs", "reason"))
        reason = reason_of(given.get("reason"), "given back")
        args: dict[str, Any] = {**_queue(request), "reason": reason}
        if (delay := _whole(given, "delayMs", DELAY_MS_MAX)) is not None:
            args["delayMs"] = delay
        return await self._change("queue_nack", args, runs, repeat=False)

    async def extend(self, request: Request) -> Response:
        """These take longer."""
        runs, given = _named(request, ("leaseMs",))
        args = _queue(request)
        if (lease_ms := _whole(given, "leaseMs", LEASE_MS_MAX)) is not None:
            args["leaseMs"] = check_lease_ms(lease_ms)
        return await self._change("queue_extend", args, runs, repeat=True)

    async def _change(
        self, op: str, args: Mapping[str, Any], runs: Sequence[Leased], *, repeat: bool
    ) -> Response:
        """At the leaders of their slices. A next leader is waited for; what may have been done is
        done again only where that changes nothing (`repeat`)."""
        wait = LeaderWait()
        left, lost = list(runs), []
        while left:
            failures: list[BarcoError] = []
            try:
                asked = self._by_owner(args, left)
            except NotReadyError as error:
                failures, asked = [error], {}
            answers = await self._context.siblings.broadcast(op, asked, 10.0)
            done: set[int] = set()
            for worker, answer in answers.items():
                if isinstance(answer, BarcoError):
                    failures.append(answer)
                    continue
                lost += answer
                done |= {run[0] for run in asked[worker]["runs"]}
            left = [run for run in left if run.slice not in done]
            if not failures:
                break
            fault = next((each for each in failures if not _passes(each, repeat)), None)
            if fault is not None or not await wait.again():
                raise fault or failures[0]
        if lost:
            raise ConflictError(
                "Their time was over, or they were done: others may have these events. All else "
                "that was named is as asked for.",
                events=lost[:RUNS_MAX],
            )
        return Response(204)

    def _by_owner(
        self, args: Mapping[str, Any], runs: Sequence[Leased]
    ) -> dict[int, dict[str, Any]]:
        asked: dict[int, dict[str, Any]] = {}
        for run in runs:
            if run.slice not in self._context.numbers:
                raise RequestError(f"There is no slice {run.slice}.")
            owner = self._context.owner(run.slice)
            asked.setdefault(owner, {**args, "runs": []})["runs"].append(list(run))
        return asked


class Acknowledged(Struct, forbid_unknown_fields=True):
    """The usual body of an acknowledgement; what is another one `_named` reads, and says why."""

    lease: str | None = None
    events: list[str] | None = None

    def runs(self) -> list[Leased]:
        """What it names; RequestError: no event, or more than may be."""
        if self.lease is not None and self.events is None:
            return parse_leases(self.lease.split(",", limits.CONSUMERS_MAX))
        return parse_leases(self.events or () if self.lease is None else ())


_ACKNOWLEDGED = Decoder(Acknowledged)


def _passes(error: BarcoError, repeat: bool) -> bool:
    """Whether it is worth another try when somebody else leads."""
    return error.retryable or (repeat and error.status >= 500)


def _queue(request: Request) -> dict[str, Any]:
    group, topic = queue_of(request)
    return {"group": group, "topic": topic}


def _settings(request: Request) -> QueueSettings:
    def number(name: str, default: int, least: int, most: int) -> int:
        if (text := request.value(name)) is None:
            return default
        value = parse_number(name, text)
        if not least <= value <= most:
            raise RequestError(f"{name} is from {least} to {most}.")
        return value

    ordered = request.value("ordered") or "no"
    if ordered not in ("no", "key"):
        raise RequestError("ordered is key, or no.")
    settings = QueueSettings(
        in_flight=number("maxInFlight", IN_FLIGHT_DEFAULT, 1, IN_FLIGHT_MAX),
        lease_ms=number("leaseMs", LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX),
        ordered=ordered == "key",
        deliveries=number("maxDeliveries", 0, 0, DELIVERIES_MAX),
        retry_ms=number("retryMs", 0, 0, DELAY_MS_MAX),
    )
    if request.value("dead") and not settings.deliveries:
        raise RequestError("dead is where events go after maxDeliveries: say that as well.")
    return settings


def _named(request: Request, more: tuple[str, ...]) -> tuple[list[Leased], dict[str, Any]]:
    """What a body names: a whole lease, or some of its events."""
    given = request.json()
    if not isinstance(given, dict):
        raise RequestError('The body is {"lease": ...} or {"events": [id, ...]}.')
    check_names("field", given, ("lease", "events", *more))
    lease, events = given.get("lease"), given.get("events")
    if (lease is None) == (events is None):
        raise RequestError('The body is {"lease": ...} or {"events": [id, ...]}: one of them.')
    if lease is not None:
        if not isinstance(lease, str):
            raise RequestError(f"lease is what {LEASE} said.")
        return parse_leases(lease.split(",", limits.CONSUMERS_MAX)), given
    if not isinstance(events, list):
        raise RequestError("events is a list of ids.")
    return parse_leases(events), given


def _whole(given: Mapping[str, Any], name: str, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise RequestError(f"{name} is a whole number from 0 to {most}.")
    return value


def _cut(found: Handed) -> list[Extent]:
    """The extents, cut into what was handed out of them."""
    cut: list[Extent] = []
    for run in found.runs:
        for extent in found.extents:
            if extent.slice != run.slice or not extent.start <= run.start < extent.end:
                continue
            chunks = _of(extent, run)
            cut.append(replace(extent, start=run.start, end=run.end, chunks=chunks, leased=run))
            break
    return cut


def _of(extent: Extent, run: Leased) -> list[Chunk]:
    """The pieces of an extent in which a run is."""
    if len(extent.chunks) == 1:
        return extent.chunks
    starts = [chunk_place(piece)[0] for piece in extent.chunks]
    ends = [*starts[1:], extent.end]
    return [
        piece
        for piece, start, end in zip(extent.chunks, starts, ends, strict=True)
        if start < run.end and end > run.start
    ]


def _rendered(cut: Sequence[Extent]) -> tuple[list[Leased], list[Leased]]:
    """What is in the answer, and what had no room."""
    runs, rest = [], []
    for extent in cut:
        run = extent.leased
        assert run is not None
        if extent.end > run.start:
            runs.append(run._replace(end=extent.end))
        if extent.end < run.end:
            rest.append(run._replace(start=max(run.start, extent.end)))
    return runs, rest
