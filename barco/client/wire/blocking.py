"""One connection to a broker, for a caller that waits: Spark's tasks and driver.

The next request may be sent before the caller has looked at what it asked for last, and no further
ahead. Nothing is tried again here: what a lost answer means is for the caller to decide.
"""

import socket

from barco.client.wire.access import Access
from barco.client.wire.http1 import Answers, HttpError, Request, Response
from barco.types import KiB, MiB

RECEIVE_BYTES = 1 * MiB
"""Read at once: larger answers come in pieces of it."""

COPIED_BYTES_MAX = 64 * KiB
"""A body up to here goes with its head in one piece: a system call costs more than the copy."""


class Link:
    """A connection that is opened when it is needed, and the request on it without an answer."""

    def __init__(self, access: Access, endpoint: str, *, timeout_s: float) -> None:
        self.endpoint = endpoint
        self.pending = ""
        """The target of the request that has not been answered; else nothing."""
        self._access = access
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._answers = Answers()

    def send(self, request: Request) -> None:
        """Ask; the answer is fetched with `receive`. OSError: nobody is there, or not any more."""
        assert not self.pending, "one request at a time"
        head = request.head(self.endpoint, self._access.token)
        try:
            if self._socket is None or self._answers.closing:
                self._open()
            assert self._socket is not None
            if len(request.body) <= COPIED_BYTES_MAX:
                head += request.body
            self._socket.sendall(head)
            if len(request.body) > COPIED_BYTES_MAX:
                self._socket.sendall(request.body)
        except OSError:
            self.close()
            raise
        self.pending = request.target

    def receive(self) -> Response:
        """The answer to the last request; OSError: there is none, the connection is closed."""
        assert self._socket is not None and self.pending
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionResetError("it closed the connection")
                whole = self._answers.feed(data)
            except HttpError as error:
                self.close()
                raise ConnectionError(f"it {error}") from error
            except OSError:
                self.close()
                raise
            if whole:
                self.pending = ""
                return whole[0]

    def exchange(self, request: Request) -> Response:
        """The answer, whatever it is; OSError if there is none."""
        self.send(request)
        return self.receive()

    def close(self) -> None:
        """Give it up, whatever it is doing; the next `send` opens another connection."""
        self.pending = ""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> None:
        self.close()
        self._socket = self._access.connect_blocking(self.endpoint, self._timeout_s)
        self._answers = Answers()
