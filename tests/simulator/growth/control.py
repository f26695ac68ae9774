"""What goes from broker to broker beside the links: routes, the plan, words and states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.cluster.ring.cut import Wanted
from barco.cluster.ring.plan import Planner, RingStep, StepKind
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.cluster.ring.target import Target, TargetBroker
from barco.cluster.state import events as on
from barco.cluster.state.kin import KnownLineage, origin
from barco.model.generation import Generation, Gid, Kind, Successor
from barco.types import Epoch, Token

if TYPE_CHECKING:
    from .process import Process
    from .world import GrowthWorld

TURN_SECONDS = 0.25
"""A broker looks at the plan, and asks what it lacks, about so often."""

Told = tuple[Generation, Successor]


class Node:
    """One broker, beside its processes."""

    def __init__(self, world: GrowthWorld, ordinal: int) -> None:
        self.ordinal = ordinal
        self.table = RouteTable(world.cut)
        self.down = False
        self.told: set[tuple[int, Gid]] = set()


class Control:
    """Supervisors and RPC, with late news."""

    def __init__(self, world: GrowthWorld) -> None:
        self.world = world
        self.nodes: dict[int, Node] = {}
        self.target = self._target({0: 1, 1: 1, 2: 1})
        self.liar: int | None = None
        """A broker whose answers on what was decided are made up."""
        self.old_sessions: dict[tuple[int, int], int] = {}

    def _target(self, workers: dict[int, int]) -> Target:
        listed = [TargetBroker(ordinal=o, workers=w) for o, w in sorted(workers.items())]
        return Target(1, self.world.cut, tuple(listed))

    def retarget(self, brokers: int) -> None:
        """The ring shall have so many brokers; who is new begins."""
        self.target = self._target(dict.fromkeys(range(brokers), 1))
        for ordinal in range(brokers):
            self.join(ordinal)

    def join(self, ordinal: int) -> None:
        """A broker takes part."""
        if ordinal not in self.nodes:
            self.nodes[ordinal] = Node(self.world, ordinal)
            self.world.at(self.world.time + self.world.rng.random(), self.turn, ordinal)

    def is_down(self, ordinal: int) -> bool:
        return self.nodes[ordinal].down

    def wanted(self, node: Node) -> Wanted:
        return self.target.wanted(self.target.joined(node.table, self.nodes))

    def members_of(self, ordinal: int, token: int) -> tuple[int, ...]:
        """As far as a broker knows."""
        node = self.nodes[ordinal]
        number = self.world.slots[token]
        route, wanted = node.table.at(number), self.wanted(node).at(number)
        named = wanted.members if wanted.first == number else ()
        if ordinal not in named and route is not None and route.token == token:
            named = route.members
        return named if ordinal in named else (*named[:2], ordinal)

    # --- A broker's turn --------------------------------------------------------------------------

    def turn(self, ordinal: int) -> None:
        """What a supervisor and its workers do again and again."""
        world, node = self.world, self.nodes[ordinal]
        world.at(world.time + TURN_SECONDS * (0.5 + world.rng.random()), self.turn, ordinal)
        if node.down:
            return
        for process in world.processes(ordinal):
            self._routes_of(node, process)
        self._gossip(node)
        self._start(node)
        for process in world.processes(ordinal):
            self._pull(node, process)
        self._steps(node)

    def _routes_of(self, node: Node, process: Process) -> None:
        """What its journal has as decided."""
        replica = process.replica
        if replica is None or process.paused:
            return
        for gid, value in replica._decided.items():
            if (process.token, gid) in node.told:
                continue
            record = replica.record(gid)
            if value.kind is Kind.HANDOFF and record is not None:
                node.table.merge(self._route(record)._replace(handed=True))
            for child in value.children:
                node.table.merge(self._route(child))
            node.told.add((process.token, gid))

    def _route(self, generation: Generation) -> RangeRoute:
        slices = self.world.slices_of(generation)
        return RangeRoute(
            slices.start,
            len(slices),
            generation.gid.token,
            generation.gid.epoch,
            generation.leader.ordinal,
            tuple(member.ordinal for member in generation.members),
        )

    def _gossip(self, node: Node) -> None:
        world = self.world
        other = self.nodes[world.rng.choice(list(self.nodes))]
        if other is node or other.down or not world.reached(node.ordinal, other.ordinal):
            return
        for one, two in ((node, other), (other, node)):
            for route in one.table:
                if world.rng.random() < 0.9:
                    two.table.merge(route)

    def _start(self, node: Node) -> None:
        """The processes that the target and the routes want of it."""
        world = self.world
        tokens = {route.token for route in node.table if node.ordinal in route.members}
        wanted = self.wanted(node)
        if node.ordinal in wanted.brokers:
            held = wanted.held_by(node.ordinal)
            tokens |= {world.cut.token(each.first) for each in held}
        for token in sorted(tokens):
            if (node.ordinal, token) not in world.at_token:
                world.process(node.ordinal, token).start()

    # --- The plan ---------------------------------------------------------------------------------

    def _ready(self, ordinal: int, token: int) -> bool:
        process = self.world.at_token.get((ordinal, token))
        return process is not None and process.replica is not None and not process.paused

    def _steps(self, node: Node) -> None:
        if not node.table.is_covering:
            return
        planner = Planner(node.table, self.wanted(node), self._ready)
        for step in planner.due(node.ordinal):
            process = self.world.at_token.get((node.ordinal, step.ends[0].token))
            generation = self._led(process, step.ends[0]) if process is not None else None
            if process is None or generation is None or not self._is_open(step):
                continue
            # Whoever takes a range in needs its state, and not its parents' (`handovers`).
            if step.kind is not StepKind.HAND_OVER or process.counted.get(generation.gid):
                self.world.seen.note(f"a {step.kind} is proposed")
                process.step(self._event(step, generation))

    def _led(self, process: Process, route: RangeRoute) -> Generation | None:
        gid = Gid(Token(route.token), Epoch(route.epoch))
        return process.leads.get(gid) if not process.paused else None

    def _is_open(self, step: RingStep) -> bool:
        """All that it names run; a join is taken by the machine itself, when it was taught."""
        asked = [(each, route.token) for route in step.opens for each in route.members]
        return step.kind is not StepKind.JOIN and all(
            (ordinal in self.nodes and (ordinal, token) in self.world.at_token)
            for ordinal, token in asked
        )

    def _event(self, step: RingStep, generation: Generation) -> on.Event:
        gid = generation.gid
        children = [self._template(route, generation) for route in step.opens]
        if step.kind is StepKind.SPLIT:
            return on.Split(gid, (children[0], children[1]))
        return on.Move(gid, children[0]) if children else on.HandOver(gid)

    def _template(self, route: RangeRoute, parent: Generation) -> Generation:
        world = self.world
        members = tuple(world.identities[ordinal] for ordinal in route.members)
        leader = world.process(route.leader, route.token)
        end = world.cut.token(route.end) if route.end < world.cut.slices else 2**63
        key = (route.leader, route.token)
        session = self.old_sessions.get(key, leader.session)
        if world.rng.random() < 0.9:  # Else it is as old as what was last heard of it.
            session = leader.session
        self.old_sessions[key] = leader.session
        gid = Gid(Token(route.token), Epoch(1))
        return Generation(gid, end, leader.disk.identity, session, members, ())

    # --- Words ------------------------------------------------------------------------------------

    def _pull(self, node: Node, process: Process) -> None:
        """Who leads and follows nothing asks where its range comes from; who leads, whether what is
        behind it was handed over."""
        world = self.world
        if process.replica is None or process.paused:
            return
        if not process.opened() and (not process.decided() or world.rng.random() < 0.25):
            self._ask(process, process.token)
            newest = process.replica._current.get(process.token)
            if newest is not None and newest.decided is None:
                self._ask(process, newest.generation.gid)  # How the line went on from there.
        for generation in process.leads.values():
            number = world.slots.get(generation.end)
            route = node.table.at(number) if number is not None else None
            if route is not None and route.handed and route.token == generation.end:
                self._ask(process, Gid(Token(route.token), Epoch(route.epoch)))

    def _ask(self, process: Process, what: int | Gid) -> None:
        """Where the range of a token comes from, or what was decided of a generation."""
        for other in self.in_reach(process):
            if not self.world._lost():
                at = self.world.time + self.world.delay * (1 + self.world.rng.random())
                args = (other, other.life, process, process.life, what)
                self.world.at(at, self._answer, *args)

    def _answer(
        self, other: Process, life: int, process: Process, asked: int, what: int | Gid
    ) -> None:
        if other.life != life or other.replica is None or other.paused:
            return
        told = (
            self._told(other, what)
            if isinstance(what, Gid)
            else origin(self._journal(other), what, process.ordinal)
        )
        if told is not None and other.ordinal == self.liar:
            told = self._lie(told)
        if told is not None:
            at = self.world.time + self.world.delay
            self.world.at(at, self._hear, process, asked, told, other.ordinal)

    def _told(self, process: Process, gid: Gid) -> Told | None:
        """How a generation ended, as the journal of this process has it."""
        journal = self._journal(process)
        parent, value = journal.records.get(gid), journal.decided.get(gid)
        return None if parent is None or value is None else (parent, value)

    def _journal(self, process: Process) -> KnownLineage:
        """What is stable there, and what of it was learned by whoever runs."""
        replica = process.replica
        assert replica is not None
        stable = {gid: replica.successor(gid) for gid in process.decided()}
        decided = {gid: value for gid, value in stable.items() if value is not None}
        records = {gid: held.generation for gid, held in replica._held.items()}
        return KnownLineage(records, decided)

    def _lie(self, told: Told) -> Told:
        """Plausible, and never decided."""
        parent, value = told
        tail = value.tail + 1
        children = tuple(
            Generation(
                child.gid,
                child.end,
                child.leader,
                child.session,
                child.members,
                tuple(p._replace(tail=tail) if p.gid == parent.gid else p for p in child.parents),
            )
            for child in value.children
        )
        return parent, Successor(tail, value.kind, children)

    def _hear(self, process: Process, life: int, told: Told, ordinal: int) -> None:
        if process.life != life or process.replica is None:
            return
        by = process.words.setdefault(told, set())
        by.add(ordinal)
        self.world.seen.note("taught", when=len(by) == 2)
        parent, value = told
        process.step(on.Taught(parent, value, frozenset(by)))

    def in_reach(self, process: Process) -> list[Process]:
        """All processes that run and that this one can ask, of its own broker too."""
        world = self.world
        return [
            each
            for each in world.brokers
            if each is not process
            and each.replica is not None
            and not each.paused
            and world.reached(process.ordinal, each.ordinal)
        ]

    def record(self, process: Process, gid: Gid) -> Generation | None:
        """A generation's record, from its own journal or from whoever has it."""
        for each in (process, *self.in_reach(process)):
            found = each.replica.record(gid) if each.replica is not None else None
            if found is not None:
                return found
        return None

    def is_reached(self) -> bool:
        """Whether every broker of the ring sees what the target wants."""
        for ordinal in self.target.workers:
            node = self.nodes[ordinal]
            if not Planner(node.table, self.wanted(node), self._ready).is_reached():
                return False
        return True
