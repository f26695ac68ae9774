"""A simulated broker: the surroundings of one real `Replica`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state import effects as do
from barco.cluster.state import events as on
from barco.limits import FETCH_GROUPS_MAX
from barco.model.generation import Generation, Gid, GroupHead
from barco.protocol.replication import Fetched, OpenedRecord

from .disk import Disk

if TYPE_CHECKING:
    from .world import World

PIPELINE = 3
SEAL_SECONDS = 0.002
"""Until it is noted that a generation is whole; a crash may come first."""


class Broker:
    """Carries out a replica's effects, late, and forgets what was not stable at a crash."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.world = world
        self.disk = disk
        self.ordinal = disk.identity.ordinal
        self.life = 0
        """Grows with every start and every crash: what an earlier life began is void."""
        self.replica: Replica | None = None
        self.session = 0
        self.paused = False
        self.waiting: list[on.Event] = []
        """Arrived during a pause."""
        self.leads: dict[Gid, Generation] = {}
        self.led: Gid | None = None
        """The last generation that it led, and how far the machine knows it (`alone`)."""
        self.told = 0
        self.draining: set[Gid] = set()
        self.closed: set[Gid] = set()
        self.refuses: dict[int, int] = {}
        """How often its log refuses a group, by content."""
        self.offset = 0.0
        self.rate = 1.0
        self.slow = 1.0
        self.tick_at = float("inf")
        self.intake = world.intake(self)

    # --- Life -----------------------------------------------------------------------------

    def now(self) -> float:
        """Its own monotonic clock."""
        return self.world.time * self.rate + self.offset

    def start(self) -> None:
        """A new process on what the disk has."""
        assert self.replica is None
        self.life += 1
        world = self.world
        self.disk.set_aside()
        self.session = world.new_session()
        settings = Settings(
            me=self.disk.identity,
            session=self.session,
            ranges=world.ranges,
            replaces=self.disk.replaces,
        )
        self.replica = world.machine(
            settings, self.disk.journal, self.disk.recovered(), world.rng.random, self.now()
        )
        self.tick_at = float("inf")
        self.carry_out(self.replica.start(self.now()))
        self.schedule_tick()

    def crash(self) -> None:
        """The process, or the power, is gone."""
        self.life += 1
        self.replica = None
        self.paused = False
        self.waiting.clear()
        self.leads.clear()
        self.led, self.told = None, 0
        self.draining.clear()
        self.closed.clear()
        self.intake.crash()
        for record in self.disk.crash(self.world.rng):
            self.world.oracle.recorded(self, record)
        for gid, log in self.disk.logs.items():
            self.world.oracle.stored(self, gid, log)

    def step(self, event: on.Event) -> None:
        """Tell the machine, and do what it asks."""
        replica = self.replica
        if replica is None:
            return
        if self.paused:
            self.waiting.append(event)
            return
        world = self.world
        if world.native and self.intake.take(event):
            return
        for each in (*self.intake.events(), *self.untold(), event):
            world.steps += 1
            if world.trace is not None:
                world.trace.append((world.time, self.ordinal, each))
            effects = replica.step(self.now(), each)
            if effects:
                self.carry_out(effects)
            if self.replica is not replica:
                return
        self.schedule_tick()

    def later(self, life: int, event: on.Event) -> None:
        """An event of a life that may be over."""
        if life == self.life:
            self.step(event)

    def schedule_tick(self) -> None:
        replica = self.replica
        if replica is None or self.world.frozen:
            return
        at = (replica.deadline() - self.offset) / self.rate
        if at < self.tick_at - 1e-4:
            self.tick_at = at = max(at, self.world.time + 1e-3)
            self.world.at(at, self.tick, self.life, at)

    def tick(self, life: int, at: float) -> None:
        """A timer rings; a later one that was set first is void."""
        if life != self.life or at != self.tick_at:
            return
        self.tick_at = float("inf")
        if self.paused:
            self.tick_at = self.world.time + 0.05
            self.world.at(self.tick_at, self.tick, life, self.tick_at)
        else:
            self.step(on.Tick())

    def resume(self) -> None:
        """After a pause everything that had arrived comes at once."""
        self.paused = False
        waiting, self.waiting = self.waiting, []
        for event in waiting:
            self.step(event)

    # --- Effects --------------------------------------------------------------------------

    def carry_out(self, effects: list[do.Effect]) -> None:
        for effect in effects:
            if self.replica is None:
                return
            getattr(self, _EFFECTS[type(effect)])(effect)

    def _send(self, effect: do.Send) -> None:
        self.world.send(self, effect.ordinal, effect.message)

    def _persist(self, effect: do.Persist) -> None:
        self.disk.unsynced.append((effect.serial, effect.records))
        self.world.io(self, self.synced, self.life, effect.serial)

    def synced(self, life: int, serial: int) -> None:
        """An fsync of the journal returned: it covers all that was written before."""
        if life != self.life:
            return
        unsynced = self.disk.unsynced
        if not unsynced or unsynced[0][0] > serial:
            return
        while unsynced and unsynced[0][0] <= serial:
            for record in unsynced.popleft()[1]:
                if not self.world.forgets(record):
                    self.disk.record(record)
                self.world.oracle.recorded(self, record)
        self.step(on.Persisted(serial))

    def _append(self, effect: do.AppendForeign) -> None:
        left = self.refuses.get(effect.head.header_crc, 0)
        if left or self.refuses and effect.head.gseq != self.disk.end(effect.gid)[0] + 1:
            self.refuses[effect.head.header_crc] = max(left - 1, 0)
            event = on.Refused(effect.gid, *self.disk.end(effect.gid), "damaged")
            self.world.at(self.world.time, self.later, self.life, event)
            return
        self.submit(effect.gid, effect.head)

    def submit(self, gid: Gid, head: GroupHead) -> None:
        """One append on its way to the disk."""
        if gid in self.closed:
            return
        self.world.oracle.submitted(self, gid, head)
        if self.disk.full:
            self.world.at(self.world.time, self.later, self.life, on.IoFailed(gid, "disk full"))
            self.closed.add(gid)
            return
        self.disk.flying(gid).append(head)
        if self.replica is not None and (held := self.replica._held.get(gid)) is not None:
            self.disk.witness[gid] = max(self.disk.witness.get(gid, 0), held.committed)
        self.world.io(self, self.landed, self.life, gid, head.gseq)
        if self.world.early_stable:
            event = on.Stable(gid, head.gseq, head.header_crc)
            self.world.at(self.world.time, self.later, self.life, event)

    def landed(self, life: int, gid: Gid, gseq: int) -> None:
        """An append completed; it counts when all before it have."""
        if life != self.life or gid in self.closed:
            return
        flying, log = self.disk.flying(gid), self.disk.log(gid)
        last = None
        while flying and flying[0].gseq <= gseq:
            last = flying.popleft()
            log.append(last)
        if last is None:
            return
        self.world.oracle.stored(self, gid, log)
        if self.world.native and not self.paused and self.intake.landed(gid, last):
            pass
        elif self.alone and gid == self.led:
            self.commit_alone(gid, last.gseq)
        elif not self.world.early_stable:
            self.step(on.Stable(gid, last.gseq, last.header_crc))
        self.maybe_drained(gid)

    # --- The only member: its core commits by itself ----------------------------------------

    @property
    def alone(self) -> bool:
        """Whether the core tells of no group that it builds."""
        return self.world.native and len(self.world.brokers) == 1

    def commit_alone(self, gid: Gid, gseq: int) -> None:
        """What is stable is answered; only that the generation is open is told."""
        if self.paused:
            self.step(on.Tick())
            return
        self.world.oracle.committed(self, gid, gseq)
        if gseq == 1 or not self.told:
            self.step(on.Tick())

    def untold(self) -> list[on.Event]:
        """Before each step: how far the core has come by itself."""
        log = self.disk.logs.get(self.led) if self.led is not None and self.alone else None
        if not log or log[-1].gseq <= self.told or not self.world.tells:
            return []
        assert self.led is not None
        self.told = log[-1].gseq
        return [on.Stable(self.led, self.told, log[-1].header_crc)]

    def _serve(self, effect: do.Serve) -> None:
        last = min(effect.last, effect.first + FETCH_GROUPS_MAX)
        for head in self.disk.log(effect.gid)[effect.first - 1 : last]:
            self.world.send(self, effect.ordinal, Fetched(effect.gid, head))

    def _commit(self, effect: do.Commit) -> None:
        self.world.oracle.committed(self, effect.gid, effect.gseq)

    def _lead(self, effect: do.Lead) -> None:
        generation = effect.generation
        self.leads[generation.gid] = generation
        self.led, self.told = generation.gid, 0
        self.world.oracle.led(self, generation)
        self.build(generation.gid)
        self.world.work(self, generation.gid)

    def build(self, gid: Gid) -> bool:
        """One more group, if the pipeline has room and nobody has shut it."""
        disk = self.disk
        if gid not in self.leads or gid in self.draining or len(disk.flying(gid)) >= PIPELINE:
            return False
        gseq, crc = disk.end(gid)
        head = GroupHead(gseq + 1, crc, self.world.new_content(self, gid, gseq + 1), 4096)
        self.submit(gid, head)
        if not self.alone:
            self.step(on.Built(gid, head))
        return True

    def _drain(self, effect: do.Drain) -> None:
        self.draining.add(effect.gid)
        self.world.at(self.world.time, self.drained, self.life, effect.gid)

    def drained(self, life: int, gid: Gid) -> None:
        if life == self.life:
            self.maybe_drained(gid)

    def maybe_drained(self, gid: Gid) -> None:
        if gid not in self.draining or self.disk.flying(gid):
            return
        self.draining.discard(gid)
        self.leads.pop(gid, None)
        gseq, crc = self.disk.end(gid)
        if not self.world.tells and gid == self.led:
            gseq, crc = self.told, 0
        self.step(on.Drained(gid, gseq, crc))

    def _stop_leading(self, effect: do.StopLeading) -> None:
        self.leads.pop(effect.gid, None)

    def _seal(self, effect: do.Seal) -> None:
        self.world.oracle.sealed(self, effect.gid, effect.tail)
        self.world.at(self.world.time + SEAL_SECONDS, self.sealed, self.life, effect.gid)

    def sealed(self, life: int, gid: Gid) -> None:
        """That it is whole is noted where a start finds it."""
        if life == self.life:
            self.disk.rotten.pop(gid, None)
            self.disk.sealed.add(gid)

    def _follow(self, effect: do.Follow) -> None:
        self.world.oracle.followed(self, effect.generation)

    def _stop(self, effect: do.Stop) -> None:
        self.world.stopped(self, effect.reason)

    def _warn(self, effect: do.Warn) -> None:
        self.world.warned.append((self.ordinal, effect.reason))

    def concerned(self) -> list[Generation]:
        """The records in its journal."""
        return [r.generation for r in self.disk.journal if isinstance(r, OpenedRecord)]


_EFFECTS = {
    do.Send: "_send",
    do.Persist: "_persist",
    do.AppendForeign: "_append",
    do.Serve: "_serve",
    do.Commit: "_commit",
    do.Lead: "_lead",
    do.Drain: "_drain",
    do.StopLeading: "_stop_leading",
    do.Seal: "_seal",
    do.Follow: "_follow",
    do.Stop: "_stop",
    do.Warn: "_warn",
}
