"""HTTP/1.1 to brokers: persistent connections, pipelined, a few for each endpoint.

Lives in one asyncio loop. `Connection` gives each request its answer, in the order of requests;
`Pool` keeps the connections of every endpoint and bounds how many requests wait on each. Neither
retries: what a lost answer means is for the caller to decide (delivery.py, admin.py).
"""

import asyncio
import os
import ssl
from collections import deque

from barco.client.base.errors import (
    NOT_WRITTEN,
    UNKNOWN,
    ConnectError,
    RequestTimeoutError,
    TransportError,
)
from barco.client.wire.access import Access
from barco.client.wire.http1 import Answers, HttpError, Request, Response

CONNECT_TIMEOUT_S = 5.0


class Connection(asyncio.Protocol):
    """One connection: requests go out as they come, answers resolve them in the same order."""

    def __init__(self, endpoint: str, token: str = "") -> None:
        self.endpoint = endpoint
        self._token = token
        self.outstanding = 0
        self._waiting: deque[asyncio.Future[Response]] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._answers = Answers()
        self.closed = False

    async def exchange(self, request: Request) -> Response:
        """Sends and waits for the answer. Cancelled in between, the connection is given up."""
        if self.closed or self._transport is None:
            raise ConnectError(f"the connection to {self.endpoint} is closed")
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        # In one piece: a system call costs more than the copy.
        self._transport.write(request.head(self.endpoint, self._token) + request.body)
        try:
            await self._writable.wait()
            return await answer
        except asyncio.CancelledError:
            # Later answers could no longer be told from the one that nobody waits for.
            self.abort(f"a request to {self.endpoint} was given up")
            raise

    def abort(self, reason: str) -> None:
        """Closes at once; every request without an answer fails with `reason`."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._fail(reason)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            whole = self._answers.feed(data)
        except HttpError as error:
            self.abort(f"{self.endpoint} {error}")
            return
        for response in whole:
            if self._waiting:
                answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(response)
        if self._answers.closing:
            self.abort(f"{self.endpoint} closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._writable.set()
        self._fail(f"{self.endpoint} closed the connection{f': {exc}' if exc else ''}")

    def _fail(self, reason: str) -> None:
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(TransportError(reason))
                answer.exception()  # Seen: its waiter may have been cancelled already.


class _Endpoint:
    """The connections to one host and port, and the places in their pipelines."""

    def __init__(self, access: Access, name: str, connections_max: int, pipeline_max: int) -> None:
        self.name = name
        self.connections: list[Connection] = []
        self.places = asyncio.Semaphore(connections_max * pipeline_max)
        self.opening = asyncio.Lock()
        self._access = access
        self._connections_max = connections_max

    async def connection(self) -> Connection:
        """An idle connection, else a new one, else the least busy one."""
        self._forget_closed()
        idle = self._idle()
        if idle is not None:
            return idle
        async with self.opening:
            self._forget_closed()
            idle = self._idle()
            if idle is not None:
                return idle
            if len(self.connections) < self._connections_max:
                return await self._open()
            return min(self.connections, key=lambda connection: connection.outstanding)

    def close(self) -> None:
        for connection in self.connections:
            connection.abort("the client was closed")
        self.connections.clear()

    def _forget_closed(self) -> None:
        self.connections = [connection for connection in self.connections if not connection.closed]

    def _idle(self) -> Connection | None:
        return next((each for each in self.connections if each.outstanding == 0), None)

    async def _open(self) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._access.connect(
                    self.name, lambda: Connection(self.name, self._access.token)
                )
        except (OSError, TimeoutError) as error:
            raise ConnectError(
                f"cannot connect to {self.name}: {_reason(error)}: is a broker running there?"
            ) from error
        self.connections.append(connection)
        return connection


class Pool:
    """Connections by endpoint. `pipeline_max` 1 gives every request a connection to itself."""

    def __init__(self, access: Access, *, connections_max: int = 4, pipeline_max: int = 1) -> None:
        assert connections_max >= 1 and pipeline_max >= 1
        self._access = access
        self._connections_max = connections_max
        self._pipeline_max = pipeline_max
        self._endpoints: dict[str, _Endpoint] = {}

    async def request(self, endpoint: str, request: Request, *, timeout_s: float) -> Response:
        """The answer, whatever its status; TransportError if there is none in time."""
        place = self._endpoints.get(endpoint)
        if place is None:
            place = _Endpoint(self._access, endpoint, self._connections_max, self._pipeline_max)
            self._endpoints[endpoint] = place
        sent = False
        try:
            async with asyncio.timeout(timeout_s), place.places:
                connection = await place.connection()
                connection.outstanding += 1
                sent = True
                try:
                    return await connection.exchange(request)
                finally:
                    connection.outstanding -= 1
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"{endpoint} did not answer {request.method} {request.target.partition('?')[0]}"
                f" within {timeout_s:g} s",
                outcome=UNKNOWN if sent else NOT_WRITTEN,
            ) from error

    def close(self) -> None:
        """Closes every connection."""
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._endpoints.clear()


def _reason(error: OSError) -> str:
    """In the system's words: asyncio's own name no cause."""
    if isinstance(error, TimeoutError):
        return "time-out"
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "it speaks no TLS there (http://HOST:PORT is without)"
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or error.strerror}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error)
