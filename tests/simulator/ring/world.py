"""A cluster whose leaders plan, with news that arrive late, in any order, and not at all."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from barco.cluster.ring.cut import Cut, Wanted
from barco.cluster.ring.plan import Planner, RingStep, StepKind
from barco.cluster.ring.routes import RangeRoute, RouteTable, unpack_route
from barco.cluster.ring.target import Target, TargetBroker
from barco.model.placement import ring_order


class BrokenError(Exception):
    """An invariant does not hold."""


def check(fine: bool, what: str) -> None:
    if not fine:
        raise BrokenError(what)


Ranges = list[tuple[int, int, tuple[int, ...]]]
"""(first, slices, members) of each."""


def expected(cut: Cut, workers: Mapping[int, int]) -> Ranges:
    """The ranges of a ring, from the whole ring that it is a part of: whoever is not there leaves
    its part to the broker before it."""
    size = 3
    while size <= max(workers):
        size *= 2
    whole = ring_order(size)
    order = [ordinal for ordinal in whole if ordinal in workers]
    starts = [whole.index(ordinal) * (cut.slices // size) for ordinal in order]
    found = []
    for at, (start, end) in enumerate(zip(starts, [*starts[1:], cut.slices], strict=True)):
        members = tuple(order[(at + seat) % len(order)] for seat in range(3))
        count = workers[order[at]]
        owners = [each * count // (end - start) for each in range(end - start)]
        for worker in range(count):
            found.append((start + owners.index(worker), owners.count(worker), members))
    return found


@dataclass
class Broker:
    """What one broker knows and runs."""

    ordinal: int
    table: RouteTable
    up: bool = True
    announced: bool = True
    """It has said that it takes part."""
    present: set[int] = field(default_factory=set)
    """Whom it has heard to take part."""
    processes: set[int] = field(default_factory=set)
    """Tokens of the ranges whose process it runs and that is ready."""
    unheard: list[RangeRoute] = field(default_factory=list)
    begun: dict[int, tuple[RingStep, Wanted]] = field(default_factory=dict)
    """Steps that are proposed, by the first slice of the range, and the ring that they are for."""


class World:
    """Registers, brokers, and a target."""

    def __init__(self, seed: int, cut: Cut, workers: Mapping[int, int]) -> None:
        self.rng = Random(seed)
        self.cut = cut
        self.workers = dict(workers)
        """Of the target."""
        self.owner: list[RangeRoute] = []
        """The latest decided route of each slice."""
        self.names: set[tuple[int, int]] = set()
        self.brokers: dict[int, Broker] = {}
        self.steps: Counter[StepKind] = Counter()
        self.joins = 0
        self.most_waiting: Counter[int] = Counter()
        self.told: list[RangeRoute] = []
        self.parents: dict[RangeRoute, tuple[RangeRoute, ...]] = {}
        ranges = [
            RangeRoute(first, slices, cut.token(first), 2, members[0], members)
            for first, slices, members in expected(cut, workers)
        ]
        self.owner = [route for route in ranges for _ in range(route.slices)]
        self.names = {(route.token, route.epoch) for route in ranges}
        for ordinal in workers:
            self._add(ordinal)
            self.brokers[ordinal].processes = {r.token for r in ranges if ordinal in r.members}
        for route in ranges:
            self._tell(route)
        for each in self.brokers.values():
            each.present = set(workers)
            self.hear(each, len(each.unheard))

    def _add(self, ordinal: int, *, announced: bool = True) -> None:
        self.brokers[ordinal] = Broker(ordinal, RouteTable(self.cut), announced=announced)
        self.brokers[ordinal].unheard = list(self.told)

    @property
    def target(self) -> Target:
        """As all know it."""
        listed = [TargetBroker(ordinal=o, workers=w) for o, w in sorted(self.workers.items())]
        return Target(1, self.cut, tuple(listed))

    def retarget(self, workers: Mapping[int, int]) -> None:
        """Another target; who is new has not said yet that it takes part."""
        self.workers = dict(workers)
        for ordinal in workers:
            if ordinal not in self.brokers:
                self._add(ordinal, announced=False)

    # --- What is true -----------------------------------------------------------------------------

    def open_at(self, number: int) -> RangeRoute:
        """The route that holds a slice in truth."""
        return self.owner[number]

    def routes(self) -> list[RangeRoute]:
        """Each once."""
        return list(dict.fromkeys(self.owner))

    def decide(self, ends: tuple[RangeRoute, ...], opens: tuple[RangeRoute, ...]) -> None:
        """What the register of the first of `ends` says; the others were handed over."""
        own, *taken = ends
        check(not own.handed and self.owner[own.first] == own, "its own generation is open")
        check(all(route.handed for route in taken), "what is taken in was handed over")
        covered = sorted(n for route in ends for n in range(route.first, route.end))
        for route in ends:
            check(
                all(self.owner[n] == route for n in range(route.first, route.end)),
                "what ends is what is there",
            )
        check(
            covered == list(range(covered[0], covered[-1] + 1)), "what is taken in lies behind it"
        )
        if not opens:
            check(own.first > 0, "the first slice has no left neighbour")
            opens = (own._replace(handed=True),)
        else:
            self._names(ends, opens)
        over = [n for route in opens for n in range(route.first, route.end)]
        check(over == covered, "each slice is in exactly one of what follows")
        for route in opens:
            self.parents[route] = ends
            self.owner[route.first : route.end] = [route] * route.slices
            self._tell(route)

    def _names(self, ends: tuple[RangeRoute, ...], opens: tuple[RangeRoute, ...]) -> None:
        for route in opens:
            check(route.epoch > max(each.epoch for each in ends), "epochs rise (I9)")
            name = (route.token, route.epoch)
            check(name not in self.names, "a generation's name is unique (I9)")
            self.names.add(name)
            check(route.leader in route.members, "a member leads")

    # --- News -------------------------------------------------------------------------------------

    def _tell(self, route: RangeRoute) -> None:
        self.told.append(route)
        for each in self.brokers.values():
            if each.ordinal in route.members:  # It is in its own journal, as all before it.
                for known in (route, *self.ancestors(route)):
                    each.table.merge(unpack_route(self.cut, known.packed()))
            else:
                each.unheard.append(route)

    def ancestors(self, route: RangeRoute) -> list[RangeRoute]:
        """All generations that led to one."""
        found: dict[RangeRoute, None] = {}
        below = [route]
        while below:
            for parent in self.parents.get(below.pop(), ()):
                if parent not in found:
                    found[parent] = None
                    below.append(parent)
        return list(found)

    def hear(self, broker: Broker, count: int) -> None:
        """So many of the news that it has not heard, in any order; some come again later."""
        for _ in range(min(count, len(broker.unheard))):
            at = self.rng.randrange(len(broker.unheard))
            route = broker.unheard[at]
            if self.rng.random() < 0.8:
                broker.unheard.pop(at)
            broker.table.merge(unpack_route(self.cut, route.packed()))

    # --- What happens -----------------------------------------------------------------------------

    def ready(self, ordinal: int, token: int) -> bool:
        """What has been said to everybody."""
        broker = self.brokers.get(ordinal)
        return broker is not None and broker.up and token in broker.processes

    def planner(self, broker: Broker) -> Planner:
        """Of what a broker knows."""
        return Planner(broker.table, self.wanted_of(broker), self.ready)

    def wanted_of(self, broker: Broker) -> Wanted:
        """The ring as a broker wants it."""
        target = self.target
        return target.wanted(target.joined(broker.table, broker.present))

    def announce(self) -> None:
        """One that is new takes part, and is heard by some."""
        silent = [each for each in self.brokers.values() if not each.announced and each.up]
        if silent:
            self.rng.choice(silent).announced = True
            self.joins += 1

    def rumour(self) -> None:
        """One broker hears whether another is there."""
        one, other = (self.rng.choice(list(self.brokers.values())) for _ in range(2))
        here = other.announced and other.up
        (one.present.add if here else one.present.discard)(other.ordinal)

    def start(self) -> None:
        """One broker starts some of the processes that it needs."""
        self.start_at(self.rng.choice(list(self.brokers.values())), 0.7)

    def start_at(self, broker: Broker, share: float = 1.0) -> None:
        """A broker starts the processes that it lacks, or a share of them."""
        if not broker.up or not broker.announced:
            return
        tokens = {r.token for r in self.routes() if broker.ordinal in r.members}
        wanted = self.wanted_of(broker)
        if broker.ordinal in wanted.brokers:
            tokens |= {self.cut.token(each.first) for each in wanted.held_by(broker.ordinal)}
        for token in sorted(tokens - broker.processes):
            if self.rng.random() < share:
                broker.processes.add(token)

    def crash(self) -> None:
        """One broker dies; one at a time, so that two of three are always there."""
        if any(not each.up for each in self.brokers.values()):
            return
        broker = self.rng.choice(list(self.brokers.values()))
        broker.up = False
        broker.processes.clear()
        for step, wanted in list(broker.begun.values()):  # The others may have decided it.
            if self.rng.random() < 0.5:
                self.finish(step, wanted)
        broker.begun.clear()

    def come_back(self) -> None:
        """It starts again."""
        for broker in self.brokers.values():
            broker.up = True

    def follow(self, *, every: bool = False) -> None:
        """Leaders that are gone are followed by the next in line; owners that are back lead."""
        for route in self.routes():
            if route.handed or not (every or self.rng.random() < 0.5):
                continue
            heirs = [each for each in route.members[:2] if self.ready(each, route.token)]
            if not heirs or heirs[0] == route.leader:
                continue
            if not self.ready(route.leader, route.token) or every or self.rng.random() < 0.3:
                self._relead(route, heirs[0])

    def replace_leader(self) -> None:
        """The leader of any range is followed by another member, for no reason."""
        route = self.rng.choice(self.routes())
        heirs = [each for each in route.members[:2] if self.ready(each, route.token)]
        if heirs and not route.handed:
            self._relead(route, self.rng.choice(heirs))

    def _relead(self, route: RangeRoute, leader: int) -> None:
        epoch = route.epoch + self.rng.choice((1, 1, 1, 7))
        self.decide((route,), (route._replace(epoch=epoch, leader=leader),))

    def plan(self) -> int:
        """One broker begins what its plan says; how many steps."""
        broker = self.rng.choice(list(self.brokers.values()))
        return self.begin(broker)

    def begin(self, broker: Broker) -> int:
        """The steps that are due at a broker."""
        if not broker.up:
            return 0
        for first, (step, _) in list(broker.begun.items()):
            if broker.table.at(first) != step.ends[0]:
                del broker.begun[first]  # Another has decided its register.
        due = self.planner(broker).due(broker.ordinal, broker.begun.keys())
        for step in due:
            self._may_begin(broker, step)
            broker.begun[step.ends[0].first] = step, self.wanted_of(broker)
        return len(due)

    def _may_begin(self, broker: Broker, step: RingStep) -> None:
        own = step.ends[0]
        check(step.by == broker.ordinal == own.leader, "each leader plans for its own range")
        check(own.first not in broker.begun, "one step of a range at a time")
        led = broker.table.led_by(broker.ordinal)
        waits = sum(each.ends[0].slices for each, _ in broker.begun.values())
        if step.kind is not StepKind.JOIN:
            waits += sum(
                route.slices for route in broker.table.led_by(broker.ordinal) if route.handed
            )
        slices = sum(route.slices for route in led)
        check(
            waits == 0 or 4 * (waits + own.slices) <= slices,
            f"a quarter waits at a time: {waits} + {own.slices} of {slices}",
        )
        self.most_waiting[broker.ordinal] = max(self.most_waiting[broker.ordinal], waits)
        before = {member for route in step.ends for member in route.members}
        begins = {each.first for each in self.wanted_of(broker).ranges()}
        for child in step.opens:
            same = child.members == own.members and child.leader == own.leader
            if same and (step.kind is StepKind.JOIN or child.first not in begins):
                continue  # What waits is taken in by those who are there; the rest stays there.
            ready = [each for each in child.members if self.ready(each, child.token)]
            check(child.leader in ready, "it will lead at once")
            check({*child.members} - before <= {*ready}, "who is new is ready")
            check(len(ready) >= 2, "two of three are ready")
            check(child.leader in child.members[:2], "the third never leads")

    def finish_one(self) -> None:
        """A register decides what was proposed."""
        begun = [each for each in self.brokers.values() if each.begun]
        if begun:
            broker = self.rng.choice(begun)
            first = self.rng.choice(list(broker.begun))
            self.finish(*broker.begun.pop(first))

    def finish(self, step: RingStep, wanted: Wanted) -> None:
        """Decided, if the generation is still open; else something else was."""
        if self.owner[step.ends[0].first] != step.ends[0]:
            return
        if step.kind is StepKind.HAND_OVER:
            own = step.ends[0]
            owner = own.members[0]
            stands = owner in self.workers and self.cut.position(owner) == own.first
            check(not stands, "who is away keeps its part of the ring")
        before = potential(self.routes(), wanted)
        self.decide(step.ends, step.opens)
        self.steps[step.kind] += 1
        if step.kind is not StepKind.JOIN:  # It is due whatever is wanted.
            check(potential(self.routes(), wanted) < before, "each step brings the ring nearer")

    # --- The end ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """All are there, all is heard, all start: until nothing happens any more."""
        for broker in self.brokers.values():
            if not broker.announced:
                broker.announced = True
                self.joins += 1
        everybody = set(self.brokers)
        for _ in range(20 * self.cut.slices):
            self.come_back()
            for broker in self.brokers.values():
                broker.present = set(everybody)
                for route in broker.unheard:
                    broker.table.merge(route)
                broker.unheard.clear()
                self.start_at(broker)
            self.follow(every=True)
            begun = sum(self.begin(broker) for broker in self.brokers.values())
            if not begun and not any(broker.begun for broker in self.brokers.values()):
                break
            while any(broker.begun for broker in self.brokers.values()):
                self.finish_one()
        for broker in self.brokers.values():
            for route in broker.unheard:
                broker.table.merge(route)
        self.at_rest()

    def at_rest(self) -> None:
        """The ring is the target's, and everybody knows the same."""
        found = [(route.first, route.slices, route.members) for route in self.routes()]
        check(found == expected(self.cut, self.workers), f"the target is reached: {found}")
        check(all(r.leader == r.members[0] for r in self.routes()), "owners lead")
        for broker in self.brokers.values():
            check(list(broker.table) == self.routes(), "everybody has the same table")
            check(not broker.table.faults(), f"nothing is strange: {broker.table.faults()}")
            check(self.planner(broker).is_reached(), "and says so")
        check(len({b.table.version for b in self.brokers.values()}) == 1, "of the same version")


def potential(routes: list[RangeRoute], wanted: Wanted) -> tuple[int, int, int]:
    """How far from the wanted ring: borders that lack, borders too many, ranges elsewhere."""
    there = {route.first for route in routes}
    handed = {route.first for route in routes if route.handed}
    ranges = {each.first: each for each in wanted.ranges()}
    many = sum(1 if first in handed else 2 for first in there - ranges.keys())
    wrong = sum(
        1
        for route in routes
        if route.first in ranges and route.members != ranges[route.first].members
    )
    return len(ranges.keys() - there), many, wrong


HURTS = {
    "announce": 1,
    "rumour": 6,
    "start": 6,
    "crash": 1,
    "come_back": 2,
    "follow": 2,
    "replace_leader": 1,
    "plan": 8,
    "finish_one": 6,
}


def chaos(world: World, actions: int) -> None:
    """So many random things."""
    names, weights = list(HURTS), list(HURTS.values())
    for name in world.rng.choices(names, weights, k=actions):
        getattr(world, name)()
        broker = world.rng.choice(list(world.brokers.values()))
        world.hear(broker, world.rng.randrange(4))


def shapes(rng: Random, slices: int) -> list[dict[int, int]]:
    """A way of targets: rings, half-grown ones, with workers of all kinds."""
    found = []
    for _ in range(rng.randint(1, 4)):
        size = rng.choice([each for each in (3, 6, 12) if each <= slices])
        new = range(size // 2, size) if size > 3 else range(0)
        kept = rng.sample(new, rng.randint(1, len(new))) if new else []
        ordinals = [*range(size if size == 3 else size // 2), *kept]
        most = slices // size
        found.append({each: rng.randint(1, min(4, most)) for each in ordinals})
    return found


def run(seed: int, actions: int = 150) -> World:
    """One seed: a ring, targets one after the other, each under faults, each reached."""
    rng = Random(f"ring {seed}")
    cut = Cut(3, rng.choice((4, 8, 8, 16)))
    first = {ordinal: rng.randint(1, 2) for ordinal in range(3)}
    world = World(seed, cut, first)
    for workers in [*shapes(rng, cut.slices), first]:
        joins, steps = world.joins, sum(world.steps.values())
        world.retarget(workers)
        chaos(world, actions)
        world.settle()
        most = max(*workers.values(), 4)
        taken = sum(world.steps.values()) - steps
        bound = most * (3 * 12 + 7 * (world.joins - joins)) * 2
        check(taken <= bound, f"{taken} steps, more than {bound}")
        for gone in set(world.brokers) - set(workers):
            check(
                not any(gone in route.members for route in world.routes()), "it is in nothing more"
            )
            del world.brokers[gone]
    check([r.members for r in world.routes()] == [m for *_, m in expected(cut, first)], "first cut")
    return world
