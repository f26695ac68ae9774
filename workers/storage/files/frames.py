"""A small journal in two copies, as bytes: what two files say together. Pure.

    frame = header | body | 0xff, padded with zeros to whole sectors
    header = magic | turn | serial | length of the body | crc of the header before | crc of the body
             | crc of this header

Frames are numbered from 1 and chained, so of a copy it can be told where it begins to be wrong;
then the other one has the frame, or it was never told. What is behind the last frame of both can be
an append that was under way as the power went (sectors arrive whole or not at all: one is missing,
or all zeros), or a frame that was told and is damaged in both copies (every sector has something in
it). The latter is data loss: it is `doubtful`, and whoever has the journal has to act upon it.

`twofold` keeps the files.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c
from msgspec import Struct, field
from msgspec.structs import replace

from barco.errors import DataDirError
from barco.types import KiB, MiB

SECTOR_BYTES = 512
"""Written as a whole or not at all, by any disk."""

BODY_BYTES_MAX = 4 * MiB
"""Of one frame; some hundred bytes are usual."""

_MAGIC = b"bln2"
_HEADER = struct.Struct("<4sIQIIII")
_END = b"\xff"
_OLD = struct.Struct("<II")
_OLD_BODY_BYTES_MAX = 64 * KiB


Data = bytes | None
"""Of a file; None: there is none."""
Names = tuple[str, str]


class Frame(Struct, frozen=True):
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


class Tail(Enum):
    """What is behind the last sound frame of a copy."""

    NOTHING = 0
    TORN = 1
    """It can be an append that never ended."""
    DAMAGED = 2
    """It was all there once."""


class Copy(Struct):
    """What is in one of the files."""

    name: str
    there: bool = False
    frames: dict[int, Frame] = field(default_factory=dict)
    """By serial: all that are sound, whatever is before them."""
    good: int = 0
    """The frames 1 to this one follow on each other."""
    hurt: str = ""
    """What is wrong behind these; "": nothing, or an append that never ended."""
    torn_bytes: int = 0
    last: int = 0
    """The last frame that is sound; 0: none."""
    tail: Tail = Tail.NOTHING
    """What is behind that one."""

    @property
    def turn(self) -> int:
        """0: there is nothing to be had here."""
        return max((frame.turn for frame in self.frames.values()), default=0)


class Merged(Struct):
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


class Chain(NamedTuple):
    """Where the journal ends: what the next append is a frame of."""

    turn: int
    serial: int
    crc: int
    end: int
    """Bytes of each copy."""

    def frame(self, body: bytes) -> Frame:
        """What this body would be."""
        assert len(body) <= BODY_BYTES_MAX
        return make_frame(self.turn, self.serial + 1, self.crc, body)

    def after(self, frame: Frame) -> "Chain":
        """This frame is in both copies."""
        assert (frame.serial, frame.prev) == (self.serial + 1, self.crc), "frames are chained"
        return Chain(self.turn, frame.serial, frame.crc, self.end + len(frame.data))


def chain_of(merged: Merged) -> Chain:
    """After what was found, which is never nothing (`load`)."""
    last = merged.frames[-1]
    end = sum(len(frame.data) for frame in merged.frames)
    return Chain(last.turn, last.serial, last.crc, end)


def make_frame(turn: int, serial: int, prev: int, body: bytes) -> Frame:
    """With its sums and its padding."""
    head = _HEADER.pack(_MAGIC, turn, serial, len(body), prev, crc32c(body), 0)[:-4]
    crc = crc32c(head)
    data = head + struct.pack("<I", crc) + body + _END
    data += bytes(-len(data) % SECTOR_BYTES)
    return Frame(turn, serial, prev, crc, body, data)


def bytes_of(frames: Sequence[Frame]) -> bytes:
    """What a file of them holds."""
    return b"".join(frame.data for frame in frames)


def bodies_of(frames: Sequence[Frame]) -> Iterator[bytes]:
    """What was appended, in order."""
    return (frame.body for frame in frames if frame.body)


# --- Reading --------------------------------------------------------------------------------------


def load(
    names: Names, copies: tuple[Data, Data], doubt: bytes, *, expected: bool = False
) -> Merged:
    """What both say, and how the journal goes on: both files are to be written anew with these
    frames. `copies`: what is in the files; None: there is none.

    doubt: the body that one goes on with of which something was lost.
    expected: there must be one, so that it is lost if it is not there.
    Raises DataDirError for a file of an older version.
    """
    merged = merge(read_copies(names, copies))
    if not merged.turn and expected:
        merged.doubtful = True
        gone = [name for name, data in zip(names, copies, strict=True) if data is None]
        merged.hurt += [f"{name} is gone" for name in gone]
    if merged.doubtful:
        merged.frames = _begun_anew(merged, doubt)
        merged.turn += 1
    elif not merged.frames:
        merged.frames = [make_frame(1, 1, 0, b"")]  # So that an empty file is a damaged one.
    return merged


def read_copies(names: Names, copies: tuple[Data, Data]) -> list[Copy]:
    """What is in both. Usually that is the same, byte by byte, and is taken apart once."""
    one, other = copies
    first = read_copy(names[0], one)
    same = one is not None and one == other
    return [first, replace(first, name=names[1]) if same else read_copy(names[1], other)]


def read_copy(name: str, data: Data) -> Copy:
    """What is in one of the files."""
    copy = Copy(name)
    if data is None:
        return copy
    copy.there = True
    if _is_old(data):
        raise DataDirError(
            f"{name} was written by an older version of barco, before 0.1.0 was released: this "
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
    at = good_end = end = 0
    last: Frame | None = None
    newest: Frame | None = None
    broken = False
    while at < len(data):
        frame = _frame_at(data, at)
        if frame is None:
            broken = True
            at += SECTOR_BYTES
            continue
        copy.frames.setdefault(frame.serial, frame)
        at += len(frame.data)
        newest, end = frame, at
        broken = broken or not _follows(frame, last)
        if not broken:
            last, good_end = frame, at
    copy.good = last.serial if last is not None else 0
    copy.last = newest.serial if newest is not None else 0
    if rest := data[end:]:
        copy.tail = Tail.TORN if _is_torn(rest, newest) else Tail.DAMAGED
    if not data:
        copy.hurt = "it is empty"
    elif good_end != end or copy.tail is Tail.DAMAGED:
        copy.hurt = f"frame {copy.good + 1} is damaged"
    else:
        copy.torn_bytes = len(rest)


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
    hurt = [f"{copy.name}: {copy.hurt}" for copy in copies if copy.hurt]
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
    lost = differ or any(_ends_amiss(copies, copy, end) for copy in live)
    beyond = {serial: f for copy in live for serial, f in copy.frames.items() if serial > end}
    for copy in copies:
        if copy.hurt:
            continue
        if not copy.there and end > 1:
            hurt.append(f"{copy.name} is gone")
        elif copy.there and copy not in live:
            hurt.append(f"{copy.name} is older than the other copy")
        elif copy.there and copy.good < end - (not lost):
            hurt.append(f"{copy.name} ends after frame {copy.good} of {end}")
    behind = [beyond[serial] for serial in sorted(beyond)]
    return Merged(frames, behind, turn, lost or bool(behind), hurt, torn)


def _ends_amiss(copies: list[Copy], copy: Copy, end: int) -> bool:
    """Whether what is behind the last common frame in this copy was told, or may have been. What
    looks like an append that never ended was one if the other copy, which goes as far, does not
    have it either; what else is wrong with that one is no matter."""
    if copy.last != end or copy.tail is Tail.NOTHING:
        return False
    if copy.tail is Tail.DAMAGED:
        return True
    others = [each for each in copies if each is not copy]
    return any(each.last != end or each.turn != copy.turn for each in others)


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
