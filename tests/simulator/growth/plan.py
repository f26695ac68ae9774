"""The faults of one seed, and the sizes that the ring is to have meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from barco.cluster.ring.cut import Cut
from barco.cluster.state import events as on

from ..oracle import Violation
from .process import Process, State
from .world import GrowthWorld


class Scale(NamedTuple):
    """How large worlds are, and how long; what may happen in them is the same."""

    cut: Cut
    sizes: tuple[tuple[int, ...], ...]
    """One of these is what the ring becomes, size after size."""
    begins: float
    """When the first change of its size is wanted, in seconds."""
    seconds: float
    """From its start to the last fault."""
    groups: tuple[float, float, float]
    """Mean seconds from a leader's group to its next, by seeds in turn."""


LARGE = Scale(
    Cut(3, 4),
    ((3, 4), (3, 4, 6), (3, 6), (3, 6, 3), (3, 4, 3), (3, 5, 4, 6), (3, 6, 12)),
    3.0,
    18.0,
    (0.1, 0.2, 0.4),
)
SMALL = Scale(
    Cut(3, 2), ((3, 4), (3, 4, 3), (3, 5), (3, 4, 5), (3, 6, 3)), 0.8, 6.0, (0.2, 0.4, 0.6)
)
"""For campaigns: many seeds find more than long ones. A broker has two slices at first."""

LIVENESS_SECONDS = 60.0
"""After the last fault the ring has to be what is wanted, and written to, within this time."""

KINDS = {
    "crash": 6,
    "die": 5,
    "power": 3,
    "power_all": 1,
    "pause": 4,
    "cut": 4,
    "isolate": 4,
    "heal": 8,
    "noise": 3,
    "slow": 2,
    "elect": 4,
    "eio": 2,
    "resign": 1,
    "wipe": 2,
}


class Fault(NamedTuple):
    """Something that goes wrong."""

    time: float
    kind: str
    number: float
    """Uniform in [0, 1)."""
    other: float


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    seed: int
    seconds: float
    steps: int
    acks: int
    generations: int
    repeated: int
    seen: frozenset[str]
    violation: Violation | None = None


def faults_of(seed: int, begins: float, seconds: float) -> list[Fault]:
    """By time; some seeds have none, so that growth itself is what happens."""
    rng = Random(f"growth {seed}")
    pace = rng.choice((0.1, 0.5, 1.5, 4.0))
    found, time = [], begins + rng.random()
    while time < seconds and seed % 8:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        found.append(Fault(time, kind, rng.random(), rng.random()))
        time += pace * rng.expovariate(1.0) + (1e-3 if rng.random() < 0.8 else 20 * pace)
    return found


class Chaos:
    """Carries faults out."""

    def __init__(self, world: GrowthWorld) -> None:
        self.world = world

    def do(self, fault: Fault) -> None:
        """One fault."""
        getattr(self, "_" + fault.kind)(fault)

    def _one(self, number: float) -> Process:
        return self.world.brokers[int(number * len(self.world.brokers))]

    def _broker(self, number: float) -> int:
        ordinals = sorted(self.world.control.nodes)
        return ordinals[int(number * len(ordinals))]

    def _again(self, process: Process, number: float) -> None:
        world = self.world
        world.at(world.time + (0.05 if number < 0.5 else 6 * number), world.begin, process)

    def _die(self, fault: Fault) -> None:
        """One process."""
        process = self._one(fault.number)
        self.world.end(process, power=False)
        self._again(process, fault.other)

    def _down(self, ordinal: int, number: float, *, power: bool) -> None:
        """A whole broker, for some time."""
        node = self.world.control.nodes[ordinal]
        node.down = True
        for process in self.world.processes(ordinal):
            self.world.end(process, quiet=power, power=power)
        seconds = 0.05 if number < 0.4 else 8 * number
        self.world.at(self.world.time + seconds, self.up, ordinal)

    def up(self, ordinal: int) -> None:
        """It is there again, with all its processes."""
        self.world.control.nodes[ordinal].down = False
        for process in self.world.processes(ordinal):
            self.world.begin(process)

    def _crash(self, fault: Fault) -> None:
        self._down(self._broker(fault.number), fault.other, power=False)

    def _power(self, fault: Fault) -> None:
        self._down(self._broker(fault.number), fault.other, power=True)

    def _power_all(self, fault: Fault) -> None:
        for ordinal in list(self.world.control.nodes):
            self._down(ordinal, (fault.number * (3 + ordinal)) % 1.0, power=True)

    def _pause(self, fault: Fault) -> None:
        process = self._one(fault.number)
        if process.replica is not None and not process.paused:
            process.paused = True
            at = self.world.time + 0.1 + 8 * fault.other**3
            self.world.at(at, self.resume, process, process.life)

    def resume(self, process: Process, life: int) -> None:
        """After a pause."""
        if process.life == life and process.paused:
            process.resume()

    def _cut(self, fault: Fault) -> None:
        one, other = self._broker(fault.number), self._broker(fault.other)
        if one != other:
            self.world.cuts.add((one, other))
            if fault.number * 1e4 % 1 < 0.5:
                self.world.cuts.add((other, one))

    def _isolate(self, fault: Fault) -> None:
        one = self._broker(fault.number)
        for ordinal in self.world.control.nodes:
            if ordinal != one:
                if fault.other < 0.8:
                    self.world.cuts.add((one, ordinal))
                if fault.other > 0.2:
                    self.world.cuts.add((ordinal, one))

    def _heal(self, fault: Fault) -> None:
        self.world.heal()
        for process in self.world.brokers:
            process.slow = self.world.usual_slow

    def _noise(self, fault: Fault) -> None:
        world = self.world
        world.loss, world.duplication = 0.3 * fault.number, 0.3 * (1 - fault.number)
        world.delay = world.usual_delay + 0.1 * fault.other**2

    def _slow(self, fault: Fault) -> None:
        self._one(fault.number).slow = 1 + 100 * fault.other**2

    def _elect(self, fault: Fault) -> None:
        """Any member proposes, for no reason."""
        process = self._one(fault.number)
        if process.replica is not None:
            for held in process.replica._open():
                process.step(on.Elect(held.generation.gid))

    def _eio(self, fault: Fault) -> None:
        self._one(fault.number).failing = True

    def _wipe(self, fault: Fault) -> None:
        ordinal = self._broker(fault.number)
        known = ordinal in self.world.identities and self.world.control.liar is None
        if known and self.world.oracle.fault_free():  # A liar is one too many already.
            self.world.seen.note("a disk is lost")
            self.world.wipe(ordinal)
            self._down(ordinal, fault.other, power=False)

    def _resign(self, fault: Fault) -> None:
        process = self._one(fault.number)
        process.step(on.Resign())
        self._die(fault)


def run(seed: int, scale: Scale = LARGE, *, mutant: object = None, trace: bool = False) -> Outcome:
    """One seed: a ring that changes its size under faults, then a healed one that comes to rest."""
    world = GrowthWorld(seed, scale.cut, mutant=mutant, trace=trace)
    world.native = mutant is None and seed % 2 == 1
    world.group_seconds = scale.groups[seed % 3]
    rng, chaos, violation = Random(f"sizes {seed}"), Chaos(world), None
    sizes = getattr(mutant, "sizes", None) or rng.choice(scale.sizes)
    pause = (scale.seconds - scale.begins - 1.0) / len(sizes)
    if seed % 4 == 3 or getattr(mutant, "lies", False):
        world.control.liar = rng.randrange(3)
    try:
        for ordinal in range(3):
            world.control.join(ordinal)
        for token in world.ranges:
            for member in token.members:
                process = world.process(member.ordinal, token.gid.token)
                world.at(rng.random(), world.begin, process)
        for at, size in enumerate(sizes[1:]):
            world.at(scale.begins + at * pause, world.control.retarget, size)
        for fault in faults_of(seed, scale.begins, scale.seconds):
            world.run(fault.time)
            chaos.do(fault)
        world.run(scale.seconds)
        _must_rest(world, chaos)
        world.clients.check()
        if missing := world.oracle.history():
            raise Violation("I2", f"acknowledged and gone: {missing}")
    except Violation as found:
        violation = found
    oracle = world.oracle
    return Outcome(
        seed,
        world.time,
        world.steps,
        oracle.acks,
        len(oracle.generations),
        world.clients.repeated,
        frozenset(world.seen.names),
        violation,
    )


def _must_rest(world: GrowthWorld, chaos: Chaos) -> None:
    """Healed, the ring becomes what is wanted, takes events, and readers have read all."""
    world.usual_delay = 0.0005
    chaos.do(Fault(world.time, "heal", 0.0, 0.0))
    for ordinal in list(world.control.nodes):
        chaos.up(ordinal)
    for process in list(world.brokers):
        process.failing = False
        chaos.resume(process, process.life)
    before, until = world.contents, world.time + LIVENESS_SECONDS
    answers = dict(world.clients.answers)
    while world.time < until:
        world.run(world.time + 0.5)
        if world.control.is_reached() and _progressed(world, before, answers):
            return
    lacks = [reader.number for reader in world.readers if not reader.has_read(answers)]
    text = f"reached: {world.control.is_reached()}, unread: {lacks}, open: {_stuck(world, before)}"
    text += f", lacking: {_lacking(world)}"
    raise Violation("liveness", f"no rest within {LIVENESS_SECONDS} s: {text}")


def _stuck(world: GrowthWorld, before: int) -> list[object]:
    """The open generations that have acknowledged nothing that was built since."""
    oracle = world.oracle
    return [
        gid
        for gid in oracle.opened
        if not (told := oracle.acknowledged.get(gid, 0)) or oracle.contents[gid][told] <= before
    ]


def _lacking(world: GrowthWorld) -> list[object]:
    """Who has heard that it was a member of what has ended, and is not whole there: also where it
    is a member of no child. (Who never heard of it gets no copy: the others have it.)"""
    found: list[object] = []
    for process in world.brokers:
        if process.disk.replaces:
            continue  # What is history nobody tells the disk that takes the place of a lost one.
        for generation in process.concerned():
            gid = generation.gid
            value = world.oracle.decided.get(gid)
            mine = gid.token == process.token and generation.seat(process.ordinal) is not None
            if value is None or not mine:
                continue
            if process.replica is None or not process.disk.decided(gid):
                found.append((process.ordinal, gid, "does not know its end"))
            elif not process.disk.holds(gid, value.tail) or (
                value.tail and gid not in process.disk.sealed
            ):
                found.append((process.ordinal, gid, "is not whole"))
    return found


def _progressed(world: GrowthWorld, before: int, answers: State) -> bool:
    if world.oracle.handed or _stuck(world, before) or _lacking(world):
        return False
    return all(reader.has_read(answers) for reader in world.readers)
