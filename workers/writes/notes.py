"""Notes: what each writer's last batch decided (`barco.model.note`), kept as events of `__notes` by
whoever leads the slice of the writer's name.

A note is set once for each batch, and batches go up. So of two who write under one name, each with
a batch of the same number, one is told that the other was first: a decision, and a fence.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

import msgpack
from msgspec import Struct

from barco.errors import ConflictError, NotReadyError, TooLargeError, TooManyRequestsError
from barco.limits import STAGED_WRITER_SHARE, WRITER_NAME_BYTES_MAX
from barco.model.note import NOTE_BYTES_MAX
from barco.types import MiB
from barco.workers.seams import ReactorLike
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends

NOTES = "__notes"
NOTES_BYTES_MAX = 4 * MiB
"""Of one shard, in each snapshot of its log. None of them makes room for another one: without its
note a writer would begin anew, and store everything twice."""

NOTE_OVERHEAD = 128
"""What one takes beside its name and its text."""


class Decision(Struct, frozen=True):
    """What a writer's last batch has decided."""

    slice: int
    batch: int
    text: str
    at_us: int

    def size(self, writer: str) -> int:
        """Bytes in a snapshot, about."""
        return NOTE_OVERHEAD + 2 * len(writer) + len(self.text.encode())

    def told(self) -> dict[str, Any]:
        """For who has asked."""
        return {"batch": self.batch, "note": self.text, "at_us": self.at_us}


Kept = dict[str, Decision]
"""By writer."""


def event_of(writer: str, note: Decision) -> tuple[bytes, bytes]:
    """Key and value of the event."""
    value = {"writer": writer, "slice": note.slice, **note.told()}
    return _key(writer, note.slice), msgpack.packb(value)


def _key(writer: str, index: int) -> bytes:
    return f"{index}/{writer}".encode()


def _read(given: Mapping[str, Any]) -> tuple[str, Decision]:
    named = internal.typed(given, {"writer": str, "note": str, "slice": int})
    numbers = internal.typed(given, {"batch": int, "at_us": int})
    if len(named["writer"]) > 2 * WRITER_NAME_BYTES_MAX:
        raise ValueError("no writer has such a name")
    if len(named["note"].encode()) > NOTE_BYTES_MAX:
        raise ValueError("no note is so long")
    return named["writer"], Decision(
        named["slice"], numbers["batch"], named["note"], numbers["at_us"]
    )


class Notes:
    """Of the slices that this process leads."""

    def __init__(
        self, reactor: ReactorLike, appends: Appends, slices: range, now_us: Callable[[], int]
    ) -> None:
        self._reactor = reactor
        self._appends = appends
        self.slices = slices
        """Of the shard; whoever holds it says so."""
        self._now_us = now_us
        self._kept: Kept | None = None
        """As they are stable; None where nothing is led. Another one with each generation."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def open(self) -> None:
        """A generation is open, and its first group committed: take up what its log holds."""
        self._kept = dict(internal.each(NOTES, self._reactor.compacted(NOTES), _read))

    def close(self) -> None:
        """Somebody else leads, or nobody yet."""
        self._kept = None

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]]:
        """By name."""
        return {"note": self._get, "note_set": self._set, "note_forget": self._forget}

    def _led(self, slices: range, index: int) -> Kept:
        if self._kept is None or index not in slices:
            raise NotReadyError("The slice of the writer's name is not led here (any more).")
        return self._kept

    def _lock(self, writer: str) -> asyncio.Lock:
        return self._locks.setdefault(writer, asyncio.Lock())

    async def _get(self, args: Mapping[str, Any]) -> dict[str, Any] | None:
        """{"writer", "slice"}."""
        note = self._led(self.slices, args["slice"]).get(args["writer"])
        return None if note is None else note.told()

    async def _set(self, args: Mapping[str, Any]) -> None:
        """{"writer", "slice", "batch", "note", "prefix": of the names of all of its user's writers,
        or empty}. Repeated, it changes nothing; ConflictError: another one was first."""
        given = internal.typed(args, {"writer": str, "slice": int, "batch": int, "note": str})
        writer, index = given["writer"], given["slice"]
        lock = self._lock(writer)
        async with lock:
            kept = self._led(self.slices, index)
            note = Decision(index, given["batch"], given["note"], self._now_us())
            before = kept.get(writer)
            if before is not None and before.batch >= note.batch:
                if (before.batch, before.text) == (note.batch, note.text):
                    return
                raise ConflictError(
                    f"Batch {before.batch} of this writer is decided already, by a note that is not"
                    f" this one: somebody else writes under the name, and batch {note.batch} of"
                    " this one is refused.",
                    decidedBatch=str(before.batch),
                )
            _check_room(kept, writer, note, args["prefix"])
            await asyncio.shield(self._appends.start(NOTES, index, *event_of(writer, note)))
            kept[writer] = note  # Of this generation: who opens another one reads the log.

    async def _forget(self, args: Mapping[str, Any]) -> None:
        """{"writer", "slice"}: there is none from now on."""
        given = internal.typed(args, {"writer": str, "slice": int})
        writer, index = given["writer"], given["slice"]
        lock = self._lock(writer)
        async with lock:
            kept = self._led(self.slices, index)
            if writer in kept:
                await asyncio.shield(self._appends.start(NOTES, index, _key(writer, index), b""))
                kept.pop(writer, None)


def _check_room(kept: Kept, writer: str, note: Decision, prefix: str) -> None:
    """TooManyRequestsError if the note does not fit, with those of the same user or with all."""
    if len(note.text.encode()) > NOTE_BYTES_MAX or len(writer) > 2 * WRITER_NAME_BYTES_MAX:
        raise TooLargeError("The note is too long, or the name of its writer.")
    more = note.size(writer)
    others = {name: each for name, each in kept.items() if name != writer}
    own = [each.size(name) for name, each in others.items() if prefix and name.startswith(prefix)]
    whole = [each.size(name) for name, each in others.items()]
    for sizes, share in ((own, STAGED_WRITER_SHARE if prefix else 1), (whole, 1)):
        if sum(sizes) + more > NOTES_BYTES_MAX // share:
            raise TooManyRequestsError(
                "Too many writers have notes here: forget those of pipelines that are over"
                " (DELETE /v1/writes/WRITER)."
            )
