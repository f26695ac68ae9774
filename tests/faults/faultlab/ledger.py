"""What was acknowledged, what each group was given, and what was committed: who holds it together.

A delivery counts when its consumer has the answer whole and goes on; one that dies before has seen
nothing. Events are told apart by their values, "key number"; places in the log by slice and offset.
"""

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Batch:
    """The part of an answer that is of one slice."""

    place: int
    start: int
    values: list[str]


@dataclass
class Ledger:
    """Of one storm."""

    groups: list[str]
    acked: dict[str, float] = field(default_factory=dict)
    """When each event was acknowledged."""
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _got: dict[str, dict[str, float]] = field(default_factory=dict)
    _committed: dict[tuple[str, int], list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _had: dict[tuple[str, str], dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """By group and consumer: the highest number that it was given of each key."""
    _stored: dict[tuple[int, int], str] = field(default_factory=dict)
    """What is at (slice, offset), as the first answer had it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._got = {group: {} for group in self.groups}

    def count(self, what: str, by: int = 1) -> None:
        """One more of something."""
        with self._lock:
            self.counts[what] += by

    def was_acked(self, value: str) -> None:
        """A producer has read 200."""
        with self._lock:
            self.acked[value] = time.monotonic()

    def was_given(self, group: str, who: str, asked: float, batches: list[Batch]) -> None:
        """A consumer has read a whole answer, to a request of that time, and has handled it."""
        now = time.monotonic()
        with self._lock:
            for batch in batches:
                self._check_order(group, who, batch)
                self._check_stored(batch)
                self._check_position(group, who, asked, batch)
                for value in batch.values:
                    self._check_late(group, who, value)
                    self.counts["again" if value in self._got[group] else "delivered"] += 1
                    self._got[group].setdefault(value, now)

    def was_committed(self, group: str, ends: dict[int, int]) -> None:
        """A commit was answered 204: by slice, where what the consumer had got ended."""
        now = time.monotonic()
        with self._lock:
            self.counts["commits"] += 1
            for place, end in ends.items():
                self._committed[group, place].append((now, end))

    def _check_order(self, group: str, who: str, batch: Batch) -> None:
        last: dict[str, int] = {}
        for value in batch.values:
            key, _, number = value.rpartition(" ")
            if value in self.acked:  # What was not, may have been stored at any time.
                if int(number) <= last.get(key, -1):
                    self.wrong.append(f"{group}/{who}: {value} comes after {last[key]}")
                last[key] = int(number)

    def _check_late(self, group: str, who: str, value: str) -> None:
        """Across answers: what nobody of the group had is not given after what follows it. (What
        somebody had may come again, in whatever answer.)"""
        key, _, number = value.rpartition(" ")
        highest = self._had[group, who].get(key, -1)
        if value in self.acked and value not in self._got[group] and int(number) < highest:
            self.wrong.append(f"{group}/{who}: {value} is given for the first time after {highest}")
        self._had[group, who][key] = max(highest, int(number))

    def _check_stored(self, batch: Batch) -> None:
        """Every answer, to whomever, has the same at the same place."""
        if batch.place < 0:
            return  # Of a client that does not tell.
        for offset, value in enumerate(batch.values, batch.start):
            first = self._stored.setdefault((batch.place, offset), value)
            if first != value:
                self.wrong.append(f"slice {batch.place}: {first} and {value} are both at {offset}")

    def check_log(self) -> None:
        """At the end: what was acknowledged is in the log once, each key as it was sent."""
        last: dict[str, int] = {}
        for (place, offset), value in sorted(self._stored.items()):
            if value not in self.acked:
                continue
            key, _, number = value.rpartition(" ")
            if int(number) <= last.get(key, -1):
                self.wrong.append(f"slice {place}: {value} at {offset} is behind {last[key]}")
            last[key] = int(number)

    def _check_position(self, group: str, who: str, asked: float, batch: Batch) -> None:
        before = [end for at, end in self._committed[group, batch.place] if at < asked]
        if before and batch.start < max(before):
            self.wrong.append(
                f"{group}/{who}: slice {batch.place} goes back to {batch.start}, {max(before)} "
                "was committed before it was asked for"
            )

    def missing(self, group: str) -> list[str]:
        """Acknowledged, and not delivered."""
        with self._lock:
            return [value for value in self.acked if value not in self._got[group]]

    def latest(self, group: str) -> float:
        """When the last delivery of something new was."""
        return max(self._got[group].values(), default=0.0)
