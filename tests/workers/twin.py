"""An in-memory twin of a whole broker: reactors, log readers, siblings and the supervisor.

Everything above the seams is real. A worker that was killed comes back with what was stable.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import calling
import looped
from memory_spool import MemorySpool
from reference import described
from reference.batch import decode_batch
from reference.core import chunk_encode
from waiting_streams import WaitingStreams

from barco import _native
from barco.cluster.groups.groups import Groups
from barco.errors import (
    BarcoError,
    CorruptDataError,
    NotReadyError,
    OutcomeUnknownError,
    ProtocolError,
)
from barco.model.options import WorkerOptions
from barco.model.placement import Placement
from barco.model.token import TOKEN_MIN, token_of
from barco.protocol import frame
from barco.workers.http.app import App
from barco.workers.http.base.messages import Call, Response
from barco.workers.operations.service import ShardService

run = looped.run


class MemoryReactor(WaitingStreams):
    """Streams of stored chunks; what is appended becomes stable at once, or when told to."""

    engine = "memory"
    engine_reason = "a twin for tests"
    time_plausible = disk_full = staticmethod(bool)

    def __init__(self) -> None:
        self.chunks: dict[tuple[str, int], list[bytes]] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.latest: dict[tuple[str, int], int] = {}
        self.kept: dict[tuple[str, bytes], bytes] = {}
        self.topics: dict[str, bool] = {}
        self.told: dict[str, tuple[Any, ...]] = {}
        self.epoch = 1
        self.clock_us = 1_000_000
        self.memory_floor: dict[tuple[str, int], int] = {}
        self.upcalls: Callable[[tuple[Any, ...]], Any] = lambda upcall: None
        self.notified = False
        self.hold = False
        self.held: list[tuple[int, str, int, bytes | None, bytes]] = []
        self.fail_status = self.refuse = 0
        self.appended_events = 0

    # --- The seam -----------------------------------------------------------------------------

    def append(self, tag: int, topic: str, slice: int, key: Any, value: bytes, *_: bool) -> None:
        if self.fail_status:
            status = self.fail_status
            asyncio.get_running_loop().call_soon(
                self.upcalls, ("appended", tag, status, slice, self.epoch, 0)
            )
        elif self.hold:
            self.held.append((tag, topic, slice, key, value))
        else:
            asyncio.get_running_loop().call_soon(self._stable, tag, topic, slice, key, value)

    def release(self) -> None:
        self.hold = False
        held, self.held = self.held, []
        for item in held:
            self._stable(*item)

    def _stable(self, tag: int, topic: str, slice: int, key: bytes | None, value: bytes) -> None:
        offset = self.produce(topic, slice, [value], [key])
        self.kept[topic, key or b""] = value
        self.appended_events += 1
        self.upcalls(("appended", tag, 0, slice, self.epoch, offset))

    def check_batch(self, at: int, batch: Any, _: bool = False) -> tuple[int, int, int, int, int]:
        try:
            read = decode_batch(batch)
        except ProtocolError as error:
            raise ValueError(str(error)) from None
        placement = Placement(1, 8)
        if any(key and placement.locate(token_of(key))[1] != at for key in read.keys):
            raise ValueError("a key belongs to another slice")
        return len(read.values), sum(map(len, read.values)), 0, 0, 0

    def append_commit(
        self,
        tag: int,
        topic: str,
        slice: int,
        batches: list[tuple[Any, ...]],
        mark_topic: str,
        mark_key: bytes,
        mark_value: bytes,
    ) -> None:
        if self.refuse:
            self.refuse -= 1
            raise RuntimeError("not now")

        def stable() -> None:
            for batch, *_ in batches:
                read = decode_batch(batch)
                self.produce(topic, slice, read.values, read.keys)
            self._stable(tag, mark_topic, slice, mark_key, mark_value)

        asyncio.get_running_loop().call_soon(stable)

    def streams(self, topic: str | None = None, /) -> list[tuple[str, int, int, int, int]]:
        return [
            (name, slice, self.starts.get((name, slice), 0), end, self.latest[name, slice])
            for (name, slice), end in self.ends.items()
            if topic in (None, name)
        ]

    def stream_ends(self, topic: str, slice: int) -> tuple[int, int] | None:
        if (topic, slice) not in self.ends:
            return None
        return self.starts.get((topic, slice), 0), self.ends[topic, slice]

    def compacted(self, topic: str) -> list[tuple[bytes, bytes]]:
        return [(key, value) for (name, key), value in self.kept.items() if name == topic]

    def tail_read(
        self,
        topic: str,
        slice: int,
        from_offset: int,
        max_bytes: int,
        lend: bool,
        columns: int = -1,
        to_offset: int = 2**63,
        /,
    ) -> tuple[list[bytes], int, int] | None:
        place = (topic, slice)
        if place not in self.ends:
            return [], from_offset, 0
        from_offset = max(from_offset, self.starts.get(place, 0))
        if from_offset >= self.ends[place]:
            return [], from_offset, self.ends[place]
        if from_offset < self.memory_floor.get(place, 0):
            return None
        chunks, end = self._from(place, from_offset, max_bytes)
        while len(chunks) > 1 and (base := _native.chunk_place(chunks[-1])[0]) >= to_offset:
            del chunks[-1]
            end = base
        if columns >= 0:
            chunks = [_native.chunks_project(chunk, columns) for chunk in chunks]
        return chunks, end, self.ends[place]

    def _from(self, place: tuple[str, int], offset: int, size: int) -> tuple[list[bytes], int]:
        found: list[bytes] = []
        for chunk in self.chunks[place]:
            info = _native.chunk_info(chunk)
            assert info is not None
            end = info["base_offset"] + info["count"]
            if end <= max(offset, self.starts.get(place, 0)):
                continue
            if found and size < len(chunk):
                break
            found.append(chunk)
            size -= len(chunk)
            offset = end
        return found, offset

    def locate_timestamp(self, topic: str, slice: int, timestamp_us: int) -> int | None:
        for chunk in self.chunks.get((topic, slice), ()):
            info = _native.chunk_info(chunk)
            assert info is not None
            if info["max_timestamp_us"] >= timestamp_us:
                return info["base_offset"]
        return None

    def topic_set(self, topic: str, exists: bool, *more: Any) -> None:
        self.topics[topic], self.told[topic] = exists, more

    def truncate_stream(self, topic: str, slice: int, start_offset: int) -> None:
        self.starts[topic, slice] = start_offset

    def stats(self) -> dict[str, int]:
        return {"appended_events": self.appended_events, "streams": len(self.ends)}

    def notify(self, on: bool) -> None:
        self.notified = on

    # --- For tests ----------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        slice: int,
        values: list[bytes],
        keys: list[bytes | None] | None = None,
        stamps: list[int] | None = None,
    ) -> int:
        """One chunk with these events, stable; the offset of the first."""
        place = (topic, slice)
        base = self.ends.get(place, 0)
        self.clock_us += 1_000
        stamps = stamps or [self.clock_us + n for n in range(len(values))]
        chunk = chunk_encode(topic, slice, self.epoch, base, values, keys, stamps)
        self.chunks.setdefault(place, []).append(chunk)
        self.ends[place] = base + len(values)
        self.latest[place] = stamps[-1]
        if self.notified:
            self.upcalls(("stable", 1))
        return base


class MemoryLog:
    """The disk: everything that the reactor ever stored."""

    def __init__(self, reactor: MemoryReactor) -> None:
        self.reactor = reactor
        self.reads = 0
        self.corrupt: set[tuple[str, int]] = set()
        self.pause: asyncio.Event | None = None
        self.kept: dict[tuple[str, int], int] = {}
        """What retention has left begins here."""

    async def read(
        self,
        topic: str,
        slice: int,
        from_offset: int,
        max_bytes: int,
        *,
        raw_bytes_max: int | None = None,
        more: bool = False,
        columns: int = -1,
        stop: int = 2**63 - 1,
    ) -> SimpleNamespace:
        self.reads += 1
        if (topic, slice) in self.corrupt:
            raise CorruptDataError("A bit has flipped.")
        await asyncio.sleep(0)
        if self.pause is not None:
            await self.pause.wait()
        from_offset = max(from_offset, self.kept.get((topic, slice), 0))
        chunks, after = self.reactor._from((topic, slice), from_offset, max(1, max_bytes))
        cut = (each if columns < 0 else _native.chunks_project(each, columns) for each in chunks)
        return SimpleNamespace(chunks=[memoryview(each) for each in cut], next_offset=after)

    def missing(self, topic: str, slice: int, first: int, end: int) -> BarcoError:
        return CorruptDataError(f"Events {first} to {end} are missing.")

    async def look_up(self, streams: object) -> None: ...

    async def earliest(self, topic: str, slice: int) -> int | None:
        return self.kept.get((topic, slice))

    async def by_timestamp(self, topic: str, slice: int, timestamp_us: int) -> int | None:
        return None


class MemorySupervisor:
    """The groups machine; every worker has a new view before the answer."""

    def __init__(self, slices: int) -> None:
        self.groups = Groups([(TOKEN_MIN, index) for index in range(slices)])
        self.now = 0.0
        self.workers: list[ShardService | None] = []
        self.deaf: set[int] = set()

    async def request(self, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        before = self.groups.version
        try:
            result = self.groups.request(op, args, self.now)
        finally:
            self.publish(before)
        return frame.decode(frame.encode(result)[4:])

    def publish(self, before: int) -> None:
        if self.groups.version != before:
            for number, service in enumerate(self.workers):
                if service is not None and number not in self.deaf:
                    service.membership.apply(self.groups.view(service.membership.version))


class MemorySiblings:
    """Calls between the workers of the twin, through the same plain values as a socket."""

    def __init__(self, broker: "Broker") -> None:
        self.broker, self.reached = broker, lambda worker: True
        self.dropped: set[tuple[int, str]] = set()
        """Whose answers to which operations come too late: what was asked for is done."""

    async def call(
        self, worker: int, op: str, args: Mapping[str, Any], timeout: float = 5.0, late: Any = None
    ) -> Any:
        service = self.broker.services[worker]
        if service is None:
            raise NotReadyError(f"Worker {worker}, which owns the slice, is restarting.")
        await asyncio.sleep(0)
        result = await service.operation(op, args)
        if (worker, op) in self.dropped:
            if late is not None:
                late(result)
            raise OutcomeUnknownError("A worker did not answer in time.")
        return result

    async def broadcast(
        self, op: str, args: Mapping[int, Mapping[str, Any]], timeout: float = 5.0, **_: Any
    ) -> dict[int, Any]:
        async def caught(worker: int) -> Any:
            try:
                return await self.call(worker, op, args[worker], timeout)
            except BarcoError as error:
                return error

        results = await asyncio.gather(*(caught(worker) for worker in args))
        return dict(zip(args, results, strict=True))

    async def first_true(
        self, op: str, args: Mapping[int, Mapping[str, Any]], timeout: float
    ) -> set[int]:
        tasks = {asyncio.create_task(self.broadcast(op, {w: given})) for w, given in args.items()}
        try:
            for next_done in asyncio.as_completed(tasks, timeout=timeout + 1):
                if found := {w for w, answer in (await next_done).items() if answer is True}:
                    return found
            return set()
        except TimeoutError:
            return set()
        finally:
            for task in tasks:
                task.cancel()


@dataclass
class Answer:
    """A response, its body in one piece."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Broker:
    """A broker with some workers, in memory."""

    def __init__(self, workers: int = 2, slices: int = 8) -> None:
        self.workers, self.slices = workers, slices
        self.supervisor = MemorySupervisor(slices)
        self.siblings = MemorySiblings(self)
        self.reactors = [MemoryReactor() for _ in range(workers)]
        self.logs = [MemoryLog(reactor) for reactor in self.reactors]
        self.spools = [MemorySpool() for _ in range(workers)]
        self.services: list[ShardService | None] = [None] * workers
        self.apps: list[App | None] = [None] * workers
        self.supervisor.workers = self.services
        self.turns = itertools.cycle(range(workers))
        for worker in range(workers):
            self.start(worker)

    def options(self, worker: int) -> WorkerOptions:
        return WorkerOptions(
            version="0.1.0",
            core=None,
            supervisor_pid=1,
            data_dir="/nowhere",
            channel_fd=-1,
            listeners={},
            worker=worker,
            workers=self.workers,
            slices_per_range=self.slices,
            shard_endpoints={w: f"127.0.0.1:{9300 + w}" for w in range(self.workers)},
            cluster_uuid="c" * 32,
            disk_uuid="d" * 32,
            ordinal=0,
            bind="127.0.0.1",
            ports={"discovery": 9250, "produce": 9251, "consume": 9252, "metrics": 9253},
            insecure_open=False,
            memory_bytes=256 << 20,
            event_bytes_max=1 << 20,
            request_bytes_max=16 << 20,
            connections_max=100,
            auto_create=True,
            segment_bytes=128 << 20,
            retention_hours=168,
            retention_bytes=0,
        )

    def start(self, worker: int) -> None:
        reactor = self.reactors[worker]
        service = ShardService(
            self.options(worker),
            reactor=reactor,
            reader=self.logs[worker],
            supervisor=self.supervisor,
            spool=self.spools[worker],
            **dict.fromkeys(("now_us", "wall_us"), lambda: reactor.clock_us),
        )
        reactor.upcalls = service.upcall
        service.open(reactor.epoch)
        app = App(service, siblings=self.siblings, supervisor=self.supervisor)
        app.open()
        self.services[worker], self.apps[worker] = service, app
        service.membership.apply(self.supervisor.groups.view())

    def kill(self, worker: int) -> None:
        """Gone, with everything that was not stable."""
        reactor = self.reactors[worker]
        reactor.upcalls = lambda upcall: None
        reactor.held.clear()
        reactor.hold = reactor.notified = False
        reactor.epoch += 1
        self.services[worker] = self.apps[worker] = None

    def owner(self, slice: int) -> int:
        return slice * self.workers // self.slices

    def produce(self, topic: str, slice: int, *values: bytes) -> int:
        return self.reactors[self.owner(slice)].produce(topic, slice, list(values))

    async def request(
        self,
        method: str,
        path: str,
        query: Any = (),
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        worker: int | None = None,
        breaks: bool = False,
    ) -> Answer:
        """Any worker takes it, by turns. breaks: the connection, before the end of the answer."""
        if worker is None:
            worker = next(w for w in self.turns if self.apps[w] is not None)
        app = self.apps[worker]
        assert app is not None
        raw = query if isinstance(query, str) else urlencode(query, doseq=True)
        given = [(n.encode(), v.encode()) for n, v in (headers or {}).items()]
        response = await calling.answered(app, Call(0, method, path, raw, given, body))
        if response.written is not None and not breaks:
            response.written()
        answer = answer_of(response)
        described.check(method, path, answer.status, answer.headers, answer.body)
        return answer

    # --- Shorthands ---------------------------------------------------------------------------

    async def register(
        self, consumer: str, *topics: str, group: str = "g", start: str = "startFromEarliest"
    ) -> Answer:
        query = {"consumerId": consumer, "group": group, "topic": topics, "onNewGroup": start}
        return await self.request("PUT", "/v1/consumer/register", query)

    async def poll(self, consumer: str, accept: str = "", **query: Any) -> Answer:
        headers = {"Accept": accept} if accept else {}
        given = {name: query.pop(name) for name in ("worker", "breaks") if name in query}
        query = {"consumerId": consumer} | query
        return await self.request("POST", "/v1/consumer/poll", query, headers=headers, **given)

    async def values(self, consumer: str, **query: Any) -> list[Any]:
        """The values of one poll, in the order of the answer."""
        answer = await self.poll(consumer, **query)
        assert answer.status in (200, 204), answer
        found = answer.json if answer.status == 200 else []
        return [value for item in found for value in item["values"]]

    async def commit(self, consumer: str) -> Answer:
        return await self.request("POST", "/v1/consumer/commit", {"consumerId": consumer})

    async def goodbye(self, consumer: str, **query: Any) -> Answer:
        return await self.request("POST", "/v1/consumer/goodbye", {"consumerId": consumer} | query)

    async def settle(self) -> None:
        """Let everything that is on its way arrive."""
        for _ in range(20):
            await asyncio.sleep(0)


def answer_of(response: Response) -> Answer:
    """The response, its head checked on the way."""
    assert response.head() == b"" or response.head().endswith(b"\r\n")
    body = response.body
    whole = b"".join(body) if isinstance(body, list) else bytes(body)
    return Answer(response.status, {n.lower(): v for n, v in response.headers}, whole)
