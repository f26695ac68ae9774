"""A small journal in two copies: a frame that was told is on both, and is found if one is left.

    frame = header | body | 0xff, padded with zeros to whole sectors
    header = magic | turn | serial | length of the body | crc of the header before | crc of the body
             | crc of this header

One append is one frame, written to both files and synced on both before anybody is told. Frames are
numbered from 1 and chained, so of a copy it can be told where it begins to be wrong; then the other
one has the frame, or it was never told. What is behind the last frame of both can be an append that
was under way as the power went (sectors arrive whole or not at all: one is missing, or all zeros),
or a frame that was told and is damaged in both copies (every sector has something in it). The
latter is data loss: it is `doubtful`, and whoever has the journal has to act upon it.

What was read is not known to be stable, and not a word is built on it before it is: `load` writes
both files anew. That also ends what a failed fsync has begun, after which nothing is appended.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crc32c import crc32c

from barco.errors import BarcoError, DataDirError, DiskFullError
from barco.types import KiB, MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.errors import DiskError, explain, fsync_directory

SECTOR_BYTES = 512
"""Written as a whole or not at all, by any disk."""

ROOM_BYTES = MiB
"""Kept for a full disk, beside what a start needs to write both files anew."""

BODY_BYTES_MAX = 4 * MiB
"""Of one frame; some hundred bytes are usual."""

_MAGIC = b"bln2"
_HEADER = struct.Struct("<4sIQIIII")
_END = b"\xff"
_OLD = struct.Struct("<II")
_OLD_BODY_BYTES_MAX = 64 * KiB


@dataclass(frozen=True, slots=True)
class Frame:
    """One append."""

    turn: int
    """How often the journal was begun anew, because some of it was lost."""
    serial: int
    prev: int
    """crc of the header before; 0: there is none."""
    crc: int
    """Of its own header."""
    body: bytes
    data: bytes
    """All of it, whole sectors."""


@dataclass(slots=True)
class Copy:
    """What is in one of the files."""

    path: Path
    there: bool = False
    frames: dict[int, Frame] = field(default_factory=dict)
    """By serial: all that are sound, whatever is before them."""
    good: int = 0
    """The frames 1 to this one follow on each other."""
    hurt: str = ""
    """What is wrong behind these; "": nothing, or an append that never ended."""
    torn_bytes: int = 0

    @property
    def turn(self) -> int:
        """0: there is nothing to be had here."""
        return max((frame.turn for frame in self.frames.values()), default=0)


@dataclass(slots=True)
class Merged:
    """What both copies say together."""

    frames: list[Frame]
    beyond: list[Frame]
    """Behind a hole in both."""
    turn: int
    """0: nothing was ever here."""
    doubtful: bool
    """Frames that were told are in neither copy."""
    hurt: list[str]
    """What is wrong with the files, for the log."""
    torn_bytes: int


class Twofold:
    """Both files, to be appended to. One append at a time."""

    def __init__(self, paths: tuple[Path, Path], merged: Merged, *, writable: bool) -> None:
        """Use `Twofold.load`."""
        self._paths = paths
        self._room = paths[0].with_name(layout.LINEAGE_ROOM_NAME)
        self._writable = writable
        self._frames = merged.frames
        self._turn = max(merged.turn, 1)
        self._end = sum(len(frame.data) for frame in merged.frames)
        last = merged.frames[-1] if merged.frames else None
        self._serial, self._crc = (last.serial, last.crc) if last is not None else (0, 0)
        self.doubtful = merged.doubtful
        self.hurt = merged.hurt
        self.torn_bytes = merged.torn_bytes

    @classmethod
    def load(cls, shard: Path, *, repair: bool, doubt: bytes, expected: bool = False) -> "Twofold":
        """Reads both; with `repair` they are then written anew, and are the same.

        doubt: the body that a journal goes on with of which something was lost.
        expected: there must be one, so that it is lost if it is not there.
        """
        paths = (shard / layout.LINEAGE_NAME, shard / layout.LINEAGE_COPY_NAME)
        merged = merge(read_copies(paths))
        if not merged.turn and expected:
            merged.doubtful = True
            merged.hurt += [f"{path} is gone" for path in paths if not path.exists()]
        if merged.doubtful:
            merged.frames = _begun_anew(merged, doubt)
            merged.turn += 1
        elif not merged.frames:
            merged.frames = [make_frame(1, 1, 0, b"")]  # So that an empty file is a damaged one.
        made = cls(paths, merged, writable=repair)
        if repair:
            made._write_anew()
        return made

    def bodies(self) -> Iterator[bytes]:
        """What was appended, in order, as `load` found it."""
        return (frame.body for frame in self._frames if frame.body)

    def append(self, body: bytes) -> None:
        """Returns when it is stable in both files. An error is the last thing that it says."""
        assert len(body) <= BODY_BYTES_MAX
        if not self._writable:
            raise DiskError(f"cannot append to {self._paths[0]}: an append before this one failed")
        frame = make_frame(self._turn, self._serial + 1, self._crc, body)
        failures: list[BarcoError] = []

        def write(path: Path) -> None:
            try:
                self._with_room(_append, path, frame.data, self._end)
            except BarcoError as error:
                failures.append(error)

        beside = threading.Thread(target=write, args=(self._paths[1],), daemon=True)
        beside.start()
        write(self._paths[0])
        beside.join()
        if failures:
            self._writable = False
            for path in self._paths:
                _cut(path, self._end)
            raise failures[0]
        self._serial, self._crc = frame.serial, frame.crc
        self._end += len(frame.data)

    def _write_anew(self) -> None:
        data = b"".join(frame.data for frame in self._frames)
        temporaries = [path.with_name(path.name + layout.TEMPORARY_SUFFIX) for path in self._paths]
        for temporary in temporaries:
            self._with_room(_write, temporary, data)
        for temporary, path in zip(temporaries, self._paths, strict=True):
            try:
                os.rename(temporary, path)
            except OSError as error:
                raise explain(error, path, "replace") from error
        fsync_directory(self._paths[0].parent)
        _reserve(self._room, ROOM_BYTES + 2 * len(data))

    def _with_room(self, call: Callable[..., None], *args: Any) -> None:
        """On a full disk the room that was kept is given up for it, once: a shard must be able to
        start, and to vote. Raises what the second attempt raises."""
        try:
            call(*args)
        except DiskFullError:
            self._room.unlink(missing_ok=True)
            call(*args)


def make_frame(turn: int, serial: int, prev: int, body: bytes) -> Frame:
    """With its sums and its padding."""
    head = _HEADER.pack(_MAGIC, turn, serial, len(body), prev, crc32c(body), 0)[:-4]
    crc = crc32c(head)
    data = head + struct.pack("<I", crc) + body + _END
    data += bytes(-len(data) % SECTOR_BYTES)
    return Frame(turn, serial, prev, crc, body, data)


# --- Reading --------------------------------------------------------------------------------------


def read_copies(paths: tuple[Path, Path]) -> list[Copy]:
    """What is in both. Usually that is the same, byte by byte, and is taken apart once.
    Raises DataDirError for a file of an older version."""
    one, other = (_read(path) for path in paths)
    first = _copy(paths[0], one)
    same = one is not None and one == other
    return [first, replace(first, path=paths[1]) if same else _copy(paths[1], other)]


def _read(path: Path) -> bytes | None:
    """None: there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(error, path, "read") from error


def _copy(path: Path, data: bytes | None) -> Copy:
    copy = Copy(path)
    if data is None:
        return copy
    copy.there = True
    if _is_old(data):
        raise DataDirError(
            f"{path} was written by an older version of barco, before 0.1.0 was released: this "
            "one can not read it. Format the data directory anew"
        )
    _parse(copy, data)
    return copy


def _is_old(data: bytes) -> bool:
    """Frames of length, crc32c, body, one behind the other."""
    if len(data) < _OLD.size:
        return False
    length, crc = _OLD.unpack_from(data)
    body = data[_OLD.size : _OLD.size + length]
    return 0 < length <= _OLD_BODY_BYTES_MAX and len(body) == length and bool(crc32c(body) == crc)


def _parse(copy: Copy, data: bytes) -> None:
    at = good_end = 0
    last: Frame | None = None
    broken = False
    while at < len(data):
        frame = _frame_at(data, at)
        if frame is None:
            broken = True
            at += SECTOR_BYTES
            continue
        copy.frames.setdefault(frame.serial, frame)
        at += len(frame.data)
        broken = broken or not _follows(frame, last)
        if not broken:
            last, good_end = frame, at
    copy.good = last.serial if last is not None else 0
    rest = data[good_end:]
    if not data:
        copy.hurt = "it is empty"
    elif any(frame.serial > copy.good for frame in copy.frames.values()):
        copy.hurt = f"frame {copy.good + 1} is damaged"
    elif rest:
        copy.hurt = "" if _is_torn(rest, last) else f"frame {copy.good + 1} is damaged"
        copy.torn_bytes = 0 if copy.hurt else len(rest)


def _follows(frame: Frame, last: Frame | None) -> bool:
    if last is None:
        return frame.serial == 1 and frame.prev == 0
    return (frame.turn, frame.serial, frame.prev) == (last.turn, last.serial + 1, last.crc)


def _head_at(data: bytes, at: int) -> tuple[int, int, int, int, int, int] | None:
    """(turn, serial, length, prev, crc of the body, crc of the header), if that is what is here."""
    if at + _HEADER.size > len(data):
        return None
    magic, *numbers = _HEADER.unpack_from(data, at)
    turn, serial, length, prev, body_crc, crc = numbers
    sound = magic == _MAGIC and crc == crc32c(data[at : at + _HEADER.size - 4])
    return (turn, serial, length, prev, body_crc, crc) if sound else None


def _size(length: int) -> int:
    """Of a frame with a body of so many bytes."""
    size = _HEADER.size + length + len(_END)
    return size + -size % SECTOR_BYTES


def _frame_at(data: bytes, at: int) -> Frame | None:
    head = _head_at(data, at)
    if head is None:
        return None
    turn, serial, length, prev, body_crc, crc = head
    start = at + _HEADER.size
    body = data[start : start + length]
    whole = data[at : at + _size(length)]
    behind = whole[_HEADER.size + length :]
    if crc32c(body) != body_crc or len(whole) != _size(length):
        return None
    if behind[:1] != _END or any(behind[1:]):
        return None
    return Frame(turn, serial, prev, crc, body, whole)


def _is_torn(rest: bytes, last: Frame | None) -> bool:
    """Whether what is behind the last frame can be the next one, of which not all has arrived."""
    if last is None or len(rest) % SECTOR_BYTES or len(rest) > _size(BODY_BYTES_MAX):
        return False
    if not any(rest[:SECTOR_BYTES]):
        return True
    head = _head_at(rest, 0)
    if head is None:
        return False
    turn, serial, length, prev, _, _ = head
    if (turn, serial, prev) != (last.turn, last.serial + 1, last.crc) or len(rest) > _size(length):
        return False
    sectors = range(0, len(rest), SECTOR_BYTES)
    return len(rest) < _size(length) or not all(any(rest[a : a + SECTOR_BYTES]) for a in sectors)


def merge(copies: list[Copy]) -> Merged:
    """The frames that both have together, and whether that is all that was ever told."""
    turn = max(copy.turn for copy in copies)
    hurt = [f"{copy.path}: {copy.hurt}" for copy in copies if copy.hurt]
    torn = max(copy.torn_bytes for copy in copies)
    live = [copy for copy in copies if copy.turn == turn and copy.there]
    if not turn:
        return Merged([], [], 0, bool(hurt), hurt, torn)
    frames: list[Frame] = []
    differ = False
    while found := [frame for copy in live if (frame := copy.frames.get(len(frames) + 1))]:
        found = [each for each in found if _follows(each, frames[-1] if frames else None)]
        if not found:
            break
        differ = differ or found[0].crc != found[-1].crc
        frames.append(found[0])
    end = len(frames)
    lost = differ or any(copy.hurt and copy.good >= end for copy in live)
    # What looks like an append that never ended was one if the other copy does not have it either.
    lost = lost or any(copy.torn_bytes and _spoilt(copies, copy, end) for copy in live)
    beyond = {serial: f for copy in live for serial, f in copy.frames.items() if serial > end}
    for copy in copies:
        if copy.hurt:
            continue
        if not copy.there and end > 1:
            hurt.append(f"{copy.path} is gone")
        elif copy.there and copy not in live:
            hurt.append(f"{copy.path} is older than the other copy")
        elif copy.there and copy.good < end - 1:
            hurt.append(f"{copy.path} ends after frame {copy.good} of {end}")
    behind = [beyond[serial] for serial in sorted(beyond)]
    return Merged(frames, behind, turn, lost or bool(behind), hurt, torn)


def _spoilt(copies: list[Copy], torn: Copy, end: int) -> bool:
    """Whether the copy beside this one, which is torn behind the last frame, can not tell."""
    others = [copy for copy in copies if copy is not torn]
    return torn.good == end and any(not o.there or o.hurt or o.turn != torn.turn for o in others)


def _begun_anew(merged: Merged, doubt: bytes) -> list[Frame]:
    """What is left of a journal, and the word that something is not."""
    bodies = [frame.body for frame in (*merged.frames, *merged.beyond)]
    frames: list[Frame] = []
    for body in [b"", *filter(None, bodies), doubt]:
        last = frames[-1] if frames else None
        frames.append(
            make_frame(merged.turn + 1, len(frames) + 1, last.crc if last is not None else 0, body)
        )
    return frames


# --- Writing --------------------------------------------------------------------------------------


def _append(path: Path, data: bytes, at: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.pwrite(fd, data, at) != len(data):
                raise OSError(28, "short write")
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "append to") from error
    except Exception as error:
        raise DiskError(f"cannot append to {path}: {error!r}") from error


def _cut(path: Path, end: int) -> None:
    """Of what failed nothing shall be found: a full disk must not look like a damaged one."""
    try:
        os.truncate(path, end)
    except OSError:
        pass  # The next start sees it, and what it was.


def _reserve(path: Path, size: int) -> None:
    """Keeps blocks of the disk; without them, on a disk that is full already, it goes as well."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError:
        path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "write") from error
