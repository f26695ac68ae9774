"""Where copies of history go when brokers leave: which generations need one, who takes it. Pure.

A generation that has ended stays at its members. Of those that would have fewer than two copies
without the brokers that leave, a *depot* takes one: a broker that stays and is no member of it. Who
is a depot for which range stands in the target; which generations it copies follows from who has
them, so the depot and whoever looks on compute the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from barco.cluster.ring.cut import Wanted
from barco.model.generation import Gid

COPIES_MIN = 2
"""Of each generation, at brokers that stay, before one that leaves may go."""

Depots = tuple[tuple[int, int], ...]
"""(first slice of a range, ordinal) of each depot, in the order in which they were named: whoever
stands first for a range copies first."""


class EndedLog(Struct, frozen=True):
    """A generation that has ended and is not expired, as those have told who hold it."""

    gid: Gid
    bytes: int
    """Of the largest copy."""
    members: frozenset[int]
    """Ordinals of all that have a seat in it: they get a copy by replication, if at all."""
    holders: frozenset[int]
    """Ordinals of all that have said they have a whole, sound copy."""
    begun: Mapping[int, int] = field(default_factory=dict)
    """Bytes that depots have by now of what they do not have whole."""


class Draining(Struct, frozen=True):
    """What there is to do for those that leave."""

    copies: Mapping[Gid, Sequence[int]] = field(default_factory=dict)
    """By generation: the depots that are to have a copy, those that have it by now among them."""
    named: Depots = ()
    """Depots that have to be named before that."""
    helpless: Collection[Gid] = ()
    """Generations for which too few brokers that are up could take a copy, or give one: a depot
    believes no single one."""
    bytes_left: int = 0
    bytes_all: int = 0
    """Of all copies at depots."""

    @property
    def done(self) -> bool:
        """Whether two copies of everything are at brokers that stay."""
        return not (self.bytes_left or self.named or self.helpless)


def kept_by(log: EndedLog, staying: Collection[int], depots: Collection[int]) -> int:
    """How many of those that stay have it and were not made to: a range's depot for one generation
    may be a member of the next, and keeps that one as a member."""
    return len((log.holders & frozenset(staying)) - (frozenset(depots) - log.members))


def copied_by(log: EndedLog, staying: Collection[int], depots: Sequence[int]) -> list[int]:
    """Which of a range's depots are to have a copy of a generation, in their order.

    What members that stay have counts first. Who is a member himself is no depot for it.
    """
    depots = [each for each in dict.fromkeys(depots) if each in staying]
    depots = [each for each in depots if each not in log.members]
    chosen = depots[: max(0, COPIES_MIN - kept_by(log, staying, depots))]
    assert not log.members.intersection(chosen), "a member is no depot"
    return chosen


def draining(
    logs: Iterable[tuple[int, EndedLog]],
    staying: Collection[int],
    up: Collection[int],
    depots: Depots,
    wanted: Wanted,
) -> Draining:
    """What is left to do until those that do not stay hold nothing alone.

    logs: with the first slice of the range of each, one entry a generation. up: who can be asked
    now. A depot that is named and away is waited for: it has the copy, or a part of it.
    """
    copies: dict[Gid, Sequence[int]] = {}
    named: list[tuple[int, int]] = []
    helpless: list[Gid] = []
    left = total = 0
    for first, log in sorted(logs, key=lambda each: (each[0], each[1].gid)):
        there = [ordinal for at, ordinal in (*depots, *named) if at == first]
        have = kept_by(log, staying, there)
        chosen = copied_by(log, staying, there)
        spots = _spots(first, log, staying, up, wanted)
        while have + len(chosen) < COPIES_MIN and (spots := [x for x in spots if x not in there]):
            named.append((first, spots[0]))
            there.append(spots[0])
            chosen = copied_by(log, staying, there)
        lacking = [each for each in chosen if each not in log.holders]
        total += len(chosen) * log.bytes
        left += sum(max(0, log.bytes - log.begun.get(each, 0)) for each in lacking)
        voices = len(log.holders & frozenset(up))
        if have + len(chosen) < COPIES_MIN or (lacking and voices < COPIES_MIN):
            helpless.append(log.gid)
        if chosen:
            copies[log.gid] = chosen
        if lacking:
            left = max(left, 1)  # An empty one, or one that has to be looked at, is no less.
    assert len(set(named)) == len(named), "each is named once"
    assert all(len(chosen) <= COPIES_MIN for chosen in copies.values()), "no copy too many"
    return Draining(copies, tuple(named), helpless, left, total)


def _spots(
    first: int, log: EndedLog, staying: Collection[int], up: Collection[int], wanted: Wanted
) -> list[int]:
    """Who may become a depot, the best first: whoever leads these slices reads from it."""
    near = wanted.at(first).members
    found = [*near, *(each for each in wanted.brokers if each not in near)]
    assert len(set(found)) == len(found), "each once"
    return [each for each in found if each in staying and each in up and each not in log.members]
