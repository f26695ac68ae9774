"""The start of a shard: find the end of its history, rebuild the state, seal the generation.

A restarted leader never appends to its old generation (rule L6): recovery seals it at T and the
worker opens the next. Every step can be interrupted and repeated: nothing is decided anew once it
is in lineage.log, and only zeros are ever cut from a file.
"""

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from barco.limits import GROUP_HEADER_BYTES, PAGE_BYTES
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import CorruptLogError, explain, fsync_directory
from barco.workers.storage.files.lineage import Generation, Lineage
from barco.workers.storage.files.segment import APPEND_FLAGS, remove_temporaries
from barco.workers.storage.files.slack import cut
from barco.workers.storage.files.trash import discard, empty_trash
from barco.workers.storage.index import scan
from barco.workers.storage.index.sidecar import read_summary

GENESIS_EPOCH = 1
"""Of every range: empty, without files; the first start opens epoch 2 on it."""

_PARENT = struct.Struct("<QQ")

Restore = Callable[[memoryview], None]
"""Receives the body of a snapshot group: the whole state of the shard, replacing any before."""

ApplyGroup = Callable[[memoryview], None]
"""Receives one whole group (header, chunks, padding) that follows the snapshot."""


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did; for the log, /status and the first group of the child."""

    lineage: Lineage
    epoch: int = GENESIS_EPOCH
    """Of the newest generation that holds anything: the parent of the one to be opened."""
    T: int = 0
    """Its agreed tail."""
    groups: int = 0
    bytes: int = 0
    """Walked to rebuild the state (sealed segments with an index are not walked)."""
    torn_bytes: int = 0
    seconds: float = 0.0
    stop: str = "new"
    """new (an empty shard), end, torn, sealed (an earlier recovery was interrupted) or lost."""
    reason: str = ""
    lost: tuple[int, int] | None = None
    empty_epochs: list[int] = field(default_factory=list)
    """Generations without a single group (a crash while opening them), now removed."""
    temporaries: int = 0

    @property
    def next_epoch(self) -> int:
        """The epoch of the generation to open."""
        return self.lineage.next_epoch

    @property
    def parents(self) -> list[tuple[int, int]]:
        """(epoch, T) of the parents of the generation to open."""
        return [(self.epoch, self.T)]


def pack_parents(parents: list[tuple[int, int]]) -> bytes:
    """Parents as pairs of u64 epoch and u64 T, little-endian: what `open_generation` takes."""
    return b"".join(_PARENT.pack(*parent) for parent in parents)


async def recover_shard(
    shard_dir: str | os.PathLike[str],
    *,
    cluster_uuid: bytes,
    token: int,
    bulk: BulkIo,
    restore: Restore,
    apply_group: ApplyGroup,
    lineage: Lineage | None = None,
) -> RecoveryReport:
    """Recovers and seals the newest generation; the shard is then ready for `open_next`.

    The callbacks get views that are valid only during the call. Raises CorruptLogError (rule S5:
    the shard must not start), DataDirError, DiskFullError, OperatorError or DiskError.
    """
    shard = Path(shard_dir)
    tags = scan.Tags(cluster_uuid, token, 0)
    return await _recover(shard, tags, bulk, restore, apply_group, False, lineage)


async def recover_accepting_loss(
    shard_dir: str | os.PathLike[str], *, cluster_uuid: bytes, token: int, bulk: BulkIo
) -> RecoveryReport:
    """`barco recover --accept-data-loss`: gives up the groups from a corruption on.

    Only on an operator's word, and only while no broker runs. The loss is recorded in lineage.log
    (`report.lost`: first and last known gseq); the bytes stay in their files. Without corruption
    it changes nothing that a normal start would not.
    """
    return await _recover(
        Path(shard_dir), scan.Tags(cluster_uuid, token, 0), bulk, _ignore, _ignore, True
    )


def open_next(report: RecoveryReport, session: int) -> int:
    """Records the next generation in lineage.log and returns its epoch; then make its segments."""
    epoch = report.next_epoch
    report.lineage.opened(epoch, session, report.parents)
    return epoch


def _ignore(_: memoryview) -> None:
    pass


async def _recover(
    shard: Path,
    tags: scan.Tags,
    bulk: BulkIo,
    restore: Restore,
    apply_group: ApplyGroup,
    accept_loss: bool,
    lineage: Lineage | None = None,
) -> RecoveryReport:
    began = time.monotonic()
    layout.make_directory(shard)
    temporaries = remove_temporaries(shard)
    empty_trash(shard)
    lineage = lineage or Lineage.load(shard)
    report = RecoveryReport(lineage, temporaries=temporaries)
    for generation in reversed(lineage.generations()):
        # Older ones are sealed, unless lineage.log is damaged.
        if generation.expired or (report.T and generation.sealed):
            continue
        own = scan.Tags(tags.cluster_uuid, tags.token, generation.epoch, generation.session)
        sources = sources_of(shard, generation)
        feed = _Feed(_ignore, _ignore) if report.T else _Feed(restore, apply_group)
        with SegmentFiles(sources) as files:
            result = await drive(
                scan.scan_generation(
                    sources,
                    own,
                    feed,
                    first=generation.begin[1:],
                    tail=generation.tail,
                    accept_loss=accept_loss,
                ),
                files,
                bulk,
            )
        if not generation.sealed:
            await make_stable(sources, bulk)
        _record(report, generation, result)
        if result.tail == 0:
            report.empty_epochs.append(generation.epoch)
            remove_empty(shard, generation.epoch, result)
            continue
        trim(shard, generation.epoch, sources, result)
    report.seconds = time.monotonic() - began
    return report


async def make_stable(sources: list[scan.SegmentSource], bulk: BulkIo) -> None:
    """Before a tail is agreed on: an append that nobody saw end may be in the device's cache only.

    Sealed at it, and lost with the power, it would be missed as corruption at the next start.
    """
    for source in sources:
        if source.summary is None:  # Else all of it was stable when the sidecar was written.
            try:
                await bulk.run(_sync, source.name)
            except OSError as error:
                raise explain(error, source.name, "sync") from error


async def clear_torn(
    sources: list[scan.SegmentSource], result: scan.ScanResult, bulk: BulkIo
) -> None:
    """Makes zeros of what a crash has torn behind the end, stable before the log goes on there.

    Else an append that is torn in the same place would keep sectors of the older one, and pass for
    one that was whole and has rotted (`torn`).
    """
    used = result.used_bytes.get(result.end_segment, 0)
    start = -(-result.end_bytes // PAGE_BYTES) * PAGE_BYTES
    for source in sources:
        if source.index != result.end_segment or used <= start:
            continue
        try:
            fd = os.open(source.name, APPEND_FLAGS)
            try:
                await bulk.zero(fd, start, used - start)
            finally:
                os.close(fd)
        except OSError as error:
            raise explain(error, source.name, "clear the torn end of") from error


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _record(report: RecoveryReport, generation: Generation, result: scan.ScanResult) -> None:
    """Makes the verdict on one generation stable, before anything builds on it."""
    lineage, epoch = report.lineage, generation.epoch
    if result.lost is not None:
        lineage.lost(epoch, *result.lost)
        report.lost = result.lost
    lineage.sealed(epoch, result.tail, result.end_segment, result.end_bytes)
    if result.tail and not report.T:
        report.epoch, report.T = epoch, result.tail
        report.groups, report.bytes = result.groups, result.bytes
        report.stop, report.reason = result.stop, result.reason
    report.torn_bytes += result.torn_bytes


class _Feed:
    """Hands groups to the state: a snapshot replaces it, anything with chunks is added."""

    def __init__(self, restore: Restore, apply_group: ApplyGroup) -> None:
        self._restore = restore
        self._apply = apply_group
        self._began = False

    def __call__(self, header: scan.GroupHeader, group: memoryview, segment: int, at: int) -> None:
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            self._restore(group[GROUP_HEADER_BYTES:][: header.body_bytes])
            self._began = True
        elif not self._began:
            raise CorruptLogError(
                f"segment {segment}",
                at,
                header.gseq,
                "it does not begin with a snapshot",
                durable=0,
            )
        elif header.chunk_count:
            self._apply(group)


def sources_of(shard: Path, generation: Generation) -> list[scan.SegmentSource]:
    """The segments of a generation, for a scan."""
    indexes = layout.segment_indexes(shard, generation.epoch)
    if not indexes and generation.tail:
        directory = layout.generation_path(shard, generation.epoch)
        raise CorruptLogError(
            str(directory), 0, 1, "its segments are missing", durable=generation.tail
        )
    sources = []
    for index in indexes:
        path = layout.segment_path(shard, generation.epoch, index)
        try:
            size = path.stat().st_size
        except OSError as error:
            raise explain(error, path, "look at") from error
        summary = read_summary(layout.sidecar_path(path), generation.epoch, index)
        sources.append(scan.SegmentSource(index, size, str(path), summary))
    return sources


class SegmentFiles:
    """Opens segments for a scan, one at a time: it goes through them in order."""

    def __init__(self, sources: list[scan.SegmentSource]) -> None:
        self._sources = sources
        self._which = -1
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def get(self, which: int) -> int:
        """The descriptor of the `which`-th segment."""
        if which != self._which:
            self._close()
            name = self._sources[which].name
            try:
                self._fd = os.open(name, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            except OSError as error:
                raise explain(error, name, "open") from error
            self._which = which
        return self._fd

    def name(self, which: int) -> str:
        """Its path, for messages."""
        return self._sources[which].name


async def drive(walk: scan.Scan, files: SegmentFiles, bulk: BulkIo) -> scan.ScanResult:
    """Runs a scan on files. Raises what reading them raises."""
    try:
        wish = next(walk)
        while True:
            try:
                data = await bulk.read(files.get(wish.which), wish.offset, wish.length)
            except OSError as error:
                raise explain(error, files.name(wish.which), "read") from error
            wish = walk.send(data)
            del data
    except StopIteration as end:
        result: scan.ScanResult = end.value
        return result


# --- Tidying up -----------------------------------------------------------------------------------


def trim(
    shard: Path, epoch: int, sources: list[scan.SegmentSource], result: scan.ScanResult
) -> None:
    """Gives back preallocated space: cuts zeros off the last segment, removes unused ones."""
    for source in sources:
        if source.index < result.end_segment:
            continue
        used = result.used_bytes.get(source.index, 0)
        if source.index == result.end_segment:
            used = max(used, result.end_bytes)
        path = layout.segment_path(shard, epoch, source.index)
        if used == 0:
            discard(shard, path)
        elif used < source.size:
            cut(path, used)


def remove_empty(shard: Path, epoch: int, result: scan.ScanResult) -> None:
    """A generation that never had a group goes away, unless something unknown is in it."""
    directory = layout.generation_path(shard, epoch)
    if result.torn_bytes == 0 and directory.is_dir():
        for index in layout.segment_indexes(shard, epoch):
            discard(shard, layout.segment_path(shard, epoch, index))
        try:
            directory.rmdir()
        except OSError:
            return  # Foreign files: they are not ours to remove.
        fsync_directory(shard)
