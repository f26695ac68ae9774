"""What does it cost that a range has more slices? (No bar in the table: docs/elastic.md.)

A cluster can not grow beyond the slices that it was formatted with.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.cases import batch_frames, batches, lines, own_keys
from bench.harness import METER, interleave, report
from bench.load import Load
from bench.servers import Broker, broker

SLICES = (8, 64, 256)
KINDS = ("own keys", "own keys, 16 pipelined", "batches, own keys")
CASES = tuple(f"{slices} slices: {kind}" for kind in KINDS for slices in SLICES)


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[int, Broker]]:
    """One with each number of slices; who is not measured waits."""
    with contextlib.ExitStack() as stack:
        yield {
            slices: stack.enter_context(broker(cluster_slices_per_range=slices))
            for slices in SLICES
        }


@pytest.fixture(scope="module")
def runs(
    brokers: dict[int, Broker], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Load]]:
    """All cases, interleaved."""
    directory: Path = tmp_path_factory.mktemp("batches")
    frames = batch_frames(directory / "keyed", lines(directory), own_keys=True)
    cases = {}
    for slices, server in brokers.items():
        for kind, depth in zip(KINDS[:2], (1, 16), strict=True):
            cases[f"{slices} slices: {kind}"] = lambda server=server, depth=depth: own_keys(
                server, depth, 0
            )
        cases[f"{slices} slices: {KINDS[2]}"] = lambda server=server: batches(server, frames)
    return interleave(cases)


@pytest.mark.benchmark(group="slices, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_slices(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event."""
    report(benchmark, runs[case])
