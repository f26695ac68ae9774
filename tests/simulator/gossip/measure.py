"""What gossip costs and how fast it is, from 3 to 3,072 brokers: `make simulate-gossip`.

Simulated time, the real machines. Prints a table in Markdown; docs/findings.md has the last one.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gossip_world import World

from barco.cluster.gossip.facts import ALIVE, DOWN, ConsumerInfo

SIZES = (3, 12, 96, 768, 3072)
HEAD = (
    "brokers",
    "idle: messages/s, bytes/s",
    "news: 99 %, all (s)",
    "news: messages/s, bytes/s",
    "process dies: all know (s)",
    "machine dies: all know (s)",
    "that: messages/s, bytes/s",
    "it is back: all know (s)",
    "5 % loss: suspected, down",
    "slow and stopped: suspected, down",
)


@dataclass(slots=True)
class Sample:
    """Look at all brokers only now and then."""

    world: World
    every: float = 0.05
    at: float = 0.0

    def __call__(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        def check() -> bool:
            if self.world.now < self.at:
                return False
            self.at = self.world.now + self.every
            return condition()

        return check


def rates(world: World, seconds: float) -> str:
    per = world.rates(seconds)
    return f"{per['messages']:.1f}, {per['bytes']:,.0f}"


def measure(size: int, seed: int) -> list[str]:
    """One row."""
    world = World(size, seed)
    sample = Sample(world)
    row = [f"{size:,}"]
    world.run(5.0)
    world.reset()
    world.run(20.0)
    row.append(rates(world, 20.0))
    row += news(world, sample)
    last = size - 1

    def gone() -> bool:
        return all(world.state_of(at, last) == DOWN for at in world.nodes)

    def back() -> bool:
        return all(world.state_of(at, last) == ALIVE for at in world.nodes)

    took = []
    price = ""
    for incarnation, refuses in ((2, True), (3, False)):
        world.reset()
        start = world.now
        # Only those that were connected to it (128 at most) are told that a process has died.
        world.crash(last, refuses=refuses, told=refuses and size <= 128)
        assert world.run(120.0, sample(gone))
        took.append(f"{world.now - start:.1f}")
        price = rates(world, max(1.0, world.now - start))
        world.start(last, incarnation)
        start = world.now
        assert world.run(120.0, sample(back))
        again = f"{world.now - start:.1f}"
        world.run(10.0)
    row += [*took, price, again]
    assert (world.false_suspicions, world.false_downs) == (0, 0)
    row.append(lossy(size, seed))
    row.append(pressed(size, seed))
    print(f"{size}: {row}", file=sys.stderr, flush=True)
    return row


def news(world: World, sample: Sample) -> list[str]:
    """A registration at one broker, until all know it."""
    fact = ConsumerInfo(
        consumer_id="consumer-1", counter=1, ordinal=0, group="g", topics=("t",), start="s"
    ).fact()
    size = len(world.nodes)
    world.reset()
    start = world.now
    world.publish(0, fact, receipt=1)
    sample.every = 0.001 if size <= 100 else 0.02
    assert world.run(60.0, sample(lambda: world.knows(fact) >= 0.99 * size))
    most = world.now - start
    assert world.run(120.0, sample(lambda: world.knows(fact) == size))
    everybody = world.now - start
    price = rates(world, max(1.0, everybody))
    sample.every = 0.05
    world.run(5.0)
    return [f"{most:.2f}, {everybody:.2f}", price]


def lossy(size: int, seed: int) -> str:
    """A minute (10 s of the largest) in which each twentieth message is lost."""
    world = World(size, seed + 1, loss=0.05)
    world.run(60.0 if size < 1_000 else 10.0)
    return f"{world.false_suspicions}, {world.false_downs}"


def pressed(size: int, seed: int) -> str:
    """A minute (10 s of the largest) in which everybody waits for the processor, up to 0.3 s each
    time, and some (at least one, at most 1 %) are stopped for 0.1 to 10 s again and again. Whom
    they suspect counts, not who suspects them."""
    world = World(size, seed + 2)
    rng = random.Random(seed)
    world.slow = lambda ordinal: 0.3 * rng.random()
    for _ in range(12 if size < 1_000 else 2):
        for ordinal in rng.sample(sorted(world.nodes), max(1, size // 100)):
            if ordinal not in world.paused:
                world.pause(ordinal, 0.1 * 100 ** rng.random())
        world.run(5.0)
    return f"{world.false_suspicions}, {world.false_downs}"


def main() -> None:
    """Arguments to a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD), flush=True)
    for size in given.sizes:
        began = time.monotonic()
        print("| " + " | ".join(measure(size, given.seed)) + " |", flush=True)
        print(f"{size}: {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
