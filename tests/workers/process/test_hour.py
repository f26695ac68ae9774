"""The last hour of one process, step by step, from what it counts."""

from collections.abc import Mapping
from typing import Any

import pytest
from twin import run

from barco.workers.process.hour import AMOUNTS, RATES, STEP_SECONDS, STEPS, Hour
from barco.workers.process.stages import BOUNDS_US, STAGES

MICROS = 1_000_000
NAMES = ("number", *RATES, *AMOUNTS, *STAGES)


class Process:
    """It counts, and time goes by."""

    def __init__(self) -> None:
        self.at_us = 1_000 * STEP_SECONDS * MICROS
        self.told: dict[str, Any] = {}
        self.hour = Hour(self._stats, lambda: self.at_us)

    async def _stats(self) -> Mapping[str, Any]:
        return dict(self.told)

    async def later(self, seconds: float = STEP_SECONDS, **told: Any) -> None:
        """It is looked at after so long, and says this."""
        self.at_us += int(seconds * MICROS)
        self.told |= told
        await self.hour.look()

    async def steps(self) -> list[dict[str, Any]]:
        return [dict(zip(NAMES, each, strict=True)) for each in await self.hour.told({})]


@run
async def test_a_step_is_what_came_to_it() -> None:
    process = Process()
    await process.later(0, events=100, events_followed=40, process_cpu_seconds=1.0)
    assert await process.steps() == [], "nothing is known of before"
    await process.later(
        *(STEP_SECONDS,), events=700, events_followed=340, value_bytes=600, storage_free_bytes=9,
        process_cpu_seconds=1.0 + STEP_SECONDS / 2,
    )  # fmt: skip
    (step,) = await process.steps()
    assert step["number"] == 1_001
    assert step["events"] == 300 / STEP_SECONDS, "those that others lead are counted there"
    assert step["value_bytes"] == 600 / STEP_SECONDS and step["bytes_out"] == 0
    assert step["process_cpu_seconds"] == 0.5 and step["storage_free_bytes"] == 9
    await process.later()
    assert [each["events"] for each in await process.steps()] == [300 / STEP_SECONDS, 0]


@run
async def test_stages_are_of_the_step_alone() -> None:
    process = Process()
    at = BOUNDS_US.index(1024) + 1
    await process.later(0, stages={"write": (0, [1000])})
    await process.later(stages={"write": (0, [1000] + [0] * (at - 1) + [10])})
    await process.later()
    first, second = await process.steps()
    assert 0.001024 < first["write"] <= 0.00128, "the thousand were before"
    assert second["write"] is None and first["whole"] is None


@run
async def test_a_step_that_is_looked_at_late_has_its_own_number() -> None:
    process = Process()
    await process.later(0.2, events=0)
    await process.later(STEP_SECONDS + 4, events=34)
    await process.later(STEP_SECONDS - 4, events=60)
    assert [each["number"] for each in await process.steps()] == [1_001, 1_002]
    assert [each["events"] for each in await process.steps()] == pytest.approx([1, 1])


@run
async def test_a_clock_that_was_set_makes_no_step() -> None:
    process = Process()
    await process.later(0, events=0)
    await process.later(-90, events=30)
    await process.later(4_000, events=60)
    assert await process.steps() == []
    await process.later(events=90)
    assert [each["events"] for each in await process.steps()] == [1]


@run
async def test_an_hour_is_kept() -> None:
    process = Process()
    for number in range(STEPS + 11):
        await process.later(events=number * STEP_SECONDS)
    steps = await process.steps()
    assert len(steps) == STEPS and STEPS * STEP_SECONDS == 3600
    assert steps[-1]["number"] - steps[0]["number"] == STEPS - 1
