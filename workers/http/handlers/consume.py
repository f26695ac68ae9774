"""Group consumption: register, poll, commit, goodbye."""

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace

from barco import limits
from barco.errors import (
    BarcoError,
    ConflictError,
    NotReadyError,
    OutcomeUnknownError,
    TopicNotFoundError,
)
from barco.model.access import CONSUME
from barco.types import KiB
from barco.workers.groups.cursor import Key
from barco.workers.groups.views import Member
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import missing_told
from barco.workers.http.base.messages import (
    RETRY_AFTER_S,
    Request,
    Response,
    check_topic,
    choose,
    json_response,
    text_response,
)
from barco.workers.http.base.needs import allow
from barco.workers.http.base.render import CHUNKS, CONSUME_FORMATS, frame_bytes, render, skips
from barco.workers.http.base.waiting import LeaderWait
from barco.workers.http.consuming.passes import Pass
from barco.workers.http.consuming.positions import PositionCommits
from barco.workers.http.consuming.reach import Reach, unheard
from barco.workers.http.consuming.registration import registration
from barco.workers.http.consuming.rejects import Graveyard, Rejects
from barco.workers.shard.reads import extent_from_list

DELIVERY = "Barco-Delivery"
PLACEMENT = "Barco-Placement"
UNAVAILABLE = "Barco-Unavailable-Slices"

START_SECONDS_MAX = 4.0
"""For the leaders to note a new group: longer than it takes to take over from one that hangs."""

GOODBYE_SECONDS_MAX = 2.0
"""For the leaders here to commit what was taken: others of the group wait for the slices."""

IDLE_RETRY_AFTER_S = 5
"""For a consumer without slices: only a change of the group can give it some."""

OVER = 2
OVER_BYTES = 64 * KiB
GROWTH_MAX = 8
"""Owners guess how long events are as text. An answer may be so many times as long, and a little
more; one that would be longer, of control characters mostly, is put together anew from an eighth
as much: a byte becomes six at most."""

WRITTEN_SECONDS_MAX = 1.0
"""For a worker to say whether it has given an answer; one that stands still is not waited for, and
what it may have given is given again."""

_PAUSE_S = 0.02
"""Before looking again, when a wait ended and yet there was nothing: nobody spins."""

_log = logging.getLogger("barco.consume")


class Consume:
    """Handlers of /v1/consumer."""

    def __init__(self, context: Context, graveyard: Graveyard) -> None:
        self._context = context
        self._positions = PositionCommits(context)
        self._rejects = Rejects(self._positions, graveyard)
        context.service.consumption.ask_written = self._ask_written

    # --- Registration ---------------------------------------------------------------------------

    async def register(self, request: Request) -> Response:
        """Make a consumer a member of a group, and record where a new group starts."""
        args = registration(request)
        for topic in args["topics"]:
            check_topic(topic)
        await self._check_topics(args["topics"])
        start = {"group": args["group"], "topics": args["topics"], "start": args["start"]}
        start |= await self._context.begin_group(request, "start_group", start)
        reply = await self._context.supervisor.request("register", args)
        await self._context.membership.at_least(reply["version"])
        try:
            missing = await self._start_group(start)
        except ConflictError:  # A queue: it has no members.
            await self._context.supervisor.request("goodbye", {"consumerId": args["consumerId"]})
            raise
        told = "Already registered" if reply["known"] else "OK"
        return text_response(told, 200, *missing_told(missing))

    async def _check_topics(self, topics: Iterable[str]) -> None:
        """Where a topic that is missing will not come with its first event, it is misspelt."""
        if self._context.options.auto_create:
            return
        for topic in topics:
            if not await self._context.topic_exists(topic):
                raise TopicNotFoundError(f"There is no topic {topic}.")

    async def _start_group(self, start: Mapping[str, Any]) -> list[str]:
        """Every shard's leader notes where the group starts there. Returns the topics that none of
        them has, which come with their first event or are misspelt.

        One that does not answer may have been taken over from meanwhile: then its successor is
        asked. A shard without a leader notes it when the consumer first polls there.
        """
        asked: set[int] = set()
        missing = set(start["topics"])
        wait = LeaderWait()
        while True:
            leading = self._leading()
            workers = sorted(worker for worker in leading - asked if worker is not None)
            answers = await self._context.siblings.broadcast(
                "start_group", dict.fromkeys(workers, start), START_SECONDS_MAX
            )
            failures = {w: each for w, each in answers.items() if isinstance(each, BarcoError)}
            if refused := next((e for e in failures.values() if e.status < 500), None):
                raise refused
            asked |= answers.keys() - failures.keys()
            for answer in answers.values():  # A broker of an earlier version says nothing of it.
                missing.difference_update(answer if isinstance(answer, list) else missing)
            if not failures:
                return [topic for topic in start["topics"] if topic in missing]
            leading = self._leading() - {None}
            if leading & failures.keys() & set(self._context.processes):
                raise NotReadyError("Not every worker could note the group: register again.")
            if leading <= asked | failures.keys() and not await wait.again():
                # Another broker is down: who leads there next notes it when the consumer polls.
                _log.warning("a new group was not noted by workers %s", sorted(failures))
                return []

    async def _member(self, request: Request) -> Member:
        """The consumer that asks. It is one of the user's own, who may still do what it does."""
        # PolarStreams' first name of it is understood as well.
        consumer_id = request.user.own(request.required("consumerId", "consumer_id"))
        member = await self._context.membership.require(consumer_id)
        objects = ((topic, member.group) for topic in member.assigned)
        allow(request.user, (CONSUME,), objects)
        return member

    def _leading(self) -> set[int | None]:
        """Who leads each range of the ring; None for a range that nobody leads."""
        return {self._context.leaders.peer(held.token) for held in self._context.ranges.all}

    # --- Polling --------------------------------------------------------------------------------

    async def poll(self, request: Request) -> Response:
        """Commit what the last poll returned; return what follows, or wait for it.

        What other brokers lead is asked for there, unless the client says that it asks them.
        """
        kind = choose(request.header("accept"), CONSUME_FORMATS)
        wait_ms = request.number("waitMs", default=0, most=limits.POLL_WAIT_MS_MAX)
        budget = request.number(
            "maxBytes", default=limits.POLL_BYTES_DEFAULT, most=limits.POLL_BYTES_MAX
        )
        context = self._context
        reach = Reach.of(request, context)
        member = await self._member(request)
        context.membership.heard_of(member.consumer_id)
        delivery = context.next_delivery()
        args: dict[str, Any] = {
            "budget": max(1, budget),
            "stored": kind == CHUNKS,
            "frame": frame_bytes(kind, "topic"),
            "delivery": delivery,
            "said": self._said(request, member),
            "placement": request.value("placement"),
        }

        # A client that asks once and closes its side may still read the answer; one that
        # waits for events and closes its side is taken to have gone.
        with context.polling() if wait_ms else nullcontext():
            response = await self._answer(kind, member, args, reach, wait_ms / 1000)
            if response is None:
                # Nobody has received the last one: what was handed out is handed out anew.
                args["delivery"] = context.next_delivery()
                args["budget"] = max(1, budget // GROWTH_MAX)
                reach.seen.clear()
                response = await self._answer(kind, member, args, reach, wait_ms / 1000, last=True)
        assert response is not None
        return response

    async def _answer(
        self,
        kind: str,
        member: Member,
        args: dict[str, Any],
        reach: Reach,
        wait_s: float,
        *,
        last: bool = False,
    ) -> Response | None:
        """One try: what there is, or (unless it is the last) None if that is far too long."""
        context, delivery = self._context, args["delivery"]

        async def undo() -> None:
            await self._revoke(member, delivery, reach)

        response: Response | None = None
        try:
            found = await self._poll_until(member, args, reach, wait_s)
            try:
                name = reach.name(delivery, found, args["said"])
                response = await self._response(kind, found, name, member, undo, last=last)
                if response is not None:
                    told = (*response.headers, *reach.owners(member), *self._placed(args, member))
                    response = replace(response, headers=told)
            finally:
                context.memory.give_back(found.reserved)
        finally:
            if response is None:
                # The client has gone, or gets an error: it must be given these events again.
                await asyncio.shield(undo())
        return response

    def _placed(self, args: Mapping[str, Any], member: Member) -> list[tuple[str, str]]:
        """What the consumer is to read by now, if it asks."""
        now = self._context.membership.get(member.consumer_id) or member
        return [] if args["placement"] is None else [(PLACEMENT, now.placement)]

    async def _poll_until(
        self, member: Member, args: dict[str, Any], reach: Reach, wait_s: float
    ) -> Pass:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        woken: set[int] = set()
        while True:
            found = await self._look(member, args, reach, woken)
            left = deadline - loop.time()
            done = found.extents or left <= 0 or found.superseded or found.lost
            if done or not member.knows(args["placement"]):
                return found  # What was lost comes with the next answer, which has another name.
            looked_at_some, woken = bool(woken), set()
            if not looked_at_some:
                with self._context.membership.waiting(member.consumer_id):
                    woken = await self._wait(member, reach, left)
            if not woken and loop.time() < deadline:
                # News that were none for this consumer, or a worker that could not be asked.
                await asyncio.sleep(min(_PAUSE_S, left))
            member = await self._context.membership.require(member.consumer_id)
            self._context.membership.heard_of(member.consumer_id)

    async def _look(
        self, member: Member, args: dict[str, Any], reach: Reach, owners: set[int]
    ) -> Pass:
        """One pass, within what memory there is."""
        memory = self._context.memory
        granted = await memory.take(args["budget"])
        try:
            found = await self._pass(member, {**args, "budget": granted}, reach, owners)
            if found.extents:
                found.reserved, granted = granted, 0
            return found
        finally:
            memory.give_back(granted)

    async def _pass(
        self, member: Member, args: Mapping[str, Any], reach: Reach, only: set[int]
    ) -> Pass:
        """One look at all slices, or at those of `only` the workers that have something.

        Every owner gets its share, then one that has more gets what is left over; or one that has
        much fills the answer alone.
        """
        found = Pass([], reach.headless(member))
        left = args["budget"]
        if only:  # Nobody else needs to be woken for it.
            owners = [owner for owner in reach.leaders(member.numbers) if owner in only]
            shares, later = reach.shares(member, owners, left), list[int]()
        else:
            shares, later = reach.first(member, args["said"], left)
        full, more = False, list[int]()
        for _ in range(2 if shares else 0):
            asked = {owner: {**args, "budget": share} for owner, share in shares.items()}
            more = await self._collect(member, asked, reach, found)
            left = args["budget"] - sum(extent.cost for extent in found.extents)
            full = 4 * left < args["budget"]
            if full or not (more or later):
                break
            shares, later = reach.rest(member, more, later, left), []
        reach.settle(member, found, more, full=full)
        return found

    async def _collect(
        self, member: Member, shares: Mapping[int, Mapping[str, Any]], reach: Reach, found: Pass
    ) -> list[int]:
        """Ask these workers; returns those that have more than they gave."""
        answers = await reach.poll(member, shares)
        more, now = [], asyncio.get_running_loop().time()
        for worker, answer in answers.items():
            if isinstance(answer, BarcoError):
                if answer.status < 500:
                    raise answer
                if isinstance(answer, OutcomeUnknownError):
                    self._lose(worker, found)
                found.note(member, worker, now, nothing=False)
                found.unavailable.update(self._numbers(worker))
                continue
            if member.knows(shares[worker]["placement"]) and not answer.get(
                "direct"
            ):  # Else it is asked again, to part with some.
                member.told.add(worker)
            extents = [extent_from_list(given) for given in answer["extents"]]
            for extent in extents:
                found.add(extent)
            found.unavailable.update(answer["unavailable"])
            found.superseded |= answer["superseded"]
            if any(extent.more for extent in extents):
                more.append(worker)
            if extents:
                found.gave.add(worker)
            if shares[worker]["budget"]:
                found.note(member, worker, now, nothing=not extents and not answer.get("direct"))
        return more

    def _lose(self, worker: int, found: Pass) -> None:
        """It may have handed out events that did not arrive: none of its own are in the answer,
        whose name says so, and it gives all of them again."""
        found.lost.add(worker)
        numbers = self._numbers(worker)
        found.extents = [extent for extent in found.extents if extent.slice not in numbers]

    def _numbers(self, worker: int) -> set[int]:
        """The slices of which it may have given something."""
        return {*self._context.numbers_of(worker), *self._context.led_by(worker)}

    async def _response(
        self,
        kind: str,
        found: Pass,
        name: str,
        member: Member,
        undo: Callable[[], Coroutine[Any, Any, None]],
        *,
        last: bool,
    ) -> Response | None:
        headers = [("Cache-Control", "no-store")]
        if mine := sorted(found.unavailable & member.numbers):
            headers.append((UNAVAILABLE, ",".join(str(number) for number in mine)))
        if not found.extents:
            pause = RETRY_AFTER_S if member.numbers else IDLE_RETRY_AFTER_S
            return Response(204, b"", (*headers, ("Retry-After", str(pause))))
        headers += [("Content-Type", kind), (DELIVERY, name)]
        ring = self._context.ring
        if kind == CHUNKS and (skip := skips(found.extents, ring)):
            headers.append(("Barco-Start", skip))
        ends = [extent.end for extent in found.extents]
        fair = max(found.reserved, sum(extent.cost for extent in found.extents))
        most = 2**62 if last else OVER * fair + OVER_BYTES
        parts = await render(kind, found.extents, ring, most)
        if [extent.end for extent in found.extents] != ends:
            return None  # Where owners believe them to end, other polls go on.
        carried = [(extent.topic, extent.slice, extent.end) for extent in found.extents]
        note = self._context.service.written.note
        written = functools.partial(note, member.key, name, carried)
        return Response(200, self._context.memory.counted(parts), tuple(headers), undo, written)

    def _who(self, member: Member) -> dict[str, Any]:
        version = self._context.membership.version
        return {"consumer": member.consumer_id, "session": member.session, "version": version}

    def _said(self, request: Request, member: Member) -> list[Any]:
        """What is known here of what the consumer has received (`polls.Said`)."""
        written = self._context.service.written.last(member.key)
        return [request.value("delivery"), self._context.peer, written]

    async def _ask_written(self, worker: int, key: Key) -> str | None:
        """What another worker of this broker has written to a consumer last."""
        answers = await self._answers([worker], key)
        return str(answers[0][0]) if answers else None

    async def _answers(self, workers: Iterable[int], key: Key) -> list[list[Any]]:
        """What these workers have written to a consumer last: [name, ends, when] of those that
        have something and say it."""
        args = {"consumer": key[0], "session": key[1]}
        asked = await self._context.siblings.broadcast(
            "written", dict.fromkeys(workers, args), WRITTEN_SECONDS_MAX
        )
        return [answer for answer in asked.values() if isinstance(answer, list)]

    async def _received(self, request: Request, member: Member) -> list[list[Any]]:
        """Where what the consumer has received last ends: [topic, number of the slice, end]."""
        name = request.value("delivery")
        answers = await self._answers(self._context.processes, member.key)
        if name is not None:
            answers = [answer for answer in answers if answer[0] == name]
        newest = max(answers, key=lambda answer: float(answer[2]), default=None)
        return list(newest[1]) if newest is not None else []

    async def _wait(self, member: Member, reach: Reach, timeout: float) -> set[int]:
        """Until owners have something, or the slices of the consumer change; who told it."""
        # A consumer without slices waits here, for the change that gives it some.
        owners = reach.leaders(member.numbers) or [self._context.peer]
        timeout = reach.longest(owners, timeout)
        waits = {"timeout": timeout, "seen": member.placement}
        args = {each: {**reach.who(each, member), **waits} for each in owners}
        return await self._context.siblings.first_true("wait", args, timeout)

    async def _revoke(self, member: Member, delivery: str, reach: Reach) -> None:
        args = {**self._who(member), "delivery": delivery}
        await self._context.siblings.broadcast("revoke", dict.fromkeys(reach.seen, args), 1.0)

    # --- Committing -----------------------------------------------------------------------------

    async def commit(self, request: Request) -> Response:
        """Commit what the last poll returned, or the positions that the body has; 204 once that is
        as durable as an event.

        While nobody leads a slice, the next leader is waited for: a commit can be repeated.
        """
        wait = LeaderWait()
        member = await self._member(request)
        self._context.membership.heard_of(member.consumer_id)
        if request.body:
            return await self._positions.commit(request, member)
        while True:
            try:
                return await self._commit(request)
            except NotReadyError:
                if not await wait.again():
                    raise

    async def _commit(self, request: Request) -> Response:
        member = await self._member(request)
        ends = await self._received(request, member)
        args = {**self._who(member), "said": self._said(request, member), "group": member.group}
        here = self._context.leading_here({**args, "ends": ends})
        # Other brokers' workers have given some, or lead since: they may have given it again.
        owners = {self._context.owner(number) for _, number, _ in ends}
        owners |= unheard(args["said"], member, self._context)
        args |= {"ends": ends, "far": True}
        asked = here | {owner: args for owner in owners if owner not in here}
        answers = await self._context.siblings.broadcast("commit", asked, 10.0)
        lost: set[str] = set()
        for answer in answers.values():
            if isinstance(answer, BarcoError):
                raise answer
            lost |= {f"{topic}/{number}" for topic, number in answer}
        if lost:
            raise ConflictError(
                "Slices of the last poll have gone to another consumer of the group, or it is not "
                "known whether that answer arrived: those events come again, everything else is "
                "committed.",
                slices=sorted(lost),
            )
        return Response(204)

    async def assignment(self, request: Request) -> Response:
        """What the consumer is to read, and a name for it."""
        member = await self._member(request)
        self._context.membership.heard_of(member.consumer_id)
        return json_response({"placement": member.placement, "slices": member.assigned})

    async def reject(self, request: Request) -> Response:
        """Give events up that can not be processed."""
        member = await self._member(request)
        self._context.membership.heard_of(member.consumer_id)
        return await self._rejects.reject(request, member)

    async def heartbeat(self, request: Request) -> Response:
        """The consumer is alive, whatever it is busy with."""
        member = await self._member(request)
        self._context.membership.heard_of(member.consumer_id)
        return Response(204)

    async def goodbye(self, request: Request) -> Response:
        """Commit (unless commit=false) and leave the group."""
        commit = request.flag("commit", default=True)
        member = await self._member(request)
        said = self._said(request, member)
        args = {**self._who(member), "commit": commit, "said": said}
        here = self._context.leading_here(args)
        calls = [self._context.siblings.broadcast("goodbye", here, GOODBYE_SECONDS_MAX)]
        if commit:
            ends = await self._received(request, member)
            owners = {*self._context.owners(number for _, number, _ in ends)}
            owners |= unheard(said, member, self._context)
            more = {**args, "group": member.group, "ends": ends, "far": True}
            far = {owner: more for owner in owners if owner not in here}
            calls.append(self._context.siblings.broadcast("commit", far, GOODBYE_SECONDS_MAX))
        for worker, answer in itertools.chain(*(a.items() for a in await asyncio.gather(*calls))):
            if isinstance(answer, BarcoError):
                # It leaves all the same; what was not committed goes to the others again.
                _log.warning("worker %d did not commit at a goodbye: %s", worker, answer)
        await self._context.supervisor.request("goodbye", {"consumerId": member.consumer_id})
        return text_response("OK")
