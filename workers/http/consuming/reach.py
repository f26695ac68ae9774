"""Whom the polls of a consumer reach: who leads its slices, here and at other brokers.

A consumer that asks one broker gets everything from there. One that asks every broker itself says
`scope=broker`, or is known by it: who leads a slice serves it either to polls of its own broker or
to those that others send on (`Consumption.poll`).
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barco.errors import BarcoError, NotReadyError, OutcomeUnknownError, RequestError
from barco.model.ranges import process_of
from barco.workers.groups.polls import last_of, name_of, remembered
from barco.workers.groups.views import Member
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import Request, check_topic, parse_number
from barco.workers.http.consuming.passes import Pass

OWNERS = "Barco-Owners"

FAR_SECONDS_MAX = 1.0
"""For a worker of another broker to answer a poll; what it may have given is given again."""

FAR_LOOK_SECONDS = 5.0
"""Between two looks of a poll that waits for other brokers' workers."""

QUIET_SECONDS = 0.05
"""Who had nothing for a consumer is not asked again so soon while others have something."""

FILLING_SECONDS = 0.2
"""For so long one that has much fills answers alone: asking all costs a ring more than the events.
Then all are asked once, and the next one that has more than its share does."""

OWNERS_MAX = 64
"""Ranges that an answer names: what the poll is worth telling, not the whole ring."""


class Reach:
    """Of one poll."""

    def __init__(
        self, context: Context, *, everywhere: bool, paused: dict[str, list[int]] | None = None
    ) -> None:
        """paused: by topic the slices, by their numbers in the ring, of which nothing is wanted."""
        self._context = context
        self._paused = paused
        self.everywhere = everywhere
        self.seen: set[int] = set()
        """By whom this poll is known: to others it is another one."""
        self._heard: set[int] = set()
        """Who has answered, and so knows what the consumer had received."""
        self._failed: set[int] = set()

    def name(self, delivery: str, found: Pass, said: Sequence[Any]) -> str:
        """For the answer. It also tells, for those that failed now, or did before and were not
        asked, what of theirs had arrived by the consumer's last answer."""
        last = last_of(said)
        unheard = (self._failed | remembered(last)) - self._heard
        return name_of(delivery, found.lost, unheard, last)

    @classmethod
    def of(cls, request: Request, context: Context) -> "Reach":
        """As far as the request says."""
        scope = request.value("scope")
        if scope not in (None, "broker"):
            raise RequestError("The scope is broker, or none is given.")
        paused = paused_of(request.values("paused")) or None
        return cls(context, everywhere=scope is None, paused=paused)

    def leaders(self, numbers: Iterable[int]) -> list[int]:
        """The workers that lead any of these slices, as far as the poll goes."""
        if self.everywhere:
            return self._context.owners(numbers)
        return self._context.owners_here(numbers)

    def asked(self, member: Member) -> list[int]:
        """Who leads slices of the consumer; and once all others who may hold some for it that it is
        to part with."""
        context, owners = self._context, self.leaders(member.numbers)
        leading = {context.leaders.peer(held.token) for held in context.ranges.all} - {None}
        parting = leading if self.everywhere else leading.intersection(context.processes)
        more = parting.difference(member.told, owners)
        return owners + sorted(worker for worker in more if worker is not None)

    def headless(self, member: Member) -> set[int]:
        """Slices of the consumer that nobody leads now."""
        if not self.everywhere:
            return set()
        context = self._context
        tokens = set(map(context.range_of, member.numbers))
        lost = {token for token in tokens if context.leaders.peer(token) is None}
        if not lost:
            return lost
        return {n for token in lost for n in context.ranges.numbers_of(token)} & member.numbers

    def longest(self, owners: Iterable[int], timeout: float) -> float:
        """For how long to wait before another look: nobody tells that others lead there now."""
        return min(timeout, FAR_LOOK_SECONDS) if any(map(self.is_far, owners)) else timeout

    def is_far(self, worker: int) -> bool:
        """Whether it is of another broker."""
        return process_of(worker)[0] != process_of(self._context.peer)[0]

    def who(self, worker: int, member: Member) -> dict[str, Any]:
        """The consumer, as a worker is told of it. Brokers do not count views alike."""
        who: dict[str, Any] = {"consumer": member.consumer_id, "session": member.session}
        if self._paused is not None:
            who["paused"] = self._paused
        if self.is_far(worker):
            return who | {"version": 0, "far": True}
        return who | {"version": self._context.membership.version}

    async def poll(self, member: Member, shares: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
        """What each of these workers has, or a BarcoError of it."""
        asked, far = {}, {}
        for worker, share in shares.items():
            first = worker not in self.seen
            asked[worker] = {**share, "first": first, **self.who(worker, member)}
            if self.is_far(worker):
                far[worker] = FAR_SECONDS_MAX
            self.seen.add(worker)
        siblings = self._context.siblings
        # Who has to be called first is, beside the others.
        apart = [worker for worker in far if not siblings.reached(worker)]
        calls = [asyncio.ensure_future(self._call(worker, asked[worker])) for worker in apart]
        rest = {worker: args for worker, args in asked.items() if worker not in apart}
        try:
            found = await siblings.broadcast("poll", rest, sooner=far) if rest else {}
            found |= zip(apart, await asyncio.gather(*calls), strict=True) if calls else ()
        finally:
            for call in calls:
                call.cancel()
        for worker in far:
            if isinstance(error := found[worker], BarcoError) and error.status < 500:
                # A refusal of one that has not heard of the consumer yet is none of ours.
                found[worker] = NotReadyError("Another broker does not know the consumer yet.")
        for worker, answer in found.items():
            (self._failed if isinstance(answer, BarcoError) else self._heard).add(worker)
        return found

    async def _call(self, worker: int, args: Mapping[str, Any]) -> Any:
        """The answer of one of another broker."""
        try:
            async with asyncio.timeout(FAR_SECONDS_MAX):
                return await self._context.siblings.call(worker, "poll", args, FAR_SECONDS_MAX)
        except TimeoutError:
            return OutcomeUnknownError("A worker of another broker did not answer in time.")
        except BarcoError as error:
            return error

    def first(
        self, member: Member, said: Sequence[Any], budget: int
    ) -> tuple[dict[int, int], list[int]]:
        """How much each may give who is to be asked, and who is asked only if these leave much of
        the answer.

        Who gave something is always asked next: that acknowledges it, and may be all that it is
        asked for (0 bytes). Where the client has that answer of another worker of this broker,
        nobody here knows who gave something. Who is to hear what the consumer reads by now is
        asked too: others may wait for slices that it holds for it.
        """
        owners, now = self.asked(member), asyncio.get_running_loop().time()
        received, _, written = said
        if received not in (None, written):
            return self.shares(member, owners, budget), []
        filling, told = member.filling, member.told
        if now < filling.until and filling.worker in owners and told.issuperset(owners):
            gave = filling.gave | remembered(written or "")
            heard = dict.fromkeys(gave.intersection(owners), 0)
            rest = [each for each in owners if each != filling.worker]
            return {**heard, filling.worker: budget}, rest
        quiet = {each for each, at in member.quiet.items() if now < at + QUIET_SECONDS}
        later = [each for each in owners if each in quiet and each in told]
        if len(later) == len(owners):
            later = []
        first = [each for each in owners if each not in later]
        return self.shares(member, first, budget), later

    def rest(
        self, member: Member, more: Sequence[int], later: Sequence[int], left: int
    ) -> dict[int, int]:
        """How much of what is left each may give: of those that all have more it is one alone."""
        if more and not later:
            return {self._next(member, more): left}
        return self.shares(member, [*more, *later], left)

    @staticmethod
    def _next(member: Member, able: Iterable[int]) -> int:
        """Of these by turns."""
        last = member.filling.worker
        return min(able, key=lambda each: (each <= last, each))

    def settle(self, member: Member, found: Pass, more: Iterable[int], *, full: bool) -> None:
        """Who fills the next answers alone, after a pass in which these had more than they gave."""
        filling, now = member.filling, asyncio.get_running_loop().time()
        filling.gave = found.gave
        able = set(more)
        if not full or not able:
            filling.until = 0.0
        elif now >= filling.until or filling.worker not in able:
            filling.worker = self._next(member, able)
            filling.until = now + FILLING_SECONDS

    def shares(self, member: Member, owners: Sequence[int], budget: int) -> dict[int, int]:
        """What each of these may give: as much as it has of the consumer's slices, about."""
        context = self._context
        led = Counter(context.leaders.peer(context.range_of(number)) for number in member.numbers)
        total = max(1, sum(led[owner] for owner in owners))
        return {owner: max(1, budget * led[owner] // total) for owner in owners}

    def owners(self, member: Member) -> list[tuple[str, str]]:
        """The header that names other brokers' workers with slices of the consumer, and the ranges
        of slices that they lead."""
        if not self.everywhere:
            return []
        context, named = self._context, []
        for token in sorted(set(map(context.range_of, member.numbers))):
            leader = context.leaders.peer(token)
            numbers = context.ranges.numbers_of(token)
            if leader is None or not numbers or leader in context.processes:
                continue
            endpoint = context.service.neighbours.endpoint(process_of(leader))
            named.append(f"{endpoint}={numbers.start}-{numbers.stop - 1}")
        return [(OWNERS, ",".join(named[:OWNERS_MAX]))] if named else []


def unheard(said: Sequence[Any], member: Member, context: Context) -> set[int]:
    """Who leads slices of the consumer, and has not heard what arrived before its last answer."""
    missed = remembered(last_of(said))
    return missed.intersection(context.owners(member.numbers)) if missed else missed


def paused_of(given: Iterable[str]) -> dict[str, list[int]]:
    """Slices by topic, of "topic/number,number,…" of each; RequestError: it is something else."""
    found: dict[str, list[int]] = {}
    for each in given:
        topic, _, numbers = each.partition("/")
        found.setdefault(check_topic(topic), []).extend(
            parse_number("A slice", number) for number in numbers.split(",")
        )
    return found
