"""A simulated broker: the surroundings of one real `Replica`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barco.cluster.logs.driving import expired
from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state import effects as do
from barco.cluster.state import events as on
from barco.limits import FETCH_GROUPS_MAX
from barco.model.generation import Generation
from barco.protocol.append_frame import Append
from barco.protocol.replication import Expired, Fetched, OpenedRecord
from barco.workers.replication.persisting import Persisting

from .carrier import Carrier
from .disk import Disk
from .images import Recovery

if TYPE_CHECKING:
    from .world import World


class Broker(Carrier):
    """Carries out a replica's effects, late, and forgets what was not stable at a crash."""

    def __init__(self, world: World, disk: Disk) -> None:
        super().__init__()
        self.world = world
        self.disk = disk
        self.ordinal = disk.identity.ordinal
        self.life = 0
        """Grows with every start and every crash: what an earlier life began is void."""
        self.replica: Replica | None = None
        self.recovery: Recovery
        """Of this start."""
        self.session = 0
        self.paused = False
        self.waiting: list[tuple[Any, ...]] = []
        """Calls that came during a pause."""
        self.course = world.course()
        self.offset = 0.0
        self.rate = 1.0
        self.slow = 1.0
        self.tick_at = float("inf")
        self.persisting = Persisting()
        self.intake = world.intake(self)
        self.hurt_next: Callable[[], None] | None = None
        """What is to happen while the journal is written to."""

    # --- Life -----------------------------------------------------------------------------

    def now(self) -> float:
        """Its own monotonic clock."""
        return self.world.time * self.rate + self.offset

    def start(self) -> None:
        """A new process on what the disk has."""
        assert self.replica is None
        self.life += 1
        world = self.world
        found = world.recover(self)
        self.session = world.new_session()
        settings = Settings(
            me=self.disk.identity,
            session=self.session,
            ranges=world.ranges,
            replaces=self.disk.replaces,
        )
        self.replica = world.machine(
            settings, self.disk.journal, found, world.rng.random, self.now()
        )
        self.tick_at = float("inf")
        self.persisting = world.persisting()
        self.course = world.course()
        self.load()
        self.carry_out(self.replica.start(self.now()))
        self.schedule_tick()

    def crash(self, *, power: bool = False) -> None:
        """The process, or the power, is gone."""
        self.life += 1
        self.replica = None
        self.paused = False
        self.waiting.clear()
        self.course.end()
        self.forget()
        self.intake.crash()
        self.disk.crash(self.world.rng, power=power)

    def step(self, event: on.Event) -> None:
        """Tell the machine, and do what it asks."""
        replica = self.replica
        if replica is None:
            return
        if self.paused:
            self.wait(self.step, event)
            return
        if isinstance(event, on.Received):
            message = event.message
            if self.world.native and not self.course.busy and self.intake.take(event):
                return
            if isinstance(message, Expired) and not self.hears(message):
                self.intake.disarm()  # The core hands nothing over and goes on.
                return
        if self.course.tell(event, None, self.news, self.step_with):
            self.schedule_tick()
            self.arrange()

    def hears(self, message: Expired) -> bool:
        token = message.gid.token
        return self.role(token).hears(message, self.logs_of(token))

    def news(self) -> list[on.Event]:
        """What the core has done by itself."""
        return [*self.intake.events(), *self.untold()]

    def step_with(self, event: on.Event, beside: None) -> None:
        replica, world = self.replica, self.world
        assert replica is not None, "nothing is told to what is over"
        world.steps += 1
        if world.trace is not None:
            world.trace.append((world.time, self.ordinal, event))
        effects = replica.step(self.now(), event)
        if effects:
            self.carry_out(effects)

    def wait(self, call: Any, *args: Any) -> None:
        self.waiting.append((call, *args))

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
        for call, *args in waiting:
            call(*args)

    # --- Effects --------------------------------------------------------------------------

    def carry_out(self, effects: list[do.Effect]) -> None:
        for effect in effects:
            if self.replica is None:
                return
            getattr(self, _EFFECTS[type(effect)])(effect)

    def _send(self, effect: do.Send) -> None:
        message = effect.message
        if isinstance(message, Append) and not self.has(message):
            return
        self.world.send(self, effect.ordinal, message)

    def _persist(self, effect: do.Persist) -> None:
        self.persisting.add(effect)
        if self.world.told_early:
            self.step(on.Persisted(effect.serial))
        self._write_journal()

    def _write_journal(self) -> None:
        """The next append to the journal, if there is one."""
        records = self.persisting.next()
        if records is None:
            return
        self.disk.unsynced = tuple(records)
        self.world.io(self, self.synced, self.life)
        if self.hurt_next is not None:
            self.world.at(self.world.time + 1e-4, self.hurt_next)
            self.hurt_next = None

    def synced(self, life: int) -> None:
        """It has ended."""
        if life != self.life:
            return
        if self.failing:
            self.failing = False
            self.world.seen.note("the journal can not be written")
            self.step(self.persisting.failed("a write failed"))
            return
        records, self.disk.unsynced = self.disk.unsynced, ()
        self.disk.add([each for each in records if not self.world.forgets(each)])
        for record in records:
            self.world.oracle.recorded(self, record)
        self._have_written(life)

    def _have_written(self, life: int) -> None:
        if self.paused:
            self.wait(self._have_written, life)
        elif life == self.life:
            told = self.persisting.written()
            if not self.world.told_early:
                self.step(told)
            if life == self.life:
                self._write_journal()

    def _serve(self, effect: do.Serve) -> None:
        gid, ordinal = effect.gid, effect.ordinal
        begin, tail = self.disk.begins.get(gid, 1), self.tail_of(gid)
        if effect.first < begin:
            crc = self.disk.log(gid)[begin - 2].header_crc if begin <= (tail or 0) else 0
            if (answer := expired(effect, begin, crc, tail)) is not None:
                self.world.send(self, ordinal, answer)
            return
        last = min(effect.last, effect.first + FETCH_GROUPS_MAX)
        for head in self.disk.log(gid)[effect.first - 1 : last]:
            self.world.send(self, ordinal, Fetched(gid, head))

    def _commit(self, effect: do.Commit) -> None:
        token = effect.gid.token
        self.world.oracle.committed(self, effect.gid, effect.gseq)
        if self.role(token).commits(effect, self.logs_of(token).current):
            self.shown[token] = max(self.shown.get(token, 0), effect.gseq)

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
    do.Drain: "_of_log",
    do.StopLeading: "_stop_leading",
    do.Seal: "_of_log",
    do.Skip: "_skip",
    do.Follow: "_follow",
    do.Stop: "_stop",
    do.Warn: "_warn",
}
