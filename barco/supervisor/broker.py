"""The broker's parent process: everything of the supervisor put together, from start to exit."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from barco import limits
from barco.cluster.groups.groups import Groups
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import Idle, next_starts, spare_ranges
from barco.cluster.ring.target import first_target
from barco.config import Config, check_cluster_ports
from barco.errors import BarcoError, ConfigError, ProtocolError
from barco.log import follow
from barco.model.options import WorkerOptions
from barco.model.placement import ring_slices
from barco.model.ranges import HeldRange, ProcessTable, flaw, to_plain
from barco.protocol import messages
from barco.protocol.door import link_key
from barco.supervisor import datadir, machine
from barco.supervisor.children.starts import Starter
from barco.supervisor.cluster import Cluster, join
from barco.supervisor.control import Alone, Control, Sends
from barco.supervisor.crowding import Crowding, connections_max
from barco.supervisor.datadir import Identity, asked_for
from barco.supervisor.files.asked import note_asked
from barco.supervisor.files.certificate import Certified
from barco.supervisor.files.first_users import access_options
from barco.supervisor.files.notes import DirectoryNotes
from barco.supervisor.listeners import Listeners, open_listeners
from barco.supervisor.processes import Keeper, Launch, ReadyBroker, worker_options
from barco.supervisor.secret import read_secret
from barco.supervisor.sources.asking import Asker
from barco.supervisor.sources.plan import ServePlan
from barco.supervisor.sources.reload import Reloader
from barco.supervisor.sources.wish import HeardCluster, Wisher
from barco.supervisor.systemd import Notifier

log = logging.getLogger("barco.supervisor")


def run(plan: ServePlan, on_ready: Callable[[ReadyBroker], None]) -> int:
    """Run a broker until it is told to stop; 0, or a BarcoError that says why not."""
    machine.check_kernel()
    config, open_to_all = machine.check(plan.config, plan.insecure_allow_open)
    plan = replace(plan, config=config)
    os.umask(0o077)
    lock = datadir.claim(plan.data_dir)
    try:
        identity = datadir.identify(plan.data_dir, plan.config, plan.known_disk)
        table = datadir.adopt_table(plan.data_dir, identity)
        datadir.prepare(plan.data_dir)
        files = machine.set_limits()
        if refused := machine.set_priority(plan.config.broker.nice):
            log.warning(refused)
        if cluster := identity.ring_size > 1:
            check_cluster_ports(config, table.numbers[-1] + 1)
        leading = {held.number for held in table.owned_by(identity.member)}
        starter = Starter.begin(plan.command, lock)  # While nothing is open that is ours alone.
        listeners = open_listeners(
            config.broker.bind,
            config.ports,
            leading,
            set(table.numbers) - leading,
            cluster=cluster,
            advertise=machine.advertised_by(config),
        )
        try:
            broker = Broker(plan, identity, table, listeners, starter, open_to_all, on_ready, files)
            return asyncio.run(broker.run())
        finally:
            listeners.close()
            starter.close()
    finally:
        os.close(lock)


class Broker:
    """One run of a broker."""

    def __init__(
        self,
        plan: ServePlan,
        identity: Identity,
        table: ProcessTable,
        listeners: Listeners,
        starter: Starter,
        open_to_all: bool,
        on_ready: Callable[[ReadyBroker], None],
        files: int,
    ) -> None:
        self._plan, self._starter = plan, starter
        self._identity = identity
        self._table = table
        self._notes = DirectoryNotes(plan.data_dir, identity.ring_size == 1, self._write_table)
        self._key = link_key(read_secret(plan.config), identity.cluster_uuid)
        self._access = access_options(plan.config, plan.data_dir)
        self._listeners = listeners
        self._open_to_all = open_to_all
        self._on_ready = on_ready
        self._notifier = Notifier.from_environment()
        self._stop = asyncio.Event()
        self._signals, self._announced = 0, False
        self._cluster: Cluster | None = None
        slices = ring_slices(identity.ring_size, identity.slices_per_range)
        self._cut = Cut(identity.ring_size, identity.slices_per_range)
        self._control: Alone | Cluster = Alone(Control(Groups(slices)), self._cut)
        # Of others it is not known yet how many they run: as many, that is.
        brokers = max(1, len(plan.config.cluster.brokers))
        self._connections_max = connections_max(files, brokers * len(table))
        self._crowding = Crowding(files, self._connections_max)
        self._cores = machine.Cores(identity.ordinal, identity.member, machine.cores())
        self._cores.say(table)
        self._workers_asked = asked_for(plan.data_dir, plan.config, identity)
        self._keepers = {number: self._keeper(number) for number in table.numbers}
        self._lives: dict[int, asyncio.Task[None]] = {}
        """What runs each keeper."""
        self._unmade: dict[int, str] = {}
        """By token: why there is no process for a range that needs one."""
        self._idle = Idle()
        self._endings: set[asyncio.Task[None]] = set()
        self._seal = Certified(plan.config, identity.cluster_uuid)
        self._asker = Asker(self._keepers)
        self._wisher = Wisher(self._asker.ask, identity.cluster_uuid, self._heard)
        self._reloader = Reloader(
            plan.config,
            read=self._read_again,
            wish=self._wisher.wish,
            take_up=self._take_up,
            notify=self._reloading,
        )

    async def run(self) -> int:
        """Start, serve, drain; 0 when it was told to stop and everybody had gone in peace."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._reloader.hang_up)
        if self._listeners.gossip is not None:
            self._control = self._cluster = join(
                self._plan,
                self._identity,
                self._table,
                self._listeners,
                self._send,
                self._key,
                self._seal.mutual,
            )
            await self._cluster.start(self._listeners.gossip)
        for worker in self._keepers:
            self._keep(worker)
        chores = [asyncio.create_task(chore) for chore in self._chores()]
        try:
            await self._stop.wait()
            await self._drain()
        finally:
            lives = list(self._lives.values())
            others = (*chores, *self._endings)
            for task in (*others, *lives):
                task.cancel()
            await asyncio.gather(*others, *lives, return_exceptions=True)
            if self._cluster is not None:
                await self._cluster.close()
        for life in lives:
            if not life.cancelled() and (error := life.exception()) is not None:
                raise error
        if self._signals > 1:
            raise BarcoError("stopped before the workers had drained, on a second signal")
        log.info("broker stopped", extra={"pid": os.getpid()})
        return 0

    # --- Ranges that come and go --------------------------------------------------------------

    @property
    def table(self) -> ProcessTable:
        """The broker's processes, as they are now."""
        return self._table

    def add_range(self, held: HeldRange) -> HeldRange:
        """Start a process for a range that this broker has none for; how it is held now.

        The number that `held` names is not used: the lowest that is free is given. What the process
        holds then is what its directory has, or nothing: it says that it is ready, and waits. The
        table is on the disk before it is started, by an fsync in the supervisor's thread. A
        BarcoError, with nothing changed: there is no number or port, or no such range.
        """
        identity, config = self._identity, self._plan.config
        try:
            table = self._table.with_range(datadir.as_before(self._plan.data_dir, identity, held))
        except ValueError as error:
            raise ConfigError(f"no process for the range at {held.token}: {error}") from None
        if (what := flaw(table, identity.cut, identity.member)) is not None:
            raise ConfigError(f"no process for the range at {held.token}: {what}")
        if self._cluster is not None:
            check_cluster_ports(config, table.numbers[-1] + 1)
        made = table.holding(held.token)
        assert made is not None, "it has just been put there"
        public = made.members[0] == identity.member
        self._listeners.open(made.number, public=public, quiet=True)
        try:
            self._write_table(table)
        except BarcoError:
            self._listeners.shut(made.number)
            raise
        self._table = table
        self._keepers[made.number] = self._keeper(made.number)
        self._keep(made.number)
        self._tell_own()
        return made

    async def end_range(self, token: int) -> None:
        """End the process of a range, in an orderly way, and give its number back.

        Its directory stays: what is in it is somebody else's to decide. A process that is killed
        before that is written down is started again at the next start.
        """
        held = self._table.holding(token)
        assert held is not None and len(self._table) > 1, "one of several is ended"
        keeper, life = self._keepers.pop(held.number), self._lives.pop(held.number)
        keeper.stop()
        _, late = await asyncio.wait([life], timeout=limits.DRAIN_SECONDS_MAX)
        if late:
            keeper.kill(f"had not drained after {limits.DRAIN_SECONDS_MAX:.0f} s")
            await asyncio.wait([life])
        table = self._table.without(token)
        try:
            self._write_table(table)
        except BarcoError:  # It would be there again at the next start: so it is now.
            self._keepers[held.number] = self._keeper(held.number)
            self._keep(held.number)
            raise
        self._listeners.shut(held.number)
        self._table = table
        self._tell_own()

    def _end_idle(self, now: float) -> None:
        """Processes that hold nothing, and that nobody has needed for a while; one at a time."""
        if self._stop.is_set() or self._endings or not self._control.informed:
            return
        said = [(n, k.life.blank, k.life.spent) for n, k in self._keepers.items() if k.life]
        spare = spare_ranges(self._table, self._control.needed(), said)
        for token in self._idle.look(spare, now)[: min(1, len(self._table) - 1)]:
            self._endings.add(ending := asyncio.create_task(self._end_one(token)))
            ending.add_done_callback(self._endings.discard)

    async def _end_one(self, token: int) -> None:
        held = self._table.holding(token)
        assert held is not None, "it was in the table just now"
        log.info("a process that nobody needs is ended", extra={"worker": held.number})
        try:
            await self.end_range(token)
        except BarcoError as error:
            log.error("a process that nobody needs goes on: %s", error)

    def _start_needed(self) -> None:
        """Processes for what the target and the routes want of this broker."""
        if self._stop.is_set():
            return
        for held in next_starts(self._control.needed(), [each.token for each in self._table]):
            try:
                made = self.add_range(held)
            except BarcoError as error:
                if self._unmade.get(held.token) != error.detail:
                    self._unmade[held.token] = error.detail
                    log.error("%s", error.detail)
                continue
            log.info(
                "a process is started for slices %d to %d, of which this broker shall be a member",
                *(made.numbers[0], made.numbers[-1]),
                extra={"worker": made.number},
            )

    def _write_table(self, table: ProcessTable | None = None) -> None:
        those = self._plan.data_dir, self._identity, table or self._table
        datadir.write_table(*those, named=self._notes.named, format=self._notes.format)

    def _look_at_notes(self) -> None:
        stats = [each.life.stats for each in self._keepers.values() if each.life is not None]
        told = self._notes.look(stats, self._cluster)
        self._send([(worker, told) for worker in self._keepers if told])

    def _tell_own(self) -> None:
        """To this broker's processes and to the others: these are the processes, and the ready."""
        if self._stop.is_set():
            return  # It takes leave, and they end one by one.
        endpoints = {str(n): text for n, text in self._listeners.shard_endpoints.items()}
        lives = {number: keeper.life for number, keeper in self._keepers.items()}
        sessions = {number: life.session for number, life in lives.items() if life is not None}
        news = {
            "processes": to_plain(self._table),
            "endpoints": endpoints,
            "sessions": {str(number): session for number, session in sessions.items()},
        }
        self._send([(worker, {"type": messages.PROCESSES} | news) for worker in self._keepers])
        pids = {number: life.pid for number, life in lives.items() if life is not None}
        self._cores.move(self._table, pids)
        if self._cluster is not None:
            self._cluster.renew(self._table, sessions)

    # --- Workers ------------------------------------------------------------------------------

    def _keep(self, number: int) -> None:
        life = self._lives[number] = asyncio.create_task(self._keepers[number].run())
        life.add_done_callback(lambda done: self._ended(number))

    def _ended(self, number: int) -> None:
        """Who is not to be kept any more ends the broker, unless that was wanted."""
        if number in self._keepers:
            self._stop.set()

    def _keeper(self, worker: int) -> Keeper:
        return Keeper(
            Launch(
                worker=worker,
                starter=self._starter,
                options=lambda channel_fd: self._options(worker, channel_fd),
                inherit=[each.fileno() for each in self._listeners.by_worker[worker].values()],
            ),
            ready=self._ready,
            writable=self._announce,
            gone=self._gone,
            message=self._message,
            needed=self._holds_events,
        )

    def _holds_events(self, worker: int) -> bool:
        """A range that was wanted later and has got nothing yet must not end those that have."""
        held = self._table.at(worker)
        return held.genesis or datadir.holds_events(self._plan.data_dir, held.token)

    def _options(self, worker: int, channel_fd: int) -> WorkerOptions:
        return worker_options(
            self._plan,
            self._identity,
            self._listeners,
            table=self._table,
            worker=worker,
            channel_fd=channel_fd,
            core=self._cores.of(self._table, worker),
            key=self._key,
            noted=(self._notes.named, self._notes.written),
            asked=self._workers_asked,
            access=self._access,
            tls=self._seal.told(),
            connections_max=self._connections_max,
            open_to_all=self._open_to_all,
        )

    def _ready(self, worker: int) -> None:
        self._send(self._control.worker_ready(worker))
        self._tell_own()
        if all(keeper.life and keeper.life.ready for keeper in self._keepers.values()):
            self._notes.note_named()
        self._look_at_notes()
        self._announce()

    def _announce(self) -> None:
        """Once, when every slice of the ring can be written through this broker."""
        if self._announced or self._stop.is_set():
            return
        keepers = self._keepers.items()
        lives = [kept.life for n, kept in keepers if not kept.restarts or self._holds_events(n)]
        pids = [life.pid for life in lives if life is not None and life.ready and life.writable]
        if len(pids) < len(lives):
            return
        self._announced = True
        endpoints = self._listeners.shard_endpoints
        self._notifier.send(READY=1, STATUS=f"{len(pids)} workers ready")
        self._on_ready(
            ReadyBroker(
                pid=os.getpid(),
                bind=self._plan.config.broker.bind,
                advertise=machine.advertised_by(self._plan.config),
                ports=self._listeners.ports,
                shards=[endpoint for _, endpoint in sorted(endpoints.items())],
                workers=pids,
                engines=[life.engine for life in lives if life is not None],
                data_dir=str(self._plan.data_dir),
                tls=self._seal.is_there,
            )
        )

    def _gone(self, worker: int) -> None:
        self._asker.gone(worker)
        self._send(self._control.worker_gone(worker))
        self._tell_own()

    def _message(self, worker: int, message: dict[str, Any]) -> None:
        if message.get("type") == messages.ANSWER:
            self._asker.answered(worker, message)
        elif message.get("type") != messages.WORKERS:
            self._send(self._control.receive(worker, message, asyncio.get_running_loop().time()))
        elif self._workers_asked:
            note_asked(self._plan.data_dir, self._workers_asked)
            self._workers_asked = 0

    def _send(self, sends: Sends) -> None:
        for worker, message in sends:
            keeper = self._keepers.get(worker)
            if keeper is None:
                continue
            try:
                keeper.send(message)
            except ProtocolError as error:
                extra = {"worker": worker, "type": message.get("type")}
                log.error("cannot send to worker: %s", error, extra=extra)

    # --- Chores and signals -------------------------------------------------------------------

    def _chores(self) -> list[Any]:
        chores: list[Any] = [self._tick(), self._reloader.run()]
        if self._notifier.watchdog_seconds is not None:
            chores.append(self._notifier.watch(self._keepers.values))
        chores.append(self._seal.watch(self._tell_tls))
        if self._open_to_all:
            chores.append(machine.warn_open(self._plan.config))
        if self._cluster is not None:
            chores.append(self._notifier.await_ready(lambda: self._announced))
            if self._plan.source is not None:
                chores.append(self._plan.source(self._wisher.wish))
        return chores

    async def _tick(self) -> None:
        """Give the control plane the time: once a second, and when it waits for something."""
        clock = asyncio.get_running_loop().time
        while True:
            until = clock() + limits.TICK_SECONDS
            while (left := until - clock()) > 0:
                await asyncio.sleep(min(left, self._control.pause(clock())))
                self._send(self._control.look(clock()))
            self._send(self._control.tick(clock()))
            self._look_at_notes()
            self._start_needed()
            self._end_idle(clock())
            self._announce()  # Nobody waits any more for one that died and holds nothing.
            self._crowding.look((k.life.stats for k in self._keepers.values() if k.life), clock())

    def _signalled(self, number: signal.Signals) -> None:
        self._signals += 1
        extra = {"signal": number.name}
        if self._signals == 1:
            log.info("stopping: workers finish what they have and seal their logs", extra=extra)
            self._stop.set()
            return
        log.warning("stopping at once", extra=extra)
        for keeper in self._keepers.values():
            keeper.kill("was stopped by a second signal")

    def _reloading(self, **state: str | int) -> None:
        """Says so to systemd, whose word for it is that the broker is ready again."""
        if self._announced and not self._stop.is_set():
            self._notifier.send(**state)

    def _read_again(self) -> Config:
        """As a start with it would check it, of this data directory; in a thread."""
        plan = self._plan
        found = plan.read() if plan.read is not None else plan.config
        config, _ = machine.check(found, plan.insecure_allow_open)
        datadir.check_formatted(plan.data_dir, config, self._identity, self._table)
        return config

    def _take_up(self, config: Config) -> str:
        said = (self._seal.renew(config), follow(config.log.level, config.log.format))
        self._tell_tls(self._seal.told())
        told = {"type": messages.LOG, "level": config.log.level}
        self._send([(worker, told) for worker in self._keepers])
        return "; ".join(filter(None, said))

    def _tell_tls(self, told: dict[str, Any]) -> None:
        if told:
            self._send([(worker, {"type": messages.TLS, "tls": told}) for worker in self._keepers])

    def _heard(self) -> HeardCluster:
        """Of the cluster, for who wishes for more brokers."""
        cluster = self._cluster
        assert cluster is not None, "a single broker lists nobody"
        first = first_target(self._cut, self._identity.workers)
        hosts = {each["ordinal"]: each["host"] for each in cluster.describe()["brokers"]}
        return HeardCluster(target=cluster.aim.target or first, hosts=hosts)

    async def _drain(self) -> None:
        """Ask all to finish; who has not after a while is killed, which loses nothing."""
        self._notifier.send(STOPPING=1)
        self._stop.set()
        for keeper in self._keepers.values():
            keeper.stop()
        self._listeners.close()
        if self._cluster is not None:
            self._cluster.depart()
        tasks = list(self._lives.values())
        _, late = await asyncio.wait(tasks, timeout=limits.DRAIN_SECONDS_MAX)
        if late:
            for keeper in self._keepers.values():
                keeper.kill(f"had not drained after {limits.DRAIN_SECONDS_MAX:.0f} s")
            await asyncio.wait(tasks)
