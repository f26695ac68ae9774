"""Events of one key one after the other: which of a window may be given, by the hash of its key.

Of two keys with one hash events wait for each other, which is harmless. Events without a key wait
for nobody.
"""

import heapq
from collections import deque


class KeyOrder:
    """Of one slice: for each key its events that are not acknowledged, in order."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[int]] = {}
        self._keys: dict[int, int] = {}
        self._ready: list[int] = []

    @property
    def ready(self) -> int:
        """How many may be given, at most."""
        return len(self._ready)

    def add(self, at: int, key: int | None) -> bool:
        """An event that was looked at; whether it is the first of its key."""
        if key is None:
            return True
        line = self._lines.get(key)
        self._keys[at] = key
        if line is None:
            self._lines[key] = deque((at,))
            return True
        line.append(at)
        return False

    def is_first(self, at: int) -> bool:
        """Whether none of its key is before it."""
        key = self._keys.get(at)
        return key is None or self._lines[key][0] == at

    def offer(self, at: int) -> None:
        """It may be given."""
        heapq.heappush(self._ready, at)

    def first(self) -> int | None:
        """The oldest that may be given."""
        return self._ready[0] if self._ready else None

    def pop(self) -> None:
        """It was given, or there is no such one any more."""
        heapq.heappop(self._ready)

    def remove(self, at: int) -> int | None:
        """Done; returns the one that is the first of its key now, if that has changed."""
        key = self._keys.pop(at, None)
        if key is None:
            return None
        line = self._lines[key]
        if line[0] != at:
            return None  # It leaves the line when those before it are gone.
        while line and line[0] not in self._keys:
            line.popleft()
        if not line:
            del self._lines[key]
            return None
        return line[0]
