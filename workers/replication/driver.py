"""Runs the machine of one replica: what it is told, and what is done about what it asks for.

Effects are carried out in order; what takes time (the journal, changes of generation, reads of old
groups) goes on beside, and is told when it is done.
"""

import asyncio
import functools
import logging
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from barco._native import Reactor
from barco.cluster.logs import events as le
from barco.cluster.logs.driving import LEADER, Course, Role
from barco.cluster.replica.replica import Replica
from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.cluster.state.core import Recovered, Settings
from barco.cluster.state.kin import shares
from barco.errors import ConfigError
from barco.model.generation import Generation, Gid, GroupHead, Successor
from barco.protocol import replication as r
from barco.protocol.append_frame import Append
from barco.protocol.link import Hello
from barco.types import Epoch
from barco.workers.peers.links import End
from barco.workers.process.selector import Upcall
from barco.workers.replication import wire
from barco.workers.replication.carrier import Carrier
from barco.workers.replication.figures import stats_of, status_of
from barco.workers.replication.inputs import Input, Inputs
from barco.workers.replication.journal import Journal
from barco.workers.replication.link import Dial, Link, Links
from barco.workers.replication.mending import Mending
from barco.workers.replication.mutants import MUTANT, UNFENCED, UnfencedReplica
from barco.workers.replication.persisting import read_journal
from barco.workers.replication.serving import Serving
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.index.verdict import Found
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.watched import told

log = logging.getLogger("barco.replication")


class Driver:
    """One replica with its peers."""

    def __init__(
        self,
        settings: Settings,
        dials: Mapping[int, Dial],
        *,
        reactor: Reactor,
        store: ReplicaStore,
        bulk: BulkIo,
        group_bytes_max: int,
        on_lead: Callable[[Generation], None],
        on_follow: Callable[[Generation], None],
        on_stop: Callable[[str], None],
        on_decided: Callable[[Gid, Successor], None] = lambda gid, value: None,
        on_learned: Callable[[Gid, Successor], None] = lambda gid, value: None,
        fatal: Callable[..., None],
    ) -> None:
        """`dials`: how to reach the other members, by ordinal. `on_lead`: it is open here;
        `on_stop`: no longer. `on_learned`: a successor is known; `on_decided`: it is journalled.
        `fatal`: ends the process."""
        assert settings.me.ordinal not in dials, "nobody dials itself"
        self._settings = settings
        self._reactor = reactor
        self._store = store
        self._fatal = fatal
        self._on_lead, self._on_follow, self._on_stop = on_lead, on_follow, on_stop
        self._on_learned = on_learned
        self._token = settings.ranges[0].gid.token
        self.links = self._links = Links(self._link, dials)
        self._alone = len(settings.ranges[0].members) == 1
        self._inputs = Inputs(
            reactor,
            received=self._received,
            on_lost=self._input_lost,
            pending_bytes=lambda: self.logs.pending_bytes,
            group_bytes_max=group_bytes_max,
        )
        self._sessions: dict[int, int] = {}
        decided = functools.partial(self._guarded, on_decided)
        self._journal = Journal(store.lineage, bulk, tell=self.post, decided=decided)
        self.logs = Carrier(
            reactor,
            store,
            tell=self._told,
            opened=self._opened,
            fatal=fatal,
            guarded=self._guarded,
            eased=self._inputs.go_on,
            tail_of=self.tail_of,
            session_of=self.session_of,
            shares=lambda generation: shares(self._machine.journal(), generation),
        )
        self._course, self._role = Course(), Role()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # When it fires.
        self._encoded: tuple[Append | None, bytes] = (None, b"")
        self._mending = Mending(self._links, self._token)
        self._serving = Serving(self._links, store, lambda gid: self._machine.successor(gid), fatal)
        self._machine: Replica
        self._started = False
        assert settings.joins or settings.me.ordinal in {
            member.ordinal for each in settings.ranges for member in each.members
        }, "a replica is one of a member"

    # --- Life ---------------------------------------------------------------------------------

    def start(self, found: Mapping[int, Found]) -> None:
        """Everything is recovered: take part."""
        assert not self._started, "a replica is started once"
        logs = {
            Gid(self._token, Epoch(epoch)): Recovered(**each._asdict())
            for epoch, each in found.items()
        }
        kind = UnfencedReplica if MUTANT == UNFENCED else Replica
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        assert all(each.tail >= 0 for each in found.values()), "recovery has counted groups"
        journal = read_journal(self._store.lineage.journal)
        self._machine = kind(self._settings, journal, logs, random.random, now)
        self._started = True
        self.logs.adopt(self._token, alone=self._alone)
        if (current := self.logs.current) is not None:
            assert current.token == self._token, "the core's log is of this range"
            assert current.epoch in found, "recovery has walked what the core has"
            self._role.adopt(current, found[current.epoch].tail, self.tail_of(current))
        if (unclean := self._machine.unclean()) > 0:
            text = (
                "%d generation(s) of token %d ended on an operator's word (barco recover), or"
                " without what a broker had and has set aside"
            )
            log.warning(text, unclean, self._token)
        self._links.start()
        if not self._alone:
            self._store.repair_from(self._mending)
        self._journal.recall(journal)
        self._carry_out(self._machine.start(now), None)
        self._set_timer()

    async def close(self) -> None:
        """Ends all of it. A leader has drained before."""
        if self._timer is not None:
            self._timer.cancel()
        self._inputs.close()
        for link in list(self._links.values()):  # A last record may name somebody new.
            await link.close()
        await self._serving.close()
        await self.logs.close()
        await self._journal.close()

    def resign(self) -> None:
        """This process is about to stop: the next in line takes over."""
        self.post(ev.Resign())

    def has_heir(self) -> bool:
        """Whether somebody in reach is still to take over what is led here."""
        return self.leading and self._machine.heir()

    def renew(self) -> None:
        """A leader ends its generation and opens the next: retention leaves an open one alone."""
        if self.leading and self.generation is not None:
            log.info("epoch %d ends, so that retention can go on", self.generation.gid.epoch)
            self.post(ev.Elect(self.generation.gid))

    @property
    def machine(self) -> Replica | None:
        """For questions; None before everything was recovered."""
        return self._machine if self._started else None

    @property
    def generation(self) -> Generation | None:
        """The newest that is led or followed here."""
        return self._role.generation

    @property
    def steps(self) -> int:
        """How often the machine has been told something."""
        return self._course.steps

    @property
    def leading(self) -> bool:
        """Whether this process leads the shard's open generation."""
        return self._role.name == LEADER

    def serves_consumers(self) -> bool:
        """Whether no other leader can hand out the same events."""
        return self._started and self._machine.serves_consumers(asyncio.get_running_loop().time())

    def readable(self) -> bool:
        """Whether all of the history is here, and nothing shown that may not become it."""
        return self._started and self._role.readable(self._machine, self.logs.machine)

    def whole(self) -> bool:
        """Whether no generation that has ended lacks groups here, or is not to be found yet."""
        return self._started and self._role.whole(self._machine, self.logs.machine)

    def unread(self) -> frozenset[Gid]:
        """Generations that have ended and of which not all can be read here yet."""
        if not self._started:
            return frozenset()
        return self._role.unread(self._machine, self.logs.machine)

    def disks(self) -> dict[int, str]:
        """The disk of each member of the shard, by ordinal, as the lineage has them."""
        return self._machine.disks() if self._started else {}

    def status(self) -> dict[str, Any]:
        """For /status: the role, and for a leader how its followers are."""
        machine = self._machine if self._started else None
        return status_of(machine, self._role.name, busy=self._role.busy(self.logs.machine))

    def stats(self) -> dict[str, int]:
        """For the metrics."""
        links = self._links.values()
        return stats_of(self.status(), self.leading, links, self._serving.groups)

    # --- Events -------------------------------------------------------------------------------

    def post(self, event: ev.Event, group: bytearray | None = None) -> None:
        """Tell the machine; at once, or after what it is being told just now.

        Whatever is raised here ends the process: the machine is not what its rules made, or some
        of its effects were not carried out, and it counts on all of them.
        """
        try:
            if not self._course.tell(event, group, self._news, self._step):
                return
            self._set_timer()
        except Exception as error:  # noqa: BLE001 - it ends the process.
            self._die("the replica's rules are broken", error)
        self._guarded(self._arrange)

    def _step(self, event: ev.Event, group: bytearray | None) -> None:
        self._carry_out(self._machine.step(self._loop.time(), event), group)

    def _news(self) -> list[ev.Event]:
        """What the core has done by itself."""
        event: ev.Event | None
        if (news := self._reactor.intake_news()) is not None:
            event = ev.Followed(Gid(self._token, Epoch(news[0])), *news[1:])
        else:
            event = self.logs.untold()
        return [event] if event is not None else []

    def _die(self, what: str, error: Exception) -> None:
        """Nothing is heard, carried out or acknowledged from here on."""
        self._course.end()
        self._reactor.disarm_intake()
        told(what, error, self._fatal)

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        """For what the loop calls: it would log an exception, and go on."""
        if self._course.over:
            return
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - it ends the process.
            self._die("the replica can not go on", error)

    def _set_timer(self) -> None:
        due = self._machine.deadline()
        if self._timer is not None:
            if self._due == due:
                return
            self._timer.cancel()
        self._due, self._timer = due, None
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        assert self._started
        self._timer = None
        self.post(ev.Tick())

    def upcall(self, upcall: Upcall) -> None:
        """From the reactor: built, landed, settled, segment_wanted, frame or replica_closed."""
        self._guarded(self._hear, upcall)

    def _hear(self, upcall: Upcall) -> None:
        kind = upcall[0]
        if kind == "built":
            _, gseq, prev_crc, header_crc, pos, length = upcall
            self._built(GroupHead(gseq, prev_crc, header_crc, length), pos)
        elif kind == "landed":
            self.logs.step(le.Landed(*upcall[1:]))
        elif kind == "settled":
            self.logs.settled()
        elif kind in ("frame", "replica_closed"):
            self._inputs.upcall(upcall)
        elif kind == "segment_wanted":
            self.logs.want_segment()

    def _built(self, head: GroupHead, pos: int) -> None:
        built = self._role.built(head, (pos, head.bytes), self.logs.current)
        if built is not None:
            assert built.gid.token == self._token, "a core has one range"
            self.post(built)

    def tail_of(self, gid: Gid) -> int | None:
        """Where a generation ended, if that is known here."""
        successor = self._machine.successor(gid) if self._started else None
        return successor.tail if successor is not None else None

    def record(self, gid: Gid) -> Generation | None:
        """A generation, if it is known here."""
        return self._machine.record(gid) if self._started else None

    def session_of(self, gid: Gid) -> int | None:
        """Whose groups it has."""
        generation = self.record(gid)
        return generation.session if generation is not None else None

    def _told(self, event: ev.Stable | ev.Refused | ev.IoFailed | ev.Drained) -> None:
        """By the logs."""
        if isinstance(event, (ev.Refused, ev.IoFailed)):
            log.error("%s", event.reason)
        self.post(event)

    # --- Peers --------------------------------------------------------------------------------

    def _link(self, at: int, dial: Dial) -> Link:
        return Link(self._reactor, at, dial, self._lost_link(at), self._arranges, self._fatal)

    def _lost_link(self, ordinal: int) -> Callable[[], None]:
        return lambda: self.post(ev.LinkLost(ordinal))

    def take(self, hello: Hello, end: End) -> None:
        """A peer has dialled."""
        if hello.ordinal not in self._links:
            log.error("broker %d is no member of shard %d", hello.ordinal, self._token)
            end.close()
            return
        assert hello.ordinal != self._settings.me.ordinal, "nobody has a link to itself"
        self._inputs.take(hello, wire.identity(hello.ordinal, hello.disk_uuid), end)
        self._sessions[hello.ordinal] = hello.session

    def _input_lost(self, end: Input) -> None:
        assert end.sender.ordinal in self._sessions, "who is lost had dialled"
        if self._sessions.get(end.sender.ordinal) == end.session:
            self.post(ev.LinkLost(end.sender.ordinal))

    def _received(self, end: Input, message: r.Message, group: bytearray | None) -> None:
        assert (group is None) == (r.bytes_beside(message) is None), "`Inputs` has looked"
        if not self._role.hears(message, self.logs.machine):
            return
        if not self._mending.take(end.sender.ordinal, message, group):
            self.post(ev.Received(end.sender, end.session, message), group)
        self._inputs.hold_back()

    # --- What the core does by itself -----------------------------------------------------------

    def _arranges(self) -> None:
        self._guarded(self._arrange)

    def _arrange(self) -> None:
        """After each step, and whenever the way back changes: whether the core may go on with the
        generation that is followed. It runs between the loop's turns only, so what is arranged
        here holds for all that it does."""
        if self._course.busy or not self._started:
            return  # A step arranges it when it is done.
        steady = self._role.steady(self._machine, self.logs.machine)
        assert steady is None or steady.leader != self._settings.me, "nobody follows itself"
        assert steady is None or 0 <= steady.committed
        link = self._links.get(steady.leader.ordinal) if steady is not None else None
        fd, seal = (link.idle_fd, link.seal) if link is not None else (-1, None)
        if steady is None or fd < 0 or not self._inputs.arm(steady, fd, seal):
            self._reactor.disarm_intake()

    # --- Effects ------------------------------------------------------------------------------

    def _carry_out(self, effects: list[fx.Effect], group: bytearray | None) -> None:
        for effect in effects:
            _DO[type(effect)](self, effect, group)

    def _send(self, effect: fx.Send, group: bytearray | None) -> None:
        link = self._links.get(effect.ordinal)
        if link is None:
            return
        message = effect.message
        if not isinstance(message, Append):
            link.send(message)
            return
        place = self._role.where(message, self.logs.current)
        if place is None:
            return
        assert place[1] == message.head.bytes, "the group that the machine means"
        if message is not self._encoded[0]:  # Both followers get the same.
            self._encoded = (message, wire.encode(message, place[1]))
        link.send_frame(self._encoded[1], place[1], place=place)

    def _persist(self, effect: fx.Persist, group: bytearray | None) -> None:
        assert effect.serial > 0, "serials begin with 1"
        self._journal.add(effect)
        for record in effect.records:
            if isinstance(record, r.DecidedRecord):
                gid, tail = record.gid, record.value.tail
                log.info("epoch %d of shard %d ends with group %d", gid.epoch, gid.token, tail)
                self._on_learned(gid, record.value)

    def _append_foreign(self, effect: fx.AppendForeign, group: bytearray | None) -> None:
        assert group is not None, "the machine asks for the group of this step"
        assert len(group) == effect.head.bytes, "`Inputs` has looked"
        self.logs.step(le.Arrived(effect.gid, group))

    def _commit(self, effect: fx.Commit, group: bytearray | None) -> None:
        assert effect.gseq > 0, "groups are numbered from 1"
        if self._role.commits(effect, self.logs.current):
            self._reactor.replicated(effect.gseq)

    def _lead(self, effect: fx.Lead, group: bytearray | None) -> None:
        generation = effect.generation
        assert (generation.leader, generation.session) == (
            self._settings.me,
            self._settings.session,
        )
        assert generation.gid.token == self._token, "a process leads its own range"
        log.info("leading epoch %d of shard %d", generation.gid.epoch, self._token)
        self._of_logs(effect)

    def _opened(self, generation: Generation) -> None:
        if self._role.opened(generation):
            assert self.logs.current == generation.gid
            assert self.leading and self.generation == generation
            log.info("epoch %d of shard %d begins", generation.gid.epoch, self._token)
            self._on_lead(generation)

    def _follow(self, effect: fx.Follow, group: bytearray | None) -> None:
        generation = effect.generation
        assert generation.gid.token == self._token, "a process follows its own range"
        log.info(
            "following epoch %d of shard %d, led by broker %d",
            generation.gid.epoch,
            self._token,
            generation.leader.ordinal,
        )
        self._of_logs(effect)
        self._on_follow(generation)

    def _stop_leading(self, effect: fx.StopLeading, group: bytearray | None) -> None:
        assert effect.gid.token == self._token, "it was one of this range"
        log.warning("epoch %d is not led here any more: %s", effect.gid.epoch, effect.reason)
        if self._of_logs(effect):
            self._on_stop(effect.reason)

    def _stop(self, effect: fx.Stop, group: bytearray | None) -> None:
        if effect.refused:
            self._fatal(effect.reason, ConfigError.exit_code)
        else:
            self._fatal(effect.reason)

    def _warn(self, effect: fx.Warn, group: bytearray | None) -> None:
        log.error("%s", effect.reason)

    def _serve(self, effect: fx.Serve, group: bytearray | None) -> None:
        self._serving.serve(effect)

    def _skip(self, effect: fx.Skip, group: bytearray | None) -> None:
        assert effect.first > 1, "something was removed before it"
        log.warning(
            "groups of epoch %d before %d were removed by retention elsewhere: not copied",
            effect.gid.epoch,
            effect.first,
        )
        self._of_logs(effect)

    def _of_logs(self, effect: le.EffectOfReplica, group: bytearray | None = None) -> bool:
        return self._role.carries(effect, self.logs.current, self.logs.step)


_DO: dict[type[Any], Callable[[Driver, Any, bytearray | None], object]] = {
    fx.Send: Driver._send,
    fx.Persist: Driver._persist,
    fx.AppendForeign: Driver._append_foreign,
    fx.Serve: Driver._serve,
    fx.Commit: Driver._commit,
    fx.Lead: Driver._lead,
    fx.Follow: Driver._follow,
    fx.Drain: Driver._of_logs,
    fx.StopLeading: Driver._stop_leading,
    fx.Seal: Driver._of_logs,
    fx.Skip: Driver._skip,
    fx.Stop: Driver._stop,
    fx.Warn: Driver._warn,
}
