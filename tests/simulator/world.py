"""The simulated cluster: one clock, one network, brokers, an oracle; all from one seed."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import log
from random import Random
from typing import Any, NamedTuple

from barco.cluster.logs.driving import Course, Role
from barco.cluster.logs.logs import Logs
from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state import events as on
from barco.cluster.state.core import Recovered
from barco.model.generation import Generation, Gid, Identity, genesis
from barco.protocol.replication import (
    CARRIES_GROUP,
    Accept,
    AcceptedRecord,
    JournalRecord,
    Message,
    Prepare,
    PromisedRecord,
)
from barco.workers.replication.persisting import Persisting

from .broker import Broker
from .disk import Disk, Seen
from .images import Recovery
from .intake import Intake
from .journal import Files
from .oracle import Oracle

START, MIDDLE, END = 0, 500, 1000
"""The range of the simulated shard, and where it may be split."""

TRACE_EVENTS = 4000


class Lag(NamedTuple):
    """One member hears everything, or every group, late by a number of them: whenever one more is
    sent to it, the oldest that is held comes."""

    ordinal: int
    by: int
    groups: bool
    """Only what carries a group; all else comes at once."""

    def holds(self, ordinal: int, message: Message) -> bool:
        return ordinal == self.ordinal and (not self.groups or isinstance(message, CARRIES_GROUP))


class World:
    """Brokers A, B, C of one range and, for splits, D; ordinals 0, 1, 2, 3. Or A alone."""

    frozen = False
    """True: nothing happens by itself; the explorer chooses what is next."""

    def __init__(self, seed: int, *, mutant: Any = None, brokers: int = 3, trace: bool = False):
        self.seed = seed
        self.rng = Random(seed)
        self.mutant = mutant
        self.time = 0.0
        self.steps = 0
        self.trace: deque[tuple[float, int, Any]] | None = (
            deque(maxlen=TRACE_EVENTS) if trace else None
        )
        self.ranges = (genesis(START, END, tuple(range(min(brokers, 3)))),)
        self.oracle = Oracle(self)
        self.loss = self.duplication = 0.0
        self.delay = self.usual_delay = 0.0005
        self.usual_slow = 1.0
        self.group_seconds = 0.1
        self._last: dict[tuple[int, int], float] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.lag: Lag | None = None
        self.late: deque[tuple[int, on.Received]] = deque()
        """What is on its way to the member that lags."""
        self.contents = 0
        self.uuids = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.seen = Seen()
        self.upto: dict[int, int] = {}
        """`durable_upto` in the header of each group, by its content."""
        self.brokers = [Broker(self, self.new_disk(self.new_identity(o))) for o in range(brokers)]
        self.native = False
        """The core takes what it may (`intake.py`), and commits by itself what it leads alone."""
        self.tells = True
        """False: the machine of a single member never hears how far its core is."""
        self.warned: list[tuple[int, str]] = []
        self.copies: dict[int, Any] = {}
        """Of data directories, by ordinal."""
        self.early_stable = getattr(mutant, "early_stable", False)
        self.in_order = getattr(mutant, "in_order", True)
        self.told_early = getattr(mutant, "told_early", False)
        self._forgetful = getattr(mutant, "forgetful", False)
        self._starts_loose = getattr(mutant, "starts_loose", False)
        self._reads_first = getattr(mutant, "reads_first", False)
        self._replica = getattr(mutant, "replica", Replica)
        self._recovery = getattr(mutant, "recovery", Recovery)

    def intake(self, broker: Broker) -> Intake:
        made: Intake = getattr(self.mutant, "intake", Intake)(broker)
        return made

    # --- What is random once per world ------------------------------------------------------

    def new_identity(self, ordinal: int) -> Identity:
        self.uuids += 1
        return Identity(ordinal, ordinal.to_bytes(8, "big") + self.uuids.to_bytes(8, "big"))

    def new_disk(self, identity: Identity, replaces: bytes = b"") -> Disk:
        files = getattr(self.mutant, "files", Files)
        disk = Disk(identity, replaces, seen=self.seen, seed=self.seed, files=files)
        disk.upto = self.upto
        return disk

    def new_session(self) -> int:
        return self.rng.getrandbits(63)

    def new_content(self, broker: Broker, gid: Gid, gseq: int) -> int:
        """A header_crc that no other group has."""
        self.contents += 1
        return self.contents

    def machine(
        self,
        settings: Settings,
        journal: Iterable[JournalRecord],
        logs: Mapping[Gid, Recovered],
        random: Callable[[], float],
        now: float,
    ) -> Replica:
        return self._replica(settings, journal, logs, random, now)

    def recover(self, broker: Broker) -> dict[Gid, Recovered]:
        """What a start finds: it makes stable what it is about to read."""
        disk = broker.disk
        arrived = disk.journal[disk.files.loose :]
        found = disk.load(synced=not self._starts_loose)
        self.oracle.read(broker, found)
        disk.believe(found)
        disk.set_aside()
        before = self._recovery(disk)
        if not self._starts_loose:
            disk.sync()
        broker.recovery = self._recovery(disk)
        broker.recovery.carry_out()
        for record in arrived:
            self.oracle.recorded(broker, record)
        for gid in disk.logs:
            self.oracle.stored(broker, gid, disk.logs[gid])
        return before.found if self._reads_first else broker.recovery.found

    def logs(self, tail_of: Callable[[Gid], int | None]) -> Logs:
        made: Logs = getattr(self.mutant, "logs", Logs)(tail_of)
        return made

    def course(self) -> Course:
        made: Course = getattr(self.mutant, "course", Course)()
        return made

    def role(self) -> Role:
        made: Role = getattr(self.mutant, "role", Role)()
        return made

    def persisting(self) -> Persisting:
        made: Persisting = getattr(self.mutant, "persisting", Persisting)()
        return made

    def forgets(self, record: JournalRecord) -> bool:
        """Mutant 3: promises are kept in memory only."""
        return self._forgetful and isinstance(record, (PromisedRecord, AcceptedRecord))

    # --- Time -------------------------------------------------------------------------------

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, call, args))

    def run(self, until: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.time, _, call, args = heapq.heappop(queue)
            call(*args)
        self.time = until

    def io(self, broker: Broker, call: Callable[..., None], *args: Any) -> None:
        """A disk operation of this broker completes, in its own time."""
        rng = self.rng.random
        seconds = 0.0005 + 0.002 * rng() * broker.slow
        if rng() < 0.01:
            seconds += 0.2 * rng() * broker.slow
        self.at(self.time + seconds, call, *args)

    # --- Network ----------------------------------------------------------------------------

    def send(self, sender: Broker, ordinal: int, message: Message) -> None:
        self.oracle.sent(sender, message)
        if (sender.ordinal, ordinal) in self.cuts:
            return
        rng = self.rng.random
        if self.loss and rng() < self.loss:
            return
        at = self.time + self.delay * (0.4 - log(1.0 - rng()))
        if not self.loss:  # Then it is a connection, and keeps the order.
            link = (sender.ordinal, ordinal)
            at = self._last[link] = max(at, self._last.get(link, 0.0) + 1e-6)
        args = (ordinal, on.Received(sender.disk.identity, sender.session, message))
        if self.lag is not None and self.lag.holds(ordinal, message):
            self.late.append(args)
            self._catch_up(at, self.lag.by)
            return
        self.at(at, self.deliver, *args)
        if self.duplication and rng() < self.duplication:
            self.at(at + self.delay * 20 * rng(), self.deliver, *args)

    def lags(self, lag: Lag | None) -> None:
        """This member lags from now on; None: nobody, and what is late arrives."""
        self.lag = lag
        self._catch_up(self.time, 0)

    def _catch_up(self, at: float, by: int) -> None:
        """So many messages stay late; what is older comes, in its order."""
        while len(self.late) > by:
            self.seen.note("a message is ten or more late", when=by >= 10)
            self.at(at, self.deliver, *self.late.popleft())

    def deliver(self, ordinal: int, event: on.Received) -> None:
        if self.late and self.late[0][0] == ordinal:
            asked = isinstance(event.message, (Prepare, Accept))
            self.seen.note("who lags is asked to vote", when=asked)
        if (event.sender.ordinal, ordinal) in self.cuts:
            return
        broker = self.brokers[ordinal]
        if broker.replica is not None:
            broker.step(event)
        else:
            self.refused(event.sender.ordinal, ordinal)

    def refused(self, ordinal: int, gone: int) -> None:
        """Nobody listens there: the connection is refused."""
        broker = self.brokers[ordinal]
        if broker.replica is not None and (gone, ordinal) not in self.cuts:
            self.at(self.time + 2 * self.delay, broker.later, broker.life, on.LinkLost(gone))

    # --- Load -------------------------------------------------------------------------------

    def work(self, broker: Broker, gid: Gid) -> None:
        """Clients write to this leader for as long as it leads."""
        if not self.frozen:
            at = self.time + self.group_seconds * 2 * self.rng.random()
            self.at(at, self._work, broker, broker.life, gid)

    def _work(self, broker: Broker, life: int, gid: Gid) -> None:
        if life != broker.life or gid not in broker.leads:
            return
        if not broker.paused:
            broker.build(gid)
        self.work(broker, gid)

    # --- Faults -----------------------------------------------------------------------------

    def start(self, ordinal: int) -> None:
        if self.brokers[ordinal].replica is None:
            self.brokers[ordinal].start()

    def crash(self, ordinal: int, *, quiet: bool = False, power: bool = False) -> None:
        """The process dies; its peers see their connections reset, unless the machine died. With
        its `power` goes what was not synced."""
        broker = self.brokers[ordinal]
        if broker.replica is None:
            if power:
                broker.disk.crash(self.rng, power=True)
            return
        broker.crash(power=power)
        for peer in self.brokers:
            if not quiet and peer.replica is not None and (ordinal, peer.ordinal) not in self.cuts:
                event = on.LinkLost(ordinal)
                self.at(self.time + self.delay, peer.later, peer.life, event)

    def wipe(self, ordinal: int) -> None:
        """The disk is lost; an empty one takes its place, under `barco replace`."""
        broker = self.brokers[ordinal]
        self.crash(ordinal)
        identity = self.new_identity(ordinal)
        if getattr(self.mutant, "same_disk_uuid", False):
            identity = broker.disk.identity
        self.oracle.lost(broker.disk.identity)
        honest = identity != broker.disk.identity
        lost = broker.disk.identity.disk_uuid if honest else b""
        broker.disk = self.new_disk(identity, lost)

    def forget(self, ordinal: int) -> None:
        """Some of the journal is lost, and the process starts anew."""
        self.crash(ordinal, quiet=True)
        disk = self.brokers[ordinal].disk
        self.oracle.forgot(disk.identity)
        disk.forget(self.rng)

    def hurt(self, ordinal: int, *, half: bool) -> None:
        """One file of the journal is hurt, or each elsewhere, while the process is away. `half`: a
        start before the next one ends when it has written one of them anew."""
        self.crash(ordinal, quiet=True)
        files = self.brokers[ordinal].disk.files
        files.hurt_one()
        if half:
            files.begin_start()

    def copy(self, ordinal: int) -> None:
        """Somebody copies a data directory."""
        disk = self.brokers[ordinal].disk
        self.copies[ordinal] = (disk.identity, disk.copy())

    def roll_back(self, ordinal: int) -> None:
        """The copy takes the place of what it was made of."""
        disk = self.brokers[ordinal].disk
        identity, copy = self.copies.pop(ordinal)
        if identity == disk.identity:
            self.crash(ordinal, quiet=True)
            disk.roll_back(copy)
            self.oracle.rolled_back(disk)

    def expire(self, ordinal: int, share: float) -> None:
        """Retention removes the first groups of the logs that have ended; of all but the newest of
        them, all."""
        disk = self.brokers[ordinal].disk
        for gid in sorted(disk.sealed):
            log = disk.logs.get(gid, [])
            if log and disk.holds(gid, disk.sealed[gid]):
                upto = 1 + int(share * (len(log) + 1))
                disk.begins[gid] = max(disk.begins.get(gid, 1), upto)

    def rot(self, ordinal: int, gid: Gid, gseq: int) -> None:
        """Corruption of a group that is followed by another: a restart finds it."""
        broker = self.brokers[ordinal]
        if broker.replica is not None and not broker.paused:
            broker.step(on.Tick())  # What the core took until now was sound: its news come first.
        log = broker.disk.log(gid)
        if (
            not broker.disk.begins.get(gid, 1) <= gseq < len(log)
            or broker.disk.flying(gid)
            or gid in broker.leads
        ):
            return
        disk = broker.disk
        if disk.unsynced or disk.files.loose < len(disk.journal) or broker.paused:
            return  # A vote, or an event, of before is on its way, or stable with the next start.
        self.oracle.corrupted(broker.disk.identity, gid)
        if broker.replica is not None:
            self.crash(ordinal, quiet=True)
            self.at(self.time + 0.05, self.start, ordinal)
        broker.disk.rot(gid, gseq)

    def stopped(self, broker: Broker, reason: str) -> None:
        """A machine that must not go on; its process is started again."""
        broker.crash()
        self.at(self.time + 1.0, self.start, broker.ordinal)

    def heal(self) -> None:
        """No more faults on the network."""
        self.cuts.clear()
        self.lags(None)
        self.loss = self.duplication = 0.0
        self.delay = self.usual_delay

    def leaders(self) -> list[tuple[Broker, Generation]]:
        """Who believes to lead what."""
        return [(b, g) for b in self.brokers if b.replica is not None for g in b.leads.values()]
