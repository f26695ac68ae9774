"""How long stages took of late, from what a core has counted since its start."""

import random

import pytest

from barco._native import histogram_bounds
from barco.workers.process.stages import (
    BOUNDS_US,
    LOOKS,
    STAGES,
    Counted,
    Stages,
    added,
    less,
    quantile,
)


def bucket_of(value_us: int) -> int:
    return next((n for n, bound in enumerate(BOUNDS_US) if value_us < bound), len(BOUNDS_US))


def counts_of(values_us: list[int]) -> list[int]:
    counts = [0] * (len(BOUNDS_US) + 1)
    for value in values_us:
        counts[bucket_of(value)] += 1
    return counts


def test_bounds_are_the_core_s() -> None:
    assert tuple(histogram_bounds()) == BOUNDS_US == tuple(sorted(set(BOUNDS_US)))
    assert {2**n for n in range(27)} <= set(BOUNDS_US)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_as_near_as_the_buckets(share: float) -> None:
    chance = random.Random(7)
    values = sorted(int(chance.lognormvariate(7, 2)) + 1 for _ in range(5_000))
    exact = values[max(0, round(share * len(values)) - 1)]
    told = quantile(counts_of(values), share)
    assert told is not None
    assert exact * 0.75 - 1 <= told * 1e6 <= exact * 1.25 + 1


def test_nothing_has_no_quantile() -> None:
    assert quantile([], 0.5) is quantile([0, 0], 0.99) is None


def test_what_took_longer_than_all_bounds() -> None:
    assert quantile(counts_of([10**12]), 0.5) == BOUNDS_US[-1] / 1e6


def test_counts_of_several() -> None:
    assert added([[1, 2], [], [0, 1, 5]]) == [1, 3, 5]
    assert less([1, 3, 5], [1, 2]) == [0, 1, 5]


def test_of_late_is_what_came_since_the_oldest_look() -> None:
    total = 0

    def read() -> Counted:
        return {name: (total, [total]) for name in STAGES}

    stages = Stages(read)
    for _ in range(LOOKS + 2):
        stages.look()
        total += 10
    told = stages.told()
    assert told["stages"]["write"] == (total, [total])
    assert told["stages_recent"]["write"] == (10 * LOOKS, [10 * LOOKS])
