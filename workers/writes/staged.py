"""What is staged under the name of one write: pieces, by attempt and slice, and plans. Pure."""

import asyncio
import hashlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from barco import limits
from barco.errors import (
    BusyError,
    NotFoundError,
    NotReadyError,
    ProtocolError,
    QuotaExceededError,
    RequestError,
    TooLargeError,
    TooManyRequestsError,
)
from barco.protocol.batch import base_of, split_batches
from barco.workers.writes.marks import Marks, Stream

Rows = dict[Stream, int]

PLANS_MAX = 8
"""Kept of a write that is led elsewhere, where nobody knows which of them has begun."""


Outline = tuple[int, int, int, int, int]
"""What the core finds out about a batch: events, bytes, lowest and highest token, latest time."""


async def checked(
    check: Callable[[int, memoryview], Outline],
    index: int,
    body: bytes,
    near: Callable[[int], None] | None = None,
    look: Callable[[], Awaitable[None]] | None = None,
) -> list[tuple[memoryview, Outline]]:
    """The batches in a body, each looked at as a whole, with a turn of the loop between two.

    RequestError or TooLargeError if one of them cannot be an event of the slice, or what `near`
    raises of the first or the last time of one, or `look` once it is known how large they are.
    """
    found: list[tuple[memoryview, Outline]] = []
    try:
        batches = split_batches(body)
        if not 0 < len(batches) <= limits.STAGED_TOGETHER_MAX:
            most = limits.STAGED_TOGETHER_MAX
            raise RequestError(f"The body has 1 to {most} batches, not {len(batches)}.")
        for batch in batches:
            if found:
                await asyncio.sleep(0)
            if near is not None and base_of(batch) < 0:
                near(base_of(batch))  # Refused for good, before it is refused for now.
            outline = check(index, batch)
            if near is not None and base_of(batch):
                near(base_of(batch))
                near(outline[4])
            found.append((batch, outline))
    except OverflowError as error:
        raise TooLargeError(f"{error}: at most 1 MiB of values, or one event.") from None
    except (ProtocolError, ValueError) as error:
        raise RequestError(f"The batch cannot be staged: {error}.") from None
    except RuntimeError as error:
        raise NotReadyError(f"Not now: {error}.") from None
    if look is not None:
        await look()
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """One staged batch: its record in the spool, and what the core found out about it."""

    record: Any
    outline: Outline

    @property
    def count(self) -> int:
        """How many events."""
        return self.outline[0]

    @property
    def cost(self) -> int:
        """What it takes of a group at most (native/log/group_build.c, run_bound)."""
        count, raw = self.outline[:2]
        stored: int = self.record.length
        return stored + stored // 200 + (4 + raw // 65_536 + count // 32_768) * 640


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """Which attempts won, and what each slice is to get."""

    attempts: tuple[str, ...]
    rows: Rows
    part_bytes: int
    """Of its own: what began with one setting goes on with it."""
    keep_s: int = field(default=0, compare=False)
    """A note elsewhere decides on it: nobody gives it up before so long without a sign of life."""

    @property
    def name(self) -> str:
        """Plans of one name cut a slice's share into the same parts, wherever that is done."""
        told = [self.attempts, sorted([*stream, n] for stream, n in self.rows.items())]
        packed = msgpack.packb([*told, self.part_bytes])
        return hashlib.sha256(packed).hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """As files and the holders of other copies have it."""
        return {
            "kind": "plan",
            "attempts": self.attempts,
            "rows": [[*stream, count] for stream, count in self.rows.items()],
            "part_bytes": self.part_bytes,
            "keep_s": self.keep_s,
        }

    @classmethod
    def of(cls, record: Any) -> "CommitPlan":
        """The plan of a record."""
        rows = {(topic, index): count for topic, index, count in record["rows"]}
        keep_s = record.get("keep_s", 0)
        return cls(tuple(record["attempts"]), rows, record["part_bytes"], keep_s)


@dataclass(slots=True)
class Write:
    """What is staged under one name."""

    writer: str
    batch: int
    file: Any
    touched: float
    attempts: dict[str, dict[Stream, list[Piece]]] = field(default_factory=dict)
    plans: dict[str, CommitPlan] = field(default_factory=dict)
    """By name, the one that was told last at the end."""
    committing: asyncio.Lock = field(default_factory=asyncio.Lock)
    pieces: int = 0
    bytes: int = 0
    coming: int = 0
    """Bytes of pieces that are being written now: others that come meanwhile have less room."""
    over: bool = False
    """All of it was seen in the log of another leader; the copy goes when it is seen again."""

    @property
    def plan(self) -> CommitPlan | None:
        """The last one."""
        return next(reversed(self.plans.values()), None)

    @property
    def keep_s(self) -> int:
        """For so long it is to stay, though nobody shows a sign of life."""
        return max((plan.keep_s for plan in self.plans.values()), default=0)

    @property
    def idle(self) -> bool:
        """Nothing is under way with it."""
        return not self.committing.locked() and not self.file.lock.locked()

    def add(self, attempt: str, stream: Stream, piece: Piece) -> None:
        """One more piece, at the end."""
        self.attempts.setdefault(attempt, {}).setdefault(stream, []).append(piece)
        self.pieces += 1
        self.bytes += piece.record.length

    def adopt(self, plan: CommitPlan) -> None:
        """The last plan from now on."""
        name = plan.name
        self.plans.pop(name, None)
        self.plans[name] = plan

    def rows(self, attempts: Iterable[str]) -> Rows:
        """How many events these attempts staged."""
        found: Rows = {}
        for attempt in attempts:
            for stream, pieces in self.attempts.get(attempt, {}).items():
                found[stream] = found.get(stream, 0) + sum(piece.count for piece in pieces)
        return found

    def within(self, slices: range) -> bool:
        """Whether nothing of it is for other slices, whose process may ask for that."""
        return all(index in slices for each in self.attempts.values() for _, index in each)

    def share(self, plan: CommitPlan, stream: Stream) -> list[Piece]:
        """The planned pieces of a slice, in the plan's order."""
        return [
            piece
            for attempt in plan.attempts
            for piece in self.attempts.get(attempt, {}).get(stream, ())
        ]


class WriterRoom(NamedTuple):
    """Whose writes count together, and how many bytes they may have."""

    prefix: str = ""
    """Of the names of a user's writers; empty where nobody had to show who asks."""
    bytes_max: int = 0
    """The user's quota; 0: there is none."""

    def of(self, writes: Iterable[Write]) -> list[Write]:
        """The user's own; nothing, where there is no user."""
        return [each for each in writes if self.prefix and each.writer.startswith(self.prefix)]


NOBODYS = WriterRoom()


def _held(writes: Iterable[Write]) -> int:
    return sum(each.bytes + each.coming for each in writes)


def full_of(
    writes: Collection[Write], write: Write, more: int, bytes_max: int, whose: WriterRoom
) -> tuple[Collection[Write], BusyError] | None:
    """What is too full for one more piece of so many bytes (the writer's own, the user's, or all),
    and the refusal; None: there is room."""
    own = [each for each in writes if each.writer == write.writer]
    users = whose.of(writes)
    part = limits.STAGED_WRITER_SHARE  # What one of them leaves lying is not all that there is.
    if whose.bytes_max and _held(users) + more > whose.bytes_max:
        quota = f"a quota of {whose.bytes_max} staged bytes at each process"
        return users, QuotaExceededError(f"This user has {quota}: commit or give up some first.")
    for some, share in ((own, part), (users, part), (writes, 1)):
        if some and _held(some) + more > bytes_max // share:
            much = "Too many bytes are staged: commit or give up some writes first."
            return some, BusyError(much)
        if sum(each.pieces for each in some) >= limits.STAGED_PIECES_MAX // share:
            return some, TooManyRequestsError("Too many batches are staged: stage larger ones.")
    return None


@asynccontextmanager
async def make_room(
    writes: Mapping[Any, Write],
    write: Write,
    more: int,
    bytes_max: int,
    drop_idle: Callable[[Collection[Write], Write], Awaitable[bool]],
    whose: WriterRoom,
) -> AsyncIterator[None]:
    """Room for a piece while it is written. BusyError if there is none, also without what dead
    drivers seem to have left: of those writes alone that are too many, so that nobody's go for what
    another one stages."""
    while full := full_of(writes.values(), write, more, bytes_max, whose):
        if not await drop_idle(full[0], write):
            raise full[1]
    write.coming += more  # With no turn of the loop since it was looked.
    try:
        yield
    finally:
        write.coming -= more


def too_many(writes: Collection[Write], whose: WriterRoom) -> Collection[Write]:
    """Those of which there may be no more: the user's, or all; empty: one more may begin."""
    for some, share in ((whose.of(writes), limits.STAGED_WRITER_SHARE), (writes, 1)):
        if len(some) >= limits.STAGED_WRITES_MAX // share:
            return some
    return ()


def left_alone(writes: Iterable[Write], before: float, now: float) -> list[Write]:
    """Those that nobody has touched since, and that are not kept, the longest first."""
    found = [w for w in writes if w.idle and w.touched <= before]
    found = [each for each in found if now - each.touched > each.keep_s]
    return sorted(found, key=lambda each: each.touched)


def parts_of(pieces: Sequence[Piece], limit: int) -> list[list[Piece]]:
    """Consecutive pieces that fit into one group each; the same for the same pieces."""
    parts: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not parts or piece.cost > room:
            parts.append([])
            room = limit
        parts[-1].append(piece)
        room -= piece.cost
    return parts


def stats_of(writes: Collection[Write], marks: int) -> dict[str, int]:
    """Gauges of what is staged, and of the marks of what was."""
    staged = {"staged_writes": len(writes), "staged_bytes": sum(write.bytes for write in writes)}
    return staged | {"commit_marks": marks}


def state_of(marks: Marks, write: Write | None, writer: str, batch: int) -> dict[str, Any]:
    """What is known of a write; NotFoundError: nothing."""
    known = {stream: mark for stream, mark in marks.of(writer).items() if mark.batch >= batch}
    if write is None and not known:
        raise NotFoundError("There is no such write.")
    committed: dict[str, dict[str, int]] = {}
    for (topic, index), mark in known.items():
        if mark.batch == batch and mark.complete:
            committed.setdefault(topic, {})[str(index)] = mark.rows
    waiting = [] if write is None or write.plan is None else write.plan.rows
    state = "staged" if write is not None else "committed"
    if waiting:  # What is stored is kept for others, perhaps.
        done = all(marks.done(writer, batch, stream) for stream in waiting)
        state = "committed" if done else "prepared"
    staged = 0
    if write is not None:
        staged = sum(sum(write.rows([attempt]).values()) for attempt in write.attempts)
    later: dict[str, str] = {}
    for (topic, _), mark in sorted(known.items(), key=lambda each: each[1].batch):
        if mark.batch > batch:
            later[topic] = str(mark.batch)
    return {
        "writer": writer,
        "batch": str(batch),
        "state": state,
        "stagedRows": staged,
        "stagedBytes": write.bytes if write is not None else 0,
        "committed": committed,
        "begun": any(mark.batch == batch for mark in known.values()),
        "laterBatches": later,
    }
