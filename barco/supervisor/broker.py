"""The broker's parent process: everything of the supervisor put together, from start to exit."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import barco
from barco import config as configuration
from barco import limits
from barco.cluster.groups.groups import Groups
from barco.config import Config
from barco.errors import BarcoError, DataDirError, ProtocolError
from barco.model.options import WorkerOptions
from barco.model.ranges import ProcessTable
from barco.protocol.door import link_key
from barco.supervisor import datadir, machine
from barco.supervisor.cluster import Cluster, join, ring_slices
from barco.supervisor.control import Control, Sends
from barco.supervisor.crowding import Crowding, connections_max
from barco.supervisor.datadir import Identity
from barco.supervisor.listeners import Listeners, open_listeners
from barco.supervisor.processes import COMMAND, Keeper, Launch
from barco.supervisor.secret import read_secret
from barco.supervisor.systemd import Notifier

log = logging.getLogger("barco.supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """What to run."""

    config: Config
    data_dir: Path
    dev: bool = True
    insecure_allow_open: bool = False
    command: Sequence[str] = COMMAND
    known_disk: Callable[[Config], str | None] = lambda config: None
    """The disk with which other brokers know this one (`barco.cli.shared.known.known_disk`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyBroker:
    """What a broker says of itself when all its workers are up."""

    pid: int
    bind: str
    advertise: str
    """What clients are told."""
    ports: dict[str, int]
    shards: list[str]
    workers: list[int]
    """The process id of each worker."""
    engines: list[str]
    data_dir: str


def run(plan: ServePlan, on_ready: Callable[[ReadyBroker], None]) -> int:
    """Run a broker until it is told to stop; 0, or a BarcoError that says why not."""
    machine.check_kernel()
    plan = replace(plan, config=machine.check_cluster(plan.config))
    open_to_all = machine.check_bind(plan.config, plan.insecure_allow_open)
    machine.advertised_by(plan.config)  # Refused before anything is made.
    read_secret(plan.config)  # Before anything is made, or bound.
    os.umask(0o077)
    lock = datadir.claim(plan.data_dir)
    try:
        identity = identify(plan)
        table = datadir.adopt_table(plan.data_dir, identity)
        datadir.prepare(plan.data_dir)
        files = machine.raise_file_limit()
        if refused := machine.set_priority(plan.config.broker.nice):
            log.warning(refused)
        config = plan.config
        cluster = identity.ring_size > 1
        if cluster:
            configuration.check_cluster_ports(config, table.numbers[-1] + 1)
        leading = {held.number for held in table.owned_by(identity.member)}
        listeners = open_listeners(
            config.broker.bind,
            config.ports,
            leading,
            set(table.numbers) - leading,
            cluster=cluster,
            advertise=machine.advertised_by(config),
        )
        try:
            broker = Broker(plan, identity, table, listeners, lock, open_to_all, on_ready, files)
            return asyncio.run(broker.run())
        finally:
            listeners.close()
    finally:
        os.close(lock)


def identify(plan: ServePlan) -> Identity:
    """The data directory's identity; an empty directory is formatted for this machine."""
    config = plan.config
    identity = datadir.load(plan.data_dir)
    slices = config.cluster.slices_per_range
    if identity is None:
        if (known := plan.known_disk(config)) is not None:
            raise DataDirError(
                f"{plan.data_dir} is empty, and broker {config.broker.ordinal} of this cluster is"
                f" known with disk {known}: bring its data directory back or, if it is lost, run"
                " barco replace with the same options, then barco serve"
            )
        identity = datadir.format_data_dir(
            plan.data_dir,
            workers=machine.worker_count(config),
            slices_per_range=slices,
            ordinal=config.broker.ordinal,
            cluster_uuid=configuration.cluster_uuid(config),
            ring_size=max(1, len(config.cluster.brokers)),
        )
        extra = {"data_dir": str(plan.data_dir), "workers": identity.workers}
        log.info("data directory formatted", extra=extra)
        return identity
    check_membership(plan, identity)
    if config.broker.workers not in (0, identity.workers):
        raise DataDirError(
            f"{plan.data_dir} was formatted for {identity.workers} workers, not for"
            f" {config.broker.workers}: leave --workers out, or pass another --data-dir"
        )
    if slices not in (limits.SLICES_PER_RANGE, identity.slices_per_range):
        raise DataDirError(
            f"{plan.data_dir} was formatted with {identity.slices_per_range} slices, not with"
            f" cluster.slices_per_range = {slices}: leave the key out, or pass another --data-dir"
        )
    return identity


def check_membership(plan: ServePlan, identity: Identity) -> None:
    """Refuse a directory that belongs to another cluster, or to another broker of it."""
    config, path = plan.config, plan.data_dir
    ring_size = max(1, len(config.cluster.brokers))
    if (identity.ring_size == 1) != (ring_size == 1):
        kinds = {True: "a single broker", False: "a broker of a cluster"}
        raise DataDirError(
            f"{path} was formatted for {kinds[identity.ring_size == 1]}, not for"
            f" {kinds[ring_size == 1]}: pass the --config it was made with, or another --data-dir"
        )
    if ring_size > 1 and identity.ring_size != ring_size:
        raise DataDirError(
            f"{path} was formatted for a cluster of {identity.ring_size} brokers, and"
            f" cluster.brokers lists {ring_size}: a cluster can not grow or shrink in this version;"
            " restore the list it was made with, or load the events into a new cluster"
        )
    wanted = configuration.cluster_uuid(config)
    if wanted and identity.cluster_uuid != wanted:
        raise DataDirError(
            f"{path} belongs to cluster {identity.cluster_uuid}, the configuration is of cluster"
            f" {wanted}: correct cluster.uuid or cluster.brokers, or pass another --data-dir"
        )
    if ring_size > 1 and identity.ordinal != config.broker.ordinal:
        raise DataDirError(
            f"{path} belongs to the broker with ordinal {identity.ordinal}, this one has"
            f" {config.broker.ordinal}: correct broker.ordinal, or pass another --data-dir"
        )


class Broker:
    """One run of a broker."""

    def __init__(
        self,
        plan: ServePlan,
        identity: Identity,
        table: ProcessTable,
        listeners: Listeners,
        lock: int,
        open_to_all: bool,
        on_ready: Callable[[ReadyBroker], None],
        files: int,
    ) -> None:
        self._plan = plan
        self._identity = identity
        self._table = table
        self._key = link_key(read_secret(plan.config), identity.cluster_uuid)
        self._listeners = listeners
        self._open_to_all = open_to_all
        self._on_ready = on_ready
        self._notifier = Notifier.from_environment()
        self._stop = asyncio.Event()
        self._signals = 0
        self._announced = False
        ring = identity.cut
        self._cluster: Cluster | None = None
        slices = ring_slices(ring.size, identity.slices_per_range)
        self._control: Control | Cluster = Control(Groups(slices))
        processes = len(table)
        # Of others it is not known yet how many they run: as many, that is.
        brokers = max(1, len(plan.config.cluster.brokers))
        self._connections_max = connections_max(files, brokers * processes)
        self._crowding = Crowding(files, self._connections_max)
        self._cores = machine.cores()
        leading = len(table.owned_by(identity.member))
        if processes > len(self._cores):
            log.log(
                logging.WARNING if leading > len(self._cores) else logging.INFO,
                "%d processes share %d cores (%d of them lead): more cores, or fewer workers at the"
                " next format, give each one of its own",
                *(processes, len(self._cores), leading),
            )
        self._lock = lock
        self._keepers = {number: self._keeper(number) for number in table.numbers}

    async def run(self) -> int:
        """Start, serve, drain; 0 when it was told to stop and everybody had gone in peace."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        if self._listeners.gossip is not None:
            self._control = self._cluster = join(
                self._plan.config,
                self._identity,
                self._table,
                self._listeners,
                self._send,
                self._key,
            )
            await self._cluster.start(self._listeners.gossip)
        keepers = [asyncio.create_task(keeper.run()) for keeper in self._keepers.values()]
        chores = [asyncio.create_task(chore) for chore in self._chores()]
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([stop, *keepers], return_when=asyncio.FIRST_COMPLETED)
            await self._drain(keepers)
        finally:
            for task in (*chores, stop, *keepers):
                task.cancel()
            await asyncio.gather(*chores, stop, *keepers, return_exceptions=True)
            if self._cluster is not None:
                await self._cluster.close()
        for keeper in keepers:
            if not keeper.cancelled() and (error := keeper.exception()) is not None:
                raise error
        if self._signals > 1:
            raise BarcoError("stopped before the workers had drained, on a second signal")
        log.info("broker stopped", extra={"pid": os.getpid()})
        return 0

    # --- Workers ------------------------------------------------------------------------------

    def _keeper(self, worker: int) -> Keeper:
        sockets = self._listeners.by_worker[worker]
        launch = Launch(
            worker=worker,
            command=self._plan.command,
            options=lambda channel_fd: self._options(worker, channel_fd),
            inherit=[self._lock, *(listener.fileno() for listener in sockets.values())],
        )
        return Keeper(
            launch,
            ready=self._ready,
            writable=self._announce,
            gone=self._gone,
            message=self._message,
        )

    def _options(self, worker: int, channel_fd: int) -> WorkerOptions:
        config, identity = self._plan.config, self._identity
        brokers = config.cluster.brokers
        sockets = self._listeners.by_worker[worker]
        return WorkerOptions(
            version=barco.__version__,
            worker=worker,
            workers=identity.workers,
            processes=self._table,
            core=self._core_of(worker),
            supervisor_pid=os.getpid(),
            data_dir=str(self._plan.data_dir.resolve()),
            cluster_uuid=identity.cluster_uuid,
            link_key=self._key.hex(),
            secret=bool(config.cluster.secret_file),
            disk_uuid=identity.disk_uuid,
            ordinal=identity.ordinal,
            replaces=identity.replaces,
            slices_per_range=identity.slices_per_range,
            ring_size=identity.ring_size,
            brokers=list(brokers) if len(brokers) > 1 else [],
            replication_port=config.ports.replication,
            shard_port=config.ports.shard,
            channel_fd=channel_fd,
            listeners={name: [listener.fileno()] for name, listener in sockets.items()},
            bind=machine.source_of(config),
            advertise=machine.advertised_by(config),
            clients=asdict(config.clients),
            ports=self._listeners.ports,
            shard_endpoints=self._listeners.shard_endpoints,
            engine=config.broker.engine,
            nice=os.getpriority(os.PRIO_PROCESS, 0),
            dev=self._plan.dev,
            insecure_open=self._open_to_all,
            memory_bytes=config.limits.memory_bytes,
            event_bytes_max=config.limits.event_bytes_max,
            request_bytes_max=config.limits.request_bytes_max,
            connections_max=self._connections_max,
            auto_create=config.topics.auto_create,
            retention_hours=config.topics.retention_hours,
            retention_bytes=config.topics.retention_bytes,
            segment_bytes=config.storage.segment_bytes,
            compression=config.storage.compression,
        )

    def _core_of(self, worker: int) -> int:
        """Those that lead come first, then those that follow, both by number."""
        leading = [held.number for held in self._table.owned_by(self._identity.member)]
        order = leading + [each for each in self._table.numbers if each not in leading]
        return machine.core_of(
            order.index(worker),
            workers=max(1, len(leading)),
            ordinal=self._identity.ordinal,
            cores=self._cores,
        )

    def _ready(self, worker: int) -> None:
        self._send(self._control.worker_ready(worker))
        self._announce()

    def _announce(self) -> None:
        """Once, when every slice of the ring can be written through this broker."""
        lives = [keeper.life for keeper in self._keepers.values()]
        if self._announced or self._stop.is_set():
            return
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
            )
        )

    def _gone(self, worker: int) -> None:
        self._send(self._control.worker_gone(worker))

    def _message(self, worker: int, message: dict[str, Any]) -> None:
        self._send(self._control.receive(worker, message, asyncio.get_running_loop().time()))

    def _send(self, sends: Sends) -> None:
        for worker, message in sends:
            keeper = self._keepers.get(worker)
            if keeper is None or (life := keeper.life) is None:
                continue
            try:
                life.send(message)
            except ProtocolError as error:
                extra = {"worker": worker, "type": message.get("type")}
                log.error("cannot send to worker: %s", error, extra=extra)

    # --- Chores and signals -------------------------------------------------------------------

    def _chores(self) -> list[Any]:
        chores: list[Any] = [self._tick()]
        if self._notifier.watchdog_seconds is not None:
            chores.append(self._watchdog(self._notifier.watchdog_seconds))
        if self._open_to_all:
            chores.append(self._warn_open())
        if self._cluster is not None:
            chores.append(self._wait_ready())
        return chores

    async def _wait_ready(self) -> None:
        """Until this broker is ready: nobody who started it may take it for one that hangs."""
        waited = 0
        while not self._announced:
            seconds = limits.READY_WORD_SECONDS
            usec = int(3e6 * seconds)
            self._notifier.send(EXTEND_TIMEOUT_USEC=usec, STATUS="waits for the other brokers")
            await asyncio.sleep(seconds)
            waited += 1
            if waited == 2 and not self._announced:
                log.warning(
                    "not ready yet: a part of the ring has no leader, which takes two of its three"
                    " brokers, and all of them at a cluster's first start: start the others"
                )

    async def _tick(self) -> None:
        """Give the control plane the time; a second is fine enough for all that it waits for."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1.0)
            self._send(self._control.tick(loop.time()))
            lives = [keeper.life for keeper in self._keepers.values()]
            self._crowding.look((life.stats for life in lives if life is not None), loop.time())

    async def _watchdog(self, seconds: float) -> None:
        while True:
            self._notifier.send(WATCHDOG=1)
            await asyncio.sleep(seconds)

    async def _warn_open(self) -> None:
        while True:
            extra = {"bind": self._plan.config.broker.bind}
            log.warning(
                "open to everyone who reaches this address, without authentication"
                " (--insecure-allow-open)",
                extra=extra,
            )
            await asyncio.sleep(limits.OPEN_WARNING_SECONDS)

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

    def _hang_up(self) -> None:
        log.info("SIGHUP ignored: settings are read at the start; restart to change them")

    async def _drain(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Ask all to finish; who has not after a while is killed, which loses nothing."""
        self._notifier.send(STOPPING=1)
        self._stop.set()
        for keeper in self._keepers.values():
            keeper.stop()
        self._listeners.close()
        if self._cluster is not None:
            self._cluster.depart()
        _, late = await asyncio.wait(tasks, timeout=limits.DRAIN_SECONDS_MAX)
        if late:
            for keeper in self._keepers.values():
                keeper.kill(f"had not drained after {limits.DRAIN_SECONDS_MAX:.0f} s")
            await asyncio.wait(tasks)
