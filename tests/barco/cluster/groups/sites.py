"""Some brokers' registrations, which hear one another when a test says so."""

import random
from collections.abc import Callable
from typing import Any

from barco import limits
from barco.cluster.gossip.dissemination import Store
from barco.cluster.gossip.facts import CONSUMER, Fact
from barco.cluster.groups.registrations import Registrations

SESSION_S = limits.CONSUMER_SESSION_MS_DEFAULT / 1000
LIAR = 2
SLICES = [(token, index) for token in (-100, 0, 100) for index in range(2)]


class Site:
    """One broker's registrations with the store that its gossip would keep."""

    def __init__(
        self,
        ordinal: int,
        slices: list[tuple[int, int]] = SLICES,
        ranked: Callable[[], bool] = lambda: True,
    ) -> None:
        self.unix, self.ordinal = 1_000.0, ordinal
        self.store = Store()
        self.registrations = Registrations(
            slices,
            ordinal=ordinal,
            ring=3,
            counter=10,
            unix_seconds=lambda: self.unix,
            ranked=ranked,
        )

    def request(self, op: str, now: float = 0.0, **args: Any) -> dict[str, Any]:
        reply = self.registrations.request(op, args, now)
        self.collect()
        return reply

    def register(self, name: str, group: str = "g", now: float = 0.0) -> dict[str, Any]:
        return self.request(
            "register",
            now,
            consumerId=name,
            group=group,
            topics=["t"],
            start="startFromLatest",
        )

    def collect(self) -> None:
        for fact in self.registrations.outgoing():
            self.store.merge(fact)

    def hear(self, facts: list[Fact], now: float = 0.0, teller: int = LIAR) -> None:
        for fact in facts:
            if self.registrations.accept(fact, teller) and self.store.merge(fact):
                self.registrations.apply(fact, now)
        self.collect()

    def tick(self, now: float) -> bool:
        ended = self.registrations.tick(now)
        self.collect()
        return ended

    def facts(self) -> list[Fact]:
        return list(self.store.all(CONSUMER))

    def groups(self) -> dict[str, Any]:
        groups: dict[str, Any] = self.registrations.view()["groups"]
        return groups


def spread(sites: list[Site], now: float = 0.0, seed: int = 0) -> None:
    """Everybody hears everything, in some order of its own."""
    shuffle = random.Random(seed).sample
    for _ in range(2):
        facts = [fact for site in sites for fact in site.facts()]
        for site in sites:
            site.hear(shuffle(facts, len(facts)), now)


def same(sites: list[Site]) -> bool:
    return all(site.groups() == sites[0].groups() for site in sites)
