"""Real brokers for black-box tests: processes, sockets, a data directory, kill -9."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from running import RunningBroker


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Starts brokers; each is stopped at the end of the test."""
    started: list[RunningBroker] = []

    def start(**settings: Any) -> RunningBroker:
        broker = RunningBroker(tmp_path / f"data-{len(started)}", **settings)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.end()


@pytest.fixture
def broker(start_broker: Callable[..., RunningBroker]) -> RunningBroker:
    """One broker with two workers."""
    return start_broker()
