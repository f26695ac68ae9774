"""How the history of a shard comes into the core: as its newest log, or as state alone."""

import os
from collections.abc import Sequence
from typing import Any, Protocol

from barco.limits import GROUP_HEADER_BYTES
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import CorruptLogError, explain
from barco.workers.storage.files.records import Generation
from barco.workers.storage.files.segment import APPEND_FLAGS
from barco.workers.storage.index import scan
from barco.workers.storage.stores.recovery import SegmentFiles, drive


class LogCore(Protocol):
    """The part of `_native.Reactor` that the files need."""

    def begin_generation(self, epoch: int, session: int, followers: bool = True, /) -> None: ...
    def load_segment(self, index: int, fd: int, capacity: int, /) -> None: ...
    def load_group(self, group: bytes | memoryview, /) -> None: ...
    def restore(self, snapshot: bytes | memoryview | None, /) -> None: ...
    def apply_group(self, group: bytes | memoryview, /) -> None: ...
    def log_state(self) -> dict[str, int]: ...
    def export_index(self, segment: int, /) -> bytes: ...
    def segment_summary(self, segment: int, /) -> tuple[int, int, int, int, int, int, int, int]: ...
    def locate(
        self, topic: str, slice: int, from_offset: int, max_chunks: int, max_bytes: int = ..., /
    ) -> list[tuple[int, int, int, int, int]]: ...
    def locate_timestamp(self, topic: str, slice: int, timestamp_us: int, /) -> int | None: ...
    def locate_appended(self, topic: str, slice: int, time_us: int, /) -> int | None: ...
    def truncate_stream(self, topic: str, slice: int, start_offset: int, /) -> None: ...


class StateReplay:
    """Feeds history to the core as state alone."""

    def __init__(self, core: LogCore) -> None:
        self._core = core

    def __call__(self, header: Any, group: memoryview, segment: int, at: int) -> None:
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            self._core.restore(group[GROUP_HEADER_BYTES:][: header.body_bytes])
        elif header.chunk_count:
            self._core.apply_group(group)


class Load:
    """Feeds the last segment of a generation to the core, which goes on from there."""

    def __init__(
        self, core: LogCore, generation: Generation, sources: Sequence[scan.SegmentSource]
    ) -> None:
        self._core = core
        self._generation = generation
        self._sources = {source.index: source for source in sources}
        self.fd = -1

    def __call__(self, header: Any, group: memoryview, segment: int, at: int) -> None:
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            self._start(segment, header.session)
        elif self.fd < 0:
            name, reason = self._sources[segment].name, "its segment does not begin with a snapshot"
            raise CorruptLogError(name, at, header.gseq, reason, durable=0)
        self._core.load_group(group)

    def _start(self, segment: int, session: int) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        source = self._sources[segment]
        try:
            self.fd = os.open(source.name, APPEND_FLAGS)
        except OSError as error:
            raise explain(error, source.name, "open") from error
        self._core.begin_generation(self._generation.epoch, session)
        self._core.load_segment(segment, self.fd, source.size)


async def walk_generation(
    generation: Generation,
    tags: scan.Tags,
    bulk: BulkIo,
    sources: list[scan.SegmentSource],
    feed: scan.OnGroup | None,
    *,
    tail: int | None = None,
    accept_loss: bool = False,
) -> scan.ScanResult:
    """Walks the files of a generation, to its own tail or this one; see `scan_generation`."""
    walk = scan.scan_generation(
        sources,
        tags,
        feed,
        first=generation.begin[1:],
        tail=generation.tail if tail is None else tail,
        accept_loss=accept_loss,
    )
    with SegmentFiles(sources) as files:
        return await drive(walk, files, bulk)
