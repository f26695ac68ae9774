"""Memory for answers to workers of other brokers, from before they are made until they are read.

Who asks and does not read gets no more than its own part; what others ask has room beside it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from barco import limits
from barco.errors import ProtocolError
from barco.types import KiB, MiB

ANSWER_BYTES = 64 * KiB
"""Of an answer, where nothing else is known of it."""

LARGE: dict[str, int] = {
    "topics": 8 * MiB,
    "positions": 2 * MiB,
    "plan": 2 * MiB,
    "commit_to": 2 * MiB,
    "lags": 512 * KiB,
    "state": 8 * MiB,
    "access": limits.ACCESS_BYTES_MAX,
    "schema_look": 8 * MiB,
}
"""Those that may be large, whatever is asked. A state is made in memory before its parts are."""

AS_ASKED = {
    "read": ("budget", 1),
    "poll": ("budget", 1),
    "queue_lease": ("budget", 1),
    "history": ("bytes", 2),
}
"""What says how large they may be, and how often it is there at once: what is read of a disk for
others is put together first."""

WAITS_ONLY = frozenset(("wait", "queue_wait", "access_wait", "origin_wait"))
"""They last long, and are answered by few words."""

ENDS_HERE = frozenset(
    (
        "history",
        "state",
        "origin",
        "begun",
        "begun_by",
        "handed",
        "handed_to",
        "room",
        "taken",
        "target",
        "target_seen",
        "standing",
        "stats",
        "access",
        "access_asked",
        "schema_look",
        "schema_change",
        "written",
    )
)
"""No other process is asked for them. They have room of their own: the others may wait for one of
these at the very broker that asks, and would wait for each other."""


def weight(op: str, args: Any, most: int) -> int:
    """About how much memory an answer takes, in bytes; at most `most`."""
    found = LARGE.get(op, ANSWER_BYTES)
    if op in AS_ASKED and isinstance(args, Mapping):
        name, times = AS_ASKED[op]
        asked = args.get(name)
        if type(asked) is int and asked > 0:
            found += times * asked
    return min(found, most)


class Room:
    """Of one process, for one kind of answers; in turn, and half of it at most for one broker."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 1, "half of it is something"
        self._bytes_max, self.share = bytes_max, bytes_max // 2
        self._held = 0
        self._of: Counter[int] = Counter()
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """Bytes that are taken."""
        return self._held

    async def take(self, ordinal: int, size: int) -> None:
        """Returns when there is so much for this broker. What is cancelled has taken nothing."""
        assert 0 <= size <= self.share, "see `weight`"
        if not self._waiting and self._has(ordinal, size):
            self._give(ordinal, size)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (ordinal, size, granted)
        self._waiting.append(entry)
        self._look()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(ordinal, size)
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._look()
            raise

    def change(self, ordinal: int, before: int, after: int) -> None:
        """What was taken is as large as this now: it is there already."""
        self._give(ordinal, after - before)
        self._look()

    def give_back(self, ordinal: int, size: int) -> None:
        """It has been read, or is not to be."""
        self._give(ordinal, -size)
        if self._of[ordinal] == 0:
            del self._of[ordinal]
        self._look()

    def _give(self, ordinal: int, size: int) -> None:
        self._held += size
        self._of[ordinal] += size
        assert self._of[ordinal] >= 0, "no more is given back than was taken"

    def _has(self, ordinal: int, size: int) -> bool:
        own = self._of[ordinal] + size <= self.share
        return own and (self._held == 0 or self._held + size <= self._bytes_max)

    def _look(self) -> None:
        """In turn: who has its part already lets others go first, what is full lets nobody."""
        full: set[int] = set()
        left: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        while self._waiting:
            ordinal, size, granted = entry = self._waiting.popleft()
            if granted.done():
                continue
            if ordinal in full or self._of[ordinal] + size > self.share:
                full.add(ordinal)
                left.append(entry)
            elif self._has(ordinal, size):
                self._give(ordinal, size)
                granted.set_result(None)
            else:
                left.append(entry)
                break
        left.extend(self._waiting)
        self._waiting = left


class AskedMemory:
    """Memory of what one other broker asks: of its frames that come in, and of its requests under
    way. Over it nothing more is read of that broker; what others have is theirs."""

    def __init__(self, ordinal: int, bytes_max: int, leaves: Room, others: Room) -> None:
        """leaves, others: where its answers have room, if no other process is asked for them and
        else."""
        self.ordinal = ordinal
        self._leaves, self._others = leaves, others
        self._bytes_max = bytes_max
        self._held = 0
        self._waiting: list[Callable[[], None]] = []

    def room(self, op: str) -> Room:
        """For the answer to this."""
        return self._leaves if op in ENDS_HERE else self._others

    def may_take(self, size: int) -> bool:
        """Whether there is so much; one of any size has room where nothing else is."""
        return self._held == 0 or self._held + size <= self._bytes_max

    def take(self, size: int) -> None:
        """Whether there is so much or not, up to twice the bound, then ProtocolError."""
        if self._held + size > 2 * self._bytes_max:
            raise ProtocolError("a broker asks for too much at once")
        self._held += size

    def give_back(self, size: int) -> None:
        """All who wait look again."""
        self._held -= size
        while self._waiting:
            asyncio.get_running_loop().call_soon(self._waiting.pop())

    def wait(self, go_on: Callable[[], None]) -> None:
        """It goes on when others have given something back."""
        self._waiting.append(go_on)
