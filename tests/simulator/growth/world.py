"""The world of a ring: a process for each range that a broker holds, and links inside ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log
from typing import Any

from msgspec.structs import replace

from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.ring.cut import Cut
from barco.cluster.state import events as on
from barco.cluster.state.core import Recovered
from barco.model.generation import Generation, Gid, Identity, Kind, genesis
from barco.protocol.replication import JournalRecord, Message

from ..broker import Broker
from ..world import World
from .clients import READ_SECONDS, Clients, Reader
from .control import Control
from .oracle import RingOracle
from .process import Process, State
from .states import States


class GrowthWorld(World):
    """Three brokers at first; `control` lets others join."""

    def __init__(self, seed: int, cut: Cut, *, mutant: Any = None, trace: bool = False) -> None:
        super().__init__(seed, mutant=mutant, brokers=1, trace=trace)
        self.cut = cut
        self.slots = {cut.token(number): number for number in range(cut.slices)}
        ranges = []
        for at in range(3):
            first, after = at * cut.slices // 3, (at + 1) * cut.slices // 3
            end = cut.token(after) if after < cut.slices else 2**63
            ranges.append(genesis(cut.token(first), end, tuple((at + s) % 3 for s in range(3))))
        self.ranges = tuple(ranges)
        self.oracle: RingOracle = RingOracle(self)
        self.brokers: list[Process] = []  # type: ignore[assignment]
        self.at_token: dict[tuple[int, int], Process] = {}
        self.identities: dict[int, Identity] = {}
        self.events: dict[int, list[tuple[int, int]]] = {}
        """By a group's content: (slice, number) of the events in it."""
        self.starts: dict[int, State] = {}
        """By the content of a GEN_START."""
        self.clients = Clients(self)
        self.states = States(self)
        self.control = Control(self)
        self.readers = [Reader(self, number) for number in range(0, cut.slices, 2)]
        for reader in self.readers:
            self.at(READ_SECONDS * self.rng.random(), reader.poll)
        self._begins: Process

    # --- Processes ----------------------------------------------------------------------------

    def process(self, ordinal: int, token: int) -> Process:
        """A broker's process of a range; made when it is first asked for, and not started."""
        found = self.at_token.get((ordinal, token))
        if found is None:
            if ordinal not in self.identities:
                self.identities[ordinal] = self.new_identity(ordinal)
            disk = self.new_disk(self.identities[ordinal])
            found = self.at_token[ordinal, token] = Process(self, disk, token)
            found.offset, found.rate = self.clock_of(ordinal)
            found.slow = self.usual_slow
            self.brokers.append(found)
        return found

    def clock_of(self, ordinal: int) -> tuple[float, float]:
        """Processes of one broker have one clock."""
        for each in self.brokers:
            if each.ordinal == ordinal:
                return each.offset, each.rate
        rng = self.rng
        return rng.choice((0.0, 1e3, 1e8 * rng.random())), rng.choice((1.0, 1.0, 1.2, 0.8))

    def processes(self, ordinal: int) -> list[Process]:
        return [each for each in self.brokers if each.ordinal == ordinal]

    def recover(self, broker: Broker) -> dict[Gid, Recovered]:
        assert isinstance(broker, Process)
        self._begins = broker
        return super().recover(broker)

    def machine(
        self,
        settings: Settings,
        journal: Iterable[JournalRecord],
        logs: Mapping[Gid, Recovered],
        random: Callable[[], float],
        now: float,
    ) -> Replica:
        process = self._begins
        first = next((g for g in self.ranges if g.gid.token == process.token), None)
        joins = first is None or first.seat(process.ordinal) is None
        if joins or first is None:
            first = self._supposed(process)
        settings = replace(settings, ranges=(first,), token=process.token, joins=joins)
        return super().machine(settings, journal, logs, random, now)

    def _supposed(self, process: Process) -> Generation:
        """Whom a process that is made for a range takes for its members."""
        members = self.control.members_of(process.ordinal, process.token)
        return genesis(process.token, 2**63, members)

    def new_content(self, broker: Broker, gid: Gid, gseq: int) -> int:
        assert isinstance(broker, Process)
        content = super().new_content(broker, gid, gseq)
        broker.fill(gid, gseq, content)
        return content

    # --- Network: links inside one range --------------------------------------------------------

    def send(self, sender: Broker, ordinal: int, message: Message) -> None:
        assert isinstance(sender, Process)
        self.oracle.sent(sender, message)
        if (sender.ordinal, ordinal) in self.cuts or self._lost():
            return
        at = self.time + self.delay * (0.4 - log(1.0 - self.rng.random()))
        if not self.loss:
            link = (sender.ordinal, ordinal * 2**66 + sender.token)
            at = self._last[link] = max(at, self._last.get(link, 0.0) + 1e-6)
        event = on.Received(sender.disk.identity, sender.session, message)
        self.at(at, self._deliver, ordinal, sender.token, event)
        if self.duplication and self.rng.random() < self.duplication:
            late = at + self.delay * 20 * self.rng.random()
            self.at(late, self._deliver, ordinal, sender.token, event)

    def _lost(self) -> bool:
        return bool(self.loss) and self.rng.random() < self.loss

    def _deliver(self, ordinal: int, token: int, event: on.Received) -> None:
        if (event.sender.ordinal, ordinal) in self.cuts:
            return
        found = self.at_token.get((ordinal, token))
        if found is not None and found.replica is not None:
            found.step(event)
        else:
            self._refused(event.sender.ordinal, token, ordinal)

    def _refused(self, ordinal: int, token: int, gone: int) -> None:
        asker = self.at_token[ordinal, token]
        if asker.replica is not None and (gone, ordinal) not in self.cuts:
            self.at(self.time + 2 * self.delay, asker.later, asker.life, on.LinkLost(gone))

    def reached(self, one: int, other: int) -> bool:
        """Whether two brokers hear each other, both ways."""
        return not self.cuts & {(one, other), (other, one)}

    # --- Faults ---------------------------------------------------------------------------------

    def end(self, process: Process, *, quiet: bool = False, power: bool = False) -> None:
        """A process dies."""
        if process.replica is None:
            if power:
                process.disk.crash(self.rng, power=True)
            return
        process.crash(power=power)
        for peer in self.brokers:
            link = (process.ordinal, peer.ordinal)
            told = peer.token == process.token and peer is not process and not quiet
            if told and peer.replica is not None and link not in self.cuts:
                gone = on.LinkLost(process.ordinal)
                self.at(self.time + self.delay, peer.later, peer.life, gone)

    def wipe(self, ordinal: int) -> None:
        """A broker's disk is lost, with all of its ranges; an empty one takes its place."""
        lost = self.identities[ordinal]
        self.oracle.lost(lost)
        self.identities[ordinal] = self.new_identity(ordinal)
        for process in self.processes(ordinal):
            self.end(process)
            process.disk = self.new_disk(self.identities[ordinal], lost.disk_uuid)

    def begin(self, process: Process) -> None:
        """It is started, unless it runs."""
        if process.replica is None and not self.control.is_down(process.ordinal):
            process.start()

    def stopped(self, broker: Broker, reason: str) -> None:
        assert isinstance(broker, Process)
        broker.crash()
        self.at(self.time + 1.0, self.begin, broker)

    # --- What is true ---------------------------------------------------------------------------

    def slices_of(self, generation: Generation) -> range:
        """The numbers of its slices."""
        return self.slices_between(generation.gid.token, generation.end)

    def slices_between(self, token: int, end: int) -> range:
        """The numbers of the slices from a token to before another."""
        return range(self.slots[token], self.slots.get(end, self.cut.slices))

    def first_of(self, number: int) -> Generation:
        """The genesis of a slice."""
        return next(each for each in self.ranges if number in self.slices_of(each))

    def child_of(self, generation: Generation, number: int) -> Generation | None:
        """What follows a generation for one of its slices; None: it is open, or handed over."""
        value = self.oracle.decided.get(generation.gid)
        if value is None:
            return None
        if value.kind is not Kind.HANDOFF:
            return next(each for each in value.children if number in self.slices_of(each))
        for each in self.oracle.generations.values():
            if generation.gid in {parent.gid for parent in each.parents}:
                return each
        return None
