"""The walk over a generation's files: where its history ends, and what is made of its end.

And what an operator may do: give up what is corrupt. Nothing is decided anew once it is in
lineage.log, every step can be interrupted and repeated, and only zeros are ever cut from a file.
"""

import os
import struct
from pathlib import Path
from typing import Self

from msgspec import Struct

from barco.limits import PAGE_BYTES
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import CorruptLogError, explain, fsync_directory
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Claim, Generation
from barco.workers.storage.files.segment import APPEND_FLAGS, remove_temporaries
from barco.workers.storage.files.slack import cut
from barco.workers.storage.files.trash import discard, empty_trash
from barco.workers.storage.index import scan
from barco.workers.storage.index.sidecar import read_summary

_PARENT = struct.Struct("<QQ")


class RecoveryReport(Struct):
    """What recovery found and did, of the newest generation that holds anything."""

    epoch: int = 0
    """0: none does."""
    T: int = 0
    """Its agreed tail."""
    stop: str = "new"
    """new (an empty shard), end, torn, sealed (its end was agreed on before) or lost."""
    lost: tuple[int, int] | None = None
    """The first and last known gseq that were given up, of any generation."""


def pack_parents(parents: list[tuple[int, int]]) -> bytes:
    """Parents as pairs of u64 epoch and u64 T, little-endian: what `open_generation` takes."""
    return b"".join(_PARENT.pack(*parent) for parent in parents)


async def recover_accepting_loss(
    shard_dir: str | os.PathLike[str],
    claim: Claim | None = None,
    *,
    cluster_uuid: bytes,
    token: int,
    bulk: BulkIo,
) -> RecoveryReport:
    """`barco recover --accept-data-loss`: gives up the groups from a corruption on.

    Only on an operator's word, and only while no broker runs. The loss is recorded in lineage.log
    (`report.lost`: first and last known gseq); the bytes stay in their files. The generations of
    the shard have ended then. `claim`: whose it has to be. Raises DataDirError, DiskFullError,
    OperatorError or DiskError.
    """
    shard = Path(shard_dir)
    lineage = Lineage.load(shard, claim, token=token)
    remove_temporaries(shard)
    empty_trash(shard)
    report = RecoveryReport()
    for generation in reversed(lineage.own()):
        # Older ones are sealed, unless lineage.log is damaged.
        if generation.expired or (report.T and generation.sealed):
            continue
        tags = scan.Tags(cluster_uuid, token, generation.epoch, generation.session)
        sources = sources_of(shard, generation)
        if not generation.sealed:
            await make_stable(sources, bulk)
        with SegmentFiles(sources) as files:
            result = await drive(
                scan.scan_generation(
                    sources,
                    tags,
                    _look,
                    first=generation.begin[1:],
                    tail=generation.tail,
                    accept_loss=True,
                ),
                files,
                bulk,
            )
        _record(report, lineage, generation, result)
        if result.tail == 0:
            remove_empty(shard, generation.epoch, result)
            continue
        trim(shard, generation.epoch, sources, result)
    return report


def _look(header: scan.GroupHeader, group: memoryview, segment: int, at: int) -> None:
    """Nobody wants the groups; they are walked."""


async def make_stable(sources: list[scan.SegmentSource], bulk: BulkIo) -> None:
    """Before a log is read: an append that nobody saw end may be in the device's cache only.

    Sealed at it, and lost with the power, it would be missed as corruption at the next start. And
    what a sync lost that failed can be read until the next sync: looked at first, it would be taken
    for stored, and a producer who sends it again would be told that it is.
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


def _record(
    report: RecoveryReport, lineage: Lineage, generation: Generation, result: scan.ScanResult
) -> None:
    """Makes the verdict on one generation stable, before anything builds on it."""
    epoch = generation.epoch
    if result.lost is not None:
        lineage.lost(epoch, *result.lost)
        report.lost = result.lost
    lineage.sealed(epoch, result.tail, result.end_segment, result.end_bytes)
    if result.tail and not report.T:
        report.epoch, report.T, report.stop = epoch, result.tail, result.stop


def sources_of(
    shard: Path, generation: Generation, *, history: bool = False
) -> list[scan.SegmentSource]:
    """The segments of a generation, for a scan. `history`: up to the one where it ended only.

    What was prepared behind that one may be removed at any moment by who leaves the generation.
    """
    indexes = layout.segment_indexes(shard, generation.epoch)
    if history and generation.sealed and generation.end_bytes:  # 0: nobody knows where that is.
        indexes = [index for index in indexes if index <= generation.end_segment]
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
