"""What of a slice's waiting events is in their topic already: a mark, glued to each such append.

Events are taken by turns. A turn is of the events that were there when it began and were due then,
in the order of (due, offset), so that how far it is says which of them are done.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgpack
from msgspec import Struct

from barco.types import KiB
from barco.workers.shard import internal

DELAYS = "__delays"
"""The internal topic of marks, and of what was cancelled."""

MARK_BYTES_MAX = 1 * KiB

Key = tuple[int, int]
"""(when it is due, offset)."""

FIRST: Key = (-(2**63), 0)
LAST: Key = (2**63 - 1, 2**64 - 1)
"""Before, and after, every event's."""

_FIELDS = {"topic": str, "slice": int, "epoch": int, "least": int, "due": int, "end": int}
_CANCELLED = {"topic": str, "slice": int, "due": int, "cancelled": int}
_TURN = {"due": int, "end": int, "at": int, "offset": int}

Name = tuple[str, int]
"""(topic, slice)."""


class Turn(Struct):
    """Events below `end` that are due by `due`; done up to `at`."""

    due: int
    end: int
    at: Key = FIRST


class DelayMark(Struct):
    """Done: of the offsets below `end`, what was due by `due`; and what the open turn has done."""

    least: int = 0
    """No offset below it waits."""
    due: int = FIRST[0]
    end: int = 0
    turn: Turn | None = None

    def from_on(self, start: int, stop: int) -> list[tuple[int, int, Key]]:
        """A range of offsets in parts, each with the first key that is not done in it."""
        borders = {start, stop, self.least, self.end}
        borders |= {self.turn.end} if self.turn else set()
        inside = sorted(at for at in borders if start <= at <= stop)
        return [(low, high, self._floor(low)) for low, high in pairwise(inside) if low < high]

    def _floor(self, offset: int) -> Key:
        if offset < self.least:
            return LAST
        floor = (self.due + 1, 0) if offset < self.end else FIRST
        if self.turn is not None and offset < self.turn.end:
            at = self.turn.at
            floor = max(floor, (at[0], at[1] + 1))
        return floor

    def is_done(self, key: Key) -> bool:
        """Whether the event is in its topic, or passed over."""
        return key < self._floor(key[1])

    def open_turn(self, due: int, end: int) -> None:
        """One of what is due by then, of offsets below `end`. Whatever the clock says it reaches as
        far as those before it: else what is said of these would be said of what came since."""
        assert self.turn is None and end >= self.end, "one after the other"
        self.turn = Turn(max(due, self.due), end)

    def close_turn(self) -> None:
        """All of it is done."""
        assert self.turn is not None and self.turn.due >= self.due, "there is one"
        self.due, self.end = self.turn.due, self.turn.end
        self.turn = None

    def drop(self, end: int) -> None:
        """Nothing below `end` is to be delivered any more."""
        self.least = self.end = max(self.end, end)
        self.turn = None

    def packed(self, name: Name, epoch: int) -> bytes:
        """The event that says so."""
        body: dict[str, Any] = {
            "topic": name[0],
            "slice": name[1],
            "epoch": epoch,
            "least": self.least,
            "due": max(0, self.due),
            "end": self.end,
        }
        if (turn := self.turn) is not None and turn.at != FIRST:
            body["turn"] = {
                "due": turn.due,
                "end": turn.end,
                "at": turn.at[0],
                "offset": turn.at[1],
            }
        packed: bytes = msgpack.packb(body)
        assert len(packed) <= MARK_BYTES_MAX, "it is a dozen numbers"
        return packed


def mark_key(name: Name) -> bytes:
    """Of the events that say how far a slice is."""
    return f"{name[0]}\0{name[1]}".encode()


def read_mark(value: Mapping[str, Any]) -> tuple[Name, DelayMark] | None:
    """What an event says; None: it is of another kind."""
    if "cancelled" in value:
        return None
    read = internal.typed(value, _FIELDS)
    mark = DelayMark(read["least"], read["due"], read["end"])
    if (given := value.get("turn")) is not None:
        turn = internal.typed(given, _TURN)
        mark.turn = Turn(turn["due"], turn["end"], (turn["at"], turn["offset"]))
    if not mark.least <= mark.end <= (mark.turn.end if mark.turn else mark.end):
        raise ValueError("a mark goes back")
    return (read["topic"], read["slice"]), mark


def cancel_key(name: Name, offset: int) -> bytes:
    """Of the event that says that one is not to be delivered."""
    return b"\0" + mark_key(name) + f"\0{offset}".encode()


def cancelled(name: Name, key: Key) -> bytes:
    """The event that says so."""
    body = {"topic": name[0], "slice": name[1], "due": max(0, key[0]), "cancelled": key[1]}
    packed: bytes = msgpack.packb(body)
    return packed


def read_cancelled(value: Mapping[str, Any]) -> tuple[Name, Key] | None:
    """What an event says; None: it is of another kind."""
    if "cancelled" not in value:
        return None
    read = internal.typed(value, _CANCELLED)
    return (read["topic"], read["slice"]), (read["due"], read["cancelled"])
