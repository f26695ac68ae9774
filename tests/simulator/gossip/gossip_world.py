"""A cluster of real gossip machines on a simulated network and clock; one seed, one history."""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import msgpack
from msgspec.structs import replace

from barco.cluster.gossip.facts import ALIVE, BROKER, CONFIRMED, DOWN, SUSPECT, BrokerInfo, Fact
from barco.cluster.gossip.gossip import AckWanted, Changed, Delivered, Effect, Gossip, Send
from barco.protocol.gossip import Message, Push, to_frame

RIGHTLY_SECONDS = 5.0
"""Who was stopped until so long ago is suspected for a reason: its denial is on the way."""


def identity(ordinal: int, incarnation: int = 1) -> BrokerInfo:
    """A broker as it might be configured."""
    return BrokerInfo(
        ordinal=ordinal,
        disk_uuid=f"{ordinal:032x}",
        session=(incarnation << 32) + ordinal,
        address=f"10.0.{ordinal // 256}.{ordinal % 256}",
        ports=(("discovery", 9250), ("gossip", 9255), ("replication", 9256), ("shard", 9300)),
        workers=2,
        version="0.1.0",
        incarnation=incarnation,
    )


class World:
    """Brokers, the messages between them, and what was seen."""

    def __init__(self, brokers: int, seed: int, *, loss: float = 0.0, primed: bool = True) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.loss = loss
        self.cut: Callable[[int, int], bool] = lambda sender, target: False
        self.slow: Callable[[int], float] = lambda ordinal: 0.0
        """How long a broker takes to get to the processor."""
        self.nodes: dict[int, Gossip] = {}
        self.paused: dict[int, list[tuple[Any, ...]]] = {}
        self.dead: dict[int, bool] = {}
        """Brokers that crashed; True: the machine still refuses connections to it."""
        self.messages = [0] * brokers
        self.bytes = [0] * brokers
        self.false_suspicions = 0
        self.false_downs = 0
        self.delivered: dict[tuple[int, int], tuple[float, bool]] = {}
        self._heap: list[tuple[float, int, tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._wakes: dict[int, float] = {}
        self._resumed: dict[int, float] = {}
        self._brokers = brokers
        for ordinal in range(brokers):
            self.start(ordinal)
        if primed:
            self._prime()

    def start(self, ordinal: int, incarnation: int = 1, listed: int | None = None) -> None:
        """A broker begins to run. listed: how many it has in its list, if not all; of others it
        believes only what they tell themselves, as a small ring's supervisor does."""
        self.dead.pop(ordinal, None)
        me, shuffled = identity(ordinal, incarnation), random.Random(self.random.random())
        known = set(range(listed or self._brokers))

        def accept(fact: Fact, teller: int) -> bool:
            known.update({teller}.intersection([fact.key]))
            return fact.kind != BROKER or fact.key in known

        most, now = self._brokers, self.now
        node = Gossip(me, len(known), random=shuffled, now=now, most=most, accept=accept)
        self.nodes[ordinal] = node
        self._schedule(ordinal)

    def _prime(self) -> None:
        """Everybody knows everybody, as after a long time."""
        facts = [identity(ordinal).fact() for ordinal in range(self._brokers)]
        infos = [BrokerInfo.of(fact) for fact in facts]
        for ordinal, node in self.nodes.items():
            node.store.choose(1 << 30, 1)
            while node.store.rumours:
                node.store.choose(1 << 30, 1)
            for fact, info in zip(facts, infos, strict=True):
                if info.ordinal != ordinal:
                    node.store.merge(fact, tell=False)
                    node.members.up[info.ordinal] = None
            self._schedule(ordinal)

    # --- What happens -------------------------------------------------------------------------

    def crash(self, ordinal: int, *, refuses: bool = True, told: bool = True) -> None:
        """A process ends (its machine refuses connections and resets those there are), or a
        whole machine (nobody is told anything)."""
        del self.nodes[ordinal]
        self.paused.pop(ordinal, None)
        self.dead[ordinal] = refuses
        if told:
            for other in self.nodes:
                self._at(self._latency(), ("lost", other, ordinal))

    def pause(self, ordinal: int, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long: what came in between is there then."""
        self.paused.setdefault(ordinal, [])
        self._at(seconds, ("resume", ordinal))

    def publish(self, ordinal: int, fact: Fact, receipt: int = 0) -> None:
        """A broker has news of its own."""
        self._effects(ordinal, self.nodes[ordinal].publish(fact, self.now, receipt=receipt))

    def lie(self, ordinal: int, target: int, fact: Fact) -> None:
        """A broker tells another one what it has no right to say, and knows nothing of itself."""
        self._send(ordinal, target, Push(facts=(fact.packed,)))

    def depart(self, ordinal: int) -> None:
        """A broker stops in an orderly way."""
        self._effects(ordinal, self.nodes[ordinal].depart(self.now))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; true as soon as the condition holds."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, event = heapq.heappop(self._heap)
            self._step(event)
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()

    def _step(self, event: tuple[Any, ...]) -> None:
        kind, ordinal = event[0], event[1]
        if kind == "resume":
            self._resumed[ordinal] = self.now
            for late in self.paused.pop(ordinal, []):
                self._step(late)
            return
        if ordinal in self.paused:
            self.paused[ordinal].append(event)
            return
        node = self.nodes.get(ordinal)
        if node is None:
            return
        if kind == "tick":
            if self._wakes.get(ordinal) == event[2]:
                self._effects(ordinal, node.tick(self.now))
        elif kind == "message":
            self._effects(ordinal, node.receive(event[2], event[3], self.now))
        elif kind == "lost":
            self._effects(ordinal, node.link_lost(event[2], self.now))
        elif kind == "refused":
            self._effects(ordinal, node.unreachable(event[2], self.now, refused=True))

    def _effects(self, ordinal: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(ordinal, effect.ordinal, effect.message)
            elif isinstance(effect, AckWanted):
                node = self.nodes[ordinal]
                more = node.acknowledge(effect.ordinal, effect.number, self.now)
                self._effects(ordinal, more)
            elif isinstance(effect, Delivered):
                self.delivered[ordinal, effect.receipt] = (self.now, effect.all)
            elif isinstance(effect, Changed) and effect.fact.kind == BROKER:
                self._judge(effect)
        self._schedule(ordinal)

    def _judge(self, changed: Changed) -> None:
        about, state = int(changed.fact.key), changed.fact.version[1]
        if changed.news or about not in self.nodes or about in self.paused:
            return
        if self.now - self._resumed.get(about, -RIGHTLY_SECONDS) < RIGHTLY_SECONDS:
            return
        self.false_suspicions += state in (SUSPECT, CONFIRMED)
        self.false_downs += state == DOWN

    def _send(self, sender: int, target: int, message: Message) -> None:
        self.messages[sender] += 1
        self.bytes[sender] += len(msgpack.packb(to_frame(message))) + 4
        if self.cut(sender, target) or self.random.random() < self.loss:
            return
        delay = self._latency() + self.slow(target)
        if target in self.dead:
            if self.dead[target]:
                self._at(delay, ("refused", sender, target))
            return
        self._at(delay, ("message", target, sender, message))

    def _latency(self) -> float:
        return 0.0002 + self.random.expovariate(1 / 0.001)

    def _at(self, delay: float, event: tuple[Any, ...]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._count), event))

    def _schedule(self, ordinal: int) -> None:
        wake = max(self.nodes[ordinal].deadline(), self.now)
        if self._wakes.get(ordinal) != wake:
            self._wakes[ordinal] = wake
            self._at(wake - self.now + self.slow(ordinal), ("tick", ordinal, wake))

    # --- What is looked at ----------------------------------------------------------------------

    def state_of(self, at: int, about: int) -> int | None:
        """How one broker sees another."""
        fact = self.nodes[at].store.get(BROKER, about)
        return None if fact is None else fact.version[1]

    def knows(self, fact: Fact) -> int:
        """How many brokers have at least this version."""
        have = (node.store.get(fact.kind, fact.key) for node in self.nodes.values())
        return sum(known is not None and known.version >= fact.version for known in have)

    def all_alive(self) -> bool:
        """Everybody sees everybody who runs as alive."""
        running = [o for o in self.nodes if o not in self.paused]
        return all(self.state_of(at, o) == ALIVE for at in running for o in running)

    def same(self) -> bool:
        """All know the same."""
        return len({node.store.digests() for node in self.nodes.values()}) == 1

    def rates(self, seconds: float) -> dict[str, float]:
        """Messages and bytes sent per second by each broker since the last call of `reset`."""
        per = self._brokers * seconds
        return {
            "messages": sum(self.messages) / per,
            "messages_max": max(self.messages) / seconds,
            "bytes": sum(self.bytes) / per,
            "bytes_max": max(self.bytes) / seconds,
        }

    def reset(self) -> None:
        """Count from here."""
        self.messages = [0] * self._brokers
        self.bytes = [0] * self._brokers


def restarted(ordinal: int) -> BrokerInfo:
    """The same broker, started again."""
    return replace(identity(ordinal), incarnation=2)
