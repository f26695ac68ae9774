"""Worker processes: start, watch, restart, stop. One task for each, whose code reads in that order.

A `Life` is one run of a process: from the fork to its exit. A `Keeper` gives one worker life after
life, with growing pauses, until it is told to stop or the worker dies too often.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import Struct

import barco
from barco import limits
from barco.errors import ConfigError, CrashLoopError, OperatorError, ProtocolError
from barco.log import level as log_level
from barco.model.options import WorkerOptions
from barco.model.ranges import ProcessTable
from barco.protocol import messages
from barco.supervisor import machine
from barco.supervisor.children.channel import Channel
from barco.supervisor.children.relay import LogRelay
from barco.supervisor.children.starts import Child, Starter
from barco.supervisor.datadir import Identity
from barco.supervisor.listeners import Listeners
from barco.supervisor.sources.plan import ServePlan

log = logging.getLogger("barco.supervisor")

EXIT_CONFIG = 78
OUTPUT_SECONDS_MAX = 1.0
OUTPUT_READ_BYTES = 64 * 1024


class ReadyBroker(Struct, frozen=True, kw_only=True):
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
    tls: bool = False
    """Whether its ports for clients speak TLS."""


class RestartPolicy:
    """When a dead worker may live again. Pure: it is told the time."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=limits.CRASH_LOOP_DEATHS)
        self._delay = 0.0

    def died(self, now: float, lived: float) -> float | None:
        """Seconds to wait before the next life; None: it is a crash loop."""
        if lived >= limits.CRASH_LOOP_SECONDS:
            self._delay = 0.0
        self._deaths.append(now)
        full = len(self._deaths) == limits.CRASH_LOOP_DEATHS
        if full and now - self._deaths[0] <= limits.CRASH_LOOP_SECONDS:
            return None
        doubled = max(2 * self._delay, limits.RESTART_BACKOFF_SECONDS_MIN)
        self._delay = min(doubled, limits.RESTART_BACKOFF_SECONDS_MAX)
        return self._delay


class Launch(Struct, frozen=True):
    """How to start one worker."""

    worker: int
    starter: Starter
    options: Callable[[int], WorkerOptions]
    """The options, given the number of the channel's descriptor."""
    inherit: Sequence[int]
    """Descriptors that the worker keeps: its listeners, the data directory's lock."""


class Life:
    """One run of a worker process."""

    def __init__(self, process: Child, channel: Channel, now: float) -> None:
        self.process = process
        self.channel = channel
        self.started = now
        self.heard = now
        self.ready = False
        self.writable = False
        """Every slice takes events through it; of a worker that has been ready once."""
        self.session = 0
        """Of this start, as it says itself when it is ready."""
        self.blank = False
        """It holds nothing: no generation, no vote, no copy of anything."""
        self.spent = False
        """Retention has removed all that it held, and whoever reads what follows knows that."""
        self.engine = "unknown"
        self.last_word = ""
        self.stats: dict[str, Any] = {}
        self.why = ""
        """Why the supervisor killed it, if it did."""

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def silence_max(self) -> float:
        """How long it may say nothing: recovery is allowed more than daily life."""
        if self.ready:
            return limits.HEARTBEAT_SILENCE_SECONDS_MAX
        return limits.WORKER_START_SECONDS_MAX

    def kill(self, why: str) -> None:
        """SIGKILL: it is safe at any moment, an acknowledged event is on the disk."""
        if self.process.poll() is None:
            self.why = self.why or why
            self.process.kill()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a frame; a worker that lets them pile up is killed."""
        if not self.channel.send(message):
            self.kill("does not read its channel")

    def obituary(self) -> str:
        """How it ended, with its last words."""
        status = self.process.returncode
        if status is not None and status < 0:
            end = f"was killed by {_signal_name(-status)}"
        else:
            end = f"exited with status {status}"
        if self.why:
            end += f" because it {self.why}"
        return f"{end}: {self.last_word}" if self.last_word else end


class Keeper:
    """Keeps one worker alive."""

    def __init__(
        self,
        launch: Launch,
        *,
        ready: Callable[[int], None],
        writable: Callable[[], None],
        gone: Callable[[int], None],
        message: Callable[[int, dict[str, Any]], None],
        needed: Callable[[int], bool] = lambda worker: True,
    ) -> None:
        """needed: whether the broker can not do without it: it ends with its crash loop."""
        self.worker = launch.worker
        self.life: Life | None = None
        self._early: list[Mapping[str, Any]] | None = None
        """For a process that has its options, and is not there yet."""
        self.restarts = 0
        self._launch = launch
        self._policy = RestartPolicy()
        self._stopping = asyncio.Event()
        self._on_ready = ready
        self._on_writable = writable
        self._on_gone = gone
        self._on_message = message
        self._needed = needed

    def hangs(self, now: float) -> bool:
        """Whether it was killed for its silence and is still there: it waits in the kernel, say for
        a disk, and what it waits for does not come."""
        life = self.life
        return (
            life is not None
            and now - life.heard > life.silence_max() + limits.HEARTBEAT_SILENCE_SECONDS_MAX
        )

    def send(self, message: Mapping[str, Any]) -> None:
        """To the process. One that is being started hears it when it is there; where none is, the
        next one's options will say it. ProtocolError: no frame has room for it, if it is there."""
        if self.life is not None:
            self.life.send(message)
        elif self._early is not None:
            self._early.append(message)

    def stop(self) -> None:
        """Let it answer what it has, seal its log and exit; it is not started again."""
        self._stopping.set()
        if self.life is not None:
            self.life.send({"type": messages.DRAIN})

    def kill(self, why: str) -> None:
        """End it at once; it is not started again."""
        self._stopping.set()
        if self.life is not None:
            self.life.kill(why)

    async def run(self) -> None:
        """Life after life, until stopped; CrashLoopError or ConfigError when that is pointless."""
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            life = self.life = await self._start(loop)
            if life is None:
                return
            try:
                await self._live(life, loop)
            finally:
                life.kill("had to go with its supervisor")
                self.life = None
                life.channel.close()
                self._on_gone(self.worker)
            if self._stopping.is_set():
                self._report_end(life)
                return
            await self._pause(life, loop.time())

    async def _start(self, loop: asyncio.AbstractEventLoop) -> Life | None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            ours.setblocking(False)
            channel = await Channel.open(ours)
            if self._stopping.is_set():
                channel.close()
                return None
            options, began = self._launch.options(theirs.fileno()), loop.time()
            inherit = [theirs.fileno(), *self._launch.inherit]
            early = self._early = []
            try:
                child = await self._launch.starter.start(options, inherit)
            except OperatorError:
                channel.close()
                if self._stopping.is_set():
                    return None  # What it was to inherit was closed meanwhile.
                raise
            except BaseException:
                channel.close()
                raise
            finally:
                self._early = None
            life = Life(child, channel, began)
            for message in early:
                try:
                    life.send(message)
                except ProtocolError as error:  # Others that were told have said so, too.
                    log.error("cannot send to worker: %s", error, extra={"worker": self.worker})
            if self._stopping.is_set():
                life.send({"type": messages.DRAIN})
        log.info("worker started", extra={"worker": self.worker, "pid": life.pid})
        return life

    async def _live(self, life: Life, loop: asyncio.AbstractEventLoop) -> None:
        """Listen to it until it is dead and its last words are read."""
        ended = asyncio.Event()
        pidfd = os.pidfd_open(life.pid)
        loop.add_reader(pidfd, ended.set)

        def failed(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("supervising failed", exc_info=error, extra={"worker": self.worker})
                life.kill("could not be supervised")

        tasks = [
            asyncio.create_task(self._listen(life, loop)),
            asyncio.create_task(self._watch(life, loop)),
        ]
        words = asyncio.create_task(self._read_output(life))
        for task in (*tasks, words):
            task.add_done_callback(failed)
        try:
            await ended.wait()
            life.process.wait()
            # What it wrote just before its end is still in the pipe and the socket.
            await asyncio.wait([words, tasks[0]], timeout=OUTPUT_SECONDS_MAX)
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            for task in (*tasks, words):
                task.cancel()
            await asyncio.gather(*tasks, words, return_exceptions=True)

    async def _listen(self, life: Life, loop: asyncio.AbstractEventLoop) -> None:
        try:
            async for message in life.channel.messages():
                life.heard = loop.time()
                self._take(life, message)
        except ProtocolError as error:
            life.kill(f"broke the protocol of its channel ({error})")

    def _take(self, life: Life, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == messages.HEARTBEAT:
            stats = message.get("stats")
            life.stats = stats if isinstance(stats, dict) else {}
            life.blank = message.get("blank") is True
            life.spent = message.get("spent") is True
        elif kind == messages.FATAL:
            life.last_word = str(message.get("text", ""))[: limits.LOG_LINE_BYTES_MAX]
        elif kind == messages.READY:
            life.ready = True
            life.writable = message.get("writable", True) is True
            session = message.get("session", 0)
            if type(session) is not int or not 0 <= session < 2**64:
                raise ProtocolError(f"a {messages.READY} frame has no session")
            life.session = session
            life.engine = str(message.get("engine", "unknown"))
            taken = round(life.heard - life.started, 3)
            known = ("type", "session", "writable")
            extra = {k: value for k, value in message.items() if k not in known}
            log.info("worker ready", extra={"worker": self.worker, "seconds": taken} | extra)
            self._on_ready(self.worker)
        elif kind == messages.WRITABLE:
            life.writable = True
            self._on_writable()
        else:
            self._on_message(self.worker, message)

    async def _watch(self, life: Life, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            before = loop.time()
            left = life.heard + life.silence_max() - before
            if left <= 0:
                life.kill(f"was silent for {life.silence_max():.0f} s")
                return
            await asyncio.sleep(min(left, limits.HEARTBEAT_SECONDS))
            if loop.time() - before > 2 * limits.HEARTBEAT_SECONDS:
                # It was the supervisor that was stopped, or starved: what it has not heard in
                # that time is not the worker's silence.
                life.heard = loop.time()

    async def _read_output(self, life: Life) -> None:
        assert life.process.stdout is not None
        reader = asyncio.StreamReader()
        relay = LogRelay(self.worker, sys.stderr)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), life.process.stdout
        )
        try:
            while data := await reader.read(OUTPUT_READ_BYTES):
                relay.feed(data)
        finally:
            relay.close()
            life.last_word = life.last_word or relay.last_line
            transport.close()

    def _report_end(self, life: Life) -> None:
        extra = {"worker": self.worker, "pid": life.pid}
        if life.process.returncode == 0:
            log.info("worker stopped", extra=extra)
        else:
            log.warning("worker %s", life.obituary(), extra=extra)

    async def _pause(self, life: Life, now: float) -> None:
        """Say that it died, and wait as long as it deserves."""
        self.restarts += 1
        obituary = f"worker {self.worker} {life.obituary()}"
        if life.process.returncode == EXIT_CONFIG:
            raise ConfigError(life.last_word or obituary)
        delay = self._policy.died(now, now - life.started)
        if delay is None and not self._needed(self.worker):
            delay = limits.RESTART_BACKOFF_SECONDS_MAX
        if delay is None:
            raise CrashLoopError(
                f"worker {self.worker} died {limits.CRASH_LOOP_DEATHS} times within"
                f" {limits.CRASH_LOOP_SECONDS:.0f} s, giving up: it {life.obituary()}"
            )
        log.error(obituary, extra={"worker": self.worker, "pid": life.pid, "restart_in": delay})
        try:
            await asyncio.wait_for(self._stopping.wait(), delay)
        except TimeoutError:
            pass


def worker_options(
    plan: ServePlan,
    identity: Identity,
    listeners: Listeners,
    *,
    table: ProcessTable,
    worker: int,
    channel_fd: int,
    core: int,
    key: bytes,
    noted: tuple[bool, int],
    asked: int,
    access: dict[str, Any],
    tls: dict[str, Any],
    connections_max: int,
    open_to_all: bool,
) -> WorkerOptions:
    """Of the process with this number. core: that it runs on, or -1; key: of the links. noted:
    whether all journals say whose they are, and the newest format of logs that may be written.
    asked: workers that the configuration asks for."""
    config, brokers = plan.config, plan.config.cluster.brokers
    return WorkerOptions(
        version=barco.__version__,
        worker=worker,
        workers=identity.workers,
        processes=table,
        workers_asked=asked,
        core=core,
        supervisor_pid=os.getpid(),
        data_dir=str(plan.data_dir.resolve()),
        cluster_uuid=identity.cluster_uuid,
        link_key=key.hex(),
        secret=bool(config.cluster.secret_file),
        disk_uuid=identity.disk_uuid,
        journals_named=noted[0],
        log_format=noted[1],
        log_level=log_level(),
        restored=plan.restored,
        ordinal=identity.ordinal,
        replaces=identity.replaces,
        slices_per_range=identity.slices_per_range,
        ring_size=identity.ring_size,
        brokers=list(brokers) if len(brokers) > 1 else [],
        replication_port=config.ports.replication,
        shard_port=config.ports.shard,
        channel_fd=channel_fd,
        listeners={name: [each.fileno()] for name, each in listeners.by_worker[worker].items()},
        bind=machine.source_of(config),
        advertise=machine.advertised_by(config),
        clients=asdict(config.clients),
        trace=asdict(config.trace),
        access=access,
        tls=tls,
        ports=listeners.ports,
        shard_endpoints=listeners.shard_endpoints,
        engine=config.broker.engine,
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        dev=plan.dev,
        insecure_open=open_to_all,
        memory_bytes=config.limits.memory_bytes,
        event_bytes_max=config.limits.event_bytes_max,
        request_bytes_max=config.limits.request_bytes_max,
        connections_max=connections_max,
        auto_create=config.topics.auto_create,
        retention_hours=config.topics.retention_hours,
        retention_bytes=config.topics.retention_bytes,
        segment_bytes=config.storage.segment_bytes,
        compression=config.storage.compression,
        drain_bytes_per_second=config.drain.bytes_per_second,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
