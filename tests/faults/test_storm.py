"""Group consumers in a storm of deaths, of theirs and of brokers: each event reaches each group."""

import os
from pathlib import Path

import pytest
from faultlab.storm import Storm

SECONDS = float(os.environ.get("BARCO_CHAOS_STORM_SECONDS", "60"))
CONSUMERS = int(os.environ.get("BARCO_CHAOS_STORM_CONSUMERS", "55"))


@pytest.mark.chaos
@pytest.mark.timeout(int(SECONDS) + 600)
def test_storm(root: Path, seed: int) -> None:
    """At least once, positions never back, in order, and nothing waits for the dead."""
    print(f"seed {seed}")
    storm = Storm(root, seed, consumers=CONSUMERS)
    try:
        figures = storm.run(SECONDS)
        print(figures)
        assert not storm.ledger.wrong, "\n".join(storm.ledger.wrong[:20])
        assert figures["delivered"] > 100 and figures["killed"] > 10
    finally:
        storm.close()
