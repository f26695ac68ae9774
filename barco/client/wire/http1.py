"""HTTP/1.1 as a client of brokers speaks it: requests to bytes, bytes to responses.

The one hand for it in the product; it knows no socket. `transport` waits with asyncio (many
requests on few connections), `blocking` without (Spark's tasks, which have nothing else to do).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httptools

from barco.client.base.errors import parse_problem
from barco.types import MiB

RESPONSE_BYTES_MAX = 256 * MiB  # A poll or a replay is at most a few chunks: far below.


class HttpError(ValueError):
    """What came is not HTTP/1.1, or more of it than any broker sends."""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. Header names are lower case; of a repeated header the last value counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """True for any 2xx."""
        return 200 <= self.status < 300

    @property
    def problem(self) -> dict[str, Any]:
        """The problem document, or what there is instead as its `detail`."""
        return parse_problem(self.body)

    @property
    def words(self) -> str:
        """What it says of itself, for a message."""
        problem = self.problem
        return f"{self.status}: {problem.get('detail') or problem.get('title')}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `target` is path and query, already percent-encoded."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def head(self, host: str, token: str = "") -> bytes:
        """The request line and headers as they go over the wire. token: who asks, if not empty."""
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {host}"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body or self.method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Answers:
    """What one connection's bytes say, in the order of its requests."""

    def __init__(self) -> None:
        self.closing = False
        """The last answer said that no other follows."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._whole: list[Response] = []

    def feed(self, data: bytes) -> list[Response]:
        """The answers that these bytes complete; HttpError: there are no more to come. What is
        whole counts, whatever comes behind it: then it is the last, and `closing`."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.closing = True
            if self._whole:
                return self._taken()
            cause = error.__context__
            if isinstance(cause, HttpError):
                raise cause from None
            raise HttpError(f"does not speak HTTP/1.1: {error}") from error
        return self._taken()

    def _taken(self) -> list[Response]:
        whole, self._whole = self._whole, []
        return whole

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._headers, self._body, self._body_bytes = {}, [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > RESPONSE_BYTES_MAX:
            raise HttpError(f"sent an answer over {RESPONSE_BYTES_MAX} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # 100 Continue: the real answer follows.
        self.closing = not self._parser.should_keep_alive()
        self._whole.append(Response(status, self._headers, b"".join(self._body)))


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """'host:port' or '[v6]:port' as a pair; ValueError with a sentence otherwise."""
    if "@" in endpoint or "?" in endpoint:  # Not repeated: what is there may be a token.
        raise ValueError(
            "an endpoint is HOST:PORT and nothing else: a token is for a file (--token-file)"
        )
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError(
            f"{endpoint[:300]!r} is not an endpoint: give HOST:PORT, as 127.0.0.1:9250"
        )
    return host, int(port)
