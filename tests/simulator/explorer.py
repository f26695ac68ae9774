"""One generation and its successor in every order of events: long random walks, and exhaustively.

Nothing happens by itself here. Each message, each completion of a disk, each group, ballot and
crash is an action; a message that is never delivered is one that is never chosen. The failure view
is switched off: whoever is told to propose, proposes (safety does not depend on rule P1).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from barco.cluster.logs.logs import Logs
from barco.cluster.replica.replica import Replica
from barco.cluster.state import events as on
from barco.model.generation import Gid
from barco.protocol.replication import (
    Decided,
    Fenced,
    Fetch,
    Fetched,
    Gap,
    Message,
    Nack,
    Unknown,
)

from .broker import Broker
from .copying import copy_world
from .mutants import MUTANTS
from .oracle import Violation
from .world import START, World

SUBJECT = Gid(START, 2)
"""The generation whose end is explored: A leads it, B and C follow."""


def driven(machine: Any) -> Any:
    """The machine without pings and without a will of its own, that takes every ballot: what rule
    P7 passes over is only lost."""

    def nothing(self: Replica, *ignored: Any) -> None:
        self._ping_at = float("inf")

    def takes(self: Replica, *ignored: Any) -> bool:
        return True

    def never(self: Replica, *ignored: Any) -> bool:
        return False

    own = {"_ping_all": nothing, "_drive": nothing, "_bids": takes, "_is_unheard": never}
    return type(machine.__name__ + "Driven", (machine,), own)


_DRIVEN = {each: driven(each) for each in (Replica, *(mutant.replica for mutant in MUTANTS))}


class Pending(NamedTuple):
    """Something that may happen next."""

    owner: int
    """Ordinal of the broker whose disk or clock it is; NETWORK for a message."""
    call: str
    args: tuple[Any, ...]

    @property
    def is_message(self) -> bool:
        return self.owner == NETWORK


NETWORK = -1


class _Keep(Random):
    """What a crash leaves of unfinished writes: all, or nothing."""

    all = False

    def randint(self, low: int, high: int) -> int:
        return high if self.all else low


class Frozen(World):
    """A world that stands still."""

    frozen = True

    def __init__(self, *, mutant: Any = None, lemmas: bool = True, native: bool = False) -> None:
        self.pending: list[Pending] = []
        super().__init__(0, mutant=mutant)
        self.native = native
        self.oracle.lemmas = lemmas
        self._replica = _DRIVEN[self._replica]
        self.rng = _Keep(0)
        self.done: list[Any] = []
        self.quiet = True
        for broker in self.brokers:
            broker.start()
        self.brokers[0].step(on.Elect(self.ranges[0].gid))
        self.settle()
        assert SUBJECT in self.brokers[0].leads, "A leads, B and C follow"

    def settle(self) -> None:
        """Everything that is on its way arrives, in order."""
        while self.pending:
            self.fire(self.pending[0])

    def fire(self, item: Pending, *, again: bool = False) -> None:
        """Let it happen."""
        if not again:
            self.pending.remove(item)
        getattr(self if item.is_message else self.brokers[item.owner], item.call)(*item.args)

    # --- What World does with time ----------------------------------------------------------

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        owner = getattr(call, "__self__", None)
        assert isinstance(owner, Broker), "only brokers set timers here"
        self.pending.append(Pending(owner.ordinal, call.__name__, args))

    def io(self, broker: Broker, call: Callable[..., None], *args: Any) -> None:
        self.pending.append(Pending(broker.ordinal, call.__name__, args))

    def send(self, sender: Broker, ordinal: int, message: Message) -> None:
        self.oracle.sent(sender, message)
        event = on.Received(sender.disk.identity, sender.session, message)
        self.pending.append(Pending(NETWORK, "deliver", (ordinal, event)))

    def deliver(self, ordinal: int, event: on.Received) -> None:
        self.brokers[ordinal].step(event)

    def new_session(self) -> int:
        """Depends on the broker's lives only: equal histories are equal states."""
        ordinal = next(b.ordinal for b in self.brokers if b.replica is None)
        return 1000 * (ordinal + 1) + self.brokers[ordinal].life

    def new_content(self, broker: Broker, gid: Gid, gseq: int) -> int:
        self.contents += 1
        return gid.epoch * 100_000 + gseq * 100 + broker.life

    def restart(self, ordinal: int, *, keep: bool, power: bool = False) -> None:
        """Crash and start; what was on its way to the disk is kept or not. With its `power` goes
        what was not synced."""
        assert isinstance(self.rng, _Keep)
        self.rng.all = keep
        broker = self.brokers[ordinal]
        broker.crash(power=power)
        self.pending = [each for each in self.pending if each.owner != ordinal]
        broker.start()


# --- Random walks -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """How one walk ended."""

    seed: int
    steps: int
    violation: Violation | None


def walk(
    seed: int,
    *,
    mutant: Any = None,
    steps: int = 120,
    lemmas: bool = True,
    native: bool | None = None,
    powers: bool = False,
) -> Walk:
    """One random walk from the same beginning; `native` as for `plan.run`. `powers`: a restart may
    lose what was not synced."""
    rng = Random(f"walk {seed}")
    weights = [rng.choice((1, 3, 8)) for _ in range(4)]
    patience = rng.random()
    world = None
    try:
        native = mutant is None and seed % 2 == 1 if native is None else native
        world = Frozen(mutant=mutant, lemmas=lemmas, native=native)
        for _ in range(steps):
            _wander(world, rng, weights, patience, powers)
        if missing := world.oracle.history():
            raise Violation("I2", f"acknowledged and gone: {missing}")
    except Violation as found:
        return Walk(seed, world.steps if world else 0, found)
    return Walk(seed, world.steps, None)


def _wander(world: Frozen, rng: Random, weights: list[int], patience: float, powers: bool) -> None:
    pending = world.pending
    roll = rng.random() * 60
    if pending and roll > sum(weights):
        # Old things first, for some walks; any order, for others.
        index = int(len(pending) * rng.random() ** (1 + 2 * patience))
        item = pending[index]
        again = item.is_message and rng.random() < 0.05
        if item.is_message and rng.random() < 0.03:
            pending.remove(item)
        else:
            world.fire(item, again=again)
        return
    broker = world.brokers[rng.randrange(3)]
    roll = rng.random() * sum(weights)
    if roll < weights[0]:
        for leader, generation in world.leaders():
            leader.build(generation.gid)
    elif roll < weights[0] + weights[1]:
        opened = sorted(world.oracle.opened)
        if broker.ordinal < 2:
            broker.step(on.Elect(opened[-1]))
    elif roll < weights[0] + weights[1] + weights[2]:
        world.time += 0.5
        broker.step(on.Tick())
    elif rng.random() < 0.4:
        keep = rng.random() < 0.5
        world.restart(broker.ordinal, keep=keep, power=powers and rng.random() < 0.5)


# --- Exhaustively -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """How much may happen on any one path."""

    ballots: int = 3
    groups: int = 1
    restarts: int = 1
    repeats: int = 0
    """Messages that are delivered twice."""


@dataclass
class Explored:
    """What a search saw."""

    states: int = 0
    exhausted: bool = False
    violation: Violation | None = None
    settled: set[int] = field(default_factory=set)
    """The states without what was on its way."""


class Space(Frozen):
    """A frozen world with the bounds of what may still happen."""

    def __init__(self, bounds: Bounds, *, mutant: Any = None) -> None:
        self.begun = False
        super().__init__(mutant=mutant)
        self.begun = True
        self.left = [bounds.ballots, bounds.groups, bounds.restarts, bounds.repeats]

    def work(self, broker: Broker, gid: Gid) -> None:
        pass

    def send(self, sender: Broker, ordinal: int, message: Message) -> None:
        # Only the subject's end is explored; a child's own messages change nothing in it.
        if not self.begun or getattr(message, "gid", SUBJECT) == SUBJECT:
            super().send(sender, ordinal, message)

    def actions(self) -> Iterator[tuple[Any, ...]]:
        """What may be next; equal things only once."""
        ballots, groups, restarts, repeats = self.left
        seen = set()
        for index, item in enumerate(self.pending):
            if item in seen:
                continue
            seen.add(item)
            yield ("fire", index)
            if repeats and item.is_message:
                yield ("again", index)
        if SUBJECT in self.oracle.opened or ballots:
            for ordinal in (0, 1) if ballots else ():
                yield ("elect", ordinal)
        if groups and SUBJECT in self.brokers[0].leads:
            yield ("build",)
        if restarts:
            for ordinal in range(3):
                yield ("restart", ordinal, False)
                if self.brokers[ordinal].disk.unsynced or any(
                    self.brokers[ordinal].disk.in_flight.values()
                ):
                    yield ("restart", ordinal, True)

    def act(self, action: tuple[Any, ...]) -> None:
        """One action, and what follows from it at once."""
        match action:
            case ("fire", index):
                self.fire(self.pending[index])
            case ("again", index):
                self.left[3] -= 1
                self.fire(self.pending[index], again=True)
            case ("elect", ordinal):
                self.left[0] -= 1
                self.brokers[ordinal].step(on.Elect(SUBJECT))
            case ("build",):
                self.left[1] -= 1
                self.brokers[0].build(SUBJECT)
            case ("restart", ordinal, keep):
                self.left[2] -= 1
                self.restart(ordinal, keep=keep)
        self._settle_disks()

    def _settle_disks(self) -> None:
        """Journals, drains and eager messages are as fast as they can be; appends are not."""
        while True:
            item = next((p for p in self.pending if _at_once(p)), None)
            if item is None:
                return
            self.fire(item)

    def settled(self) -> int:
        """Equal for equal states, whatever is on its way."""
        brokers = tuple(_broker_state(broker) for broker in self.brokers)
        told = tuple(sorted(self.oracle.acknowledged.items()))
        return hash((brokers, told, tuple(self.left)))

    def fingerprint(self) -> int:
        """Equal for equal states."""
        return hash((self.settled(), tuple(sorted(map(hash, self.pending)))))


EAGER = (Nack, Fenced, Gap, Unknown, Fetch, Fetched, Decided)
"""Messages whose delay adds no new ends: they only repeat what disks and votes already say."""


def _at_once(item: Pending) -> bool:
    if item.is_message:
        return isinstance(item.args[1].message, EAGER)
    return item.call != "landed"


def _broker_state(broker: Broker) -> tuple[Any, ...]:
    replica, disk = broker.replica, broker.disk
    assert replica is not None
    held = tuple(
        (
            *(gid, h.tail, h.received, h.owed, h.promised, h.accepted, h.decided, h.committed),
            *(h.fence, h.wish, h.target, h.round, h.stopped, h.sources),
            h.leading
            and (h.leading.built, tuple(h.leading.appended.items()), tuple(h.leading.fenced)),
        )
        for gid, h in replica._held.items()
    )
    proposals = tuple(
        (gid, p.ballot, tuple(p.promises.items()), p.value, tuple(sorted(p.accepted)))
        for gid, p in replica._proposals.items()
    )
    flying = tuple(tuple(each) for each in disk.in_flight.values())
    flying += tuple(tuple(sorted(each)) for each in disk.done.values() if each)
    logs = tuple(len(log) for log in disk.logs.values())
    machines = tuple(_print_of(broker, token) for token in broker.logs)
    return (broker.life, held, proposals, flying, logs, machines, len(disk.journal))


def _print_of(broker: Broker, token: int) -> int:
    found = broker.prints.get(token)
    if found is None:
        found = broker.prints[token] = hash(_logs_state(broker.logs[token]))
    return found


def _logs_state(logs: Logs) -> tuple[Any, ...]:
    return (
        *(tuple(logs._at.items()), logs.current, logs.leading, logs._step, logs._opens),
        *(tuple((gid, tuple(each)) for gid, each in logs._waiting.items() if each), logs._landed),
        *(tuple(logs._writing), tuple(logs._changes), tuple(sorted(logs._draining))),
        *(logs._settled_upto, logs._noted),
    )


def explore(
    bounds: Bounds, *, mutant: Any = None, states_max: int = 10**9, every_delay: bool = False
) -> Explored:
    """Every path within the bounds, each state once.

    Where some message would change nothing, it is delivered at once and nothing else is tried from
    there: ballots and promises only grow, so it changes nothing later either, and its delay only
    makes states that differ in it. `every_delay` tries these as well; they are most of all states.
    """
    result = Explored()
    try:
        first = Space(bounds, mutant=mutant)
    except Violation as found:
        return Explored(violation=found)
    seen = {first.fingerprint()}
    stack: list[Space] = [first]
    while stack and result.states < states_max:
        result.states += 1
        parent = stack.pop()
        result.settled.add(parent.settled())
        try:
            following = _following(parent, every_delay)
        except Violation as found:
            result.violation = found
            return result
        for space in following:
            print_ = space.fingerprint()
            if print_ not in seen:
                seen.add(print_)
                stack.append(space)
    result.exhausted = not stack
    return result


def _following(parent: Space, every_delay: bool) -> list[Space]:
    """The worlds after each of the actions; only one of them where that is without effect."""
    before = parent.settled()
    following = []
    for action in list(parent.actions()):
        space: Space = copy_world(parent)
        space.act(action)
        if not every_delay and action[0] == "fire":
            item = parent.pending[action[1]]
            if item.is_message and space.settled() == before and _without(parent, item, space):
                return [space]
        following.append(space)
    return following


def _without(parent: Space, item: Pending, space: Space) -> bool:
    """Whether that message is all that `space` has no more on its way."""
    left = sorted([*map(hash, space.pending), hash(item)])
    return left == sorted(map(hash, parent.pending))
