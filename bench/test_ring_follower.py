"""What does a copy cost: the CPU of a process that follows against that of the one that leads."""

from typing import Any

import pytest

from bench.cases import KiB
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.ring import SINGLE, Ring, Work, bodies, interleave_work, ring, work

CASES = ("follower", "follower-single")
NDJSON_CONNECTIONS, SINGLE_CONNECTIONS = 12, 64
COPIES = 2  # Of every group: each leader has two followers.

Runs = dict[str, list[tuple[float, float]]]
"""For each row and round, what one follower and its leader cost, in CPU seconds a byte."""


def _costs(brokers: Ring, run: Work) -> tuple[float, float]:
    leaders = sum(run.cpu[pid] for pid in brokers.leaders())
    followers = sum(run.cpu[pid] for pid in brokers.followers())
    return followers / COPIES / run.value_bytes, leaders / run.value_bytes


@pytest.fixture(scope="module")
def runs() -> Runs:
    """Both loads, interleaved, straight to the leaders: any process of a broker takes requests at
    the public ports, and would be charged for them."""
    with LAB.question(*CASES), ring() as brokers:
        targets = brokers.at_leaders()
        done = interleave_work(
            {
                CASES[0]: lambda: work(brokers, targets, NDJSON_CONNECTIONS, **bodies(256 * KiB)),
                CASES[1]: lambda: work(brokers, targets, SINGLE_CONNECTIONS, **SINGLE),
            },
            SETTINGS.rounds,
        )
        found = {row: [_costs(brokers, run) for run in works] for row, works in done.items()}
        for row, costs in found.items():
            follower, leader = ([cost[part] for cost in costs] for part in (0, 1))
            rate = done[row][-1].value_bytes / done[row][-1].seconds / 1e6
            note = f"{follower[-1] * 1e9:.2f} against {leader[-1] * 1e9:.2f} ns/B, {rate:.0f} MB/s"
            LAB.record(row, ratios(follower, leader), note=note)
        return found


@pytest.mark.benchmark(group="a follower's CPU a byte", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_ring_follower(benchmark: Any, runs: Runs, case: str) -> None:
    """One follower, by load."""
    METER.replay(benchmark, [follower for follower, _ in runs[case]])
