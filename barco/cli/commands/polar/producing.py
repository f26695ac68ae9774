"""PolarStreams' binary port: its produce frames as produce requests of a broker, in their order."""

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import quote

from barco.cli.commands.polar import frames
from barco.cli.commands.polar.frames import Head, Produced
from barco.client.base.errors import TransportError
from barco.client.base.names import check_topic
from barco.client.wire.access import Access
from barco.client.wire.codec import encode_batch
from barco.client.wire.http1 import Request, Response
from barco.client.wire.transport import Connection
from barco.errors import BarcoError
from barco.types import MiB

CONNECTIONS_MAX = 256
UNDER_WAY_MAX = 64
"""Frames of one connection without an answer; then nothing more is read of it."""
BYTES_MAX = 64 * MiB
"""Of all bodies without an answer; then nothing more is read of anybody."""
ANSWER_SECONDS_MAX = 60.0
BODY_SECONDS_MAX = 30.0
"""For a body to come: others may wait for its room."""

_BATCH = (("Content-Type", "application/vnd.barco.batch"), ("Prefer", "return=minimal"))
_KINDS = {421: frames.ROUTING, 503: frames.NO_LEADER}


class BodyRoom:
    """Memory for bodies: who asks waits until there is some, in turn."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._left = bytes_max
        self._freed = asyncio.Condition()

    async def take(self, size: int) -> None:
        """Waits for so many bytes."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._left >= size)
            self._left -= size

    async def give_back(self, size: int) -> None:
        """They are free again."""
        async with self._freed:
            self._left += size
            self._freed.notify_all()


class Producing:
    """Serves the binary port. Each connection has one of its own to the broker, on which requests
    follow each other, so that events of a key keep the order of their frames."""

    def __init__(self, access: Access, endpoint: Callable[[], str]) -> None:
        self._access, self._endpoint = access, endpoint
        self._room = BodyRoom()
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        if self._open >= CONNECTIONS_MAX:
            writer.write(frames.failure(0, frames.SERVER, "there are too many connections"))
            writer.close()
            return
        self._open += 1
        client = _Frames(self, writer)
        try:
            await client.read(reader)
        except frames.FrameError as error:
            writer.write(frames.failure(0, frames.SERVER, str(error)))
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # It has gone, or the door closes: then asyncio would tell that as a failure.
        finally:
            self._open -= 1
            await client.end()
            writer.close()

    async def connect(self) -> Connection:
        """To the broker."""
        endpoint = self._endpoint()
        token = self._access.token
        return await self._access.connect(endpoint, lambda: Connection(endpoint, token))

    async def take(self, size: int) -> None:
        """Room for a body."""
        await self._room.take(size)

    async def give_back(self, size: int) -> None:
        """The body is gone."""
        await self._room.give_back(size)


class _Frames:
    """One of PolarStreams' producers."""

    def __init__(self, producing: Producing, writer: asyncio.StreamWriter) -> None:
        self._producing, self._writer = producing, writer
        self._broker: Connection | None = None
        self._free_turns = asyncio.Semaphore(UNDER_WAY_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Frames until the connection ends; FrameError: what came is none."""
        begun = False
        while True:
            await self._writer.drain()  # Who does not read is not read.
            head = Head.read(await reader.readexactly(frames.HEAD_BYTES))
            if not begun and head.what != frames.STARTUP:
                raise frames.FrameError("a connection begins with STARTUP")
            begun = True
            await self._free_turns.acquire()
            await self._producing.take(head.body_bytes)
            try:
                async with asyncio.timeout(BODY_SECONDS_MAX):
                    body = await reader.readexactly(head.body_bytes)
                if head.what != frames.PRODUCE:
                    self._write(self._other(head))
                    await self._free(head.body_bytes)
                    continue
                request = _request(Produced.read(head.flags, body))
                broker = await self._connected()
            except BaseException as error:
                await self._free(head.body_bytes)
                if isinstance(error, ValueError) and not isinstance(error, frames.FrameError):
                    self._write(frames.failure(head.stream, frames.SERVER, str(error)))
                    continue
                if isinstance(error, BarcoError):
                    self._write(frames.failure(head.stream, frames.NO_LEADER, error.detail))
                    continue
                raise
            # Begun in the order of the frames: a task's first step comes in the order of its start.
            task = asyncio.create_task(self._answer(head, broker, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _other(self, head: Head) -> bytes:
        if head.what in (frames.STARTUP, frames.HEARTBEAT):
            return frames.frame(frames.READY, head.stream)
        return frames.failure(head.stream, frames.SERVER, f"frames of kind {head.what} are unknown")

    async def _connected(self) -> Connection:
        if self._broker is None or self._broker.closed:
            try:
                self._broker = await self._producing.connect()
            except (OSError, TimeoutError) as error:
                raise TransportError(f"the broker does not answer: {error}") from error
        return self._broker

    async def _answer(self, head: Head, broker: Connection, request: Request) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                told = _told(head.stream, await broker.exchange(request))
        except BarcoError as error:
            told = frames.failure(head.stream, frames.SERVER, error.detail)
        except TimeoutError:
            told = frames.failure(head.stream, frames.SERVER, "the broker did not answer in time")
        finally:
            await asyncio.shield(self._free(head.body_bytes))
        self._write(told)

    async def _free(self, size: int) -> None:
        self._free_turns.release()
        await self._producing.give_back(size)

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    async def end(self) -> None:
        """Nobody waits for answers any more: what was sent is stored, or not."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._broker is not None:
            self._broker.abort("the producer has gone")


def _request(produced: Produced) -> Request:
    """ValueError: no broker takes that."""
    topic = check_topic(produced.topic)
    count = len(produced.values)
    keys = [produced.key] * count if produced.key else None
    numbers: dict[str, Sequence[int]] | None = None
    if produced.timestamp_us is not None:
        numbers = {"timestamp": [produced.timestamp_us] * count}
    batch = encode_batch(produced.values, keys, numbers)
    return Request("POST", f"/v1/topic/{quote(topic)}/messages", _BATCH, batch)


def _told(stream: int, answer: Response) -> bytes:
    if answer.ok:
        return frames.frame(frames.PRODUCED, stream)
    return frames.failure(stream, _KINDS.get(answer.status, frames.SERVER), answer.words)
