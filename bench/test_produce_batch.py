"""What does a producer gain that packs and compresses its batches itself? (No bar in the table.)"""

from typing import Any

import pytest

from bench.cases import LINE_BYTES, KiB, batch_frames, batches, lines, ndjson
from bench.harness import METER, interleave, report
from bench.load import Load, median
from bench.servers import Broker

CASES = ("NDJSON, 256 KiB", "batches, no keys", "batches, own keys")


@pytest.fixture(scope="module")
def runs(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Load]]:
    """All cases, interleaved."""
    directory = tmp_path_factory.mktemp("batches")
    events = lines(directory)
    plain = batch_frames(directory / "plain", events, own_keys=False)
    keyed = batch_frames(directory / "keyed", events, own_keys=True)

    return interleave(
        {
            CASES[0]: lambda: ndjson(broker, 256 * KiB),
            CASES[1]: lambda: batches(broker, plain),
            CASES[2]: lambda: batches(broker, keyed),
        }
    )


@pytest.mark.benchmark(group="batches of 1,079 events, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_produce_batch(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event of about 243 bytes."""
    raw = median([run.events_per_core for run in runs[case]]) * LINE_BYTES / 1e6
    benchmark.extra_info["event_mb_per_core_second"] = round(raw)
    report(benchmark, runs[case])
