"""How long the stages of a produce take: what the core has counted, in all and of late."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest

from barco._native import Reactor, histogram_bounds
from barco.workers.operations.service import ShardService

STAGES = ("receive", "gather", "write", "replicate", "answer", "whole")
"""Of a request or a group, as the core tells them; docs/operations.md says from when to when."""

BOUNDS_US = tuple(histogram_bounds())
"""Of each bucket; what is above the last one has none."""

LOOK_SECONDS, LOOKS = 5.0, 3
"""Of late: since 10 to 15 s ago."""

Counted = Mapping[str, tuple[int, Sequence[int]]]
"""By stage the sum in microseconds, and how many in each bucket."""


class Stages:
    """Looked at every LOOK_SECONDS, so that whoever asks hears of the last seconds."""

    def __init__(self, read: Callable[[], Counted]) -> None:
        self._read = read
        self._looks: deque[Counted] = deque([read()], LOOKS)

    def look(self) -> None:
        """Remembers what there is now."""
        self._looks.append(self._read())

    async def watch(self) -> None:
        """For as long as the worker lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def told(self) -> dict[str, Counted]:
        """For the metrics: all since the start, and what was added of late."""
        now, before = self._read(), self._looks[0]
        recent = {
            name: (total - before[name][0], less(counts, before[name][1]))
            for name, (total, counts) in now.items()
        }
        return {"stages": now, "stages_recent": recent}


def count_in(service: ShardService, reactor: Reactor) -> Stages:
    """Among the metrics, from now on."""
    stages = Stages(reactor.stages)
    more = service.more_stats
    service.more_stats = lambda: more() | stages.told()
    return stages


def less(counts: Sequence[int], before: Sequence[int]) -> list[int]:
    """What came to it since then."""
    return [now - was for now, was in zip_longest(counts, before, fillvalue=0)]


def added(all_of: Iterable[Sequence[int]]) -> list[int]:
    """Of several processes together."""
    return [sum(column) for column in zip_longest(*all_of, fillvalue=0)]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Seconds that this share of them did not exceed, as near as the buckets are; None: none."""
    left = share * sum(counts)
    if left <= 0:
        return None
    for index, count in enumerate(counts):
        if count >= left:
            low = BOUNDS_US[index - 1] if index else 0
            high = BOUNDS_US[index] if index < len(BOUNDS_US) else low
            return round(low + (high - low) * left / count, 1) / 1e6
        left -= count
    return BOUNDS_US[-1] / 1e6
