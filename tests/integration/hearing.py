"""A client of server-sent events that hides nothing: what came, with its ids."""

import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

SECONDS = 60.0
"""Generous: it only ends what has failed."""


class Heard(NamedTuple):
    """One event."""

    id: str
    line: dict[str, Any]

    @property
    def value(self) -> Any:
        return self.line["value"]


class Listening:
    """One stream, read by a thread of its own until it ends."""

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        last: str | None = None,
        *,
        context: ssl.SSLContext | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        if context is None:
            self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        else:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=SECONDS, context=context
            )
        sent = {"Accept": "text/event-stream"} | (headers or {})
        if last is not None:
            sent["Last-Event-ID"] = last
        self._connection.request("GET", path, headers=sent)
        self._socket = self._connection.sock  # The response takes it, and a reader is inside.
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        self.heard: list[Heard] = []
        self.begins = ""
        """The id of the place where it begins, which comes first."""
        self.comments = 0
        self.body = b""
        self.ended = threading.Event()
        self._thread: threading.Thread | None = None
        if self.status != 200:
            self.body = self._response.read()
            self.close()
            return
        assert self.headers["content-type"] == "text/event-stream"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        try:
            for raw in self._response:
                if not raw.endswith(b"\n"):
                    break  # Half an event: a client drops it.
                line = raw[:-1].decode()
                if not line and fields.keys() == {"id"}:
                    assert not self.begins and not self.heard, "only once, and first"
                    self.begins = fields.pop("id")
                elif not line and fields:
                    self.heard.append(Heard(fields["id"], json.loads(fields["data"])))
                    fields = {}
                elif line.startswith(":"):
                    self.comments += 1
                elif line:
                    name, _, value = line.partition(": ")
                    assert name in ("id", "data") and name not in fields, line
                    fields[name] = value
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass
        finally:
            self.ended.set()

    def values(self, count: int) -> list[Any]:
        """When there are so many."""
        until(lambda: len(self.heard) >= count or self.ended.is_set())
        assert len(self.heard) >= count, (len(self.heard), count)
        return [each.value for each in self.heard]

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(SECONDS)
        self._response.close()
        self._connection.close()


def until(condition: Any, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
