"""lineage.log and lineage.copy of a simulated disk, to the byte.

What makes their bytes and what a start makes of them is the product's own (`frames`, `records`,
`persisting`); here is only what happens to bytes: an append that one file has and the other has
not, a power cut, damage. Beside them stands what a start should find (`expected`): the records that
were told, and those that were on their way and have come in one file at least.
"""

from collections.abc import Callable, Sequence
from copy import copy
from random import Random

from barco.cluster.replica.doubt import UNKNOWN
from barco.protocol.replication import DoubtRecord, JournalRecord
from barco.workers.replication import persisting
from barco.workers.storage.files import frames, records
from barco.workers.storage.files.frames import SECTOR_BYTES, Chain, Data, Frame, Merged

NAMES = ("lineage.log", "lineage.copy")
NOTHING = 1 << 60
"""Of the journal is not stable."""

KEPT_BODIES_MAX = 50_000
KEPT_MERGED_MAX, KEPT_BYTES_MAX = 2_000, 8_192
_merged: dict[tuple[Data, Data, bool], Merged] = {}
_packed: dict[tuple[JournalRecord, ...], bytes] = {}
_read: dict[bytes, list[JournalRecord]] = {}
"""What was read, and made, before: worlds begin alike, and each start reads all of it again."""


def body_of(written: Sequence[JournalRecord]) -> bytes:
    """One append of the product's."""
    key = tuple(written)
    found = _packed.get(key)
    if found is None:
        plain = [records.journal_record(*each) for each in persisting.plain(key)]
        (found,) = records.bodies(plain)
        if len(_packed) >= KEPT_BODIES_MAX:
            _packed.clear()
        _packed[key] = found
    return found


def merged_of(one: Data, other: Data, *, expected: bool) -> Merged:
    """What a start makes of both."""
    key = (one, other, expected)
    found = _merged.get(key)
    if found is None:
        found = frames.load(NAMES, (one, other), records.DOUBT, expected=expected)
        if len(_merged) >= KEPT_MERGED_MAX:
            _merged.clear()
        if len(one or b"") < KEPT_BYTES_MAX:
            _merged[key] = found
    return found


def records_of(body: bytes) -> list[JournalRecord]:
    """What a start reads in it."""
    found = _read.get(body)
    if found is None:
        bodies = (body,) if body else ()
        found = persisting.read_journal(records.read(NAMES[0], bodies, ()).journal)
        if len(_read) >= KEPT_BODIES_MAX:
            _read.clear()
        _read[body] = found
    return found


class Files:
    """Both files of one disk."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        """`name` seeds what is random here: the rest of the world does not notice. `note`: for the
        table of what must have been seen."""
        self._name = name
        self._note = note
        self.copies: list[Data] = [None, None]
        """What can be read."""
        self.expected: list[JournalRecord] = []
        self.loose = NOTHING
        """So many of these are stable; the others can be read, and are lost with the power."""
        self._frames: list[tuple[Frame, int]] = []
        """Those of the files, and how many of the records had come by the end of each."""
        self._chain: Chain | None = None
        self._ended: list[tuple[JournalRecord, ...]] = []
        """Appends that are in both, and whose bytes nobody has asked for."""
        self._random = 0

    def copy(self) -> "Files":
        """Of the directory."""
        new = copy(self)
        new._ended = self._ended.copy()
        new.copies, new.expected = self.copies.copy(), self.expected.copy()
        new._frames = self._frames.copy()
        return new

    def random(self) -> Random:
        """A stream of its own for each thing that happens."""
        self._random += 1
        return Random(f"{self._name} {self._random}")

    # --- What the product does ----------------------------------------------------------------

    def load(self, *, expected: bool = False, synced: bool = True) -> list[JournalRecord]:
        """A start: what the files say, which are whole again then. `synced`: and stable."""
        self._write()
        merged = self.merged(expected=expected)
        self.rewrite(frames.bytes_of(merged.frames))
        self._chain = frames.chain_of(merged)
        self._frames, found = [], []
        for frame in merged.frames:
            found += records_of(frame.body)
            self._frames.append((frame, len(found)))
        if synced:
            self.loose = NOTHING
        return found

    def merged(self, *, expected: bool) -> Merged:
        """What both files say together."""
        return merged_of(self.copies[0], self.copies[1], expected=expected)

    def rewrite(self, data: bytes) -> None:
        """Both are the same again."""
        self.copies = [data, data]

    def append(self, written: Sequence[JournalRecord]) -> None:
        """One append has ended."""
        self.expected += written
        self._ended.append(tuple(written))
        self.loose = NOTHING  # A sync is of the whole file.

    def _write(self) -> None:
        """The bytes of what has ended: nobody has asked for them before."""
        count = len(self.expected) - sum(map(len, self._ended))
        for written in self._ended:
            count += len(written)
            self._write_to((0, 1), written, count)
        self._ended.clear()

    def _write_to(self, which: Sequence[int], written: Sequence[JournalRecord], upto: int) -> None:
        frame = self._next(written)
        assert self._chain is not None
        for each in which:
            self._put(each, frame.data)
        self._chain = self._chain.after(frame)
        self._frames.append((frame, upto))

    def _next(self, written: Sequence[JournalRecord]) -> Frame:
        assert self._chain is not None, "a process has read them"
        return self._chain.frame(body_of(written))

    def _put(self, which: int, data: bytes) -> None:
        """As `pwrite` does, where all before it ends."""
        assert self._chain is not None
        old, end = self.copies[which] or b"", self._chain.end
        self.copies[which] = old[:end].ljust(end, b"\0") + data

    # --- What happens to a machine --------------------------------------------------------------

    def kill(self, under_way: Sequence[JournalRecord], *, arrived: bool) -> None:
        """The process ends. Of its append all has `arrived`, maybe in one file only; or sectors
        may have."""
        self._write()
        stable = len(self.expected)
        if under_way:
            rng = self.random()
            if arrived:
                which = rng.choice(((0, 1), (0,), (1,)))
                if which != (0, 1):
                    self._note("an append is in one of the files")
                self.expected += under_way
                self.loose = min(self.loose, stable)
                self._write_to(which, under_way, len(self.expected))
            else:
                data = self._next(under_way).data
                for each in (0, 1):
                    if left := _some_sectors(data, rng):
                        self._note("an append is torn")
                        self._put(each, left)
        self._chain = None

    def lose(self, left: int) -> bool:
        """With the power goes what was not synced, but for these records. Whether it was any."""
        if self.loose == NOTHING:
            return False
        kept = [(frame, upto) for frame, upto in self._frames if upto <= left]
        lost = len(kept) < len(self._frames)
        if lost:
            end = sum(len(frame.data) for frame, _ in kept)
            self.copies = [data and data[:end] for data in self.copies]
            self._frames = kept
            del self.expected[kept[-1][1] if kept else 0 :]
        self.loose = NOTHING
        return lost

    # --- Damage ---------------------------------------------------------------------------------

    def hurt_one(self) -> None:
        """One copy is damaged, in one of many ways; or each of them in another frame. Nothing is
        lost by that. Where one lacks something as it is, nothing is done."""
        self._write()
        rng, ends = self.random(), self._ends()
        whole = [(data or b"")[: ends[-1]] for data in self.copies]
        if len(ends) < 4 or whole[0] != whole[1] or len(whole[0]) < ends[-1]:
            return
        which = rng.randrange(2)
        if any(len(data or b"") > ends[-1] for data in self.copies):
            # Beside an append that never ended: the other one has to tell.
            self.copies[which] = _flipped(self.copies[which] or b"", 0, ends[-2], rng)
            self._note("a copy is damaged beside a torn append")
            return
        if rng.random() < 0.2:
            for copy, at in enumerate(rng.sample(range(len(ends) - 1), 2)):
                self.copies[copy] = _flipped(whole[copy], ends[at], ends[at + 1], rng)
            self._note("both copies are damaged elsewhere")
            return
        way = rng.choice(WAYS)
        self.copies[which] = way(whole[which], ends, rng)
        self._note(f"a copy is hurt: {way.__name__[1:]}")

    def begin_start(self) -> None:
        """A start that ends when one of the files is written anew."""
        data = frames.bytes_of(self.merged(expected=False).frames)
        if data != self.copies[0]:
            self._note("a start ends between the two files")
        self.copies[0] = data

    def _ends(self) -> list[int]:
        """Where each frame begins, and the last one ends."""
        ends = [0]
        for frame, _ in self._frames:
            ends.append(ends[-1] + len(frame.data))
        return ends

    def forget(self, is_left: Callable[[], bool]) -> None:
        """Frames are damaged in both copies: that is known, for none of them lacks a sector."""
        self._note("both copies lack a frame")
        rng = self.random()
        left, lost, begin = [], 0, 0
        ends = self._ends()
        for at, (_, upto) in enumerate(self._frames):
            kept = [is_left() for _ in range(begin, upto)]
            last = at == len(self._frames) - 1
            if all(kept[:1]) and not (last and not lost):
                left += self.expected[begin:upto]
            else:
                lost += 1
                for which, data in enumerate(self.copies):
                    if data:
                        self.copies[which] = _flipped(data, ends[at], ends[at + 1], rng)
            begin = upto
        self.expected = [*left, DoubtRecord(UNKNOWN, 0)]
        self.loose = NOTHING


def _some_sectors(data: bytes, rng: Random) -> bytes:
    """Of an append, not all of which arrives."""
    sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
    sectors = sectors[: rng.randint(0, len(sectors))]
    missing = rng.randrange(len(sectors)) if sectors else 0
    kept = [
        bytes(SECTOR_BYTES) if at == missing or rng.random() < 0.3 else sector
        for at, sector in enumerate(sectors)
    ]
    return b"".join(kept)


def _flipped(data: bytes, begin: int, end: int, rng: Random) -> bytes:
    at = rng.randrange(begin, end)
    if at >= len(data):
        return data
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


Way = Callable[[bytes, list[int], Random], Data]


def _flip(data: bytes, ends: list[int], rng: Random) -> Data:
    """A bit."""
    return _flipped(data, 0, ends[-1], rng)


def _blank(data: bytes, ends: list[int], rng: Random) -> Data:
    """A sector is missing."""
    at = rng.randrange(0, ends[-1], SECTOR_BYTES)
    return data[:at] + bytes(SECTOR_BYTES) + data[at + SECTOR_BYTES :]


def _cut(data: bytes, ends: list[int], rng: Random) -> Data:
    """It is shorter."""
    return data[: rng.randrange(ends[-1])]


def _cut_between(data: bytes, ends: list[int], rng: Random) -> Data:
    """It is as it was some appends ago."""
    return data[: rng.choice(ends[1:-1] or ends)]


def _empty(data: bytes, ends: list[int], rng: Random) -> Data:
    return b""


def _gone(data: bytes, ends: list[int], rng: Random) -> Data:
    return None


WAYS = (_flip, _blank, _cut, _cut_between, _empty, _gone)
