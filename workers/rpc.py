"""Worker to worker: operations over the Unix sockets of one broker.

A frame is a u32 length (little-endian) and a msgpack map: {"id", "op", "args"} or {"id",
"cancel"} one way, {"id", "ok", "result" | "error"} the other. The socket's directory belongs to
the broker's user alone; lengths are checked before anything is allocated all the same.
"""

import asyncio
import contextlib
import functools
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgpack

from barco import limits
from barco.errors import (
    BarcoError,
    BrokerError,
    NotReadyError,
    OutcomeUnknownError,
    ProtocolError,
)

Operation = Callable[[str, Mapping[str, Any]], Awaitable[Any]]

CONNECT_TIMEOUT_S = 1.0
REQUESTS_MAX = 32_768
"""Operations of one sibling under way; most of them are long polls, which only wait."""

_LENGTH = struct.Struct("<I")
_log = logging.getLogger("barco.rpc")


def frame_bytes_max(event_bytes_max: int) -> int:
    """The largest frame: a full poll, one event over its budget, and what stands around them."""
    return 2 * limits.POLL_BYTES_MAX + 2 * event_bytes_max


def _pack(message: Mapping[str, Any]) -> list[bytes]:
    body: bytes = msgpack.packb(message)
    return [_LENGTH.pack(len(body)), body]


def _refuse_ext(code: int, data: bytes) -> None:
    raise ProtocolError(f"frame holds extension type {code}")


async def _read_frame(reader: asyncio.StreamReader, bytes_max: int) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not 1 <= length <= bytes_max:
        raise ProtocolError(f"frame length {length} is not between 1 and {bytes_max}")
    body = await reader.readexactly(length)
    try:
        message = msgpack.unpackb(body, strict_map_key=False, ext_hook=_refuse_ext)
    except ProtocolError:
        raise
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"frame is not msgpack: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int):
        raise ProtocolError("frame is not a map with an id")
    return message


def _forget(
    under_way: dict[int, asyncio.Task[None]], number: int, task: asyncio.Task[None]
) -> None:
    del under_way[number]


def _error_classes() -> dict[str, type[BarcoError]]:
    found = {}
    todo = [BarcoError]
    while todo:
        cls = todo.pop()
        found[cls.slug] = cls
        todo += cls.__subclasses__()
    return found


def pack_error(error: BarcoError) -> dict[str, Any]:
    """An error as plain values."""
    return {"slug": error.slug, "detail": error.detail, "fields": error.fields}


def unpack_error(given: Mapping[str, Any]) -> BarcoError:
    """The error again, of its own class; of an unknown one, a failure of the broker."""
    cls = _error_classes().get(str(given.get("slug")), BrokerError)
    fields = given.get("fields")
    return cls(str(given.get("detail", "")), **(fields if isinstance(fields, dict) else {}))


class RpcServer:
    """Answers the siblings."""

    def __init__(self, operation: Operation, *, bytes_max: int) -> None:
        self._operation = operation
        self._bytes_max = bytes_max
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen on this Unix socket; a stale one of a dead predecessor is replaced."""
        self._server = await asyncio.start_unix_server(self._serve, path, limit=2**20)

    async def close(self) -> None:
        """Stop listening, and drop what is under way."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        under_way: dict[int, asyncio.Task[None]] = {}
        lock = asyncio.Lock()
        try:
            while True:
                message = await _read_frame(reader, self._bytes_max)
                number = message["id"]
                if message.get("cancel"):
                    if (running := under_way.get(number)) is not None:
                        running.cancel()
                    continue
                if len(under_way) >= REQUESTS_MAX or number in under_way:
                    raise ProtocolError("too many operations at once, or one twice")
                running = asyncio.create_task(self._answer(message, writer, lock))
                under_way[number] = running
                running.add_done_callback(functools.partial(_forget, under_way, number))
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass
        except ProtocolError as error:
            _log.error("closing a sibling's connection: %s", error)
        finally:
            self._connections.discard(task)
            for running in list(under_way.values()):
                running.cancel()
            writer.close()

    async def _answer(
        self, message: Mapping[str, Any], writer: asyncio.StreamWriter, lock: asyncio.Lock
    ) -> None:
        answer: dict[str, Any] = {"id": message["id"], "ok": True}
        try:
            answer["result"] = await self._operation(
                str(message.get("op")), message.get("args") or {}
            )
        except BarcoError as error:
            answer = {"id": message["id"], "ok": False, "error": pack_error(error)}
        except Exception:  # noqa: BLE001 - logged, and answered as the broker's failure.
            _log.exception("operation %.64r of a sibling failed", message.get("op"))
            failure = BrokerError("The worker that owns the slice failed.")
            answer = {"id": message["id"], "ok": False, "error": pack_error(failure)}
        with contextlib.suppress(ConnectionError):
            async with lock:
                writer.writelines(_pack(answer))
                await writer.drain()


class _Connection:
    """One connection to a sibling, and the calls that wait on it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_max: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._bytes_max = bytes_max
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self.closed = False
        self.task = asyncio.create_task(self._receive())

    async def call(self, op: str, args: Mapping[str, Any], timeout: float) -> Any:
        if self.closed:
            raise OutcomeUnknownError("The worker went away.")
        self._last += 1
        number = self._last
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._writer.writelines(_pack({"id": number, "op": op, "args": args}))
        try:
            async with asyncio.timeout(timeout):
                await self._writer.drain()
                return await future
        except BaseException as error:
            if not self.closed and (not future.done() or future.cancelled()):
                self._writer.writelines(_pack({"id": number, "cancel": True}))
            if isinstance(error, (TimeoutError, ConnectionError)):
                raise OutcomeUnknownError(f"{op} was not answered in time.") from None
            raise
        finally:
            self._waiting.pop(number, None)

    async def _receive(self) -> None:
        try:
            while True:
                message = await _read_frame(self._reader, self._bytes_max)
                future = self._waiting.get(message["id"])
                if future is None or future.done():
                    continue
                if message.get("ok"):
                    future.set_result(message.get("result"))
                else:
                    future.set_exception(unpack_error(message.get("error") or {}))
        except (EOFError, ConnectionError, ProtocolError):
            pass
        finally:
            self.close()

    def close(self) -> None:
        self.closed = True
        self._writer.close()
        self.task.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(OutcomeUnknownError("The worker went away."))


class Siblings:
    """All workers of the broker, this one included: calls to itself do not leave the process."""

    def __init__(
        self, *, worker: int, paths: list[str], operation: Operation, bytes_max: int
    ) -> None:
        self._worker = worker
        self._paths = paths
        self._operation = operation
        self._bytes_max = bytes_max
        self._connections: dict[int, _Connection] = {}
        self._locks = [asyncio.Lock() for _ in paths]

    async def call(
        self, worker: int, op: str, args: Mapping[str, Any], timeout: float = 5.0
    ) -> Any:
        """The result of one operation. NotReadyError: it was never asked (not written)."""
        if worker == self._worker:
            return await self._operation(op, args)
        connection = await self._connect(worker)
        return await connection.call(op, args, timeout)

    async def _connect(self, worker: int) -> _Connection:
        async with self._locks[worker]:
            connection = self._connections.get(worker)
            if connection is None or connection.closed:
                try:
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        reader, writer = await asyncio.open_unix_connection(
                            self._paths[worker], limit=2**20
                        )
                except (OSError, TimeoutError):
                    raise NotReadyError(
                        f"Worker {worker}, which owns the slice, is restarting.", worker=worker
                    ) from None
                connection = _Connection(reader, writer, self._bytes_max)
                self._connections[worker] = connection
            return connection

    async def broadcast(
        self, op: str, args: Mapping[int, Mapping[str, Any]], timeout: float = 5.0
    ) -> dict[int, Any]:
        """The results by worker; a BarcoError stands for itself. Anything else is raised."""
        workers = list(args)
        if len(workers) == 1:
            return {workers[0]: await self._caught(workers[0], op, args[workers[0]], timeout)}
        results = await asyncio.gather(
            *(self._caught(worker, op, args[worker], timeout) for worker in workers)
        )
        return dict(zip(workers, results, strict=True))

    async def _caught(self, worker: int, op: str, args: Mapping[str, Any], timeout: float) -> Any:
        try:
            return await self.call(worker, op, args, timeout)
        except BarcoError as error:
            return error

    async def first_true(
        self, op: str, args: Mapping[int, Mapping[str, Any]], timeout: float
    ) -> bool:
        """Whether one answered with a true value in time; the other calls are cancelled."""
        if len(args) == 1:
            ((worker, only),) = args.items()
            return (await self._caught(worker, op, only, timeout + 5.0)) is True
        tasks = {
            asyncio.create_task(self._caught(worker, op, given, timeout + 5.0))
            for worker, given in args.items()
        }
        end = asyncio.get_running_loop().time() + timeout
        waiting = set(tasks)
        try:
            while waiting and (left := end - asyncio.get_running_loop().time()) > 0:
                done, waiting = await asyncio.wait(
                    waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if any(task.result() is True for task in done):
                    return True
            return False
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        await asyncio.gather(
            *(connection.task for connection in self._connections.values()),
            return_exceptions=True,
        )
