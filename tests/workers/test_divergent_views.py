"""Brokers that differ for a moment in who consumes what: promise D6 holds all the same.

Two brokers lead different slices of a topic, and each hands out its own by what it knows of the
group. What they know is exchanged late, in any order, now and then.
"""

import asyncio
import random
from collections import defaultdict

import pytest
from twin import Broker

from barco.cluster.gossip.dissemination import Store
from barco.cluster.gossip.facts import CONSUMER
from barco.cluster.groups.registrations import Registrations
from barco.model.token import TOKEN_MIN

SLICES = 4
EVENTS = 12
NAMES = ("ann", "bob", "cid")


class Site:
    """A broker in memory whose groups are one broker's part of the registrations of a cluster."""

    def __init__(self, ordinal: int) -> None:
        self.broker = Broker(workers=1, slices=SLICES)
        self.store = Store()
        self.ordinal = ordinal
        slices = [(TOKEN_MIN, index) for index in range(SLICES)]
        self.registrations = Registrations(
            slices, ordinal=ordinal, ring=3, counter=1, unix_seconds=lambda: 1_000.0
        )
        self.broker.supervisor.groups = self.registrations  # type: ignore[assignment]
        self.committed: dict[int, int] = defaultdict(int)
        self.in_hand: dict[str, list[int]] = defaultdict(list)
        self.processed: dict[int, set[int]] = defaultdict(set)

    def produce(self) -> None:
        for slice_ in range(SLICES):
            first = slice_ * 1_000
            self.broker.produce("t", slice_, *(b"%d" % (first + n) for n in range(EVENTS)))

    async def hear(self, other: "Site", rng: random.Random | None) -> None:
        """Some of what the other one knows arrives, or all of it."""
        for site in (self, other):
            for fact in site.registrations.outgoing():
                site.store.merge(fact)
        facts = list(other.store.all(CONSUMER))
        before = self.registrations.version
        for fact in rng.sample(facts, rng.randint(0, len(facts))) if rng else facts:
            if self.registrations.accept(fact, other.ordinal) and self.store.merge(fact):
                self.registrations.apply(fact, self.broker.supervisor.now)
        self.broker.supervisor.publish(before)
        await self.broker.settle()

    def process(self, name: str) -> None:
        """The consumer is done with what the last poll gave it."""
        for value in self.in_hand.pop(name, ()):
            self.processed[value // 1_000].add(value % 1_000)

    async def poll(self, name: str, rng: random.Random) -> None:
        """Commits what was delivered before, as far as the slices are still the consumer's."""
        self.process(name)
        answer = await self.broker.poll(name, maxBytes=rng.choice((1, 30, 1_000)))
        if answer.status == 200:
            self.in_hand[name] = [value for item in answer.json for value in item["values"]]

    async def look(self) -> None:
        """Positions never go back, and never pass what some consumer was done with."""
        service = self.broker.services[0]
        assert service is not None
        for position in await service.consumption.positions("g"):
            slice_, offset = position["slice"], position["committed"]
            assert offset >= self.committed[slice_], "a committed offset went back"
            self.committed[slice_] = offset
            missing = set(range(offset)) - self.processed[slice_]
            assert not missing, f"committed, and nobody has processed it: {missing}"


async def exchange(sites: list[Site]) -> None:
    """Everybody hears everything: what a registration waits for, of a consumer that was known."""
    for site in sites:
        for other in sites:
            if other is not site:
                await site.hear(other, None)


async def history(seed: int) -> None:
    rng = random.Random(seed)
    sites = [Site(0), Site(1)]
    for site in sites:
        site.produce()
    for _ in range(80):
        site, name = rng.choice(sites), rng.choice(NAMES)
        match rng.randrange(8):
            case 0 | 1:
                # A new life: what its predecessor had in its hands, it had not processed.
                for each in sites:
                    each.in_hand.pop(name, None)
                await site.broker.register(name, "t")
                await exchange(sites)
            case 2:
                await site.broker.goodbye(name, commit="false")
                site.in_hand.pop(name, None)
            case 3 | 4:
                await sites[0].hear(sites[1], rng)
                await sites[1].hear(sites[0], rng)
            case 5:
                site.process(name)
                await site.broker.commit(name)
            case _:
                await site.poll(name, rng)
        await site.look()
    # One consumer that stays gets everything that nobody has committed.
    for site in sites:
        await site.broker.register("end", "t")
        for name in NAMES:
            await site.broker.goodbye(name, commit="false")
    await exchange(sites)
    for site in sites:
        for _ in range(200):
            await site.poll("end", rng)
            await site.look()
            done = [len(site.processed[slice_]) == EVENTS for slice_ in range(SLICES)]
            if all(done):
                break
        assert all(done), f"seed {seed}: events that nobody got"


@pytest.mark.parametrize("seed", range(20))
def test_at_least_once_whatever_each_broker_believes(seed: int) -> None:
    asyncio.run(asyncio.wait_for(history(seed), 60))
