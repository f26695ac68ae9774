"""Consumer groups of a whole cluster: registrations at any broker are facts for all of them.

Around the machine of the groups, which decides who is admitted and who reads what. Each broker
comes to the same members, and so to the same assignment; for a moment two may differ. That breaks
no promise: a slice is given out by its leader alone, and what is committed is fenced by its log.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from barco import limits
from barco.cluster.gossip.facts import CONSUMER, ConsumerInfo, Fact
from barco.cluster.groups.groups import Groups, Member, Reply, View
from barco.cluster.groups.signs import age_of, told_after
from barco.errors import NotReadyError

CONSUMERS_KEPT_MAX = 2 * limits.CONSUMERS_MAX
"""Admitted at several brokers at once there may be more than one of them would admit."""

OWN_ROOM = limits.CONSUMERS_MAX // 2
"""Of these as many, divided by the brokers of the ring, are kept free for each one's own: for what
it tells on its own link, which nobody can play. The rest is for whoever comes first. A member that
invents consumers fills its own room and the rest, whatever brokers it names."""

PAST_SECONDS = 30.0
"""So long after its start, by the wall clock, a broker learns from the others what its earlier
lives have registered: three comparisons. What comes in its name later, and is not known, is
invented; it would pass it on as its own. Of each of the others it takes so many, in that time, that
one that invents them leaves room for its own: a part of it for each broker of the ring."""

HEARSAY = -1
"""Who is charged with what one broker says of another's consumers: no broker."""

COUNTER_AHEAD_MAX = 100 * 365 * 86_400 * 1000
"""How far a registration's counter may be ahead of this broker's wall clock, both in milliseconds
since 1970: 100 years. They begin there and grow by one with each registration, so only a wrong
clock or a lie is ahead at all. As the wall clock goes on, what a lie takes is given back."""


class Registrations:
    """Implements what `barco.supervisor.control` needs of a machine; facts go out and come in.

    ring: how many brokers the cluster is configured to have.
    counter: where the Lamport clock begins; above that of this broker's earlier lives.
    unix_seconds: the wall clock, for how long the memory of the departed is kept.
    ranked: whether all brokers can read of weights and ranks; until then nobody is given any.
    """

    def __init__(
        self,
        slices: list[tuple[int, int]],
        *,
        ordinal: int,
        ring: int,
        counter: int,
        unix_seconds: Callable[[], float],
        ranked: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ranked = ranked
        self._groups = Groups(
            slices,
            self._next_session,
            lambda: self._has_own_room(ordinal),
            origin=ordinal,
            ring=ring,
        )
        self._own_room = OWN_ROOM // ring
        self._taught_max = self._own_room // ring
        self._taught: Counter[int] = Counter()
        assert 0 <= ordinal < ring, "each broker of the ring has room of its own"
        self._past_until = unix_seconds() + PAST_SECONDS
        self._charged: dict[str, int] = {}
        self._charges: Counter[int] = Counter()
        self._ordinal = ordinal
        self._counter = counter
        self._unix_seconds = unix_seconds
        self._known: dict[str, ConsumerInfo] = {}
        self._told: dict[str, float] = {}
        self._untold: set[str] = set()
        """Heard of since they were told of."""
        self._due: list[tuple[float, str]] = []
        """When they are told of; each once, as long as it stands in `_untold`."""
        self._out: list[Fact] = []

    @property
    def version(self) -> int:
        """The version of the view."""
        return self._groups.version

    def view(self, since: int = 0) -> View:
        """As `Groups.view`."""
        return self._groups.view(since)

    def outgoing(self) -> list[Fact]:
        """What is to be published, since the last call."""
        out, self._out = self._out, []
        return out

    def forgotten(self) -> list[str]:
        """Consumers of which nothing need be remembered any more."""
        gone = [c for c, info in self._known.items() if info.removed_at and not self._fresh(info)]
        for consumer_id in gone:
            del self._known[consumer_id]
            self._charge(consumer_id, None)
        return gone

    def _next_session(self) -> int:
        self._counter += 1
        return self._counter * limits.BROKERS_MAX + self._ordinal

    # --- Of this broker's workers -----------------------------------------------------------------

    def request(self, op: str, args: Mapping[str, Any], now: float) -> Reply:
        """As `Groups.request`; what it changes is for everyone."""
        returning = args.get("consumerId") in self._known
        if op == "register" and args.get("weight", 1) != 1 and not self._ranked():
            raise NotReadyError("Not every broker has a version that knows of weights yet.")
        reply = self._groups.request(op, args, now)
        if op == "register":
            # Until all have heard of it, another broker may take it for its predecessor, and
            # commit at its next poll what that one was given and never processed.
            reply["strict"] = returning
            self._registered(str(args["consumerId"]), now)
        elif op == "touch":
            for consumer_id in args["consumerIds"]:
                self._touched(consumer_id, now)
        elif op == "goodbye" and reply["known"]:
            self._left(str(args["consumerId"]))
        return reply

    def _registered(self, consumer_id: str, now: float) -> None:
        member = self._groups.member(consumer_id)
        assert member is not None
        self._told[consumer_id] = now
        self._charge(consumer_id, self._ordinal)
        info = ConsumerInfo(
            consumer_id=consumer_id,
            counter=self._counter,
            ordinal=self._ordinal,
            group=member.group,
            topics=member.topics,
            start=member.start,
            session_ms=member.session_ms,
            weight=member.weight,
        )
        info = self._rank(info, member)
        assert info.session == member.session, "its consumer and the others know it by one number"
        self._publish(info)

    def _touched(self, consumer_id: str, now: float) -> None:
        """Tell of it now, or when it may be told of again: the last sign counts, not the first."""
        info = self._known.get(consumer_id)
        if info is None or info.removed_at or consumer_id in self._untold:
            return
        due = self._told.get(consumer_id, -math.inf) + _pause(info)
        if due <= now:
            self._tell(info, now)
        else:
            self._untold.add(consumer_id)
            heapq.heappush(self._due, (due, consumer_id))

    def _tell(self, info: ConsumerInfo, now: float) -> None:
        member = self._groups.member(info.consumer_id)
        assert member is not None, "who is heard of is there"
        self._told[info.consumer_id] = now
        age = max(0.0, now - member.last_heard)
        info = self._rank(info, member)
        self._publish(replace(info, heard=told_after(info.heard, age)))

    def _rank(self, info: ConsumerInfo, member: Member) -> ConsumerInfo:
        """With the ranks where the consumer is now: who has moved since it registered stays where
        it is when others come."""
        ranks = self._groups.ranks(member) if self._ranked() else ()
        if ranks != member.ranks:
            self._groups.adopt(replace(member, ranks=ranks))
        return replace(info, group=member.group, topics=member.topics, ranks=ranks)

    def _tell_due(self, now: float) -> None:
        """Of whom was heard since it was told of last."""
        while self._due and self._due[0][0] <= now:
            _, consumer_id = heapq.heappop(self._due)
            info = self._known.get(consumer_id)
            if consumer_id in self._untold and info is not None and not info.removed_at:
                self._tell(info, now)
            self._untold.discard(consumer_id)

    def _left(self, consumer_id: str) -> None:
        # A goodbye is later than whatever was heard of the consumer anywhere.
        self._counter += 1
        info = replace(self._known[consumer_id], counter=self._counter, ordinal=self._ordinal)
        self._publish(replace(info, heard=0, removed_at=self._second()))

    def _publish(self, info: ConsumerInfo) -> None:
        before = self._known.get(info.consumer_id)
        assert info.consumer_id in self._charged, "whoever is known is charged to somebody"
        assert before is None or info.counter >= before.counter, "the clock does not go back"
        self._known[info.consumer_id] = info
        if info.removed_at:
            self._told.pop(info.consumer_id, None)
        self._out.append(info.fact())
        self._check()

    def _check(self) -> None:
        """What holds after each change, by counts: there may be thousands."""
        assert len(self._known) <= len(self._charged), "whoever is known is charged to somebody"
        assert self._charges.total() == len(self._charged), "and to one"
        assert len(self._told) <= len(self._known)
        assert all(each <= self._taught_max for each in self._taught.values())
        assert self._counter >= 0

    def _second(self) -> int:
        return max(1, int(self._unix_seconds()))

    # --- Of other brokers ---------------------------------------------------------------------

    def accept(self, fact: Fact, teller: int) -> bool:
        """Whether a fact is worth keeping: not what ended at quite another time, not without end.
        teller: the ordinal of the broker on whose link it came. What is kept is charged to it if
        it speaks of its own consumers.

        Nor one that would put the clock of registrations where no next one fits: a wrong word of
        one broker would end all registrations, at every broker.
        """
        if fact.kind != CONSUMER:
            return True
        info = ConsumerInfo.of(fact)
        if info.counter > self._unix_seconds() * 1000 + COUNTER_AHEAD_MAX:
            return False
        whose = teller if info.ordinal == teller else HEARSAY
        if info.consumer_id not in self._charged:
            if info.removed_at and not self._fresh(info):
                return False
            if info.ordinal == self._ordinal:
                whose = self._ordinal
            common = CONSUMERS_KEPT_MAX - OWN_ROOM
            if not (self._has_own_room(whose) or len(self._charged) < common):
                return False
            if whose == self._ordinal and not self._may_teach(teller):
                return False
            self._charge(info.consumer_id, whose)
        elif self._charged[info.consumer_id] == HEARSAY and self._has_own_room(whose):
            self._charge(info.consumer_id, whose)
        return True

    def _may_teach(self, teller: int) -> bool:
        """Whether this one may say what was registered here in an earlier life, once more."""
        late = self._unix_seconds() >= self._past_until
        if late or self._taught[teller] >= self._taught_max:
            return False
        self._taught[teller] += 1
        return True

    def _has_own_room(self, ordinal: int) -> bool:
        return ordinal != HEARSAY and self._charges[ordinal] < self._own_room

    def _charge(self, consumer_id: str, ordinal: int | None) -> None:
        """One more of a broker, and one fewer of whoever had it; None: of nobody any more."""
        before = self._charged.pop(consumer_id, None)
        if before is not None:
            self._charges[before] -= 1
            assert self._charges[before] >= 0, "each is charged once"
        if ordinal is not None:
            self._charged[consumer_id] = ordinal
            self._charges[ordinal] += 1

    def apply(self, fact: Fact, now: float) -> None:
        """A fact about a consumer, newer than what was known; `accept` has taken it."""
        info = ConsumerInfo.of(fact)
        assert info.consumer_id in self._charged, "whoever is known is charged to somebody"
        before = self._known.get(info.consumer_id)
        self._known[info.consumer_id] = info
        self._counter = max(self._counter, info.counter)
        if info.removed_at:
            # It may have ended here while it was still to be told of: then there is no member.
            there = self._groups.member(info.consumer_id)
            same = there is not None and there.session == info.session
            if same and info.consumer_id in self._untold:
                # Silent for too long at another broker; here it was heard of meanwhile.
                self._tell(replace(info, removed_at=0), now)
                return
            self._told.pop(info.consumer_id, None)
            self._groups.goodbye(info.consumer_id)
            self._check()
            return
        if before is not None and before.session == info.session and not before.removed_at:
            self._told[info.consumer_id] = now
        # Not longer ago than it is told of: who says more has another idea of the number.
        age = min(age_of(info.heard), _pause(info) + limits.CONSUMER_LAG_SECONDS)
        self._groups.adopt(
            Member(
                info.consumer_id,
                info.group,
                info.topics,
                info.start,
                info.session,
                now - age,
                info.session_ms,
                self._charged[info.consumer_id],
                info.weight,
                info.ranks,
            )
        )

    def _fresh(self, info: ConsumerInfo) -> bool:
        """Whether an end is near this broker's clock: one far ahead would be kept until then."""
        return abs(self._unix_seconds() - info.removed_at) < limits.GOSSIP_TOMBSTONE_SECONDS

    # --- Time -----------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """Tell of who was heard of, and expire what has been silent."""
        self._tell_due(now)
        ends = self._groups.deadline()
        silent = self._groups.silent(now) if ends is not None and ends <= now else []
        for consumer_id in silent:
            # The same registration, ended: another broker that has heard of it revives it.
            self._publish(replace(self._known[consumer_id], removed_at=self._second()))
            self._groups.goodbye(consumer_id)
        return bool(silent)

    def deadline(self) -> float | None:
        """When `tick` has something to do about members; the departed have time."""
        times = [each for each in (self._groups.deadline(),) if each is not None]
        return min(times + [due for due, _ in self._due[:1]], default=None)


def _pause(info: ConsumerInfo) -> float:
    """Between two times that the other brokers are told of a consumer."""
    often = info.session_ms / 1000 / limits.CONSUMER_TELLS_PEERS
    return min(limits.CONSUMER_TOUCH_SECONDS, often)
