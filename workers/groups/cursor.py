"""One group's place in one (topic, slice), and who has what of it."""

import asyncio
from dataclasses import dataclass

Key = tuple[str, int]
"""(consumer id, session)."""


@dataclass(slots=True)
class GroupCursor:
    """One group's place in one (topic, slice)."""

    group: str
    topic: str
    slice: int
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
