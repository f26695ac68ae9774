"""Other numbers of workers: ranges are cut again under load, and stay at their brokers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from joining import JoinedCluster, barco, three, until
from test_growth import Load, everything, routes

TWO_EACH = [
    (4 * number, 4, [owner, (owner + 1) % 3, (owner + 2) % 3])
    for number, owner in enumerate((0, 0, 1, 1, 2, 2))
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def test_one_worker_becomes_two_at_each_broker(cluster: JoinedCluster) -> None:
    """By the command, under load."""
    load = Load(cluster)
    load.goes_on()
    at = cluster.endpoints[1]
    grown = barco("scale", "--workers", 2, "--timeout", 90, "--endpoint", at)
    assert grown.returncode == 0, grown.stdout + grown.stderr
    load.goes_on()
    load.end()
    for broker in range(3):
        until(f"broker {broker} sees it", lambda broker=broker: routes(cluster, broker) == TWO_EACH)
        cluster.wait_in_sync(broker)
    everything(cluster, load)
