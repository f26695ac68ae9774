"""Exports spans to a collector, by OTLP over HTTP, in batches, beside everything else.

Nothing waits for it: what a collector does not take in time is counted, and forgotten.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from barco import __version__
from barco._native import Reactor
from barco.model.options import WorkerOptions
from barco.workers.operations.service import ShardService
from barco.workers.tracing import otlp
from barco.workers.tracing.traces import CLIENT, INTERNAL, SERVER, Span, Traces, new_id

EVERY_SECONDS = 1.0
BATCH_SPANS = 512
"""Of one request; encoding them holds up the loop for some milliseconds."""
POST_SECONDS = 5.0
TOLD_EVERY_SECONDS = 60.0
"""Between two lines of the log about a collector that takes nothing."""

ProduceSpan = tuple[
    bytes, bytes, bytes, bool, str, str, int, int, int, int, int, int, int, int, int
]
"""As `Reactor.spans` tells it."""

PRODUCE = "POST /v1/topic/{topic}/messages"
HAND_OFF, HANDED_IN = "hand-off", "handed in"
"""What a hand-off is called at who hands a produce over, and at who leads its slice."""

NO_ANSWER = (asyncio.IncompleteReadError, asyncio.LimitOverrunError)

log = logging.getLogger("barco.tracing")


class Exporter:
    """Of one process."""

    def __init__(self, options: WorkerOptions, reactor: Reactor) -> None:
        endpoint = urlsplit(options.trace["endpoint"])
        assert endpoint.hostname is not None
        self._host = endpoint.hostname
        self._tls = ssl.create_default_context() if endpoint.scheme == "https" else None
        self._port = endpoint.port or (443 if self._tls else 80)
        self._names = ThreadPoolExecutor(1, "trace.endpoint")
        """Looks up the collector's name, apart: who is asked and is silent has no other thread."""
        path = (endpoint.path or "/") + (f"?{endpoint.query}" if endpoint.query else "")
        self._head = f"POST {path} HTTP/1.1\r\nHost: {endpoint.netloc}\r\n"
        self._resource: dict[str, str | int] = {
            "service.name": "barco",
            "service.version": __version__,
            "service.instance.id": f"{options.ordinal}/{options.worker}",
        }
        self._reactor = reactor
        self.traces = Traces(one_in := options.trace["one_in"])
        reactor.trace(1 / one_in if one_in else 0.0)
        self._exported = self._lost_in_core = self._refused = 0
        self._told = -TOLD_EVERY_SECONDS

    def count_in(self, service: ShardService) -> None:
        """What it does is among the metrics from now on."""
        more = service.more_stats
        service.more_stats = lambda: more() | self.counted()

    def counted(self) -> dict[str, int]:
        """Spans that a collector has taken, and those that were lost."""
        lost = self.traces.lost + self._lost_in_core + self._refused
        return {"spans_exported": self._exported, "spans_lost": lost}

    async def run(self) -> None:
        """Once a second, for as long as the process lives."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            produces, self._lost_in_core = self._reactor.spans()
            for each in produces:
                for span in spans_of(each):
                    self.traces.add(span)
            await self.export()

    async def export(self) -> None:
        """What waits now, in batches. What comes meanwhile is for the next time: else a span or two
        would go at a time, and the core's own, which wait for this to end, be lost."""
        while spans := self.traces.take(BATCH_SPANS):
            if not await self._export(spans) or len(spans) < BATCH_SPANS:
                break

    async def _export(self, spans: list[Span]) -> bool:
        try:
            body = otlp.encode(spans, self._resource, __version__)
            status = await asyncio.wait_for(self._post(body), POST_SECONDS)
        except (OSError, ValueError, TimeoutError, *NO_ANSWER) as error:
            self._tell(type(error).__name__)
            self.traces.give_back(spans)
            return False
        if 200 <= status < 300:
            self._exported += len(spans)
            return True
        self._tell(f"status {status}")
        if status in (429, 502, 503, 504):  # As OTLP has it: these may be sent again.
            self.traces.give_back(spans)
        else:
            self._refused += len(spans)
        return False

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first of its addresses that answers."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._names, socket.getaddrinfo, self._host, self._port, 0, socket.SOCK_STREAM
        )
        name = self._host if self._tls is not None else None
        for at, (*_, address) in enumerate(found):
            host, port = str(address[0]), int(address[1])
            try:
                return await asyncio.open_connection(
                    host, port, ssl=self._tls, server_hostname=name
                )
            except OSError:
                if at == len(found) - 1:
                    raise
        raise OSError(f"{self._host} has no address")

    async def _post(self, body: bytes) -> int:
        reader, writer = await self._connect()
        try:
            head = f"{self._head}Content-Type: application/x-protobuf\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode("ascii") + body)
            await writer.drain()
            line = await reader.readuntil(b"\n")  # 64 KiB at most.
            version, _, rest = line.partition(b" ")
            if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
                raise ValueError("this is no answer of HTTP")
            return int(rest[:3])
        except BaseException:
            writer.transport.abort()  # Closed, it would wait for ever for who reads nothing.
            raise
        finally:
            writer.close()

    def _tell(self, why: str) -> None:
        now = time.monotonic()
        if now - self._told >= TOLD_EVERY_SECONDS:
            self._told = now
            log.warning("the collector of trace.endpoint takes no spans: %s", why)


def spans_of(produce: ProduceSpan) -> Iterator[Span]:
    """Of a produce: the whole, and its stages one after the other, each from where the last one
    ended."""
    trace, parent, handed_as, handed_in, request, topic, status, events, begun, *until_answered = (
        produce
    )
    received, built, written, replicated, handed, ended = until_answered
    told: dict[str, str | int] = {
        "http.response.status_code": status,
        "messaging.system": "barco",
        "messaging.destination.name": topic,
        "messaging.batch.message_count": events,
    }
    if not handed_in:
        told |= {"http.request.method": "POST", "http.route": PRODUCE.partition(" ")[2]}
    if request:
        told["barco.request.id"] = request
    name = HANDED_IN if handed_in else PRODUCE
    whole = Span(trace, parent, name, SERVER, begun, ended, told, status >= 500)
    yield whole
    stages = [] if handed_in else [("receive", INTERNAL, begun, received)]
    if handed or handed_as:
        over = handed or ended
        stages.append((HAND_OFF, CLIENT, received, over))
        stages.append(("answer", INTERNAL, over, ended))
    elif written:
        start = max(received, built)  # What waits for a group that was under way gathers nothing.
        safe = max(written, replicated)
        stages.append(("gather", INTERNAL, received, start))
        stages.append(("write", INTERNAL, start, written))
        if replicated:
            stages.append(("replicate", INTERNAL, start, replicated))
        stages.append(("answer", INTERNAL, safe, ended))
    for name, kind, since, until in stages:
        if since and until:
            as_told = handed_as if name == HAND_OFF else b""  # It is the other process's parent.
            times = since, max(since, until)
            yield Span(trace, whole.id, name, kind, *times, id=as_told or new_id())
