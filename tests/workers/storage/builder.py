"""Builds logs of groups and chunks for the tests of storage, as the core would write them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import barco_faces
from reference.core import chunk_encode

from barco import _native
from barco.errors import BarcoError, DiskFullError
from barco.workers.storage.files import layout

UUID = bytes(range(16))
TOKEN = -(2**63)
SESSION = 0x1234_5678_9ABC_DEF0
PAGE = 4096
GEN_START, SNAPSHOT, HEARTBEAT, SEAL = 1, 2, 4, 8


def kept_in(errors: list[BarcoError]) -> Callable[[BarcoError], None]:
    """`on_error` of a store: a start's word on how full this machine's own disk is, is left out."""

    def keep(error: BarcoError) -> None:
        if not (isinstance(error, DiskFullError) and str(error).endswith("MiB are free")):
            errors.append(error)

    return keep


def chunk(topic: str, slice_: int, base: int, count: int = 3, epoch: int = 2, ts: int = 1) -> bytes:
    """A chunk of `count` events with recognisable values."""
    values = [f"{topic}/{slice_}/{base + n}".encode() * 3 for n in range(count)]
    times = [1_700_000_000_000_000 + ts * 1000 + n for n in range(count)]
    return chunk_encode(topic, slice_, epoch, base, values, None, times)


def blanks(body: bytes) -> int:
    """1 + how many of a group's sectors are zeros."""
    data = b"h" * 128 + body
    return 1 + sum(not data[at : at + 512].strip(b"\0") for at in range(512, len(data), 512))


def group(
    gseq: int,
    prev_crc: int,
    body: bytes,
    *,
    epoch: int = 2,
    segment: int = 0,
    flags: int = 0,
    chunks: int = 1,
    durable: int | None = None,
    session: int = SESSION,
    token: int = TOKEN,
    uuid: bytes = UUID,
    wall: int | None = None,
    blank_sectors: int | None = None,
) -> tuple[bytes, int]:
    """(the bytes of a group, its header crc). By default everything before it was stable."""
    size = -(-(128 + len(body)) // PAGE) * PAGE
    durable = gseq - 1 if durable is None else durable
    head = barco_faces.group_header_pack(
        flags, uuid, token, epoch, session, gseq, prev_crc, _native.crc32c(body), durable, durable,
        wall if wall is not None else 1_700_000_000_000_000 + gseq, len(body),
        0 if flags else chunks, size, segment,
        blanks(body) if blank_sectors is None else blank_sectors, 0,
    )  # fmt: skip
    return (head + body).ljust(size, b"\0"), int.from_bytes(head[-4:], "little")


@dataclass
class Log:
    """One generation, written into memory segment by segment."""

    epoch: int = 2
    in_flight: int = 1
    """durable_upto of a group = its gseq - in_flight."""
    session: int = SESSION
    segments: list[bytearray] = field(default_factory=list)
    groups: list[tuple[int, int, int]] = field(default_factory=list)
    """(segment, offset, size) of each, in order of gseq."""
    crc: int = 0
    pace: int = 0
    """Seconds between groups, by the log's own clock."""
    clock: int = 1_700_000_000
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def append(self, body: bytes, flags: int = 0, chunks: int = 1, **tags: int) -> None:
        """Adds a group to the last segment."""
        self.clock += self.pace
        if self.pace:
            tags |= {"wall": self.clock * 1_000_000}
        gseq = len(self.groups) + 1
        segment = len(self.segments) - 1
        data, self.crc = group(
            gseq, self.crc, body, epoch=self.epoch, segment=segment, flags=flags, chunks=chunks,
            durable=max(0, gseq - self.in_flight), session=self.session, **tags,  # type: ignore
        )  # fmt: skip
        self.groups.append((segment, len(self.segments[-1]), len(data)))
        self.segments[-1] += data

    def roll(self) -> None:
        """Starts a segment with its snapshot."""
        self.segments.append(bytearray())
        first = len(self.segments) == 1
        state = f"state before group {len(self.groups) + 1}".encode()
        self.append(state, flags=GEN_START | SNAPSHOT if first else SNAPSHOT)

    def events(self, *streams: tuple[str, int], count: int = 3) -> None:
        """A data group with one chunk for each (topic, slice)."""
        body = b""
        for topic, slice_ in streams:
            base = self.offsets.get((topic, slice_), 0)
            body += chunk(topic, slice_, base, count, self.epoch, len(self.groups))
            self.offsets[topic, slice_] = base + count
        self.append(body, chunks=len(streams))

    def files(self, capacity: int = 64 * 1024, spare: int = 0) -> list[bytes]:
        """The segments as preallocated files, with `spare` unused ones at the end."""
        filled = [bytes(segment).ljust(capacity, b"\0") for segment in self.segments]
        return filled + [bytes(capacity)] * spare

    def write(self, shard: Path, capacity: int = 64 * 1024, spare: int = 0) -> list[Path]:
        """Puts the files where they belong below a shard's directory."""
        paths = []
        for index, data in enumerate(self.files(capacity, spare)):
            path = layout.segment_path(shard, self.epoch, index)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            paths.append(path)
        return paths


def simple(
    groups: int = 6, segments: int = 1, epoch: int = 2, in_flight: int = 1, session: int = SESSION
) -> Log:
    """`groups` data groups in each of `segments` segments, two topics of two slices."""
    log = Log(epoch=epoch, in_flight=in_flight, session=session)
    for _ in range(segments):
        log.roll()
        for number in range(groups):
            log.events(("a", number % 2), ("b.c", 0))
    return log
