"""The faults of one seed, drawn beforehand: a failure can be repeated with fewer of them."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from barco.cluster.state import events as on
from barco.model.generation import Generation, Gid, Identity

from .broker import Broker
from .oracle import Violation
from .world import MIDDLE, Lag, World

CLOSE_SECONDS = 6.0
"""A close world does in this time what others do in a minute."""

LIVENESS_SECONDS = 25.0
"""After the last fault a healed quorum has to make progress within this time."""


class Fault(NamedTuple):
    """Something that goes wrong."""

    time: float
    kind: str
    ordinal: int
    other: int
    number: float
    """Uniform in [0, 1); each kind makes of it what it needs."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    seed: int
    seconds: float
    steps: int
    acks: int
    generations: int
    violation: Violation | None = None


KINDS = {
    "crash": 6,
    "power": 3,
    "power_all": 1,
    "pause": 4,
    "cut": 4,
    "isolate": 4,
    "heal": 8,
    "noise": 3,
    "slow": 2,
    "elect": 5,
    "wipe": 1,
    "rot": 2,
    "full": 1,
    "eio": 3,
    "resign": 1,
}
CLOSE = {
    "crash": 6,
    "power": 4,
    "cut": 6,
    "heal": 8,
    "elect": 16,
    "noise": 2,
    "slow": 2,
    "eio": 2,
    "pause": 1,
}
"""For worlds where everything takes long and the faults come in quick succession."""

EXPIRING = {
    "crash": 6,
    "power": 3,
    "isolate": 6,
    "heal": 8,
    "noise": 2,
    "elect": 8,
    "expire": 10,
    "wipe": 3,
}
"""Retention goes on where somebody is away, or begins with an empty disk."""

FORGETTING = KINDS | {"forget": 6}
"""A journal loses records, in both of its copies."""

HURTING = KINDS | {"hurt": 16, "forget": 2}
"""Of the two files of a journal one is hurt, or each in another place; now and then both in one."""

LAGGING = KINDS | {"lag": 16, "elect": 12, "wipe": 0}
"""A chosen member is behind by a chosen number of groups, or of messages."""

ROTTING = KINDS | {"rot": 6, "rot_open": 24, "isolate": 10, "elect": 16, "wipe": 0}
"""Groups are damaged, in logs that are open and in what has ended."""

ROLLING = KINDS | {"copy": 5, "roll": 5, "wipe": 0, "rot": 0}
"""A data directory goes back to a copy of it, once in a world."""

FOUR = KINDS | {"split": 6, "absorb": 6, "wipe": 0, "rot": 1}
"""With broker D, ranges are split and merged."""


ONE = {
    "crash": 6,
    "power": 4,
    "pause": 3,
    "slow": 2,
    "elect": 8,
    "full": 1,
    "eio": 2,
    "resign": 1,
    "heal": 4,
}
"""A single member has nobody to be cut off from, and no other copy of what rots."""


def plan(
    seed: int,
    seconds: float,
    *,
    four: bool = False,
    forget: bool = False,
    rollback: bool = False,
    one: bool = False,
    expire: bool = False,
    hurt: bool = False,
    lag: bool = False,
    rotting: bool = False,
) -> list[Fault]:
    """The faults of a seed, by time."""
    rng = Random(f"plan {seed}")
    kinds = FOUR if four else FORGETTING if forget else CLOSE if close(seed) else KINDS
    kinds = ROLLING if rollback else kinds
    kinds = ONE if one else EXPIRING if expire else HURTING if hurt else kinds
    kinds = LAGGING if lag else ROTTING if rotting else kinds
    seconds = min(seconds, CLOSE_SECONDS) if close(seed) else seconds
    names, weights = list(kinds), list(kinds.values())
    pace = 10 * slowness(seed)[0] if close(seed) else rng.choice((0.1, 0.5, 1.0, 3.0))
    faults, time = [], 1.0 + rng.random()
    while time < seconds:
        kind = rng.choices(names, weights)[0]
        first, second = (0, 0) if one else rng.sample(range(4 if four else 3), 2)
        faults.append(Fault(time, kind, first, second, rng.random()))
        time += pace * rng.expovariate(1.0) + (1e-3 if rng.random() < 0.8 else 20 * pace)
    return faults


def slowness(seed: int) -> tuple[float, float, float]:
    """Of a close world: seconds on the network, factor of the disks, seconds between groups."""
    rng = Random(f"slowness {seed}")
    delay = rng.choice((0.002, 0.005, 0.015))
    return delay, rng.choice((1.0, 4.0, 15.0)), rng.choice((0.3, 1.0, 3.0)) * delay


def close(seed: int) -> bool:
    """Every third seed: slow network and disks, many groups, faults at every moment."""
    return seed % 3 == 2


class Chaos:
    """Carries the faults of a plan out on a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def do(self, fault: Fault) -> None:
        """One fault."""
        getattr(self, "_" + fault.kind)(fault)

    def _again(self, ordinal: int, number: float) -> None:
        """The broker starts again, soon or later."""
        world = self.world
        world.at(world.time + (0.05 if number < 0.5 else 6 * number), world.start, ordinal)

    def _crash(self, fault: Fault) -> None:
        self.world.crash(fault.ordinal)
        self._again(fault.ordinal, fault.number)

    def _power(self, fault: Fault) -> None:
        self.world.crash(fault.ordinal, quiet=True, power=True)
        self._again(fault.ordinal, fault.number)

    def _power_all(self, fault: Fault) -> None:
        for broker in self.world.brokers:
            self.world.crash(broker.ordinal, quiet=True, power=True)
            self._again(broker.ordinal, (fault.number * (3 + broker.ordinal)) % 1.0)

    def _pause(self, fault: Fault) -> None:
        broker = self.world.brokers[fault.ordinal]
        if broker.replica is not None and not broker.paused:
            broker.paused = True
            life = broker.life
            seconds = 0.1 + 8 * fault.number**3
            self.world.at(self.world.time + seconds, self._resume, fault.ordinal, life)

    def _resume(self, ordinal: int, life: int) -> None:
        broker = self.world.brokers[ordinal]
        if broker.life == life and broker.paused:
            broker.resume()

    def _cut(self, fault: Fault) -> None:
        self.world.cuts.add((fault.ordinal, fault.other))
        if fault.number < 0.5:
            self.world.cuts.add((fault.other, fault.ordinal))

    def _isolate(self, fault: Fault) -> None:
        for broker in self.world.brokers:
            if broker.ordinal != fault.ordinal:
                if fault.number < 0.8:
                    self.world.cuts.add((fault.ordinal, broker.ordinal))
                if fault.number > 0.2:
                    self.world.cuts.add((broker.ordinal, fault.ordinal))

    def _heal(self, fault: Fault) -> None:
        self.world.heal()
        for broker in self.world.brokers:
            broker.slow = self.world.usual_slow
            if broker.disk.full:  # Its process starts anew when there is space again.
                broker.disk.full = False
                self._crash(fault._replace(ordinal=broker.ordinal))

    def _noise(self, fault: Fault) -> None:
        self.world.loss = 0.3 * fault.number
        self.world.duplication = 0.3 * (1 - fault.number)
        self.world.delay = self.world.usual_delay + 0.1 * fault.number**2

    def _slow(self, fault: Fault) -> None:
        self.world.brokers[fault.ordinal].slow = 1 + 100 * fault.number**2

    def _elect(self, fault: Fault) -> None:
        """Any member proposes for no reason: P1 is for liveness only."""
        broker = self.world.brokers[fault.ordinal]
        opened = sorted(self.world.oracle.opened)
        gid = opened[int(fault.number * len(opened))]
        generation = self.world.oracle.generations[gid]
        if broker.replica is not None and generation.seat(fault.ordinal) is not None:
            late = self.world.late
            behind = bool(late) and late[0][0] == fault.ordinal
            self.world.seen.note("who lags proposes", when=behind)
            broker.step(on.Elect(gid))

    def _resign(self, fault: Fault) -> None:
        self.world.brokers[fault.ordinal].step(on.Resign())
        self._crash(fault)

    def _wipe(self, fault: Fault) -> None:
        world = self.world
        if len(world.oracle.decided) > 1 and world.oracle.fault_free():
            world.wipe(fault.ordinal)
            self._again(fault.ordinal, fault.number)

    def _rot(self, fault: Fault) -> None:
        world = self.world
        disk = world.brokers[fault.ordinal].disk
        gids = sorted(gid for gid, log in disk.logs.items() if len(log) > 1)
        if gids and world.oracle.fault_free():
            gid = gids[int((fault.number * 7) % 1.0 * len(gids))]
            gseq = 1 + int(fault.number * (len(disk.logs[gid]) - 1))
            world.rot(fault.ordinal, gid, gseq)

    def _rot_open(self, fault: Fault) -> None:
        """Of a log that is open, near its end, where not everybody has it."""
        world = self.world
        log = world.brokers[fault.ordinal].disk.logs
        gid = max((gid for gid in log if gid in world.oracle.opened), default=None)
        if gid is not None and len(log[gid]) > 1 and world.oracle.whole():
            world.rot(fault.ordinal, gid, max(1, len(log[gid]) - 1 - int(4 * fault.number)))

    def _forget(self, fault: Fault) -> None:
        if self.world.oracle.fault_free():
            self.world.forget(fault.ordinal)
            self._again(fault.ordinal, fault.number)

    def _lag(self, fault: Fault) -> None:
        """By 1 to 60; every other time by groups alone."""
        by = 1 + int(60 * fault.number**2)
        groups = int(fault.number * 1e6) % 2 == 0
        self.world.lags(Lag(fault.ordinal, by, groups))
        self.world.seen.note(f"a member lags by {'groups' if groups else 'messages'}")

    def _hurt(self, fault: Fault) -> None:
        """Nothing is lost by it, and nobody shall notice. Every third time it waits until something
        is on its way into the journal."""
        if fault.number > 0.67:
            self.world.brokers[fault.ordinal].hurt_next = lambda: self._hurt_now(fault)
        else:
            self._hurt_now(fault)

    def _hurt_now(self, fault: Fault) -> None:
        self.world.hurt(fault.ordinal, half=fault.number < 0.3)
        self._again(fault.ordinal, fault.number)

    def _copy(self, fault: Fault) -> None:
        self.world.copy(fault.ordinal)

    def _roll(self, fault: Fault) -> None:
        world = self.world
        ordinal = fault.ordinal if fault.ordinal in world.copies else next(iter(world.copies), -1)
        if ordinal >= 0 and world.oracle.fault_free():
            world.roll_back(ordinal)
            self._again(ordinal, fault.number)

    def _eio(self, fault: Fault) -> None:
        """The next write or sync of this broker's disk fails, once."""
        self.world.brokers[fault.ordinal].failing = True

    def _expire(self, fault: Fault) -> None:
        self.world.expire(fault.ordinal, fault.number)

    def _full(self, fault: Fault) -> None:
        self.world.brokers[fault.ordinal].disk.full = True

    # --- With four brokers ------------------------------------------------------------------

    def _identity(self, ordinal: int) -> Identity:
        return self.world.brokers[ordinal].disk.identity

    def _split(self, fault: Fault) -> None:
        """D joins between A and B."""
        new = self.world.brokers[3]
        for broker, generation in self.world.leaders():
            whole = (generation.gid.token, generation.end) == (0, 1000)
            if not whole or broker.ordinal != 0 or new.replica is None:
                continue
            a, b, c, d = (self._identity(ordinal) for ordinal in range(4))
            zero = generation.gid
            first = Generation(zero, MIDDLE, a, broker.session, (a, d, b), ())
            second = Generation(Gid(MIDDLE, 1), 1000, d, new.session, (d, b, c), ())
            broker.step(on.Split(zero, (first, second)))

    def _absorb(self, fault: Fault) -> None:
        """D leaves."""
        world = self.world
        donor = next((g for g in world.oracle.opened.values() if g.gid.token == MIDDLE), None)
        donor = donor or world.oracle.handed_at(MIDDLE)
        if donor is None:
            return
        for broker, generation in world.leaders():
            if generation.end == MIDDLE and broker.ordinal == 0:
                broker.step(on.Absorb(generation.gid, donor))


def run(
    seed: int,
    seconds: float,
    *,
    mutant: object = None,
    four: bool = False,
    forget: bool = False,
    rollback: bool = False,
    one: bool = False,
    expire: bool = False,
    hurt: bool = False,
    lag: bool = False,
    rotting: bool = False,
    liveness: bool = True,
    lemmas: bool = True,
    faults: list[Fault] | None = None,
    trace: bool = False,
    made: Callable[[World], None] | None = None,
    native: bool | None = None,
) -> Outcome:
    """One seed: faults, then a healed quorum that must make progress. `native`: whether the core
    takes what it may; None: in half of the worlds without a mutant."""
    world = World(seed, mutant=mutant, brokers=4 if four else 1 if one else 3, trace=trace)
    world.native = mutant is None and seed % 2 == 1 if native is None else native
    world.oracle.lemmas = lemmas
    if made is not None:
        made(world)
    rng = Random(f"clocks {seed}")
    chaos = Chaos(world)
    if close(seed):
        world.usual_delay, world.usual_slow, world.group_seconds = slowness(seed)
        world.delay = world.usual_delay
        seconds = min(seconds, CLOSE_SECONDS)
    violation = None
    try:
        for broker in world.brokers:
            broker.slow = world.usual_slow
            broker.offset = rng.choice((0.0, 1e3, 1e8 * rng.random()))
            broker.rate = rng.choice((1.0, 1.0, 1.2, 0.8))
            world.at(rng.random(), world.start, broker.ordinal)
        if faults is None:
            kinds = {"four": four, "forget": forget, "rollback": rollback, "one": one}
            faults = plan(
                seed, seconds, expire=expire, hurt=hurt, lag=lag, rotting=rotting, **kinds
            )
        for fault in faults:
            world.run(fault.time)
            chaos.do(fault)
        world.run(seconds)
        if liveness:
            _must_progress(world, chaos, rng)
        if missing := world.oracle.history():
            raise Violation("I2", f"acknowledged and gone: {missing}")
        if liveness and (silent := silent_losses(world)):
            raise Violation("D9", f"acknowledged, gone, and not a word: {silent}")
    except Violation as found:
        violation = found
    oracle = world.oracle
    return Outcome(seed, world.time, world.steps, oracle.acks, len(oracle.generations), violation)


def silent_losses(world: World) -> list[object]:
    """What two of three went on without, and another has and knows that it was committed."""
    found: list[object] = []
    for gid, tail, told in world.oracle.losses:
        for broker in world.brokers:
            disk = broker.disk
            log = disk.logs.get(gid, ())
            known = min(disk.witness.get(gid, 0), len(log))
            # Those that went on have another generation of that name.
            lost = tail < known and (gid, known, log[known - 1].header_crc) in world.oracle.left_out
            if lost and known <= told and disk.decided(gid) and not disk.aside:
                found.append((broker.ordinal, gid, tail, known))
    return found


def _must_progress(world: World, chaos: Chaos, rng: Random) -> None:
    """Heal two or three brokers, and see whether every open range is written to again."""
    world.usual_delay, world.usual_slow = 0.0005, 1.0
    chaos.do(Fault(world.time, "heal", 0, 0, 0.0))
    # Genesis is decided by all three; once something was acknowledged, any two know the rest.
    whole = world.oracle.fault_free() and world.oracle.acks > 0
    left_out = rng.choice((None, 0, 1, 2)) if whole and len(world.brokers) == 3 else None
    for broker in world.brokers:
        world.at(world.time, chaos._resume, broker.ordinal, broker.life)
        world.at(world.time + 0.1, world.start, broker.ordinal)
        if left_out is not None and broker.ordinal != left_out:
            world.cuts |= {(left_out, broker.ordinal), (broker.ordinal, left_out)}
    before = world.contents
    until = world.time + LIVENESS_SECONDS
    while world.time < until:
        world.run(world.time + 0.5)
        if world.oracle.handed:  # The control plane goes on with what it has begun.
            chaos.do(Fault(world.time, "absorb", 0, 0, 0.0))
        if _progressed(world, before):
            return
    healed = "all" if left_out is None else f"all but {left_out}"
    raise Violation("liveness", f"no progress within {LIVENESS_SECONDS} s, {healed} healed")


def _progressed(world: World, before: int) -> bool:
    """Whether each open range has acknowledged a group that was built after the healing."""
    oracle = world.oracle
    for gid in oracle.opened:
        told = oracle.acknowledged.get(gid, 0)
        if not told or oracle.contents[gid][told] <= before:
            return False
    return not oracle.handed and all(map(_is_read, world.brokers))


def _is_read(broker: Broker) -> bool:
    """Whether readers see every generation that has ended and is whole on this disk."""
    disk = broker.disk
    return broker.replica is None or all(
        gid in disk.sealed or not disk.holds(gid, value.tail)
        for gid, value in broker.world.oracle.decided.items()
        if gid in disk.logs and disk.decided(gid)
    )
