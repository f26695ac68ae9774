"""One slice of a queue at its leader, and its value in the log."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
from msgspec import Struct, field

from barco.model.queues import QUEUE_VALUE_BYTES_MAX, QueueSettings
from barco.workers.groups.cursor import QUEUE
from barco.workers.queues.kept import WindowValue, value_of
from barco.workers.queues.window import Window
from barco.workers.shard import internal

_KINDS = {"group": str, "topic": str, "slice": int, "offset": int, "ts": int, "by": str}

Name = tuple[str, str, int]
"""Group, topic, slice."""

Saved = Callable[[BaseException | None], object]
"""Told that what was known is stable, or why not."""


class Slot(Struct, eq=False):
    """A queue's part of one slice."""

    group: str
    topic: str
    slice: int
    owner: str
    window: Window
    waiting: list[Saved] = field(default_factory=list)
    """For the next append that has all that is known now."""
    under_way: list[Saved] | None = None
    """For the append that is under way; None: none is, or a task looks after it."""
    burying: asyncio.Task[None] | None = None
    """What reads dead letters, and appends them with all else."""
    dirty: bool = False
    """Something is known that no append has, or none that has come to a good end."""
    bury_after: int = 0
    """Dead letters did not fit: not tried again before."""
    new: bool = False
    """The log does not have it yet."""
    lost: bool = False
    """Nobody knows what the log has of it: the next leader does."""

    @property
    def is_saving(self) -> bool:
        """Whether an append is under way."""
        return self.burying is not None or self.under_way is not None

    @property
    def name(self) -> Name:
        """Which one it is."""
        return (self.group, self.topic, self.slice)

    @property
    def key(self) -> bytes:
        """Of its events, as that of any group's position."""
        return f"{self.group}\0{self.topic}\0{self.slice}".encode()

    def packed(self, epoch: int, kept: WindowValue, now_us: int) -> bytes:
        """The event that says all that has to survive."""
        body: dict[str, Any] = {
            "group": self.group,
            "topic": self.topic,
            "slice": self.slice,
            "epoch": epoch,
            "offset": kept.base,
            "ts": now_us,
            QUEUE: {"settings": self.window.settings.packed(), **kept.told()},
        }
        packed: bytes = msgpack.packb(body | ({"by": self.owner} if self.owner else {}))
        assert len(packed) <= QUEUE_VALUE_BYTES_MAX, "a window is bounded"
        return packed


def read_slot(value: Mapping[str, Any]) -> tuple[Name, str, QueueSettings, WindowValue, int] | None:
    """Name, owner, settings, what has survived and when it was written; None: it is no queue's."""
    if QUEUE not in value:
        return None
    read = internal.typed({"by": ""} | dict(value), _KINDS)
    given = value[QUEUE]
    settings = QueueSettings.read(given["settings"])
    name = (read["group"], read["topic"], read["slice"])
    return name, read["by"], settings, value_of(read["offset"], given), read["ts"]
