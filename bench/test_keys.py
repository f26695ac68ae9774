"""Does it cost anything that every event has a key of its own?"""

import itertools
from typing import Any

import pytest

from bench.cases import own_keys, single
from bench.harness import LAB, METER, interleave, ratios, report
from bench.load import Load
from bench.servers import Broker

CASES = ("no key", "own keys", "no key, 16 pipelined", "own keys, 16 pipelined")
KEYS_A_RUN = 100_000_000  # More than a run can use: no key comes twice in a session.


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """All cases, interleaved."""
    with LAB.question("keys", "keys-pipelined"):
        bases = itertools.count(0, KEYS_A_RUN)
        done = interleave(
            {
                CASES[0]: lambda: single(broker),
                CASES[1]: lambda: own_keys(broker, 1, next(bases)),
                CASES[2]: lambda: single(broker, depth=16),
                CASES[3]: lambda: own_keys(broker, 16, next(bases)),
            }
        )
        for row, none, own in (("keys", *CASES[:2]), ("keys-pipelined", *CASES[2:])):
            without, keyed = ([run.events_per_core for run in done[name]] for name in (none, own))
            note = f"{keyed[-1]:,.0f} against {without[-1]:,.0f} events/s/core"
            LAB.record(row, ratios(keyed, without), note=note)
        return done


@pytest.mark.benchmark(group="keys, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_keys(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event."""
    report(benchmark, runs[case])
