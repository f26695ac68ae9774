"""Which requests are traced, and what is known of those until somebody takes it to be exported.

What a produce takes the core notes (`native/core/spans.h`); all others come by here.
"""

import os
import re
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

SPANS_MAX = 4096
"""That wait to be exported; then the oldest go."""

SERVER, INTERNAL, CLIENT = 2, 1, 3
"""Kinds of spans, as OpenTelemetry numbers them."""

METHODS = frozenset(
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"]
)
"""That are told by name."""

TRACEPARENT_BYTES_MAX = 128

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def new_id() -> bytes:
    """Of a span."""
    return os.urandom(8)


class Span(Struct, frozen=True):
    """As it is exported. Times in microseconds since 1970."""

    trace: bytes
    parent: bytes
    name: str
    kind: int
    begun_us: int
    ended_us: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    failed: bool = False
    id: bytes = field(default_factory=new_id)


class Traced(Struct, frozen=True):
    """A request that is traced, until its answer."""

    trace: bytes
    parent: bytes
    begun_us: int


def sampled_in(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, bytes] | bool:
    """Trace and parent of what a client has traced; False: it says that it is not; True: it says
    nothing that could be read."""
    given = [bytes(value) for name, value in headers if name.lower() == b"traceparent"]
    if len(given) != 1 or len(given[0]) > TRACEPARENT_BYTES_MAX:
        return True
    found = _TRACEPARENT.fullmatch(given[0])
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return True
    trace, parent = bytes.fromhex(found[2].decode()), bytes.fromhex(found[3].decode())
    if not any(trace) or not any(parent):
        return True
    return (trace, parent) if int(found[4], 16) & 1 else False


class Traces:
    """Of one process."""

    def __init__(self, one_in: int) -> None:
        """one_in: of so many requests that say nothing of a trace one is traced; 0: none is."""
        self._one_in = one_in
        self._ended: deque[Span] = deque()
        self.lost = 0
        """Spans that nobody could take in time."""

    def begin(self, headers: Sequence[tuple[bytes, bytes]]) -> Traced | None:
        """None: it is not traced."""
        found = sampled_in(headers)
        if isinstance(found, tuple):
            return Traced(*found, time.time_ns() // 1000)
        if not found or not self._one_in or secrets.randbelow(self._one_in):
            return None
        return Traced(os.urandom(16), b"", time.time_ns() // 1000)

    def end(self, traced: Traced, method: str, route: str, status: int) -> None:
        """It is answered. A method that is none of HTTP's is told as OpenTelemetry has it: what
        clients say is of any length."""
        known = method in METHODS
        attributes: dict[str, str | int] = {
            "http.request.method": method if known else "_OTHER",
            "http.route": route,
            "http.response.status_code": status,
        }
        now_us = max(time.time_ns() // 1000, traced.begun_us)
        name, failed = f"{method if known else 'HTTP'} {route}", status >= 500
        times = traced.begun_us, now_us
        self.add(Span(traced.trace, traced.parent, name, SERVER, *times, attributes, failed))

    def add(self, span: Span) -> None:
        """One more that is to be exported."""
        if len(self._ended) == SPANS_MAX:
            self._ended.popleft()
            self.lost += 1
        self._ended.append(span)

    def take(self, most: int) -> list[Span]:
        """The oldest ones."""
        return [self._ended.popleft() for _ in range(min(most, len(self._ended)))]

    def give_back(self, spans: Sequence[Span]) -> None:
        """They could not be exported now."""
        room = SPANS_MAX - len(self._ended)
        self.lost += max(0, len(spans) - room)
        self._ended.extendleft(reversed(spans[max(0, len(spans) - room) :]))
