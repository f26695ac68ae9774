"""Does it cost anything that events go to a thousand topics?"""

from typing import Any

import pytest

from bench.cases import create_topics, many_topics
from bench.harness import LAB, METER, interleave, ratios, report
from bench.load import Load
from bench.servers import Broker

TOPICS = 1000
CASES = ("1 topic", "1,000 topics", "1 topic, 16 pipelined", "1,000 topics, 16 pipelined")


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """All cases, interleaved, on topics that exist."""
    with LAB.question("topics", "topics-pipelined"):
        create_topics(broker, TOPICS)
        done = interleave(
            {
                CASES[0]: lambda: many_topics(broker, 1, 1),
                CASES[1]: lambda: many_topics(broker, 1, TOPICS),
                CASES[2]: lambda: many_topics(broker, 16, 1),
                CASES[3]: lambda: many_topics(broker, 16, TOPICS),
            }
        )
        for row, one, many in (("topics", *CASES[:2]), ("topics-pipelined", *CASES[2:])):
            alone, spread = ([run.events_per_core for run in done[name]] for name in (one, many))
            note = f"{spread[-1]:,.0f} against {alone[-1]:,.0f} events/s/core"
            LAB.record(row, ratios(spread, alone), note=note)
        return done


@pytest.mark.benchmark(group="topics, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_topics(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event."""
    report(benchmark, runs[case])
