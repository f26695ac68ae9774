"""A real run of the core, kept as what it submitted: the material of crash images.

Appends never overwrite, so the final files hold every group that was ever submitted, in order. A
group's header says what had been stable when it was submitted (`durable_upto`); between that and
what the next one says, the core acknowledged. So all states of a crash are known: (S, A), groups
1..S submitted, 1..A stable, at most three between.
"""

import os
import random
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barco import _native
from barco.limits import PAGE_BYTES
from barco.workers.storage.index import scan
from faultlab.history import make_value
from faultlab.wire import Answer, Wire, request

UUID = bytes(range(1, 17))
TOKEN = -(2**63)
SESSION = 0x0BAD_CAFE_F00D_0001
EPOCH = 2
TAGS = scan.Tags(UUID, TOKEN, EPOCH, SESSION)
SEGMENT_BYTES = 512 * 1024
SLICES = 8

_PRODUCER = struct.Struct("<16sIIQII")
_PRODUCERS_SECTION = 16

Producer = tuple[bytes, str, int]
"""(hashed id, topic, slice): what sequences are counted for."""


@dataclass(slots=True)
class Group:
    """One submitted group, and the state of the shard after it."""

    header: scan.GroupHeader
    segment: int
    offset: int
    data: bytes
    ends: dict[tuple[str, int], int]
    sequences: dict[Producer, int]

    @property
    def pages(self) -> int:
        """4 KiB blocks."""
        return len(self.data) // PAGE_BYTES


@dataclass(slots=True)
class Recording:
    """A generation as it was submitted."""

    groups: list[Group]
    stable: int
    """At the end."""
    sizes: list[int] = field(default_factory=list)
    summaries: list[scan.SegmentSummary] = field(default_factory=list)
    keys: set[tuple[str, str]] = field(default_factory=set)
    """(topic, key) of all that came with a producer id."""

    def producers(self, sequences: dict[Producer, int]) -> dict[tuple[str, str], int]:
        """The last stored sequence of each (topic, key); -1 when there is none."""
        return {
            (topic, key): max(
                (last for (name, t, _), last in sequences.items() if (name, t) == (hashed, topic)),
                default=-1,
            )
            for topic, key in sorted(self.keys)
            for hashed in [_hashed(producer_id(topic, key))]
        }

    def states(self) -> Iterator[tuple[int, int]]:
        """(S, A): everything that was ever true of this run."""
        for at, group in enumerate(self.groups):
            submitted, low = group.header.gseq, group.header.durable_upto
            last = at + 1 == len(self.groups)
            high = self.stable if last else self.groups[at + 1].header.durable_upto
            for stable in range(low, min(high, submitted) + 1):
                yield submitted, stable


def make_reactor(*, epoch: int = EPOCH, session: int = SESSION) -> Any:
    """A core with all slices."""
    return _native.Reactor(
        engine="auto",
        arena_bytes=8 << 20,
        request_bytes_max=1 << 18,
        event_bytes_max=1 << 16,
        body_memory_max=8 << 20,
        auto_create=True,
        worker=0,
        workers=1,
        slices=SLICES,
        slice_first=0,
        slice_last=SLICES - 1,
        range_token=TOKEN,
        cluster_uuid=UUID,
        session=session,
        epoch=epoch,
        connections_max=64,
    )


class Core:
    """A reactor that runs on files in a directory, without a worker around it."""

    def __init__(self, root: Path, *, epoch: int = EPOCH, session: int = SESSION) -> None:
        self.root = root
        self.reactor = make_reactor(epoch=epoch, session=session)
        self.fds: list[int] = []
        self.paths: list[Path] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self.reactor.listen(self._listener.fileno(), 0)

    def open(self, parents: bytes = b"") -> None:
        """GEN_START is stable when this returns."""
        self._segment()
        self.reactor.open_generation(parents)
        while self.reactor.log_state()["stable_gseq"] < 1:
            self.turn()

    def turn(self) -> None:
        """One stay in the loop."""
        for upcall in self.reactor.run(0.002)[1]:
            if upcall[0] == "segment_wanted":
                self._segment()
            assert upcall[0] != "io_error", upcall

    def _segment(self) -> None:
        path = self.root / f"{len(self.paths):03d}.log"
        path.write_bytes(bytes(SEGMENT_BYTES))
        fd = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.reactor.add_segment(len(self.paths), fd, SEGMENT_BYTES)
        self.paths.append(path)
        self.fds.append(fd)

    def serve(self, clients: Sequence[threading.Thread]) -> None:
        """Until all clients have ended and everything is stable."""
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients) or not self.reactor.idle():
            self.turn()

    def ask(self, requests: list[bytes]) -> list[Answer]:
        """Pipelined on one connection."""
        answers: list[Answer] = []

        def client() -> None:
            wire = Wire(("127.0.0.1", self.port))
            wire.send(b"".join(requests))
            answers.extend(wire.answer() for _ in requests)
            wire.close()

        self.serve([threading.Thread(target=client, daemon=True)])
        return answers

    def close(self) -> None:
        """Everything goes."""
        self.reactor.close()
        self._listener.close()
        for fd in self.fds:
            os.close(fd)


def producer_id(topic: str, key: str) -> str:
    """Each key of each topic has a producer of its own."""
    return f"{key}-{topic}"


def _hashed(name: str) -> bytes:
    """As the core keeps it: 128 bits of the id's hash."""
    raw = name.encode()
    return struct.pack("<qq", _native.token(raw), _native.token(raw + b"\xff"))


def produce_request(topic: str, key: str, events: list[bytes], sequence: int | None) -> bytes:
    """A produce of some lines, with or without a producer id."""
    headers = {"Content-Type": "application/x-ndjson"}
    if sequence is not None:
        headers |= {"Producer-Id": producer_id(topic, key), "Producer-Epoch": "0"}
        headers |= {"Producer-Seq": str(sequence)}
    target = f"/v1/topic/{topic}/messages?partitionKey={key}"
    return request("POST", target, b"\n".join(events), headers)


class _Client(threading.Thread):
    """Pipelined produces of all kinds, some with sequences: enough to keep three groups going."""

    def __init__(self, port: int, number: int, requests: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.port, self.number, self.requests = port, number, requests
        self.random = random.Random(f"{seed} {number}")
        self.sequences: dict[tuple[str, str], int] = {}
        self.failure = ""

    def run(self) -> None:
        wire = Wire(("127.0.0.1", self.port))
        count = 0
        while count < self.requests and not self.failure:
            burst = []
            for _ in range(self.random.randrange(1, 10)):
                burst.append(self._request(count))
                count += 1
            wire.send(b"".join(burst))
            for answer in [wire.answer() for _ in burst]:
                if answer.status != 200:
                    self.failure = str(answer)
        wire.close()

    def _request(self, count: int) -> bytes:
        key = f"{self.number}-{self.random.randrange(4)}"
        topic = self.random.choice(("a", "b.c"))
        size = self.random.choice((1, 1, 8))
        events = [make_value(str(self.number), count * 50 + i, key) for i in range(size)]
        if self.number % 2 == 0:
            return produce_request(topic, key, events, None)
        sequence = self.sequences.get((topic, key), -1) + 1
        self.sequences[topic, key] = sequence
        return produce_request(topic, key, events, sequence)


def record(root: Path, seed: int, requests: int) -> Recording:
    """Runs the core under load and takes its log apart."""
    core = Core(root)
    try:
        core.open()
        clients = [_Client(core.port, number, requests, seed) for number in range(4)]
        core.serve(clients)
        assert not any(client.failure for client in clients)
        stable = core.reactor.log_state()["stable_gseq"]
    finally:
        core.close()
    recording = Recording([], stable, [SEGMENT_BYTES] * len(core.paths))
    files = [path.read_bytes() for path in core.paths]
    sources = [scan.SegmentSource(i, len(data), str(i)) for i, data in enumerate(files)]
    state = _State()
    result = scan.run(
        scan.scan_generation(
            sources,
            TAGS,
            lambda header, data, segment, at: recording.groups.append(
                state.group(header, bytes(data), segment, at)
            ),
        ),
        lambda read: files[read.which][read.offset : read.offset + read.length],
    )
    assert result.tail == stable == len(recording.groups) and result.torn_bytes == 0
    recording.summaries = result.segments
    recording.keys = {each for client in clients for each in client.sequences}
    return recording


class _State:
    """What groups add up to, computed from their bytes alone."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.sequences: dict[Producer, int] = {}

    def group(self, header: scan.GroupHeader, data: bytes, segment: int, at: int) -> Group:
        body = data[128 : 128 + header.body_bytes]
        if header.chunk_count:
            for place, _, topic, slice_, _, base, count, _, _ in _native.chunks_scan(body):
                assert base == self.ends.get((topic, slice_), 0)
                self.ends[topic, slice_] = base + count
                for name, _, _, sequence, _, _ in _producers(body, place):
                    assert sequence == self.sequences.get((name, topic, slice_), -1) + 1
                    self.sequences[name, topic, slice_] = sequence
        return Group(header, segment, at, data, dict(self.ends), dict(self.sequences))


def _producers(body: bytes, place: int) -> Iterator[tuple[Any, ...]]:
    info = _native.chunk_info(body, place)
    assert info is not None
    at = place + 80 + -(-len(info["topic"]) // 8) * 8 + 16 * len(info["sections"])
    for section, _, _, stored, _ in info["sections"]:
        if section == _PRODUCERS_SECTION:
            yield from _PRODUCER.iter_unpack(body[at : at + stored])
        at += -(-stored // 8) * 8
