"""A simulated core and simulated files under the real machine of a replica's logs.

What `workers/replication/carrier.py` does with asyncio, the world's clock does here. A group is
its head.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from barco.cluster.logs import events as le
from barco.cluster.logs.driving import Role, carried
from barco.cluster.logs.logs import Logs
from barco.cluster.replica.replica import Replica
from barco.cluster.state import effects as do
from barco.cluster.state import events as on
from barco.model.generation import Generation, Gid, GroupHead
from barco.protocol.append_frame import Append

from .mending import MEND_SECONDS, Mending

if TYPE_CHECKING:
    from .images import Recovery
    from .intake import Intake

PIPELINE = 3
STATE_TRIES = 20
NOTE_SECONDS = 0.002
"""Until it is noted that a generation is whole; a crash may come first."""


def copy_logs(logs: Logs, tail_of: Callable[[Gid], int | None]) -> Logs:
    """Another machine that stands where this one does."""
    new = logs.__class__(tail_of)
    for name, value in vars(logs).items():
        if name == "_waiting":
            new._waiting = {gid: each.copy() for gid, each in value.items() if each}
        elif name != "_tail_of":
            setattr(new, name, value.copy() if isinstance(value, _CHANGES) else value)
    return new


_CHANGES = (dict, set, deque, list)


class Carrier(Mending):
    """The part of a broker below its replica."""

    replica: Replica | None
    recovery: Recovery
    intake: Intake
    step: Callable[[on.Event], None]
    """Tell the replica."""
    wait: Callable[..., None]
    """Call this when a pause is over."""

    def __init__(self) -> None:
        self.logs: dict[int, Logs] = {}
        """By token: each range has a log of its own. Shared with a copy of this world until one of
        them is told something (`own`)."""
        self.owned: set[int] = set()
        self.prints: dict[int, int] = {}
        """What the explorer has made of the machines that nobody told anything since."""
        self.shut: set[int] = set()
        """Tokens whose core builds and takes nothing."""
        self.leads: dict[Gid, Generation] = {}
        self.roles: dict[int, Role] = {}
        """By token, as the driver of each range has it."""
        self.shown: dict[int, int] = {}
        """Up to where the core shows what it has, by token."""
        self.awaited: set[int] = set()
        """Tokens of whose core it is to be told when nothing is under way any more."""
        self.here: dict[int, tuple[object, ...]] = {}
        """By token, of what it was last seen that it can be read here."""
        self.failing = False
        """The next write or sync fails."""
        self.refuses: dict[int, int] = {}
        """How often its log refuses a group, by content."""

    # --- Life -----------------------------------------------------------------------------

    def load(self) -> None:
        """A new process: the core gets what recovery has for it."""
        self.forget()
        sealed = self.disk.sealed
        for token in {gid.token for gid in self.disk.logs}:
            current, stable = self.recovery.current.get(token, (None, 0))
            if current is not None:
                self.world.oracle.loaded(self, current, stable)
                self.role(token).adopt(current, stable, self.tail_of(current))
                self.shown[token] = stable
            self.own(token).adopt(current, stable, [g for g in sealed if g.token == token])
        self.look_again(self.life)

    def forget(self) -> None:
        """The process is gone."""
        self.logs, self.owned, self.prints = {}, set(), {}
        self.shut.clear()
        self.leads.clear()
        self.roles, self.shown = {}, {}
        self.awaited.clear()
        self.here.clear()

    def role(self, token: int) -> Role:
        """What this process is to this range."""
        found = self.roles.get(token)
        if found is None:
            found = self.roles[token] = self.world.role()
        return found

    def arrange(self) -> None:
        """After each step: what readers may see, and what the core may go on with by itself."""
        replica = self.replica
        assert replica is not None, "nothing is arranged for what is over"
        self.intake.disarm()
        for token, role in self.roles.items():
            logs = self.logs_of(token)
            if logs.current is None:
                continue
            if self.world.native and (steady := role.steady(replica, logs)) is not None:
                self.intake.arm(logs.current, steady)
            if role.readable(replica, logs):
                self.world.oracle.readable(self, logs.current, self.shown.get(token, 0))
            self._read(token, role, logs)

    def _read(self, token: int, role: Role, logs: Logs) -> None:
        """What readers find here of generations that have ended, whenever that changes."""
        replica = self.replica
        assert replica is not None, "what is over lets nobody read"
        key = (replica.decisions(), role.unread(replica, logs), logs.current)
        if self.here.get(token) != key:
            self.here[token] = key
            self.world.oracle.ended(self, token, key[1] | {logs.current})

    def logs_of(self, token: int) -> Logs:
        """The machine of this range."""
        found = self.logs.get(token)
        if found is None:
            found = self.logs[token] = self.world.logs(self.tail_of)
        return found

    def own(self, token: int) -> Logs:
        """The same, to tell it something."""
        logs = self.logs_of(token)
        self.prints.pop(token, None)
        if token not in self.owned:
            self.owned.add(token)
            logs = self.logs[token] = copy_logs(logs, self.tail_of)
        return logs

    def tail_of(self, gid: Gid) -> int | None:
        """Where it ended, if this broker's replica knows."""
        successor = self.replica.successor(gid) if self.replica is not None else None
        return successor.tail if successor is not None else None

    def core(self, token: int) -> le.CoreState:
        """How the core's log stands."""
        gid = self.logs_of(token).current
        if gid is None:
            return le.CoreState(0, 0, 0, 0, True)
        log = self.disk.logs.get(gid)
        stable = (log[-1].gseq, log[-1].header_crc) if log else (0, 0)
        return le.CoreState(*self.disk.end(gid), *stable, not self.disk.in_flight.get(gid))

    # --- The machine ----------------------------------------------------------------------

    def tell(self, token: int, event: le.LogEvent) -> None:
        """Tell the machine of the logs, and do what it asks for."""
        if self.paused:
            self.wait(self.told, self.life, token, event)
            return
        logs, life = self.own(token), self.life
        self._saw(logs, event)
        core, take = functools.partial(self.core, token), self._take
        for effect in carried(logs, event, core, take):
            getattr(self, _DO[type(effect)])(token, effect)
            if life != self.life:
                return

    def _take(self, effect: le.Take) -> str:
        return self.take(effect.gid, effect.data)

    def _saw(self, logs: Logs, event: le.LogEvent) -> None:
        """For the table of what must have been seen."""
        gid = getattr(getattr(event, "generation", event), "gid", None)
        where = logs.at(gid).name if gid is not None else logs._step.name
        self.world.seen.note(f"{where} {type(event).__name__}")

    def told(self, life: int, token: int, event: le.LogEvent) -> None:
        """Of a life that may be over."""
        if life == self.life:
            self.tell(token, event)

    def _soon(self, token: int, event: le.LogEvent, seconds: float = 0.0) -> None:
        self.world.at(self.world.time + seconds, self.told, self.life, token, event)

    def _after_io(self, token: int, event: le.LogEvent) -> None:
        self.world.io(self, self.told, self.life, token, event)

    # --- The core -------------------------------------------------------------------------

    def take(self, gid: Gid, head: GroupHead) -> str:
        """A group of a leader, for the core."""
        self.intake.disarm()
        if gid.token in self.shut:
            return "closed"
        if self._refused(gid, head):
            return "damaged"
        if self.disk.full:
            return "wait"
        self.submit(gid, head)
        return "taken"

    def _refused(self, gid: Gid, head: GroupHead) -> bool:
        left = self.refuses.get(head.header_crc, 0)
        if left or self.refuses and head.gseq != self.disk.end(gid)[0] + 1:
            self.refuses[head.header_crc] = max(left - 1, 0)
            return True
        return False

    def submit(self, gid: Gid, head: GroupHead) -> None:
        """One append of the core's, on its way to the disk."""
        self._fly(gid, head)
        self.world.io(self, self.landed, self.life, gid, head.gseq)
        if self.world.early_stable:
            self._soon(gid.token, le.Landed(head.gseq, head.header_crc, gid.epoch))

    def _fly(self, gid: Gid, head: GroupHead) -> None:
        self.world.oracle.submitted(self, gid, head)
        self.disk.flying(gid).append(head)
        if self.replica is not None and (held := self.replica._held.get(gid)) is not None:
            self.disk.witness[gid] = max(self.disk.witness.get(gid, 0), held.committed)

    def fails(self, gid: Gid | None = None) -> bool:
        """What is under way fails: the process ends. What it wrote can be read until somebody
        syncs."""
        if not self.failing:
            return False
        self.failing = False
        if gid is not None:
            self.disk.doom(gid)
        self.world.stopped(self, "a write failed")
        return True

    def landed(self, life: int, gid: Gid, gseq: int) -> None:
        """An append ended; it counts when all before it have."""
        if life != self.life or self.fails(gid):
            return
        head = next((each for each in self.disk.flying(gid) if each.gseq == gseq), None)
        last = self.disk.complete(gid, gseq)
        if not self.world.in_order:
            last = head
        self.world.seen.note("an append ends before an earlier one", when=last is None)
        if last is None:
            return
        self.world.oracle.stored(self, gid, self.disk.log(gid))
        logs = self.logs_of(gid.token)
        if self.world.native and not self.paused and self.intake.landed(gid, last):
            pass
        elif self.alone and gid == logs.leading:
            self.commit_alone(gid, last)
        elif not self.world.early_stable:
            self.tell(gid.token, le.Landed(last.gseq, last.header_crc, gid.epoch))
        if gid.token in self.awaited and self.core(gid.token).settled:
            self.awaited.discard(gid.token)
            self.tell(gid.token, le.Look())

    def build(self, gid: Gid) -> bool:
        """One more group, if the pipeline has room and nobody has shut it."""
        disk = self.disk
        shut = gid.token in self.shut or self.logs_of(gid.token).current != gid
        if gid not in self.leads or shut or disk.full or len(disk.flying(gid)) >= PIPELINE:
            return False
        gseq, crc = disk.end(gid)
        content = self.world.new_content(self, gid, gseq + 1)
        self.world.upto[content] = len(disk.log(gid))
        head = GroupHead(gseq + 1, crc, content, 4096)
        self.submit(gid, head)
        if not self.alone:
            built = self.role(gid.token).built(head, content, gid)
            assert built is not None
            self.step(built)
        return True

    def has(self, message: Append) -> bool:
        """Whether a group that is to be sent still lies where it was built: it, and no other."""
        token = message.gid.token
        at = self.role(token).where(message, self.logs_of(token).current)
        if at is not None and at != message.head.header_crc:
            self.world.oracle.fail("I4", f"{message} is sent with the bytes of another group")
        return at is not None

    # --- The only member: its core commits by itself ----------------------------------------

    @property
    def alone(self) -> bool:
        """Whether the core tells of no group that it builds."""
        return self.world.native and len(self.world.brokers) == 1

    def commit_alone(self, gid: Gid, last: GroupHead) -> None:
        """What is stable is answered; only that the generation is open is told."""
        if not self.paused:
            self.world.oracle.committed(self, gid, last.gseq)
        if last.gseq == 1 and self.world.tells:
            self.tell(gid.token, le.Landed(*last[:1], last.header_crc, gid.epoch))

    def untold(self) -> list[on.Event]:
        """Before each step: how far the core has come by itself."""
        if not self.alone or not self.world.tells:
            return []
        found = [self.own(token).untold(self.core(token)) for token in list(self.logs)]
        return [each for each in found if each is not None]

    # --- Effects --------------------------------------------------------------------------

    def _keep(self, token: int, effect: le.Keep) -> None:
        self.world.io(self, self.kept, self.life, effect.gid, effect.groups)

    def kept(self, life: int, gid: Gid, groups: tuple[GroupHead, ...]) -> None:
        """They are on the disk, and a start puts them into the log."""
        if life == self.life and not self.fails():
            self.disk.kept[gid] = groups
            self.tell(gid.token, le.Kept(gid, groups[-1].gseq))

    def _write(self, token: int, effect: le.WriteFiles) -> None:
        gid, refused = effect.gid, ""
        if self.disk.full:
            self._soon(token, le.Unwritten(gid, "disk full"))
            return
        for head in effect.groups:
            if self._refused(gid, head):
                refused = "damaged"
                break
            self._fly(gid, head)
        self.world.io(self, self.wrote, self.life, gid, refused)

    def wrote(self, life: int, gid: Gid, refused: str) -> None:
        """A log of files is stable as far as it goes."""
        if life == self.life and not self.fails(gid):
            for head in list(self.disk.flying(gid)):
                self.disk.complete(gid, head.gseq)
            self.world.oracle.stored(self, gid, self.disk.log(gid))
            self.tell(gid.token, le.Wrote(gid, *self.disk.end(gid), refused))

    def _skip_to(self, token: int, effect: le.SkipTo) -> None:
        self.world.io(self, self.skipped, self.life, effect)

    def skipped(self, life: int, effect: le.SkipTo) -> None:
        """A log begins later than with group 1."""
        if life == self.life and not self.fails():
            self.disk.skip(*effect)
            self.world.oracle.stored(self, effect.gid, self.disk.log(effect.gid))
            self.tell(effect.gid.token, le.Skipped(effect.gid))

    def _shut_core(self, token: int, effect: object) -> None:
        self.intake.disarm()
        self.shut.add(token)

    def _make_state(self, token: int, effect: le.MakeState) -> None:
        self.world.io(self, self.made_state, self.life, token, effect.generation, STATE_TRIES)

    def made_state(self, life: int, token: int, generation: Generation, tries: int) -> None:
        """Of a history that is damaged there is no state before it is mended (`restoring`)."""
        if life != self.life:
            return
        hurt = self.disk.damaged(each.gid for each in generation.parents)
        for gid in hurt:
            self.mend(gid)
        if not self.disk.damaged(hurt):
            self.tell(token, le.Done())
        elif tries:
            at = self.world.time + MEND_SECONDS
            self.world.at(at, self.made_state, life, token, generation, tries - 1)
        else:
            self.world.stopped(self, "nobody has the state")

    def _note(self, token: int, effect: le.Note) -> None:
        self.world.oracle.sealed(self, effect.gid, effect.tail)
        at = self.world.time + NOTE_SECONDS
        self.world.at(at, self.noted, self.life, effect.gid, effect.tail)

    def noted(self, life: int, gid: Gid, tail: int) -> None:
        """That it is whole stands where a start finds it."""
        if life == self.life:
            self.disk.behind.pop(gid, None)
            self.disk.kept.pop(gid, None)
            self.disk.sealed[gid] = tail
            self.tell(gid.token, le.Done())

    def _begin(self, token: int, effect: le.Begin) -> None:
        assert not any(self.disk.in_flight.get(gid) for gid in self._left(token)), "it is at rest"
        self.shut.discard(token)
        self.shown[token] = 0
        self._after_io(token, le.Done())

    def _left(self, token: int) -> list[Gid]:
        left = self.logs_of(token)._left
        return [left] if left is not None else []

    def _add_segment(self, token: int, effect: le.AddSegment) -> None:
        self._after_io(token, le.Done())

    def _open_in(self, token: int, effect: le.OpenIn) -> None:
        gid = effect.generation.gid
        self.role(token).opened(effect.generation)
        self.leads[gid] = effect.generation
        self.build(gid)
        self.world.work(self, gid)

    def _hear(self, token: int, effect: le.Hear) -> None:
        self._soon(token, le.Heard())

    def _await(self, token: int, effect: le.AwaitCore) -> None:
        self.awaited.add(token)

    def _look(self, token: int, effect: le.LookAgain) -> None:
        self._soon(token, le.Look())

    def _rests(self, token: int, effect: le.Rests) -> None:
        gid = effect.gid
        self.leads.pop(gid, None)
        log = self.disk.logs.get(gid)
        gseq, crc = (log[-1].gseq, log[-1].header_crc) if log else (0, 0)
        if not self.world.tells:
            gseq, crc = min(gseq, 1), 0
        self.step(on.Drained(gid, gseq, crc))

    def _tell(self, token: int, effect: le.Tell) -> None:
        self.step(effect.event)

    def _show(self, token: int, effect: le.Show) -> None:
        self.shown[token] = max(self.shown.get(token, 0), effect.gseq)

    def _nothing(self, token: int, effect: object) -> None:
        pass

    # --- What the replica asks for ----------------------------------------------------------

    def _append(self, effect: do.AppendForeign) -> None:
        self.tell(effect.gid.token, le.Arrived(effect.gid, effect.head))

    def _lead(self, effect: do.Lead) -> None:
        self.world.oracle.led(self, effect.generation)
        self._carry(effect.generation.gid.token, effect)

    def _follow(self, effect: do.Follow) -> None:
        self.world.oracle.followed(self, effect.generation)
        self._carry(effect.generation.gid.token, effect)

    def _stop_leading(self, effect: do.StopLeading) -> None:
        self.leads.pop(effect.gid, None)
        self._of_log(effect)

    def _skip(self, effect: do.Skip) -> None:
        self.world.oracle.skipped[self.disk.identity, effect.gid] = effect.first
        self._of_log(effect)

    def _of_log(self, effect: do.Drain | do.Seal | do.StopLeading | do.Skip) -> None:
        self._carry(effect.gid.token, effect)

    def _carry(self, token: int, effect: le.EffectOfReplica) -> None:
        tell = functools.partial(self.tell, token)
        self.role(token).carries(effect, self.logs_of(token).current, tell)


_DO = {
    le.Keep: "_keep",
    le.KeptUpTo: "_nothing",
    le.WriteFiles: "_write",
    le.SkipTo: "_skip_to",
    le.DrainCore: "_shut_core",
    le.FenceCore: "_shut_core",
    le.Show: "_show",
    le.MakeState: "_make_state",
    le.Note: "_note",
    le.Begin: "_begin",
    le.AddSegment: "_add_segment",
    le.FollowIn: "_nothing",
    le.OpenIn: "_open_in",
    le.Hear: "_hear",
    le.AwaitCore: "_await",
    le.LookAgain: "_look",
    le.Rests: "_rests",
    le.Tell: "_tell",
}
