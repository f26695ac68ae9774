"""The worker's end of the channel to its supervisor."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import (
    BarcoError,
    BrokerError,
    NotReadyError,
    OutcomeUnknownError,
    pack_error,
    unpack_error,
)
from barco.log import follow
from barco.protocol import frame, messages

REQUEST_SECONDS_MAX = 10.0

log = logging.getLogger("barco.worker")


class Supervision:
    """Requests to the supervisor, its views and orders. Implements `seams.SupervisorLike`."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._answering: set[asyncio.Task[None]] = set()
        self.on_view: Callable[[dict[str, Any]], None] = lambda view: None
        self.on_cluster: Callable[[dict[str, Any]], None] = lambda news: None
        """Brokers that changed, and who leads what."""
        self.on_processes: Callable[[dict[str, Any]], None] = lambda news: None
        """This broker runs others than before."""
        self.on_target: Callable[[bytes | None], None] = lambda packed: None
        """The brokers of which the cluster shall consist, as its keeper has said; None: it shall be
        asked."""
        self.on_tls: Callable[[dict[str, Any]], None] = lambda tls: None
        """Another certificate, or other keys of tickets (`WorkerOptions.tls`)."""
        self.on_ask: Mapping[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {}
        """By operation: what the supervisor may ask for."""
        self.on_format: Callable[[int], None] = lambda format: None
        """The newest format of logs that may be written."""
        self.on_drain: Callable[[], None] = lambda: None
        self.on_lost: Callable[[], None] = lambda: None
        """The supervisor is gone: an order to exit."""

    async def open(self, fd: int) -> asyncio.Task[None]:
        """Takes the descriptor; the task reads until the channel ends."""
        end = socket.socket(fileno=fd)
        end.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=end)
        return asyncio.create_task(self._receive(reader))

    def send(self, message: Mapping[str, Any]) -> None:
        """Queues one frame."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame.encode(message))

    async def flush(self) -> None:
        """Until what was sent is in the socket."""
        if self._writer is not None:
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()

    async def request(self, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The supervisor's result, or the BarcoError it answered with."""
        self._last += 1
        number = self._last
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self.send({"type": messages.REQUEST, "id": number, "op": op, "args": dict(args)})
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await future
        except TimeoutError:
            raise OutcomeUnknownError(f"The supervisor did not answer {op} in time.") from None
        finally:
            del self._waiting[number]

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await frame.read_async(reader)) is not None:
                self._take(message)
        except (ConnectionError, BarcoError):
            pass
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(NotReadyError("The supervisor is gone."))
            self.on_lost()

    def _take(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == messages.VIEW:
            self.on_view(message)
            self.send({"type": messages.SEEN, "version": message["version"]})
        elif kind == messages.CLUSTER:
            self.on_cluster(message)
        elif kind == messages.PROCESSES:
            self.on_processes(message)
        elif kind == messages.TARGET:
            self.on_target(message.get("target"))
        elif kind == messages.TLS:
            self.on_tls(message["tls"])
        elif kind == messages.LOG:
            follow(message["level"], "json")  # The supervisor makes text of it, if it shall be.
        elif kind == messages.ASK:
            self._answering.add(answer := asyncio.create_task(self._answer(message)))
            answer.add_done_callback(self._answering.discard)
        elif kind == messages.FORMAT:
            self.on_format(message["format"])
        elif kind == messages.DRAIN:
            self.on_drain()
        elif kind == messages.REPLY:
            future = self._waiting.get(message["id"])
            if future is None or future.done():
                return
            if message.get("ok"):
                result = message.get("result")
                future.set_result(result if isinstance(result, dict) else {})
            else:
                error = unpack_error(message)
                future.set_exception(error if isinstance(error, BarcoError) else BrokerError(""))

    async def _answer(self, asked: dict[str, Any]) -> None:
        told: dict[str, Any] = {"type": messages.ANSWER, "id": asked["id"], "ok": True}
        try:
            told["result"] = await self.on_ask[asked["op"]](asked["args"])
        except BarcoError as error:
            told |= {"ok": False, "error": pack_error(error)}
        except Exception:
            log.exception("the supervisor's question %s failed", asked["op"])
            told |= {"ok": False, "error": pack_error(BrokerError("The worker failed."))}
        self.send(told)
