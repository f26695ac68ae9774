"""Where a bit may flip in a data directory, and what may be read from it afterwards."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barco import _native
from barco.limits import GROUP_HEADER_BYTES
from barco.workers.storage.files import layout
from barco.workers.storage.index import scan
from faultlab.broker import Broker
from faultlab.drain import CHUNKS, Event
from faultlab.load import chunk_events, slice_path
from faultlab.wire import Wire

TOPIC = "t"

Place = tuple[int, int]
"""slice, offset."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A range of bytes of a file in which one bit is to flip."""

    kind: str
    path: Path
    start: int
    end: int

    def flip(self, data_dir: Path, rng: random.Random) -> str:
        """Does it, in a copy of the directory; what was done."""
        path = data_dir / self.path
        at = rng.randrange(self.start, self.end)
        bit = rng.randrange(8)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0] ^ 1 << bit
            file.seek(at)
            file.write(bytes([byte]))
        return f"{self.kind}: {self.path} byte {at} bit {bit}"


def groups(path: Path) -> list[tuple[int, scan.GroupHeader]]:
    """The groups of a segment and where they are."""
    data, at, found = path.read_bytes(), 0, []
    while (header := scan.parse_header(data, at)) is not None:
        found.append((at, header))
        at += header.group_bytes
    return found


def segments(shard: Path) -> list[Path]:
    """All segments with groups, oldest first."""
    found = [
        layout.segment_path(shard, epoch, index)
        for epoch in layout.generation_epochs(shard)
        for index in layout.segment_indexes(shard, epoch)
    ]
    return [path for path in found if groups(path)]


def open_groups(shard: Path) -> list[tuple[Path, int, scan.GroupHeader]]:
    """Groups with events of the last segment, which a start has to walk, if known to be stable."""
    path = segments(shard)[-1]
    found = groups(path)
    durable = max(header.durable_upto for _, header in found)
    return [(path, at, header) for at, header in with_events(path) if header.gseq <= durable]


def _ours(body: bytes) -> int | None:
    """Where in a group's body the first chunk of the clients' topic is."""
    return next((at for at, _, topic, *_ in _native.chunks_scan(body) if topic == TOPIC), None)


def with_events(path: Path) -> list[tuple[int, scan.GroupHeader]]:
    """Groups with events of the clients' topic."""
    data = path.read_bytes()
    return [
        (at, header)
        for at, header in groups(path)
        if header.chunk_count
        and _ours(data[at + GROUP_HEADER_BYTES :][: header.body_bytes]) is not None
    ]


def _body_spots(kind: str, data_dir: Path, path: Path, at: int, size: int) -> Iterator[Spot]:
    """Header and sections of a chunk of the clients' topic, and the group's header."""
    body = path.read_bytes()[at + GROUP_HEADER_BYTES : at + GROUP_HEADER_BYTES + size]
    chunk = _ours(body)
    assert chunk is not None
    info = _native.chunk_info(body, chunk)
    assert info is not None
    name = path.relative_to(data_dir)
    start = at + GROUP_HEADER_BYTES + chunk
    yield Spot(f"{kind}, group header", name, at, at + 104)
    yield Spot(f"{kind}, chunk header", name, start, start + 80)
    sections = sum(-(-section[3] // 8) * 8 for section in info["sections"])
    first = start + info["stored_bytes"] - sections
    for section, _, _, stored, _ in info["sections"]:
        yield Spot(f"{kind}, section {section}", name, first, first + stored)
        first += -(-stored // 8) * 8


def walked_spots(data_dir: Path, shard: Path) -> Iterator[Spot]:
    """First, middle and last group of the segment that a start walks."""
    found = open_groups(shard)
    for which, index in (("first", 0), ("middle", len(found) // 2), ("last", -1)):
        path, at, header = found[index]
        yield from _body_spots(f"{which} open group", data_dir, path, at, header.body_bytes)


def sealed_spots(data_dir: Path, shard: Path, rng: random.Random) -> Iterator[Spot]:
    """Groups of segments that are full or of an older generation."""
    paths = [path for path in segments(shard)[:-1] if with_events(path)]
    for path in rng.sample(paths, min(2, len(paths))):
        found = with_events(path)
        for which, index in (("first", 0), ("middle", len(found) // 2), ("last", -1)):
            at, header = found[index]
            yield from _body_spots(f"{which} sealed group", data_dir, path, at, header.body_bytes)


def file_spots(data_dir: Path, shard: Path) -> Iterator[Spot]:
    """Everything that is no segment."""
    for name in ("broker.json", "processes.json"):
        yield Spot(name, Path(name), 0, (data_dir / name).stat().st_size)
    path = shard / layout.LINEAGE_NAME
    size = path.stat().st_size
    for number in range(3):
        start, end = size * number // 3, size * (number + 1) // 3
        yield Spot(f"lineage.log {number + 1}/3", path.relative_to(data_dir), start, end)
    for path in segments(shard):
        sidecar = layout.sidecar_path(path)
        if sidecar.exists():
            size, name = sidecar.stat().st_size, sidecar.relative_to(data_dir)
            yield Spot("sidecar header", name, 0, 128)
            yield Spot("sidecar table", name, 128, 128 + 8 + 176)
            yield Spot("sidecar entries", name, size // 2, size)


@dataclass
class Served:
    """What a damaged broker gave."""

    events: dict[Place, Event]
    refused: list[tuple[int, int, int, str]]
    """slice, first and last offset that are not served, the words."""


def read_around(broker: Broker, topic: str) -> Served:
    """Reads all that is served, stepping over what the broker says that it does not serve."""
    served = Served({}, [])
    wire = Wire(broker.port, 30)
    for slice_ in range(8):
        cursor = "earliest"
        while True:
            target = slice_path(broker.placement, topic, slice_) + f"?from={cursor}"
            answer = wire.call("GET", f"{target}&maxBytes=4000000", headers={"Accept": CHUNKS})
            if answer.status == 204:
                break
            if answer.status != 200:
                text = answer.body.decode("utf-8", "replace")
                bad = re.search(r"offsets (\d+) to (\d+) of", text)
                assert answer.status >= 500 and bad is not None, answer
                served.refused.append((slice_, int(bad[1]), int(bad[2]), text))
                cursor = f"{0:08x}-{int(bad[2]) + 1:016x}"
                continue
            for event in chunk_events(answer, slice_, 8):
                served.events[slice_, event[2]] = tuple(event)  # type: ignore[index,assignment]
            cursor = answer.headers["barco-next-cursor"]
    wire.close()
    return served
