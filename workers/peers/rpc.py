"""Worker to worker: operations, over the Unix sockets of one broker and over links to others.

A frame is a u32 length (little-endian) and a msgpack map: {"id", "op", "args", "beside"} or {"id",
"cancel"} one way, {"id", "ok", "result" | "error"} the other; "beside": who asks takes chunks
behind the map; "request", if need be: what a client calls the request that this is for. Lengths are
checked before anything is allocated. A worker is named by its number in the cluster; with one
broker that is its own.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from barco import limits
from barco.errors import (
    BarcoError,
    BrokerError,
    NotReadyError,
    OutcomeUnknownError,
    ProtocolError,
    RequestError,
    pack_error,
    unpack_error,
)
from barco.log import Seldom, about, asked_id
from barco.model.ranges import process_of
from barco.mutual import give
from barco.protocol.link import Hello
from barco.workers.peers.answers import WAITS_ONLY, AskedMemory, Room, weight
from barco.workers.peers.callers import CALLER, Callers
from barco.workers.peers.links import End
from barco.workers.peers.rpc_frames import FRAME_BYTES_A_SECOND, Frames

Operation = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
Late = Callable[[Any], None]

CONNECT_TIMEOUT_S = 1.0
REQUESTS_MAX = 32_768
"""Operations of one sibling under way; most of them are long polls, which only wait."""

LATE_MAX = 1_024
"""Answers of one sibling that nobody waits for, and somebody wants to hear of."""

HOME_ONLY = frozenset(("leaders",))
"""Operations that workers of other brokers may not call: what this broker's own processes hold they
know best, and a wrong word about it would stop it (`barco.workers.peers.leaders`)."""

TASK_BYTES = 2048
"""What an operation under way takes beside what was asked, about."""

ASKED_OBJECTS_MAX = 2**20
"""In one request; positions of a hundred thousand slices are a third of it."""

_seldom = Seldom(logging.getLogger("barco.rpc"))


def frame_bytes_max(event_bytes_max: int) -> int:
    """The largest frame: a full poll, one event over its budget, and what stands around them."""
    return 2 * limits.POLL_BYTES_MAX + 2 * event_bytes_max


def _forget(
    under_way: dict[int, asyncio.Task[None]], number: int, task: asyncio.Task[None]
) -> None:
    del under_way[number]


class RpcServer:
    """Answers the siblings."""

    def __init__(self, operation: Operation, *, bytes_max: int) -> None:
        self._operation = operation
        self._bytes_max = bytes_max
        self._server: asyncio.Server | None = None
        self._connections: set[_Answering] = set()
        self._callers = Callers[_Answering]()
        self._shares: dict[int, AskedMemory] = {}
        self._rooms = Room(2 * bytes_max), Room(2 * bytes_max)
        """For answers that ask no other process, and for all others."""
        self._adopting: set[asyncio.Task[Any]] = set()

    def take(self, theirs: Hello, end: End) -> None:
        """A connection that a worker of another broker has opened to ask."""
        caller = (theirs.ordinal, theirs.worker)
        if end.transport is not None:
            give(end.transport, functools.partial(self._accept, caller))
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(
            loop.connect_accepted_socket(functools.partial(self._accept, caller), end)
        )
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def start(self, path: str) -> None:
        """Listen on this Unix socket; a stale one of a dead predecessor is replaced."""
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, path)

    def _accept(self, caller: tuple[int, int] | None = None) -> "_Answering":
        operation, share = self._operation, None
        if caller is not None:
            made = AskedMemory(caller[0], self._bytes_max * 3 // 2, *self._rooms)
            share = self._shares.setdefault(caller[0], made)
            operation = functools.partial(self._from_afar, caller[0])
        connection = _Answering(operation, self._bytes_max, self._gone, share)
        self._connections.add(connection)
        if caller is not None:
            self._callers.add(caller, connection)
        return connection

    def _gone(self, connection: "_Answering") -> None:
        self._connections.discard(connection)
        self._callers.gone(connection)

    async def _from_afar(self, ordinal: int, op: str, args: Mapping[str, Any]) -> Any:
        CALLER.set(ordinal)  # Each call is a task, with a context of its own.
        if op in HOME_ONLY:
            raise RequestError(f"{op} is for workers of the same broker.")
        return await self._operation(op, args)

    async def close(self) -> None:
        """Stop listening, and drop what is under way."""
        if self._server is not None:
            self._server.close()
        running = [task for connection in self._connections for task in connection.under_way]
        for connection in list(self._connections):
            connection.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Answering(Frames):
    """A sibling's connection, and what it has asked for."""

    def __init__(
        self,
        operation: Operation,
        bytes_max: int,
        gone: "Callable[[_Answering], None]",
        share: AskedMemory | None,
    ) -> None:
        """share: of memory, for who asks from another broker."""
        super().__init__(bytes_max, ASKED_OBJECTS_MAX)
        self._operation = operation
        self._gone = gone
        self._share = share
        self._begun = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._unread: list[tuple[Room, int]] = []
        """What was sent since the other end began to read too slowly."""
        self._too_slow: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether it waits for an answer."""
        return bool(self._running)

    @property
    def under_way(self) -> list[asyncio.Task[None]]:
        """Operations that are not answered yet."""
        return list(self._running.values())

    def may_begin(self, size: int) -> bool:
        if self._share is None:
            return True
        if not self._share.may_take(size):
            self._share.wait(self.go_on)
            return False
        self._begun = size
        self._share.take(size)
        return True

    def received(self, message: dict[str, Any], size: int) -> None:
        self._end_begun()
        number = message["id"]
        running = self._running.get(number)
        if message.get("cancel"):
            if running is not None:
                running.cancel()
            return
        if running is not None or len(self._running) >= REQUESTS_MAX:
            raise ProtocolError("too many operations at once, or one twice")
        if self._share is not None:
            size += TASK_BYTES
            self._share.take(size)
        answering = self._answer(message)
        if isinstance(request := message.get("request"), str):
            answering = about(request, answering)
        running = asyncio.create_task(answering)
        if self._share is not None:
            give_back = self._share.give_back
            running.add_done_callback(lambda _: give_back(size))
        self._running[number] = running
        running.add_done_callback(functools.partial(_forget, self._running, number))

    def _end_begun(self) -> None:
        if self._share is not None and self._begun:
            self._share.give_back(self._begun)
            self._begun = 0

    def lost(self) -> None:
        self._end_begun()
        self.resume_writing()
        self._gone(self)
        for running in self.under_way:
            running.cancel()

    def pause_writing(self) -> None:
        """What was sent is not read as it comes: nothing more is begun for who asks from afar."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It is read."""
        self._writable.set()
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None
        unread, self._unread = self._unread, []
        for room, size in unread:
            assert self._share is not None, "only its answers are counted"
            room.give_back(self._share.ordinal, size)

    async def _answer(self, message: Mapping[str, Any]) -> None:
        op = str(message.get("op"))
        beside = message.get("beside") is True
        if self._share is None or op in WAITS_ONLY:
            answer = await self._answered(op, message)
            if self._share is not None:
                await self._writable.wait()  # It stays under way, and is counted.
            self.send(answer, beside=beside)
            return
        await self._writable.wait()
        room, ordinal = self._share.room(op), self._share.ordinal
        held = weight(op, message.get("args"), room.share)
        await room.take(ordinal, held)
        try:
            sent = self.send(await self._answered(op, message), beside=beside)
            if not self._writable.is_set() and not self.closed:
                # Held until it is read; whoever cancels what is answered does not change that.
                room.change(ordinal, held, sent)
                self._unread.append((room, sent))
                held = 0
                self._hurry(sent)
        finally:
            room.give_back(ordinal, held)

    def _hurry(self, size: int) -> None:
        """Who does not read in time loses the connection, and its calls."""
        loop = asyncio.get_running_loop()
        if self._too_slow is not None:
            self._too_slow.cancel()
        unread = sum(each for _, each in self._unread)
        seconds = limits.FRAME_SECONDS_MAX + unread / FRAME_BYTES_A_SECOND
        assert size <= unread, "it is one of them"
        self._too_slow = loop.call_later(seconds, self.close)

    async def _answered(self, op: str, message: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"id": message["id"], "ok": True}
        try:
            answer["result"] = await self._operation(op, message.get("args") or {})
        except BarcoError as error:
            answer = {"id": message["id"], "ok": False, "error": pack_error(error)}
        except Exception as error:  # noqa: BLE001 - logged, and answered as the broker's failure.
            _seldom.error("operation %.64r of a sibling failed: %.200r", op, error)
            failure = BrokerError("The worker that owns the slice failed.")
            answer = {"id": message["id"], "ok": False, "error": pack_error(failure)}
        return answer


class _Calling(Frames):
    """A connection to a sibling, and the calls that wait on it."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._late: dict[int, Late] = {}
        self._last = 0

    def start(self, op: str, args: Mapping[str, Any]) -> "_Call":
        """Send a request; its answer is waited for later."""
        self._last += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        also = {"request": request} if (request := asked_id()) else {}
        self.send({"id": self._last, "op": op, "args": args, "beside": True, **also})
        return _Call(self, self._last, future)

    def end(self, number: int, late: Late | None = None) -> None:
        """Nobody waits for this answer any more; `late` is told what it is if it comes."""
        future = self._waiting.pop(number, None)
        if future is None:
            return
        if future.done() and not future.cancelled():
            if late is not None and future.exception() is None:
                late(future.result())
            return
        self.send({"id": number, "cancel": True})
        if late is not None:  # It may have been answered before that is heard.
            self._late[number] = late
            if len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]

    def received(self, message: dict[str, Any], size: int) -> None:
        if (late := self._late.pop(message["id"], None)) is not None and message.get("ok"):
            late(message.get("result"))
        future = self._waiting.get(message["id"])
        if future is None or future.done():
            return
        if message.get("ok"):
            future.set_result(message.get("result"))
        else:
            future.set_exception(unpack_error(message.get("error") or {}))

    def lost(self) -> None:
        self._late.clear()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(OutcomeUnknownError("The worker went away."))
                future.exception()  # Looked at: one that was given up needs no warning.


class _Call:
    """A call under way. It ends with `result`, or with `drop`."""

    def __init__(self, connection: _Calling, number: int, future: asyncio.Future[Any]) -> None:
        self._connection = connection
        self._number = number
        self._future = future

    async def result(self, timeout: float, late: Late | None = None) -> Any:
        """What was answered, or a BarcoError. late: told what comes when nobody waits any more."""
        try:
            async with asyncio.timeout(timeout):
                answer = await self._future
            late = None
            return answer
        except TimeoutError:
            raise OutcomeUnknownError("A worker did not answer in time.") from None
        finally:
            self._connection.end(self._number, late)

    def drop(self) -> None:
        """Cancel it there if it is not answered."""
        self._connection.end(self._number)


class Siblings:
    """All workers of the cluster, this one included: calls to itself do not leave the process.

    `paths`: the sockets of this broker's workers, by their numbers. `dial` opens a link to a worker
    of another broker, or raises a BarcoError.
    """

    def __init__(
        self,
        *,
        worker: int,
        paths: Mapping[int, str],
        operation: Operation,
        bytes_max: int,
        dial: Callable[[int], Awaitable[End]] | None = None,
    ) -> None:
        self._worker = worker
        self._paths = paths
        self._operation = operation
        self._bytes_max = bytes_max
        self._dial = dial
        self._connections: dict[int, _Calling] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def call(
        self,
        worker: int,
        op: str,
        args: Mapping[str, Any],
        timeout: float = 5.0,
        late: Late | None = None,
    ) -> Any:
        """The result of one operation. NotReadyError: it was never asked (not written). late: told
        of a result that comes too late, or to who was cancelled."""
        if worker == self._worker:
            return await self._operation(op, args)
        connection = await self._connect(worker)
        return await connection.start(op, args).result(timeout, late)

    def reached(self, worker: int) -> bool:
        """Whether there is a connection to it."""
        connection = self._connections.get(worker)
        return connection is not None and not connection.closed

    async def _connect(self, worker: int) -> _Calling:
        connection = self._connections.get(worker)
        if connection is not None and not connection.closed:
            return connection
        async with self._locks.setdefault(worker, asyncio.Lock()):
            connection = self._connections.get(worker)
            if connection is None or connection.closed:
                connection = await self._open(worker)
                self._connections[worker] = connection
            return connection

    async def _open(self, worker: int) -> _Calling:
        loop = asyncio.get_running_loop()
        try:
            if (path := self._paths.get(worker)) is not None:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return (await loop.create_unix_connection(self._calling, path))[1]
            if self._dial is not None:
                end = await self._dial(worker)
                if end.transport is not None:
                    return give(end.transport, self._calling)
                return (await loop.create_connection(self._calling, sock=end))[1]
        except (OSError, TimeoutError):
            pass
        number = process_of(worker)[1]
        raise NotReadyError(f"Worker {number}, which owns the slice, is restarting.", worker=number)

    def _calling(self) -> _Calling:
        return _Calling(self._bytes_max)

    async def broadcast(
        self,
        op: str,
        args: Mapping[int, Mapping[str, Any]],
        timeout: float = 5.0,
        sooner: Mapping[int, float] = MappingProxyType({}),
    ) -> dict[int, Any]:
        """The results by worker; a BarcoError stands for itself. Anything else is raised. sooner:
        who has less time, from the beginning on."""
        # Without a task for each: what is far is sent for first, then comes what is here.
        calls: dict[int, _Call] = {}
        results: dict[int, Any] = {}
        time = asyncio.get_running_loop().time
        began = time()
        try:
            for worker in [worker for worker in args if worker != self._worker]:
                try:
                    calls[worker] = (await self._connect(worker)).start(op, args[worker])
                except BarcoError as error:
                    results[worker] = error
            if self._worker in args:
                results[self._worker] = await self._caught(self._operation(op, args[self._worker]))
            for worker, call in calls.items():
                left = timeout
                if (most := sooner.get(worker)) is not None:  # What has come is read in any case.
                    left = max(most / 10, began + most - time())
                results[worker] = await self._caught(call.result(left))
        finally:
            for call in calls.values():
                call.drop()
        return {worker: results[worker] for worker in args}

    @staticmethod
    async def _caught(awaitable: Awaitable[Any]) -> Any:
        try:
            return await awaitable
        except BarcoError as error:
            return error

    async def first_true(
        self, op: str, args: Mapping[int, Mapping[str, Any]], timeout: float
    ) -> set[int]:
        """Who answered with a true value first; the other calls are cancelled. Empty: none did."""
        if len(args) == 1:
            ((worker, only),) = args.items()
            try:
                async with asyncio.timeout(timeout):  # One that hangs is not waited for.
                    answer = await self._caught(self.call(worker, op, only, timeout + 5.0))
            except TimeoutError:
                return set()
            return {worker} if answer is True else set()
        tasks = {
            asyncio.create_task(self._caught(self.call(worker, op, given, timeout + 5.0))): worker
            for worker, given in args.items()
        }
        end = asyncio.get_running_loop().time() + timeout
        waiting = set(tasks)
        try:
            while waiting and (left := end - asyncio.get_running_loop().time()) > 0:
                done, waiting = await asyncio.wait(
                    waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if found := {tasks[task] for task in done if task.result() is True}:
                    return found
            return set()
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        await asyncio.sleep(0)
