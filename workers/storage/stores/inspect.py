"""Looks at a shard from outside, without its lock and without changing anything."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from barco import _native
from barco.limits import GROUP_HEADER_BYTES, PAGE_BYTES
from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.errors import explain
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Claim, Generation
from barco.workers.storage.index import scan
from barco.workers.storage.index.sidecar import Sidecar, read_summary
from barco.workers.storage.reading.chunks import section_damage

HEADERS = "headers"

RING_START = -(2**63)
"""The range of a ring of one begins here."""

Record = dict[str, Any]
Emit = Callable[[Record], None]
"""Hears of everything found, in order, as flat records with a "type"."""


class Wishes(Struct, frozen=True):
    """How closely to look."""

    groups: bool = False
    chunks: bool = False
    events: bool = False
    topic: str | None = None
    verify: bool = False
    """Every group and every chunk's checksums, not only what a start of the broker looks at."""
    hash: bool = False
    raw: bool = False
    """Keys and values of events as bytes."""
    beyond: Mapping[int, int] = field(default_factory=dict)
    """By epoch: groups up to this one are not listed, nor what is in them."""

    @property
    def everything(self) -> bool:
        """Whether all groups have to be walked, also those of segments with a sidecar."""
        return self.groups or self.chunks or self.events or self.verify or self.hash


def range_token(shard: Path) -> int:
    """Where the shard's range begins, by its oldest readable group."""
    for epoch in layout.generation_epochs(shard):
        for index in layout.segment_indexes(shard, epoch)[:1]:
            try:
                with open(layout.segment_path(shard, epoch, index), "rb") as file:
                    header = scan.parse_header(file.read(PAGE_BYTES))
            except OSError:
                continue
            if header is not None:
                return header.token
    return RING_START


def inspect_shard(
    shard: Path,
    number: int,
    cluster_uuid: bytes,
    wishes: Wishes,
    running: bool,
    emit: Emit,
    claim: Claim | None = None,
) -> int:
    """Emits what is in a shard; returns how many places are corrupt. `claim`: whose it has to be;
    that it is another's is told, and counts for one."""
    # Its journal speaks of the ranges as well that it was split from or has taken in.
    lineage = Lineage.load(shard, token=range_token(shard), repair=False)
    stranger = lineage.stranger(claim) if claim is not None else None
    generations = [generation for generation in lineage.generations() if not generation.expired]
    emit(
        {
            "type": "shard",
            "shard": number,
            "path": str(shard),
            "generations": len(generations),
            "lineage_torn_bytes": lineage.torn_bytes,
            "lineage_damaged_files": lineage.damaged,
            "lineage_records_lost": lineage.doubtful,
            "lineage_stranger": stranger,
        }
    )
    token, problems = range_token(shard), lineage.damaged + (stranger is not None)
    for generation in generations:
        tags = scan.Tags(cluster_uuid, token, generation.epoch, generation.session)
        look = _Look(shard, generation, tags, wishes, emit)
        problems += look.run(running and generation is generations[-1])
    return problems


class _Look:
    """One generation."""

    def __init__(
        self, shard: Path, generation: Generation, tags: scan.Tags, wishes: Wishes, emit: Emit
    ) -> None:
        self.shard, self.generation, self.tags = shard, generation, tags
        self.wishes, self.emit = wishes, emit
        self.row = None if generation.sealed else kept.load(shard, generation.epoch)
        """What a start would put in its place before it looks: it may be torn there."""
        self.problems = 0
        self._hash = hashlib.sha256()
        self._quiet = False

    def run(self, running: bool) -> int:
        """Walks and emits; `running`: this generation is being written to."""
        sources = self._sources()
        result = self._scan(sources)
        if running and result.stop == "lost":
            # Groups that landed behind the reader's back look like that: read once more, quietly.
            self._quiet = True
            result = self._scan(self._sources())
        self._tell(result, sources, running)
        return self.problems

    def _sources(self) -> list[scan.SegmentSource]:
        sources = []
        for index in layout.segment_indexes(self.shard, self.generation.epoch):
            path = layout.segment_path(self.shard, self.generation.epoch, index)
            summary = None
            if not self.wishes.everything:
                sidecar = layout.sidecar_path(path)
                summary = read_summary(sidecar, self.generation.epoch, index)
            try:
                size = path.stat().st_size
            except OSError as error:
                raise explain(error, path, "look at") from error
            if self.row is not None and self.row.segment == index and self.row.offset <= size:
                size = max(size, self.row.end)
            sources.append(scan.SegmentSource(index, size, str(path), summary))
        return sources

    def _scan(self, sources: list[scan.SegmentSource]) -> scan.ScanResult:
        walk = scan.scan_generation(
            sources,
            self.tags,
            self._group,
            first=self.generation.begin[1:],
            tail=self.generation.tail,
            accept_loss=True,
        )
        with _opened(sources, self.row) as read_at:
            return scan.run(walk, read_at)

    def _group(self, header: scan.GroupHeader, group: memoryview, segment: int, at: int) -> None:
        if self._quiet:
            return
        body = group[GROUP_HEADER_BYTES : GROUP_HEADER_BYTES + header.body_bytes]
        if self.wishes.hash:
            # Of what all members hold alike: durable_upto in the header is each one's own.
            identity = (header.gseq, header.flags, header.chunk_count, header.body_bytes)
            self._hash.update(repr(identity).encode())
            self._hash.update(body)
        if header.gseq <= self.wishes.beyond.get(header.epoch, 0):
            return
        if self.wishes.groups:
            self.emit(
                {
                    "type": "group",
                    "epoch": header.epoch,
                    "gseq": header.gseq,
                    "segment": segment,
                    "offset": at,
                    "bytes": header.group_bytes,
                    "flags": _flags(header.flags),
                    "chunks": header.chunk_count,
                    "durable_upto": header.durable_upto,
                    "wall_us": header.wall_us,
                }
            )
        if header.chunk_count and (self.wishes.chunks or self.wishes.events or self.wishes.verify):
            self._chunks(header, body, segment, at + GROUP_HEADER_BYTES)

    def _chunks(self, header: scan.GroupHeader, body: memoryview, segment: int, at: int) -> None:
        try:
            rows = _native.chunks_scan(body)
        except ValueError as error:
            self._problem(segment, at, header.gseq, str(error))
            return
        for offset, stored, topic, slice_, epoch, base, count, _, max_ts in rows:
            if self.wishes.topic is not None and topic != self.wishes.topic:
                continue
            chunk = body[offset : offset + stored]
            damage = section_damage(chunk)
            if damage:
                self._problem(segment, at + offset, header.gseq, f"topic {topic}: {damage}")
                continue
            place = {"topic": topic, "slice": slice_, "epoch": epoch}
            if self.wishes.chunks:
                info = _native.chunk_info(chunk)
                self.emit(
                    {"type": "chunk"}
                    | place
                    | {
                        "base_offset": base,
                        "events": count,
                        "stored_bytes": stored,
                        "raw_bytes": info["raw_bytes"] if info is not None else 0,
                        "max_timestamp_us": max_ts,
                        "segment": segment,
                        "offset": at + offset,
                    }
                )
            if self.wishes.events:
                for event in _native.chunk_events(chunk):
                    self.emit({"type": "event"} | place | self._told(event))

    def _told(self, event: tuple[Any, ...]) -> Record:
        told: Record = {
            name: _text(each) if isinstance(each, bytes) and not self.wishes.raw else each
            for name, each in zip(_native.EVENT, event, strict=False)
        }
        if not told.get(HEADERS):
            told.pop(HEADERS, None)
        elif not self.wishes.raw:
            told[HEADERS] = [(name, _text(value)) for name, value in told[HEADERS]]
        return {"timestamp_us" if name == "timestamp" else name: told[name] for name in told}

    def _tell(
        self, result: scan.ScanResult, sources: list[scan.SegmentSource], running: bool
    ) -> None:
        generation = self.generation
        stop = "open" if running and result.stop in ("end", "torn", "lost") else result.stop
        record: Record = {
            "type": "generation",
            "epoch": generation.epoch,
            "session": None if result.session is None else f"{result.session:016x}",
            "parents": [list(parent) for parent in generation.parents],
            "sealed": generation.tail,
            "tail": result.tail,
            "segments": len(sources),
            "file_bytes": sum(source.size for source in sources),
            "walked_groups": result.groups,
            "walked_bytes": result.bytes,
            "end": stop,
            "torn_bytes": result.torn_bytes if stop == "torn" else 0,
        }
        if self.wishes.hash and generation.sealed and stop == "sealed":
            record["hash"] = self._hash.hexdigest()
        self.emit(record)
        for summary in result.segments:
            self._tell_segment(summary, sources)
        if stop == "lost":
            segment, at = result.bad_at
            lost = result.lost or (result.tail + 1, result.tail + 1)
            self._problem(
                segment, at, result.tail + 1, f"{result.reason} (groups up to {lost[1]} behind it)"
            )

    def _tell_segment(
        self, summary: scan.SegmentSummary, sources: list[scan.SegmentSource]
    ) -> None:
        source = next(source for source in sources if source.index == summary.index)
        sidecar = layout.sidecar_path(Path(source.name))
        index = "missing"
        if sidecar.exists():
            known = Sidecar.open(sidecar, self.generation.epoch, summary.index)
            index = "valid" if known is not None else "invalid (will be rebuilt)"
            if known is not None:
                known.close()
        self.emit(
            {
                "type": "segment",
                "epoch": self.generation.epoch,
                "segment": summary.index,
                "path": source.name,
                "first_gseq": summary.first_gseq,
                "last_gseq": summary.last_gseq,
                "bytes": summary.end_bytes,
                "file_bytes": source.size,
                "index": index,
            }
        )

    def _problem(self, segment: int, at: int, gseq: int, reason: str) -> None:
        self.problems += 1
        self.emit(
            {
                "type": "corruption",
                "epoch": self.generation.epoch,
                "segment": segment,
                "path": str(layout.segment_path(self.shard, self.generation.epoch, segment)),
                "offset": at,
                "gseq": gseq,
                "reason": reason,
            }
        )


@contextmanager
def _opened(
    sources: list[scan.SegmentSource], row: kept.Row | None
) -> Iterator[Callable[[scan.Read], bytes]]:
    """A reader over the segments, `row` in its place, that keeps one file open at a time."""
    state = [-1, -1]

    def read_at(wish: scan.Read) -> bytes:
        name = sources[wish.which].name
        try:
            if state[0] != wish.which:
                if state[1] >= 0:
                    os.close(state[1])
                    state[1] = -1
                state[:] = [wish.which, os.open(name, os.O_RDONLY | os.O_CLOEXEC)]
            data = os.pread(state[1], wish.length, wish.offset)
        except OSError as error:
            raise explain(error, name, "read") from error
        if row is None or row.segment != sources[wish.which].index:
            return data
        return row.over(data, wish.offset, wish.length)

    try:
        yield read_at
    finally:
        if state[1] >= 0:
            os.close(state[1])


def _flags(flags: int) -> str:
    names = {
        scan.GEN_START: "start",
        scan.SNAPSHOT: "snapshot",
        scan.HEARTBEAT: "heartbeat",
        scan.SEAL: "seal",
    }
    return "+".join(name for bit, name in names.items() if flags & bit)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
