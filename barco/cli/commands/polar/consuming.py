"""PolarStreams' consumers: who a connection is, and what it polls of a broker.

A consumer is what its connection has registered. The same id on another connection takes over,
from the last commit on; when the connection ends, so does the registration, unless a connection to
another door of the ring has the same id.
"""

import asyncio
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import zstandard

from barco import limits
from barco.cli.commands.polar.http2 import H2Answer, H2Request
from barco.client.wire.codec import Event, decode_chunks, parse_skips
from barco.client.wire.http1 import Request, Response
from barco.client.wire.transport import Pool
from barco.errors import BarcoError
from barco.model.placement import Placement
from barco.types import KiB

POLAR = "application/vnd.polar.consumermessage"
CHUNKS = "application/vnd.barco.chunks"
JSON = "application/json"
JSON_BYTES = 64 * KiB
"""Of a poll that wants JSON."""
CONNECTIONS_MAX = 128
ASK_SECONDS_MAX = 30.0

_RECORD = struct.Struct(">qI")
"""Of an event: timestamp in microseconds, bytes of the value."""
_ITEM = struct.Struct(">qBIB")
"""Of events of one slice and generation: token, slice, generation, bytes of the topic."""
_BOUNDS = struct.Struct(">qi")
"""Then the first offset, and the bytes that follow."""
_ITEMS = struct.Struct(">H")

NOT_REGISTERED = H2Answer(409, b"Consumer not registered")


@dataclass(slots=True)
class Registered:
    """What a connection has registered."""

    id: str
    query: list[tuple[str, str]]
    """Of the registration at the broker."""
    delivery: str = ""
    """The last answer that arrived."""
    beats: asyncio.Task[None] | None = None


class Consuming:
    """What all connections share."""

    def __init__(
        self, pool: Pool, endpoint: str, ring: Placement | None, *, from_latest: bool
    ) -> None:
        self.pool, self.endpoint, self.ring = pool, endpoint, ring
        self.start = "startFromLatest" if from_latest else "startFromEarliest"
        """Of a new group whose consumer does not say it, as PolarStreams' Go client can not."""
        alone = limits.CONSUMER_SESSION_MS_DEFAULT
        self.session_ms = alone if ring is None else limits.CONSUMER_SESSION_MS_MIN
        """Beside a single broker the door says when a consumer has gone; of several none knows."""
        self.by_id: dict[str, Visitor] = {}
        self.visitors = 0

    async def ask(
        self, method: str, what: str, query: Iterable[tuple[str, str]], accept: str = "*/*"
    ) -> Response:
        """A request of /v1/consumer at the broker."""
        target = f"/v1/consumer/{what}?{urlencode(list(query))}"
        request = Request(method, target, (("Accept", accept),))
        return await self.pool.request(self.endpoint, request, timeout_s=ASK_SECONDS_MAX)


class Visitor:
    """One connection."""

    def __init__(self, consuming: Consuming) -> None:
        self._of = consuming
        self._consumer: Registered | None = None
        self._turn = asyncio.Lock()
        consuming.visitors += 1

    @property
    def welcome(self) -> bool:
        """Whether there is room for it."""
        return self._of.visitors <= CONNECTIONS_MAX

    async def answer(self, asked: H2Request) -> H2Answer:
        """One request; they have their turns one after the other, as polls commit."""
        try:
            parts = urlsplit(asked.target)
            given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        except ValueError:
            return _text(400, "Invalid path")
        calls = {
            ("PUT", "/v1/consumer/register"): self._register,
            ("POST", "/v1/consumer/register"): self._register,
            ("POST", "/v1/consumer/poll"): self._poll,
            ("POST", "/v1/consumer/commit"): self._commit,
            ("POST", "/v1/consumer/goodbye"): self._goodbye,
        }
        if (asked.method, parts.path) == ("GET", "/status"):
            return _text(200, "Consumer server listening")
        call = calls.get((asked.method, parts.path))
        if call is None:
            return _text(404, "Not found")
        async with self._turn:
            try:
                return await call(asked, given)
            except BarcoError as error:
                return _text(500, error.detail)

    async def gone(self) -> None:
        """The connection has ended."""
        self._of.visitors -= 1
        async with self._turn:
            await self._forget(leave=self._of.ring is None)

    # --- Registration ---------------------------------------------------------------------------

    async def _register(self, asked: H2Request, given: dict[str, str]) -> H2Answer:
        query = self._wanted(asked)
        if isinstance(query, H2Answer):
            return query
        consumer_id = query[0][1]
        if self._consumer is not None and self._consumer.query == query:
            return _text(200, "Already registered")
        if self._consumer is not None:
            return _text(400, "Consumer already registered with different parameters")
        before = self._of.by_id.get(consumer_id)
        if before is not None:
            await before.end()
        answer = await self._of.ask("PUT", "register", query)
        if answer.status == 409:  # Of one that has gone, and whose session is not over.
            leaving = [("consumerId", consumer_id), ("commit", "false")]
            await self._of.ask("POST", "goodbye", leaving)
            answer = await self._of.ask("PUT", "register", query)
        if not answer.ok:
            return _text(400 if answer.status < 500 else 500, answer.words)
        self._consumer = Registered(consumer_id, query)
        self._consumer.beats = asyncio.create_task(self._beat(consumer_id))
        self._of.by_id[consumer_id] = self
        return _text(200, "OK")

    def _wanted(self, asked: H2Request) -> list[tuple[str, str]] | H2Answer:
        """The registration as a broker takes it."""
        query = parse_qs(urlsplit(asked.target).query)
        try:
            body: Any = json.loads(asked.body) if asked.body else {}
            if not isinstance(body, dict):
                raise TypeError
            names = query.get("consumerId", query.get("consumer_id", [""]))
            consumer_id = str(body.get("id") or names[-1])
            group = str(body.get("group") or query.get("group", ["default"])[-1])
            topics = [str(each) for each in body.get("topics") or query.get("topic", [])]
            policy = body.get("onNewGroup", query.get("onNewGroup", [0])[-1])
            start = {0: self._of.start, 1: "startFromEarliest"}.get(policy, policy)
            "".join((consumer_id, group, *topics)).encode()  # Half a letter is no text.
        except (ValueError, TypeError, RecursionError):
            return _text(400, "Invalid ConsumerInfo payload")
        if not consumer_id or not topics:
            return _text(400, "Consumer id and topics can not be empty")
        if start not in ("startFromLatest", "startFromEarliest"):
            return _text(400, "Invalid offset reset policy value")
        return [
            ("consumerId", consumer_id),
            *(("group", group), ("onNewGroup", start), ("sessionMs", str(self._of.session_ms))),
            *(("topic", topic) for topic in topics),
        ]

    async def end(self) -> None:
        """Somebody else has registered with its id: nothing is known of what it polled last."""
        async with self._turn:
            await self._forget(leave=self._of.ring is None)

    async def _forget(self, *, leave: bool) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        if consumer.beats is not None:
            consumer.beats.cancel()
        if self._of.by_id.get(consumer.id) is self:
            del self._of.by_id[consumer.id]
        if leave:
            query = [("consumerId", consumer.id), ("commit", "false")]
            try:
                await self._of.ask("POST", "goodbye", query)
            except BarcoError:
                pass  # Its session ends by itself.

    async def _beat(self, consumer_id: str) -> None:
        """PolarStreams' connections are alive as long as they are open."""
        while True:
            await asyncio.sleep(self._of.session_ms / 3000)
            try:
                await self._of.ask("POST", "heartbeat", [("consumerId", consumer_id)])
            except BarcoError:
                pass  # The next one is soon.

    # --- Reading --------------------------------------------------------------------------------

    def _is(self, given: dict[str, str]) -> Registered | None:
        """Who asks, if the request names nobody else."""
        named = given.get("consumerId", given.get("consumer_id"))
        if self._consumer is None or named not in (None, self._consumer.id):
            return None
        return self._consumer

    async def _poll(self, asked: H2Request, given: dict[str, str]) -> H2Answer:
        if (consumer := self._is(given)) is None:
            return NOT_REGISTERED
        plain = asked.headers.get("accept") == JSON
        query = [
            *(("consumerId", consumer.id), ("delivery", consumer.delivery), ("scope", "broker")),
            # Of stored chunks one is given at least, however small the room for them.
            ("maxBytes", str(JSON_BYTES if plain else 1)),
        ]
        answer = await self._of.ask("POST", "poll", query, JSON if plain else CHUNKS)
        if answer.status == 409:
            await self._forget(leave=False)
            return NOT_REGISTERED
        if answer.status in (204, 503):
            wait = answer.headers.get("retry-after", "1")
            return H2Answer(204, b"", (("cache-control", "no-store"), ("retry-after", wait)))
        if not answer.ok:
            return _text(500, answer.words)
        body = answer.body if plain else self._message(answer)

        def sent() -> None:
            """Who asks again after that has received it."""
            consumer.delivery = answer.headers.get("barco-delivery", consumer.delivery)

        return H2Answer(200, body, (("content-type", JSON if plain else POLAR),), sent)

    def _message(self, answer: Response) -> bytes:
        skips = parse_skips(answer.headers.get("barco-start", ""))
        return message(decode_chunks(answer.body, skips, self._of.ring))

    async def _commit(self, asked: H2Request, given: dict[str, str]) -> H2Answer:
        if (consumer := self._is(given)) is None:
            return NOT_REGISTERED
        query = [("consumerId", consumer.id), ("delivery", consumer.delivery)]
        answer = await self._of.ask("POST", "commit", query)
        return H2Answer(204) if answer.ok else _text(answer.status, answer.words)

    async def _goodbye(self, asked: H2Request, given: dict[str, str]) -> H2Answer:
        if (consumer := self._is(given)) is None:
            return NOT_REGISTERED
        query = [("consumerId", consumer.id), ("delivery", consumer.delivery)]
        if given.get("commit") == "false":
            query.append(("commit", "false"))
        answer = await self._of.ask("POST", "goodbye", query)
        await self._forget(leave=False)
        return _text(200, "OK") if answer.ok else _text(answer.status, answer.words)


def message(events: list[Event]) -> bytes:
    """Events as PolarStreams' consumers take them."""
    parts, items = [b""], 0
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    for (topic, token, index, epoch), some in groupby(
        events, lambda each: (each.topic, each.token, each.slice, each.epoch)
    ):
        run = list(some)
        records = b"".join(
            _RECORD.pack(each.timestamp_us, len(each.value or b"")) + (each.value or b"")
            for each in run
        )
        payload, name = compressor.compress(records), topic.encode()
        parts += [_ITEM.pack(token, index & 0xFF, epoch, len(name)), name]
        parts += [_BOUNDS.pack(run[0].offset, len(payload)), payload]
        items += 1
    parts[0] = _ITEMS.pack(items)
    return b"".join(parts)


def _text(status: int, words: str) -> H2Answer:
    return H2Answer(status, words.encode(), (("content-type", "text/plain"),))
