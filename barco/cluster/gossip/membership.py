"""Who is alive: probes, indirect probes, suspicion that can be denied (SWIM, with Lifeguard).

One probe a second from each broker, to the others in turn. Who does not answer is asked again by a
few others; who answers none of them is suspected, and everyone is told. It has some seconds to
deny, by a new incarnation of itself, before it is taken to be down. A broker that is in trouble
itself (woken late, deaf to its deputies, often suspected) gives others more time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from barco import limits
from barco.cluster.gossip.facts import (
    ALIVE,
    BROKER,
    CONFIRMED,
    DOWN,
    SUSPECT,
    BrokerInfo,
    Fact,
    following,
)
from barco.protocol.gossip import Ack, Message, Nack, Ping, PingRequest


class Random(Protocol):
    """What is used of `random.Random`."""

    def shuffle(self, x: list[int], /) -> None:
        """In place."""

    def sample(self, population: list[int], k: int) -> list[int]:
        """Some of them."""

    def random(self) -> float:
        """In [0, 1)."""


class Probe(Struct):
    """One question to one broker, first direct, then through deputies."""

    target: int
    answer_by: float
    end_by: float
    asked: int = -1
    """How many deputies were asked; -1: none yet."""
    nacks: int = 0
    refused: bool = False
    """Nothing listens at its address, as far as anybody could find out."""


class Relay(Struct):
    """A probe for somebody else."""

    requester: int
    number: int
    target: int
    nack_at: float
    end_by: float


class Counters(Struct):
    """What happened since the start."""

    probes: int = 0
    probes_failed: int = 0
    suspicions: int = 0
    denials: int = 0
    """Own: this broker was suspected and said that it is there."""
    downs: int = 0


class Membership:
    """The failure detector of one broker."""

    def __init__(
        self,
        me: BrokerInfo,
        *,
        random: Random,
        send: Callable[[int, Message], None],
        publish: Callable[[BrokerInfo], None],
        known: Callable[[int], Fact | None],
        now: float,
    ) -> None:
        self.me = me
        self.health = 0
        """0: this broker is well; each step more gives others another share of time."""
        self.counters = Counters()
        self.up: dict[int, None] = {}
        """Ordinals of the others that are alive or suspected."""
        self._random = random
        self._send = send
        self._publish = publish
        self._known = known
        self._order: list[int] = []
        self._turn = 0
        self._number = 0
        self._probe_at = now + random.random() * limits.GOSSIP_PROBE_SECONDS
        self._probes: dict[int, Probe] = {}
        self._relays: dict[int, Relay] = {}
        self._suspects: dict[int, float] = {}
        self._own: set[int] = set()  # Suspected by this broker itself.

    def info(self, ordinal: int) -> BrokerInfo | None:
        """What is known of a broker."""
        if ordinal == self.me.ordinal:
            return self.me
        fact = self._known(ordinal)
        return None if fact is None else BrokerInfo.of(fact)

    # --- Time -----------------------------------------------------------------------------------

    def deadline(self) -> float:
        """When `tick` next has something to do."""
        times = [self._probe_at, *self._suspects.values()]
        times += [p.answer_by if p.asked < 0 else p.end_by for p in self._probes.values()]
        times += [min(relay.nack_at, relay.end_by) for relay in self._relays.values()]
        return min(times)

    def lag(self, seconds: float) -> None:
        """This broker did not run for so long: nobody had the chance to be heard by it."""
        assert seconds > 0
        self._ail(1)
        self._probe_at += seconds
        for probe in self._probes.values():
            probe.answer_by += seconds
            probe.end_by += seconds
        for relay in self._relays.values():
            relay.nack_at += seconds
            relay.end_by += seconds
        for ordinal in self._suspects:
            self._suspects[ordinal] += seconds

    def tick(self, now: float) -> None:
        """All that is due."""
        for number, probe in list(self._probes.items()):
            if probe.asked < 0 and probe.answer_by <= now:
                self._ask_deputies(number, probe, now)
            elif probe.end_by <= now:
                self._failed(number, probe, now)
        for number, relay in list(self._relays.items()):
            if relay.end_by <= now:
                del self._relays[number]
            elif relay.nack_at <= now:
                self._nack(relay, refused=False)
                relay.nack_at = math.inf
        for ordinal, until in list(self._suspects.items()):
            if until <= now:
                self._declare_down(ordinal)
        if self._probe_at <= now:
            self._probe_at = now + limits.GOSSIP_PROBE_SECONDS * (1 + self.health)
            if (target := self._next()) is not None:
                self._probe(target, now)

    def check(self) -> None:
        """What holds between two messages, whatever they said."""
        assert self.me.ordinal not in self.up, "this one is not one of the others"
        assert self._suspects.keys() <= self.up.keys(), "who is suspected may still be there"
        assert self._own <= self._suspects.keys(), "its own suspicions are told"
        assert 0 <= self.health <= limits.GOSSIP_HEALTH_MAX
        assert 0 <= self._turn <= len(self._order)
        assert len(self._relays) <= limits.GOSSIP_RELAYS_MAX
        assert all(number <= self._number for number in self._probes), "numbers are given once"
        assert math.isfinite(self._probe_at), "somebody is always to be asked"

    # --- Probing --------------------------------------------------------------------------------

    def _next(self) -> int | None:
        """The others in random order, each once a round."""
        for _ in range(2):
            while self._turn < len(self._order):
                ordinal = self._order[self._turn]
                self._turn += 1
                if ordinal in self.up:
                    return ordinal
            self._order = list(self.up)
            self._random.shuffle(self._order)
            self._turn = 0
        return None

    def _probe(self, target: int, now: float) -> None:
        assert target != self.me.ordinal, "nobody probes itself"
        if any(probe.target == target for probe in self._probes.values()):
            return
        self.counters.probes += 1
        self._number += 1
        scale = 1 + self.health
        self._probes[self._number] = Probe(
            target,
            now + limits.GOSSIP_PROBE_ANSWER_SECONDS * scale,
            now + limits.GOSSIP_PROBE_SECONDS * scale,
        )
        self._send(target, Ping(number=self._number))

    def _ask_deputies(self, number: int, probe: Probe, now: float) -> None:
        assert probe.asked < 0, "deputies are asked once"
        able = [o for o in self.up if o != probe.target and o not in self._suspects]
        deputies = self._random.sample(able, min(limits.GOSSIP_DEPUTIES, len(able)))
        probe.asked = len(deputies)
        probe.answer_by = now
        for deputy in deputies:
            self._send(deputy, PingRequest(number=number, about=probe.target))
        if not deputies and probe.refused:
            self._failed(number, probe, now)

    def _failed(self, number: int, probe: Probe, now: float) -> None:
        assert probe.asked >= 0, "nobody is suspected before others were asked"
        del self._probes[number]
        self.counters.probes_failed += 1
        if probe.nacks < probe.asked:
            # Deputies were silent as well: the trouble may be here.
            self._ail(1)
        self._suspect(probe.target, now, refused=probe.refused and probe.nacks == probe.asked)

    def _ail(self, change: int) -> None:
        self.health = min(max(self.health + change, 0), limits.GOSSIP_HEALTH_MAX)

    def receive(self, sender: int, message: Message, now: float) -> None:
        """A ping, ack, ping request or nack."""
        if isinstance(message, Ping):
            self._send(sender, Ack(number=message.number, about=self.me.ordinal))
        elif isinstance(message, PingRequest):
            self._relay(sender, message, now)
        elif isinstance(message, Ack):
            self._acknowledged(message)
        elif isinstance(message, Nack):
            self._unanswered(message, now)

    def _relay(self, sender: int, request: PingRequest, now: float) -> None:
        if request.about == self.me.ordinal:
            self._send(sender, Ack(number=request.number, about=self.me.ordinal))
            return
        if len(self._relays) >= limits.GOSSIP_RELAYS_MAX:
            return
        self._number += 1
        self._relays[self._number] = Relay(
            sender,
            request.number,
            request.about,
            now + limits.GOSSIP_PROBE_ANSWER_SECONDS,
            now + limits.GOSSIP_PROBE_SECONDS,
        )
        self._send(request.about, Ping(number=self._number))

    def _acknowledged(self, ack: Ack) -> None:
        probe = self._probes.get(ack.number)
        if probe is not None and probe.target == ack.about:
            del self._probes[ack.number]
            self._own.discard(ack.about)
            self._ail(-1)
            return
        relay = self._relays.get(ack.number)
        if relay is not None and relay.target == ack.about:
            del self._relays[ack.number]
            self._send(relay.requester, Ack(number=relay.number, about=relay.target))

    def _unanswered(self, nack: Nack, now: float) -> None:
        probe = self._probes.get(nack.number)
        if probe is None or probe.target != nack.about:
            return
        probe.nacks += 1
        probe.refused = probe.refused and nack.refused
        if probe.refused and probe.nacks == probe.asked:
            self._failed(nack.number, probe, now)

    def _nack(self, relay: Relay, *, refused: bool) -> None:
        nack = Nack(number=relay.number, about=relay.target, refused=refused)
        self._send(relay.requester, nack)

    def unreachable(self, ordinal: int, now: float, *, refused: bool) -> None:
        """It could not be connected to; refused: its machine says that nothing listens there."""
        for number, probe in list(self._probes.items()):
            if probe.target == ordinal and probe.asked < 0:
                probe.refused = refused
                self._ask_deputies(number, probe, now)
        for number, relay in list(self._relays.items()):
            if relay.target == ordinal:
                self._nack(relay, refused=refused)
                del self._relays[number]

    def link_lost(self, ordinal: int, now: float) -> None:
        """A connection to it broke, which may be its end: ask at once."""
        if ordinal in self.up:
            self._probe(ordinal, now)

    # --- Suspicion ------------------------------------------------------------------------------

    def suspicion_seconds(self, *, confirmed: bool) -> float:
        """How long a suspect may take to deny."""
        brokers = len(self.up) + 1
        shortest = limits.GOSSIP_SUSPICION_FACTOR * limits.GOSSIP_PROBE_SECONDS
        shortest *= max(1.0, math.log10(brokers))
        others = [o for o in self.up if o not in self._suspects]
        if confirmed or not others:
            return shortest
        return shortest * limits.GOSSIP_SUSPICION_FACTOR_MAX

    def _suspect(self, ordinal: int, now: float, *, refused: bool) -> None:
        """This broker itself has found a broker silent."""
        assert ordinal != self.me.ordinal, "nobody suspects itself"
        info = self.info(ordinal)
        if info is None or not info.up:
            return
        news = ordinal not in self._own
        self._own.add(ordinal)
        if info.state == ALIVE:
            self._publish(replace(info, state=SUSPECT, by=self.me.ordinal))
        elif info.state == SUSPECT and news and info.by != self.me.ordinal:
            self._publish(replace(info, state=CONFIRMED, by=0))
        if refused and ordinal in self._suspects:
            soon = now + limits.GOSSIP_REFUSED_SECONDS * (1 + self.health)
            self._suspects[ordinal] = min(self._suspects[ordinal], soon)

    def _declare_down(self, ordinal: int) -> None:
        assert ordinal != self.me.ordinal, "nobody takes itself for dead"
        assert ordinal in self.up, "who is suspected was there"
        info = self.info(ordinal)
        if info is not None and info.state in (SUSPECT, CONFIRMED):
            self.counters.downs += 1
            self._publish(replace(info, state=DOWN, by=0))  # The same from all.
        self._suspects.pop(ordinal, None)

    def changed(self, info: BrokerInfo, before: BrokerInfo | None, now: float) -> None:
        """The best that is known of a broker has changed."""
        if info.ordinal == self.me.ordinal:
            self._about_me(info)
            return
        ordinal = info.ordinal
        if not info.up or info.state == ALIVE:
            # What was asked of it before has no meaning for it as it is now.
            past = [number for number, p in self._probes.items() if p.target == ordinal]
            for number in past:
                del self._probes[number]
        if not info.up:
            self.up.pop(ordinal, None)
            self._suspects.pop(ordinal, None)
            self._own.discard(ordinal)
            return
        if ordinal not in self.up:
            self._join(ordinal)
        if info.state == ALIVE:
            self._suspects.pop(ordinal, None)
            self._own.discard(ordinal)
            return
        if ordinal not in self._suspects:
            self.counters.suspicions += 1
            self._suspects[ordinal] = math.inf
        until = now + self.suspicion_seconds(confirmed=info.state == CONFIRMED)
        self._suspects[ordinal] = min(self._suspects[ordinal], until)

    def also_suspected(self, fact: Fact) -> None:
        """Two brokers suspected the same one before they heard of each other: that confirms it."""
        info = self.info(int(fact.key))
        if info is None or info.state != SUSPECT or fact.kind != BROKER:
            return
        if fact.version == (info.incarnation, SUSPECT) and BrokerInfo.of(fact).by != info.by:
            self._publish(replace(info, state=CONFIRMED, by=0))

    def _join(self, ordinal: int) -> None:
        assert ordinal not in self.up and ordinal != self.me.ordinal, "the others, each once"
        self.up[ordinal] = None
        place = self._turn + int(self._random.random() * (len(self._order) - self._turn + 1))
        self._order.insert(place, ordinal)

    def _about_me(self, info: BrokerInfo) -> None:
        """Something about this broker that it did not say itself: it knows better."""
        if info == self.me:
            return
        if self.me.state == ALIVE and info.state in (SUSPECT, CONFIRMED, DOWN):
            self.counters.denials += 1
            self._ail(1)
        self.me = replace(self.me, incarnation=following(info.incarnation))
        self._publish(self.me)
