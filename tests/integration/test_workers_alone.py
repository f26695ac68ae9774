"""A single broker with other numbers of workers: its ranges are cut again under load."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joining import barco, until
from running import RunningBroker
from test_growth import Load, everything, routes

ORDINAL = 3
"""As it may come from a host name; in its own ring it counts as broker 0."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    made = RunningBroker(tmp_path / "data", workers=1, broker_ordinal=ORDINAL)
    made.start()
    yield made
    made.end()


def cluster_of(broker: RunningBroker) -> Any:
    """It, as a ring of brokers that are all one."""
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    return SimpleNamespace(endpoints=[endpoint] * 3)


def shape(workers: int) -> list[tuple[int, int, list[int]]]:
    count = 8 // workers
    return [(count * number, count, [ORDINAL]) for number in range(workers)]


def reached(cluster: Any, workers: int) -> None:
    until(f"{workers} ranges", lambda: routes(cluster, 0) == shape(workers))


def test_one_worker_becomes_two_and_four(broker: RunningBroker) -> None:
    cluster = cluster_of(broker)
    load = Load(cluster)
    load.goes_on()
    at = cluster.endpoints[0]
    grown = barco("scale", "--workers", 2, "--timeout", 90, "--endpoint", at)
    assert grown.returncode == 0, grown.stdout + grown.stderr
    load.goes_on()
    load.end()
    reached(cluster, 2)
    everything(cluster, load)
    assert broker.stop() == 0
    broker.workers = 4  # As in a file that was changed.
    broker.restart()
    cluster = cluster_of(broker)
    everything(cluster, load)
    reached(cluster, 4)
    for end in (broker.kill, broker.stop):
        everything(cluster, load)
        end()
        broker.restart()
        cluster = cluster_of(broker)
        assert routes(cluster, 0) == shape(4)
    everything(cluster, load)
    assert len(broker.ready["workers"]) == 4


@pytest.mark.chaos
@pytest.mark.parametrize("seconds", [0.0, 0.4, 0.8, 1.2, 1.6, 2.4])
def test_it_is_killed_meanwhile(broker: RunningBroker, seconds: float) -> None:
    """At any moment of it: what was begun goes on at the next start."""
    cluster = cluster_of(broker)
    load = Load(cluster)
    load.goes_on()
    load.end()
    at = cluster.endpoints[0]
    assert barco("scale", "--workers", 4, "--no-wait", "--endpoint", at).returncode == 0
    time.sleep(seconds)
    broker.kill()
    broker.restart()
    cluster = cluster_of(broker)
    everything(cluster, load)
    reached(cluster, 4)
    everything(cluster, load)
    broker.kill()
    broker.restart()
    everything(cluster_of(broker), load)
