"""A broker in a hundred lines: stores events in memory and enforces the rules of sequences."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httptools
import pytest
from reference.batch import decode_batch
from reference.core import chunk_encode

from barco.client.base.loopthread import LoopThread
from barco.model.token import TOKEN_MIN, token_of

SLICES = 8


@dataclass
class Asked:
    """One request as the broker saw it."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class Stored:
    """One event as the broker keeps it."""

    key: bytes | None
    value: bytes | None
    timestamp_us: int | None
    headers: Any = ()


Answer = tuple[int, dict[str, str], bytes]
Fault = Callable[[Asked], "Answer | str | None"]


@dataclass
class Group:
    """The one group: who is in it, and its offsets by (topic, slice)."""

    members: dict[str, list[str]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    delivered: dict[tuple[str, int], int] = field(default_factory=dict)
    delivery: str = "none"
    count: int = 0


@dataclass
class FakeBroker:
    """`fault`, if set, sees each produce first. It may return an answer to give instead, "drop"
    (close without storing) or "lose" (store, then close without an answer)."""

    port: int = 0
    streams: dict[tuple[str, int], list[Stored]] = field(default_factory=lambda: defaultdict(list))
    sequences: dict[tuple[str, int, str], tuple[int, int]] = field(default_factory=dict)
    requests: list[Asked] = field(default_factory=list)
    fault: Fault | None = None
    delay_s: float = 0.0
    in_flight: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    in_flight_high: int = 0
    topology: bool = True
    connections: int = 0
    group: "Group" = field(default_factory=lambda: Group())
    chunk_events_max: int = 100

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def events(self, topic: str) -> list[Stored]:
        """All events of the topic, slice by slice."""
        return [
            event
            for (name, _), stream in sorted(self.streams.items())
            if name == topic
            for event in stream
        ]

    async def answer(self, asked: Asked) -> Answer | str:
        """The answer, or "drop"."""
        self.requests.append(asked)
        if asked.path == "/v1/brokers":
            return self._brokers()
        if asked.path == "/v1/topology":
            return self._topology()
        if asked.path == "/status":
            return json_answer({"status": "ready", "version": "0", "engine": "fake"})
        if asked.path == "/v1/topics":
            names = sorted({name for name, _ in self.streams})
            return json_answer({"topics": [{"topic": name} for name in names]})
        if asked.path.startswith("/v1/topic/") and asked.method == "POST":
            return await self._produce(asked)
        if asked.path.startswith("/v1/topic/"):
            return self._read(asked)
        if asked.path.startswith("/v1/consumer/"):
            fault = self.fault(asked) if self.fault else None
            if fault == "hold":  # It never gets there.
                await asyncio.sleep(2)
                return "drop"
            answer = await self._consumer(asked)
            return "drop" if isinstance(fault, str) else fault or answer
        if asked.path.startswith("/v1/groups/"):
            return self._seek(asked)
        return problem(404, "not-found", "no such path")

    async def _produce(self, asked: Asked) -> Answer | str:
        topic = asked.path.split("/")[3]
        values, keys, timestamps, headers = decode_batch(asked.body)
        assert len(asked.headers["producer-id"]) == 32
        index = self._slice(asked, keys)
        self.in_flight[topic, index] += 1
        self.in_flight_high = max(self.in_flight_high, self.in_flight[topic, index])
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            fault = self.fault(asked) if self.fault else None
            if fault == "drop" or isinstance(fault, tuple):
                return fault
            answer = self._store(asked, topic, index, values, keys, timestamps, headers)
            return "drop" if fault == "lose" else answer
        finally:
            self.in_flight[topic, index] -= 1

    def _slice(self, asked: Asked, keys: list[bytes | None]) -> int:
        if keys[0] is None:
            return int(asked.query["slice"][0])
        tokens = {token_of(key) for key in keys if key is not None}
        slices = {(token - TOKEN_MIN) // (2**64 // SLICES) for token in tokens}
        assert len(slices) == 1, "a batch belongs to one slice"
        return slices.pop()

    def _store(self, asked: Asked, topic: str, index: int, *columns: Any) -> Any:
        values, keys, ts, headers = columns
        name = (topic, index, asked.headers["producer-id"])
        epoch = int(asked.headers["producer-epoch"])
        sequence = int(asked.headers["producer-seq"])
        known, last = self.sequences.get(name, (epoch, -1))
        if epoch < known:
            return problem(403, "stale-producer", "a newer epoch has written")
        if epoch > known:
            last = -1
        if sequence <= last:
            return 204, {}, b""
        if sequence != last + 1:
            return problem(409, "sequence-gap", "gap", expectedSeq=str(last + 1))
        self.sequences[name] = (epoch, sequence)
        stream = self.streams[topic, index]
        start = len(stream)
        stream += map(Stored, keys, values, ts or [None] * len(values), headers)
        body = {
            "topic": topic,
            "token": str(TOKEN_MIN),
            "rangeIndex": index,
            "version": 7,
            "startOffset": str(start),
            "count": len(values),
        }
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    def chunks(self, topic: str, index: int, start: int) -> bytes:
        """The stored chunks that hold what begins at `start`; the first may begin before."""
        stream = self.streams.get((topic, index), [])
        size = self.chunk_events_max
        body = b""
        for base in range(start - start % size, len(stream), size):
            part = stream[base : base + size]
            body += chunk_encode(
                topic,
                index,
                7,
                base,
                [event.value for event in part],
                [event.key for event in part],
                [event.timestamp_us or 1_000 for event in part],
                headers=[event.headers for event in part],
            )
        return body

    async def _consumer(self, asked: Asked) -> Answer:
        action, group = asked.path.rsplit("/", 1)[1], self.group
        name = asked.query["consumerId"][0]
        if action == "register":
            group.members[name] = asked.query["topic"]
            return 200, {}, b"OK"
        if name not in group.members:
            return problem(409, "not-registered", "who?")
        if action == "poll":
            for _ in range(1 + int(asked.query["waitMs"][0]) // 10):
                answer = self._poll(name, asked.query.get("delivery", [""])[0])
                if answer[0] != 204:
                    break
                await asyncio.sleep(0.01)
            return answer
        if action == "commit" and asked.body:
            self._commit_to(asked)
            return 204, {}, b""
        wanted = action == "commit" or asked.query.get("commit") == ["true"]
        if wanted and asked.query.get("delivery") == [group.delivery]:
            group.committed |= group.delivered
        if action == "goodbye":
            group.delivered = dict(group.committed)
            del group.members[name]
        return 204, {}, b""

    def _poll(self, name: str, received: str) -> Answer:
        group = self.group
        if received == group.delivery:
            group.committed |= group.delivered
        group.delivered = dict(group.committed)
        body, skips = b"", []
        for topic, index in list(self.streams):
            start = group.committed.get((topic, index), 0)
            if topic not in group.members[name] or start >= len(self.streams[topic, index]):
                continue
            body += self.chunks(topic, index, start)
            skips.append(f"{topic}/{index}@{start}")
            group.delivered[topic, index] = len(self.streams[topic, index])
        if not body:
            return 204, {"Retry-After": "1"}, b""
        group.count += 1
        group.delivery = f"d{group.count}"
        headers = {"Barco-Delivery": group.delivery, "Barco-Start": ", ".join(skips)}
        return 200, headers, body

    def _commit_to(self, asked: Asked) -> None:
        for position in json.loads(asked.body)["positions"]:
            place = (position["topic"], position["slice"])
            offset = int(position["cursor"][9:], 16)
            assert self.group.committed.get(place, 0) <= offset <= self.group.delivered[place]
            self.group.committed[place] = offset

    def _seek(self, asked: Asked) -> Answer:
        given = json.loads(asked.body)
        for index, cursor in given["to"]["slices"].items():
            place = (given["topic"], int(index))
            self.group.committed[place] = self.group.delivered[place] = int(cursor[9:], 16)
        return json_answer({"positions": []})

    def _read(self, asked: Asked) -> Answer:
        parts = asked.path.split("/")
        topic = parts[3]
        if len(parts) == 5:
            slices = [
                {
                    "token": str(TOKEN_MIN),
                    "index": index,
                    "endpoint": self.endpoint,
                    "endOffset": str(len(self.streams.get((topic, index), []))),
                }
                for index in range(SLICES)
            ]
            return json_answer({"slices": slices})
        index, place = int(parts[6]), asked.query["from"][0]
        end = len(self.streams.get((topic, index), []))
        start = {"earliest": 0, "latest": end}.get(place)
        if start is None:
            start = int(place[9:], 16)
        if start >= end:
            return 204, {"Barco-Next-Cursor": f"{7:08x}-{start:016x}"}, b""
        stop = min(end, start - start % self.chunk_events_max + 2 * self.chunk_events_max)
        whole = self.streams[topic, index]
        self.streams[topic, index] = whole[:stop]
        body = self.chunks(topic, index, start)
        self.streams[topic, index] = whole
        headers = {"Barco-Next-Cursor": f"{7:08x}-{stop:016x}"}
        headers["Barco-Start"] = f"{topic}/{index}@{start}"
        return 200, headers, body

    def _brokers(self) -> Answer:
        body = {
            "length": 1,
            "names": ["127.0.0.1"],
            "producerPort": self.port,
            "consumerPort": self.port,
        }
        return 200, {}, json.dumps(body).encode()

    def _topology(self) -> Answer:
        if not self.topology:
            return problem(404, "not-found", "no such path")
        slices = [{"index": index, "endpoint": self.endpoint} for index in range(SLICES)]
        body = {"ranges": [{"token": str(TOKEN_MIN), "slices": slices}]}
        return 200, {}, json.dumps(body).encode()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        queue: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()
        answering = asyncio.ensure_future(self._answers(queue, writer))
        parsing = _Parsing(
            lambda asked: queue.put_nowait(asyncio.ensure_future(self.answer(asked)))
        )
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                parsing.parser.feed_data(data)
        queue.put_nowait(None)
        with contextlib.suppress(asyncio.CancelledError):  # The test is over.
            await answering

    async def _answers(self, queue: Any, writer: asyncio.StreamWriter) -> None:
        """In the order of the requests, as HTTP/1.1 demands."""
        while (task := await queue.get()) is not None:
            answer = await task
            if answer == "drop":
                writer.transport.abort()
                return
            status, headers, body = answer
            lines = [f"HTTP/1.1 {status} X", *(f"{k}: {v}" for k, v in headers.items())]
            if status != 204:
                lines.append(f"Content-Length: {len(body)}")
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        writer.close()


class _Parsing:
    def __init__(self, on_request: Callable[[Asked], None]) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self._on_request = on_request

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        url = urlsplit(self._url.decode())
        method = self.parser.get_method().decode()
        query = parse_qs(url.query)
        self._on_request(Asked(method, url.path, query, self._headers, b"".join(self._body)))


def json_answer(document: Any) -> Answer:
    """200 with a document."""
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def problem(status: int, slug: str, detail: str, **extra: Any) -> Answer:
    """A problem document as barco's."""
    body = {"type": f"urn:barco:problem:{slug}", "status": status, "detail": detail, **extra}
    return status, {"Content-Type": "application/problem+json"}, json.dumps(body).encode()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A started FakeBroker, in a thread of its own."""
    fake = FakeBroker()
    thread = LoopThread("fake-broker")
    thread.run(fake.start())
    yield fake
    thread.run(fake.stop())
    thread.close()


@pytest.fixture
def refusal() -> Callable[..., Answer]:
    """Makes a problem document."""
    return problem
