"""lineage.log: what is known of every generation of a shard, and what was voted on its successor.

A frame for each append, a msgpack list of maps in it; all of it twice (`twofold`). Where frames
are lost in both copies, the generations' own groups say what they held; what was promised and
accepted in them nobody can say, so the replica's machine is told that it is so (`DoubtRecord`).
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from barco.errors import DataDirError
from barco.model.generation import GENESIS_EPOCH
from barco.protocol.replication import DoubtRecord
from barco.protocol.replication_codec import U63, to_map
from barco.workers.storage.files import layout
from barco.workers.storage.files.twofold import BODY_BYTES_MAX, Twofold

FIRST_EPOCH = 2
"""Epoch 1, genesis, is empty and has no files."""

_DOUBT = {"t": "journal", "e": GENESIS_EPOCH, "r": to_map(DoubtRecord(upto=U63, beyond=0))}


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
class Parting:
    """What the machine has given up, and was not moved yet (`aside`)."""

    epoch: int
    tail: int
    generations: list[Generation]


@dataclass(slots=True)
class _Content:
    generations: dict[int, Generation] = field(default_factory=dict)
    journal: list[dict[str, Any]] = field(default_factory=list)
    wishes: dict[int, Parting] = field(default_factory=dict)
    """By number, what is to be set aside."""
    asides: int = 0


class Lineage:
    """The journal of one shard. Every method that adds a record returns after the fsync.

    They may be called from any thread, one at a time waits for the other.
    """

    def __init__(self, shard: Path, files: Twofold, content: _Content) -> None:
        """Use `Lineage.load`."""
        self.path = shard / layout.LINEAGE_NAME
        self._files = files
        self._generations = content.generations
        self._wishes = content.wishes
        self._moved: set[int] = set()
        self._lock = threading.Lock()
        self.journal = content.journal
        """What the replica's machine promised, accepted and learned, as it was read at the start:
        maps of `barco.protocol.replication_codec`, in order."""
        self.hurt = files.hurt
        """What was wrong with the files; mended, unless `doubtful`."""
        self.doubtful = files.doubtful
        """Records were lost in both."""
        self.torn_bytes = files.torn_bytes

    @property
    def damaged(self) -> int:
        """How many files were found damaged, gone or too short."""
        return len(self.hurt)

    @classmethod
    def load(
        cls, shard: str | os.PathLike[str], *, repair: bool = True, expected: bool = True
    ) -> "Lineage":
        """Reads lineage.log and looks for directories it does not know.

        With `repair` (not for offline inspection) what was read is made stable, and both copies
        are whole again. `expected`: where there are generations, there was one.
        """
        shard = Path(shard)
        epochs = layout.generation_epochs(shard)
        doubt = msgpack.packb([_DOUBT])
        files = Twofold.load(shard, repair=repair, doubt=doubt, expected=expected and bool(epochs))
        content = _Content()
        for body in files.bodies():
            for record in _records(shard, body):
                _give_up(content, record)
                _apply(content.generations, record)
                if record.get("t") == "journal":
                    content.journal.append(record["r"])
        for record in content.journal:
            _end_alone(content.generations, record)
        for epoch in epochs:
            content.generations.setdefault(epoch, Generation(epoch))
        return cls(shard, files, content)

    def generations(self) -> list[Generation]:
        """All that are known, by epoch."""
        return [self._generations[epoch] for epoch in sorted(self._generations)]

    def get(self, epoch: int) -> Generation | None:
        """The generation with this epoch, if it is known."""
        return self._generations.get(epoch)

    def to_set_aside(self, *, done: bool = False) -> list[tuple[int, Parting]]:
        """What the machine has given up: number and what it is. `done`: as it was read, whatever of
        it was `moved` since."""
        left = self._wishes.items()
        return [(number, wish) for number, wish in left if done or number not in self._moved]

    def moved(self, epoch: int, number: int) -> None:
        """Records that what was to be set aside has been."""
        self._append({"t": "moved", "e": epoch, "n": number})
        self._moved.add(number)

    def described(self, epoch: int, session: int, parents: list[tuple[int, int]]) -> None:
        """Records a generation whose files are there already."""
        self._append({"t": "opened", "e": epoch, "s": session, "p": [list(p) for p in parents]})

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
            body: list[bytes] = []
            for packed in map(msgpack.packb, records):
                if sum(map(len, body)) + len(packed) > BODY_BYTES_MAX // 2:
                    self._files.append(_list_of(body))
                    body.clear()
                body.append(packed)
            self._files.append(_list_of(body))
            for record in records:
                _apply(self._generations, record)


def _list_of(packed: Sequence[bytes]) -> bytes:
    head: bytes = msgpack.Packer().pack_array_header(len(packed))
    return head + b"".join(packed)


def _records(shard: Path, body: bytes) -> list[dict[str, Any]]:
    """Of one frame, whose sums are right."""
    try:
        records = msgpack.unpackb(body)
        if all(isinstance(record["e"], int) for record in records):
            return list(records)
    except (ValueError, TypeError, KeyError):
        pass
    raise DataDirError(f"{shard / layout.LINEAGE_NAME} was written by a later version of barco")


def _give_up(content: _Content, record: dict[str, Any]) -> None:
    """The machine's word that two others go on without something; or that it has been moved."""
    if record.get("t") == "moved":
        content.wishes.pop(record["n"], None)
        return
    told = record.get("r")
    if record.get("t") != "journal" or not isinstance(told, dict) or told.get("t") != "aside":
        return
    epoch, tail = record["e"], told["value"][0]
    gone = [content.generations.pop(each) for each in sorted(content.generations) if each > epoch]
    known = content.generations.get(epoch)
    if known is not None and told["tail"] > tail:
        gone.insert(0, known)
        content.generations[epoch] = Generation(epoch, known.session, known.parents)
    elif known is not None:
        known.tail = None  # Where it ends is not where it did.
    content.asides += 1
    content.wishes[content.asides] = Parting(epoch, tail, gone)


def _learn(generations: dict[int, Generation], record: dict[str, Any]) -> None:
    """Sessions and parents of the generations that a machine's record speaks of."""
    known = [record["generation"]] if "generation" in record else []
    if record.get("t") in ("decided", "aside"):
        known = record["value"][2]
    for (_, epoch), _, _, session, _, parents in known:
        if epoch < FIRST_EPOCH:
            continue
        generation = generations.setdefault(epoch, Generation(epoch))
        generation.session = session
        generation.parents = tuple((gid[1], tail) for gid, tail in parents)


def _end_alone(generations: dict[int, Generation], record: dict[str, Any]) -> None:
    """At a start: where a generation with a single member ended, whose seal was not written any
    more. All of it was here when that was decided, so a log that ends before it is damaged."""
    for _, _, _, _, members, parents in record["value"][2] if record.get("t") == "decided" else ():
        for (_, epoch), tail in parents if len(members) == 1 else ():
            parent = generations.get(epoch)
            if parent is not None and parent.tail is None:
                parent.tail = tail


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
        case "moved":
            pass
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
