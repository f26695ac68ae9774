"""The composition of a worker: reactor, storage, shard service, HTTP application, supervision."""

import asyncio
import gc
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from barco import limits
from barco._native import Reactor
from barco.cluster.ring.routes import RangeRoute
from barco.errors import BarcoError, BrokerError, NotReadyError
from barco.model.access import AccessTable
from barco.model.options import WorkerOptions
from barco.protocol import messages
from barco.workers.groups.idle import expire
from barco.workers.http.app import App
from barco.workers.http.base.endings import Endings
from barco.workers.http.base.messages import Call, Response, Soon, problem_response
from barco.workers.http.checking.desk import Withheld
from barco.workers.operations.asking import WorkersAsked
from barco.workers.operations.growth import Growth
from barco.workers.operations.leaving.drains import Drains
from barco.workers.operations.network import Network
from barco.workers.operations.readiness import Readiness
from barco.workers.operations.service import ShardService
from barco.workers.peers.siblings import HTTP, HTTPS
from barco.workers.process import footprint, hour, stages
from barco.workers.process.build import make_spool
from barco.workers.process.collector import Collector
from barco.workers.process.sealing import Sealing
from barco.workers.process.selector import Upcall
from barco.workers.process.supervision import Supervision
from barco.workers.process.turns import Turns
from barco.workers.replication.host import ReplicaHost
from barco.workers.shard.topic_retention import TopicRetention
from barco.workers.shard.whole import WholeReader, late
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.tracing.exporter import Exporter

IDLE_POSITIONS_SECONDS = 3_600.0
STAGING_SECONDS = 30.0

HANDOVER_SECONDS = 8.0
"""At a stop, for another broker that holds the shard and is catching up: so that it can take over,
or acknowledge what the next leader appends."""

DRAIN_SECONDS = 10.0
"""For requests under way at a stop; the supervisor allows `limits.DRAIN_SECONDS_MAX` in all."""

START_OBJECTS = 100_000
"""Made between two looks of the collector as long as a start lasts. It makes many that stay, and
looking at all of them again and again was 1.2 of 5.1 s after 10,000 generations."""

log = logging.getLogger("barco.worker")


OF_THE_REPLICA = frozenset(
    ["built", "landed", "settled", "segment_wanted", "segment_sealed", "frame", "replica_closed"]
)
"""Upcalls of the reactor that its replica takes."""


class Worker:
    """One worker process. Lives from `run` to its return; the exit status is `run`'s result."""

    def __init__(
        self,
        options: WorkerOptions,
        reactor: Reactor,
        store: ReplicaStore,
        bulk: BulkIo,
        session: int,
        turns: Turns,
    ) -> None:
        self._options = options
        self._turns = turns
        self._session = session
        self._reactor = reactor
        self._store = store
        self._supervision = Supervision()
        reader = WholeReader(_LateReader(store), late(lambda: store.extents))
        self._service = ShardService(
            options,
            reactor=reactor,
            reader=reader,
            supervisor=self._supervision,
            spool=make_spool(options, bulk),
            now_us=self._log_clock,
            wall_us=lambda: time.time_ns() // 1000,
        )
        self._network = Network(options, reactor, self._service, session, self._fatal)
        self._app = App(
            self._service, siblings=self._network.siblings, supervisor=self._supervision
        )
        self._app.shed_by(reactor.shed)
        self._app.listen.by(reactor)
        self._requests: dict[int, asyncio.Future[Any] | Soon] = {}
        """What each of those under way waits for."""
        self._endings = Endings(reactor.connected)
        self._background: set[asyncio.Task[None]] = set()
        self._end: asyncio.Future[int] | None = None
        self._upcalls: dict[str, Callable[[Upcall], object]] = {
            "request": self._request,
            "aborted": self._aborted,
            "check": self._check,
            "hearer": lambda upcall: self._app.listen.hear(*upcall[1:]),
            "appended": self._service.upcall,
            "produced": lambda upcall: self._service.made.produced(*upcall[1:]),
            "stable": self._service.upcall,
            "io_error": lambda upcall: self._fatal(f"the log cannot be written: {upcall[1]}"),
            "peer_closed": lambda upcall: self._network.hand_off.lost(upcall[1]),
        }
        self._readiness = Readiness(self._service)
        self._collector = Collector()
        self._replica = ReplicaHost(
            options,
            session,
            reactor=reactor,
            store=store,
            bulk=bulk,
            service=self._service,
            network=self._network,
            turns=turns,
            opened=self._opened,
            fatal=self._fatal,
        )
        asked = self._network.siblings, self._replica.handovers.refusal
        hush = self._replica.hush
        self._growth = Growth(options, self._service, self._replica.driver, *asked, hush)
        self._service.target.on_news = self._growth.kick
        self._drains = Drains(self._service, self._network.siblings)
        reader.elsewhere = self._replica.history
        self._upcalls |= dict.fromkeys(OF_THE_REPLICA, self._replica.upcall)

    # --- Life ------------------------------------------------------------------------------------

    def upcalls(self, upcalls: Sequence[Upcall]) -> None:
        """From the selector: taken in the loop's next turn, where exceptions are ordinary ones."""
        asyncio.get_running_loop().call_soon(self._take, upcalls)

    async def run(self) -> int:
        """Recover, serve, drain. 0 after an orderly stop; 1 after a fatal error, told before; 78 if
        the start was refused: another one would say the same."""
        self._end = asyncio.get_running_loop().create_future()
        self._supervision.on_view = self._service.membership.apply
        self._supervision.on_cluster = self._service.neighbours.apply
        self._supervision.on_processes = self._service.neighbours.apply_own
        self._network.on_route = self._tell_route
        self._supervision.on_target = self._service.target.hear
        self._service.target.tell = self._tell_target
        self._sealing = Sealing(self._reactor, self._options.tls, self._network.mutual)
        self._service.sealing = self._sealing.status
        self._service.sealing_between = self._sealing.status_between
        self._supervision.on_tls = self._sealing.take
        self._supervision.on_ask = {"target_change": self._app.change_target}
        self._supervision.on_format = self._reactor.write_format
        self._supervision.on_drain = lambda: self._finish(0)
        self._supervision.on_lost = lambda: self._finish(0)
        channel = await self._supervision.open(self._options.channel_fd)
        self._background.add(channel)
        heartbeat = self._spawn(self._heartbeat())
        self._spawn(self._sealing.tell_failures())
        public = self._options.listeners.keys() - {"shard", "replication"}
        self._listen({"shard"} | public if self._options.held.genesis else {"shard"})
        try:
            await self._open()
            if not self._options.held.genesis:
                # Others serve these ports already: what came here before would be refused.
                self._listen(public)
            status = await self._end
        except (BarcoError, OSError) as error:
            self._fatal(str(error), exit_status(error))
            status = await self._end
        await self._close(status)
        heartbeat.cancel()
        return status

    def _listen(self, names: Iterable[str]) -> None:
        """Take requests on these of its sockets. One that was only bound begins to listen."""
        for name in sorted(names):
            for fd in self._options.listeners[name]:
                with socket.socket(fileno=os.dup(fd)) as listener:
                    listener.listen(limits.LISTEN_BACKLOG)
                self._reactor.listen(fd, HTTPS if self._sealing.on else HTTP)

    async def _open(self) -> None:
        """From the recovery of the shard to READY."""
        usual = gc.get_threshold()
        gc.set_threshold(START_OBJECTS, *usual[1:])
        await self._replica.open()
        self._sealing.count_in(self._service)
        footprint.count_in(self._service)
        self._spawn(stages.count_in(self._service, self._reactor).watch())
        self._app.count_in()
        self._spawn(hour.count_in(self._service).watch())
        if self._options.trace.get("endpoint"):
            self._spawn(self._tracing())
        self._app.open()
        if (access := self._service.access).watches:
            access.on_news = self._know_users
            self._spawn(access.run(self._network.siblings))
        self._spawn(self._growth.run())
        if self._options.workers_asked:
            self._spawn(self._workers_asked().run())
        if self._options.ring_size > 1:
            self._spawn(self._drains.run())
        self._spawn(self._staging())
        self._spawn(self._idle_positions())
        self._spawn(self._retention())
        self._spawn(footprint.Footprint(self._options.memory_bytes).watch())
        gc.set_threshold(*usual)
        self._say_ready()

    def _say_ready(self) -> None:
        """The last thing of a start: in the next moment a range may be made of processes that were
        waited for, and clients wait for it. The look at all objects takes 24 ms: it is before."""
        self._collector.take_over()
        writable = self._readiness.writable()
        self._supervision.send(
            {
                "type": messages.READY,
                "session": self._session,
                "writable": writable,
                "pid": os.getpid(),
                "engine": self._reactor.engine,
                "engine_reason": self._reactor.engine_reason,
                "epoch": self._replica.epoch,
                "recovered_groups": self._replica.recovered_groups,
                "recovery_seconds": round(self._replica.recovery_seconds, 3),
            }
        )
        if not writable:
            told = {"type": messages.WRITABLE}
            self._spawn(self._readiness.announce(lambda: self._supervision.send(told)))

    async def _close(self, status: int) -> None:
        """Answers what is under way, writes what waits, seals, lets everything go."""
        if status == 0:
            await self._readiness.await_others(self._network.siblings, HANDOVER_SECONDS)
        self._app.close("The broker is stopping.")
        self._service.staging.stop()
        self._reactor.drain()
        await self._app.listen.close()
        for waiting in list(self._requests.values()):
            if isinstance(waiting, asyncio.Future) and self._app.interruptible(waiting):
                waiting.cancel()
        if status == 0:
            await self._turns.until(self._idle, DRAIN_SECONDS)
            await self._replica.leave()
        await self._replica.close()
        await self._network.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._service.staging.close()
        self._tell_refusals()
        await self._supervision.flush()
        await self._store.close()

    def _idle(self) -> bool:
        return not self._requests and self._reactor.idle()

    def _finish(self, status: int) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(status)

    def _fatal(self, text: str, status: int = 1) -> None:
        """The last word: one line, through the channel and in the log."""
        log.critical(text)
        self._supervision.send({"type": messages.FATAL, "text": text})
        self._finish(status)

    def _tell_route(self, route: RangeRoute) -> None:
        """The supervisor spreads which generation is open, and who leads it."""
        self._supervision.send({"type": messages.LEADS, "route": route.packed()})

    def _tell_target(self, packed: bytes, kept: bool) -> None:
        """The supervisor acts on what is wanted; what is kept here it spreads."""
        self._supervision.send({"type": messages.TARGET, "target": packed, "kept": kept})

    def _workers_asked(self) -> WorkersAsked:
        """What the configuration asks for since it was changed; the supervisor notes it."""
        send, told = self._supervision.send, {"type": messages.WORKERS}
        siblings = self._network.siblings
        return WorkersAsked(self._options, self._service, siblings, lambda: send(told))

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, BarcoError):  # A disk, say: its words are what an operator needs.
                self._fatal(str(error))
                return
            log.error("background work failed", exc_info=error)
            self._fatal(f"background work failed: {error!r}")

    def _know_users(self, table: AccessTable) -> None:
        self._tell_refusals()  # By the numbers of the last table.
        self._reactor.set_access(table.for_core())
        self._app.audit.users = list(table.users)
        self._app.users_changed()

    def _tell_refusals(self) -> None:
        if self._service.access.required:
            self._app.audit.tell(self._reactor.refusals())

    async def _heartbeat(self) -> None:
        told = ("", 0)
        service, ranges = self._service, self._service.ranges
        while True:
            # One process speaks for its broker; what it has, the others have or will have.
            speaks = self._options.ring_size > 1 and self._options.worker == ranges.speaker
            if speaks and service.epoch and (has := service.topics.digest()) != told:
                told = has
                digest = {"type": messages.TOPICS_DIGEST, "digest": has[0], "count": has[1]}
                self._supervision.send(digest)
            service.hear_topics()
            stats = self._reactor.stats() | self._store.stats()
            told_too = {"type": messages.HEARTBEAT, "stats": stats}
            self._supervision.send(told_too | self._replica.left.idle())
            self._collector.tidy()
            self._tell_refusals()
            await asyncio.sleep(limits.HEARTBEAT_SECONDS)

    async def _tracing(self) -> None:
        exporter = Exporter(self._options, self._reactor)
        exporter.count_in(self._service)
        self._app.traces = exporter.traces
        await exporter.run()

    async def _topic_retention(self, now_us: int) -> int:
        topics = TopicRetention(
            self._service.topics,
            self._reactor,
            self._replica.extents,
            slices=self._service.slices,
            slices_in_all=self._options.slices_per_range,
        )
        return await topics.run_once(now_us)

    def _opened(self) -> None:
        """Of a topic's own retention the log remembers only what its last snapshot had seen, so
        whoever begins to lead looks at once; whole segments have time."""
        self._spawn(self._retain(self._topic_retention))

    async def _retention(self) -> None:
        await self._retain(self._topic_retention)
        while True:
            await asyncio.sleep(self._options.retention_seconds)
            await self._retain(self._replica.left.look)
            await self._retain(self._replica.left.retain)
            if self._store.held_back:
                await self._replica.hush()
                self._replica.driver.renew()
            await self._retain(self._topic_retention)

    async def _idle_positions(self) -> None:
        service = self._service
        while True:
            await asyncio.sleep(IDLE_POSITIONS_SECONDS)
            await self._retain(lambda now: expire(service.consumption, service.membership, now))

    async def _staging(self) -> None:
        while True:
            await asyncio.sleep(STAGING_SECONDS)
            await self._retain(lambda now_us: self._service.staging.tidy())

    def _log_clock(self) -> int:
        """Of the log itself, by which everything ages: a wall clock may be wrong by any amount."""
        return self._reactor.clock_us()

    async def _retain(self, run: Callable[[int], Awaitable[int | None]]) -> None:
        try:
            await run(self._log_clock())
        except (BarcoError, OSError) as error:
            log.error("retention failed: %s", error)

    # --- Upcalls ---------------------------------------------------------------------------------

    def _take(self, upcalls: Sequence[Upcall]) -> None:
        """What one stay in the core has brought. Queues write once what all of that changes."""
        self._service.queues.saver.gather()
        for upcall in upcalls:
            try:
                self._upcalls[upcall[0]](upcall)
            except Exception as error:  # noqa: BLE001 - as of a callback of the loop.
                context = {"message": f"upcall {upcall[0]} failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        self._service.queues.saver.flush()

    def _request(self, upcall: Upcall) -> None:
        call = Call(*upcall[1:])
        number = call.number
        self._collector.asked()
        found = self._app.at_once(call)
        if isinstance(found, Soon):
            self._requests[number] = found
            found.then(lambda: self._come(found, call))
        elif found is None:
            self._begin(number, self._answer(call))
        elif not self._respond(number, found) and found.undo is not None:
            self._begin(number, found.undo())

    def _begin(self, number: int, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._requests[number] = task
        task.add_done_callback(lambda done: self._requests.pop(number, None))

    def _come(self, soon: Soon, call: Call) -> None:
        """What an answer waited for has ended."""
        if soon.good:
            del self._requests[call.number]
            self._respond(call.number, soon.response)
        else:
            self._begin(call.number, self._answer(call))

    def _respond(self, number: int, response: Response) -> bool:
        """False: the client has gone."""
        answer = response.body
        if response.written is not None:
            answer = self._endings.watched(answer, number, response.written)
        return self._reactor.respond(number, response.status, response.head(), answer)

    async def _answer(self, call: Call) -> None:
        try:
            response = await self._app.handle(call)
        except asyncio.CancelledError:
            response = problem_response(NotReadyError("The broker is stopping."))
        if response.stream is not None:
            begun = await response.stream(call.number)
            if begun is None:
                return
            response = begun
        if not self._respond(call.number, response) and response.undo is not None:
            await response.undo()

    def _check(self, upcall: Upcall) -> None:
        self._begin(upcall[1], self._checked(Withheld(*upcall[1:])))

    async def _checked(self, withheld: Withheld) -> None:
        try:
            response = await self._app.checking.answer(withheld)
        except asyncio.CancelledError:  # Or the client has gone: then nobody hears it.
            response = problem_response(NotReadyError("The broker is stopping."))
        except Exception:  # One request's bug must not end the worker.
            log.exception("a produce to %s could not be checked", withheld.topic)
            response = problem_response(BrokerError("The broker failed; its log says how."))
        if response is not None:
            self._respond(withheld.number, response)

    def _aborted(self, upcall: Upcall) -> None:
        """The client has gone, or has closed its side: nothing is handed out to it any more.

        Only what waits for events ends; a change that has begun is carried through.
        """
        waiting = self._requests.get(upcall[1])
        if isinstance(waiting, asyncio.Future) and self._app.interruptible(waiting):
            waiting.cancel()


def exit_status(error: BarcoError | OSError) -> int:
    """Of a process that did not start because of it."""
    return error.exit_code if isinstance(error, BarcoError) else 1


class _LateReader:
    """The store's reader, which is there only once recovery is done."""

    def __init__(self, store: ReplicaStore) -> None:
        self._store = store

    async def read(
        self, topic: str, slice_: int, from_offset: int, max_bytes: int, /, **options: Any
    ) -> Any:
        return await self._store.reader.read(topic, slice_, from_offset, max_bytes, **options)

    def missing(self, topic: str, slice_: int, first: int, end: int, /) -> BarcoError:
        return self._store.reader.missing(topic, slice_, first, end)

    async def epoch_before(self, topic: str, slice_: int, offset: int, /) -> int:
        return await self._store.reader.epoch_before(topic, slice_, offset)

    async def by_timestamp(self, topic: str, slice_: int, timestamp_us: int, /) -> int | None:
        return await self._store.reader.by_timestamp(topic, slice_, timestamp_us)

    async def look_up(self, streams: Sequence[tuple[str, int]], /) -> None:
        await self._store.reader.look_up(streams)

    async def earliest(self, topic: str, slice_: int, /) -> int | None:
        return await self._store.reader.earliest(topic, slice_)
