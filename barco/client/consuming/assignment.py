"""What a consumer is to read, for programs that want to hear of it before it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barco.client.base.settings import TopicSlice
from barco.client.consuming.enrolment import ConsumerOptions, Enrolment
from barco.client.wire.codec import Event
from barco.model.placement import Placement


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A change that the program is to be told of, before the next poll."""

    revoked: list[TopicSlice]
    assigned: list[TopicSlice]
    whose: tuple[Enrolment, ...]
    """The brokers at which polls say from then on that this is known."""
    placement: str
    lost: bool = False
    """The group has forgotten the consumer: all of it may be others' already."""

    def calls(self, options: ConsumerOptions) -> Iterator[Any]:
        """Tells the program, one after the other; what its functions return, to be awaited."""
        if self.revoked and options.on_revoked is not None:
            yield options.on_revoked(self.revoked)
        if self.assigned and options.on_assigned is not None:
            yield options.on_assigned(self.assigned)


class Assignment:
    """The slices of a consumer, and which of its brokers knows that the program knows."""

    def __init__(self, ring: Placement | None, *, wanted: bool) -> None:
        """wanted: whether the program wants to hear of it at all."""
        self._ring = ring
        self._wanted = wanted
        self.slices: frozenset[TopicSlice] = frozenset()
        """As the program was told last."""
        self._begun = False
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether the group has forgotten the consumer, and the program has not heard of it."""
        return self._lost

    def lose(self) -> None:
        """The group has forgotten the consumer."""
        self._lost = True

    async def news(
        self,
        members: Sequence[Enrolment],
        busy: Container[Enrolment],
        anywhere: Callable[[Callable[[Enrolment], Awaitable[None]]], Awaitable[None]],
    ) -> Rebalance | None:
        """What the program has not been told of yet. Asks the brokers that say that something has
        changed; a BarcoError if one does not answer. busy: whose answer the program has not got."""
        if self._lost:
            return Rebalance(sorted(self.slices), [], (), "", lost=True)
        if self._begun:
            for member in members:
                if member.has_news and member not in busy:
                    answer = await member.assignment()
                    move = self._move(answer, (member,))
                    if move is not None:
                        return move
            return None
        found: list[Mapping[str, Any]] = []

        async def ask(member: Enrolment) -> None:
            found.append(await member.assignment())

        await anywhere(ask)
        return self._move(found[0], tuple(members))

    def _move(self, answer: Mapping[str, Any], whose: tuple[Enrolment, ...]) -> Rebalance | None:
        now, placement = slices_of(answer, self._ring), str(answer["placement"])
        move = Rebalance(sorted(self.slices - now), sorted(now - self.slices), whose, placement)
        if move.revoked or move.assigned:
            return move
        self.done(move)
        return None

    def done(self, move: Rebalance) -> None:
        """The program was told."""
        self.slices = self.slices.difference(move.revoked).union(move.assigned)
        if move.lost:
            self._begun = self._lost = False
            return
        self._begun = True
        for member in move.whose:
            member.placement = move.placement

    def end(self) -> Rebalance | None:
        """Of what the program is to be told before it leaves."""
        return Rebalance(sorted(self.slices), [], (), "", lost=True) if self.slices else None

    def covers(self, events: Iterable[Event]) -> bool:
        """Whether the program knows that it reads these slices. One broker may be behind another:
        what it gave comes again, to whoever reads it."""
        if not self._wanted:
            return True
        return {TopicSlice(each.topic, each.slice, each.token) for each in events} <= self.slices


def slices_of(answer: Mapping[str, Any], ring: Placement | None) -> frozenset[TopicSlice]:
    """The slices in an answer of `Enrolment.assignment`."""
    found = set()
    for topic, numbers in answer["slices"].items():
        for number in numbers:
            if ring is None:
                found.add(TopicSlice(topic, int(number)))
            else:
                at, index = divmod(int(number), ring.slices_per_range)
                found.add(TopicSlice(topic, index, int(ring.token(at))))
    return frozenset(found)
