"""lineage.log: what is known of every generation of a shard, one small checked frame at a time.

    frame = u32 length | u32 crc32c(body) | body (msgpack map), appended and fsynced

A torn last frame was never acted upon and is cut off. A damaged frame in the middle is told and
passed over: the generations' own groups stay the truth, this file saves looking at all of them.
"""

import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
from crc32c import crc32c

from barco.types import KiB
from barco.workers.storage import layout
from barco.workers.storage.errors import explain, fsync_directory

_FRAME = struct.Struct("<II")
_BODY_BYTES_MAX = 64 * KiB
FIRST_EPOCH = 2
"""Epoch 1, genesis, is empty and has no files."""


@dataclass(slots=True)
class Generation:
    """One shard range's log under one leader session, as far as lineage.log knows it."""

    epoch: int
    session: int | None = None
    """None: only its directory was found."""
    parents: tuple[tuple[int, int], ...] = ()
    """(epoch, T) of each parent."""
    tail: int | None = None
    """T, the gseq of its last group; None: not sealed."""
    end_segment: int = 0
    end_bytes: int = 0
    """Where group T ends."""
    lost: tuple[int, int] | None = None
    """(first, last known) gseq that an operator gave up."""
    expired: bool = False
    """Retention has removed all of it."""
    begin: tuple[int, int, int] = (0, 1, 0)
    """Segment, gseq and prev_crc of the first group that retention has left: the stable mark
    without which a segment that is missing is damage."""

    @property
    def sealed(self) -> bool:
        """Whether T is agreed; nothing may be appended any more."""
        return self.tail is not None


@dataclass(slots=True)
class _Content:
    generations: dict[int, Generation] = field(default_factory=dict)
    end: int = 0
    damaged: int = 0
    torn_bytes: int = 0
    journal: list[dict[str, Any]] = field(default_factory=list)


class Lineage:
    """The journal of one shard. Every method that adds a record returns after the fsync.

    They may be called from any thread, one at a time waits for the other.
    """

    def __init__(self, shard: Path, content: _Content) -> None:
        """Use `Lineage.load`."""
        self.path = shard / layout.LINEAGE_NAME
        self._shard = shard
        self._generations = content.generations
        self._end = content.end
        self._lock = threading.Lock()
        self.journal = content.journal
        """What the replica's machine promised, accepted and learned, as it was read at the start:
        maps of `barco.protocol.replication_codec`, in order."""
        self.damaged = content.damaged
        """Frames in the middle of the file that were unreadable."""
        self.torn_bytes = content.torn_bytes

    @classmethod
    def load(cls, shard: str | os.PathLike[str], *, repair: bool = True) -> "Lineage":
        """Reads lineage.log and looks for directories it does not know.

        With `repair` (not for offline inspection) a torn tail is cut off.
        """
        shard = Path(shard)
        path = shard / layout.LINEAGE_NAME
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise explain(error, path, "read") from error
        content = _parse(data)
        if repair and content.torn_bytes:
            _truncate(path, content.end)
        for epoch in layout.generation_epochs(shard):
            content.generations.setdefault(epoch, Generation(epoch))
        return cls(shard, content)

    def generations(self) -> list[Generation]:
        """All that are known, by epoch."""
        return [self._generations[epoch] for epoch in sorted(self._generations)]

    def get(self, epoch: int) -> Generation | None:
        """The generation with this epoch, if it is known."""
        return self._generations.get(epoch)

    @property
    def next_epoch(self) -> int:
        """1 + the highest epoch ever seen here; genesis (epoch 1) is empty and has no files."""
        return max(self._generations, default=1) + 1

    def opened(self, epoch: int, session: int, parents: list[tuple[int, int]]) -> None:
        """Records a new generation; before its first segment is made."""
        known = self._generations.get(epoch)
        assert known is None, f"epoch {epoch} was used before"
        self._append({"t": "opened", "e": epoch, "s": session, "p": [list(p) for p in parents]})

    def sealed(self, epoch: int, tail: int, end_segment: int, end_bytes: int) -> None:
        """Records T of a generation. A second seal with the same T is a repeated recovery."""
        known = self._generations.get(epoch)
        if known is not None and known.tail is not None:
            assert known.tail == tail, f"epoch {epoch} was sealed at {known.tail}, not {tail}"
            return
        self._append({"t": "sealed", "e": epoch, "T": tail, "i": end_segment, "b": end_bytes})

    def lost(self, epoch: int, first: int, last: int) -> None:
        """Records that an operator gave up the groups from `first` on: T becomes `first` - 1."""
        self._append({"t": "lost", "e": epoch, "f": first, "l": last})

    def begins(self, epoch: int, segment: int, gseq: int, prev_crc: int) -> None:
        """Records what retention leaves of a generation; before anything before it goes."""
        self._append({"t": "begins", "e": epoch, "i": segment, "f": gseq, "c": prev_crc})

    def expired(self, epoch: int) -> None:
        """Records that retention removed the last of a generation."""
        self._append({"t": "expired", "e": epoch})

    def add_journal(self, records: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Adds (epoch, map) pairs of the replica's machine, all with one fsync."""
        self._append(*({"t": "journal", "e": epoch, "r": record} for epoch, record in records))

    def _append(self, *records: dict[str, Any]) -> None:
        with self._lock:
            self._append_frames(records)

    def _append_frames(self, records: Sequence[dict[str, Any]]) -> None:
        frame = b""
        for body in map(msgpack.packb, records):
            frame += _FRAME.pack(len(body), crc32c(body)) + body
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(self.path, flags, 0o600)
            try:
                written = os.pwrite(fd, frame, self._end)
                if written != len(frame):
                    raise OSError(28, "short write")
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise explain(error, self.path, "append to") from error
        if self._end == 0:
            fsync_directory(self._shard)
        self._end += len(frame)
        for record in records:
            _apply(self._generations, record)


def _truncate(path: Path, end: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, end)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "cut the torn tail of") from error


def _parse(data: bytes) -> _Content:
    content = _Content()
    at = 0
    while at < len(data):
        frame = _frame_at(data, at)
        if frame is None:
            later = next(_frames_after(data, at + 1), None)
            if later is None:
                content.torn_bytes = len(data) - at
                break
            content.damaged += 1
            at = later
            continue
        record, at = frame
        _apply(content.generations, record)
        if record.get("t") == "journal":
            content.journal.append(record["r"])
        content.end = at
    return content


def _frame_at(data: bytes, at: int) -> tuple[dict[str, Any], int] | None:
    """The record of the valid frame at `at` and where it ends."""
    if at + _FRAME.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, at)
    start, end = at + _FRAME.size, at + _FRAME.size + length
    if not 0 < length <= _BODY_BYTES_MAX or end > len(data) or crc32c(data[start:end]) != crc:
        return None
    try:
        record = msgpack.unpackb(data[start:end])
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("e"), int):
        return None
    return record, end


def _frames_after(data: bytes, at: int) -> Iterator[int]:
    """Where valid frames are, from `at` on, byte by byte: only ever used on a damaged file."""
    for position in range(at, len(data) - _FRAME.size):
        if data[position + 2 : position + 4] == b"\0\0" and _frame_at(data, position):
            yield position


def _learn(generations: dict[int, Generation], record: dict[str, Any]) -> None:
    """Sessions and parents of the generations that a machine's record speaks of."""
    known = [record["generation"]] if "generation" in record else []
    if record.get("t") == "decided":
        known = record["value"][2]
    for (_, epoch), _, _, session, _, parents in known:
        if epoch < FIRST_EPOCH:
            continue
        generation = generations.setdefault(epoch, Generation(epoch))
        generation.session = session
        generation.parents = tuple((gid[1], tail) for gid, tail in parents)


def _apply(generations: dict[int, Generation], record: dict[str, Any]) -> None:
    if record["e"] < FIRST_EPOCH:
        generation = Generation(record["e"])
    else:
        generation = generations.setdefault(record["e"], Generation(record["e"]))
    match record.get("t"):
        case "opened":
            generation.session = record["s"]
            generation.parents = tuple((epoch, tail) for epoch, tail in record["p"])
            for epoch, tail in generation.parents:
                parent = generations.get(epoch)
                if parent is not None and parent.tail is None:
                    parent.tail = tail  # Its own record is damaged.
        case "sealed":
            generation.tail = record["T"]
            generation.end_segment, generation.end_bytes = record["i"], record["b"]
        case "lost":
            generation.lost = (record["f"], record["l"])
            generation.tail = record["f"] - 1
        case "expired":
            generation.expired = True
        case "begins":
            generation.begin = (record["i"], record["f"], record["c"])
        case "journal":
            if isinstance(record.get("r"), dict):
                _learn(generations, record["r"])
        case _:
            pass  # Written by a later version: it has to be harmless to this one.
