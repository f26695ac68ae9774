"""What this process has counted in the last hour, step by step: who opens a page at three in the
morning wants to see how it was before."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from barco.workers.operations.service import ShardService
from barco.workers.process.stages import STAGES, less, quantile

STEP_SECONDS, STEPS = 30, 120
"""By the machine's clock, so that steps of several brokers are the same ones."""

_STEP_US = STEP_SECONDS * 1_000_000

RATES = ("events", "value_bytes", "bytes_out", "process_cpu_seconds", "storage_scrub_bytes")
"""What is counted, as so many a second."""

AMOUNTS = ("process_resident_bytes", "storage_free_bytes")
"""What there is at the end of a step."""

Step: TypeAlias = Sequence[float | None]
"""Its number, then of each of RATES, AMOUNTS and STAGES; of a stage the p99 in seconds."""

Stats = Mapping[str, Any]
"""As the operation `stats` tells them."""


class Hour:
    """Steps of one process, as long as it has lived, and no longer than that."""

    def __init__(self, stats: Callable[[], Awaitable[Stats]], wall_us: Callable[[], int]) -> None:
        self._stats, self._wall_us = stats, wall_us
        self._steps: deque[Step] = deque(maxlen=STEPS)
        self._before: tuple[int, Stats] | None = None

    async def watch(self) -> None:
        """For as long as the worker lives."""
        while True:
            await self.look()
            await asyncio.sleep((_STEP_US - self._wall_us() % _STEP_US) / 1e6)

    async def look(self) -> None:
        """A step has ended: what came to it since the last look."""
        now = self._wall_us(), await self._stats()
        before, self._before = self._before, now
        if before is not None and (step := _step(before, now)) is not None:
            self._steps.append(step)

    async def told(self, args: Mapping[str, Any]) -> list[Step]:
        """For who asks for it: the earliest one first."""
        return list(self._steps)


def count_in(service: ShardService) -> Hour:
    """What the service tells of itself, from now on."""

    async def stats() -> Stats:
        found: Stats = await service.operation("stats", {})
        return found

    hour = Hour(stats, service.wall_us)
    service.extend({"hour": hour.told})
    return hour


def _step(before: tuple[int, Stats], now: tuple[int, Stats]) -> Step | None:
    """None: a clock was set, or no time went by."""
    (began, was), (ended, is_) = before, now
    seconds = (ended - began) / 1e6
    if not 0 < seconds < 2 * STEP_SECONDS:
        return None
    return [
        (ended + _STEP_US // 2) // _STEP_US,
        *(max(0.0, _told(is_, name) - _told(was, name)) / seconds for name in RATES),
        *(_told(is_, name) for name in AMOUNTS),
        *(_p99(was, is_, stage) for stage in STAGES),
    ]


def _told(stats: Stats, name: str) -> float:
    value = float(stats.get(name, 0))
    if name == "events":
        value -= stats.get("events_followed", 0)  # Each event once, at its leader.
    return value


def _p99(was: Stats, is_: Stats, stage: str) -> float | None:
    counts = is_.get("stages", {}).get(stage)
    if counts is None:
        return None
    _, earlier = was.get("stages", {}).get(stage, (0, ()))
    return quantile(less(counts[1], earlier), 0.99)
