"""One group's place in one (topic, slice), and who has what of it."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import msgpack
from msgspec import Struct

from barco.workers.shard import internal

OFFSETS = "__offsets"
QUEUE = "queue"
"""What a value has that is of a queue; all else in it is as of any group."""

_KINDS = {"group": str, "topic": str, "slice": int, "offset": int, "ts": int, "by": str}

Key = tuple[str, int]
"""(consumer id, session)."""


class GroupCursor(Struct):
    """One group's place in one (topic, slice)."""

    group: str
    topic: str
    slice: int
    owner: str = ""
    """The user who began the group."""
    committed: int = 0
    """The group offset: stable in the log."""
    asked: int = 0
    """The highest group offset that was sent to the log."""
    position: int = 0
    """The next offset to deliver; [asked, position) is with the holder."""
    holder: Key | None = None
    delivery: str = ""
    """The answer that carried the last events."""
    asker: int = -1
    """The worker that asked for them and gave that answer, by its number in the cluster."""
    revision: int = 0
    """Counts seeks: what was asked for before one is void."""
    pending: asyncio.Future[int] | None = None
    stored_us: int = 0
    """When the group offset was last sent to the log, by the wall clock."""

    @property
    def key(self) -> bytes:
        """Of its events; with the slice, so that no two cursors of a shard share one."""
        return f"{self.group}\0{self.topic}\0{self.slice}".encode()

    def packed(self, epoch: int, offset: int, now_us: int) -> bytes:
        """The event that sets the group offset."""
        body: dict[str, Any] = {
            "group": self.group,
            "topic": self.topic,
            "slice": self.slice,
            "epoch": epoch,
            "offset": offset,
            "ts": now_us,
        }
        packed: bytes = msgpack.packb(body | ({"by": self.owner} if self.owner else {}))
        return packed


def _ordinary(value: dict[Any, Any]) -> dict[str, Any] | None:
    """What is of a queue has `Queues`."""
    return None if QUEUE in value else internal.typed({"by": ""} | value, _KINDS)


def restored(kept: Iterable[tuple[bytes, bytes]]) -> Iterator[GroupCursor]:
    """The cursors that a log holds."""
    for read in internal.each(OFFSETS, kept, _ordinary):
        if read is None:
            continue
        cursor = GroupCursor(read["group"], read["topic"], read["slice"], read["by"])
        cursor.committed = cursor.asked = cursor.position = read["offset"]
        cursor.stored_us = read["ts"]
        yield cursor
