"""A queue in a ring of three real brokers: at any of them, and through crashes."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three
from queue_workers import SECONDS, Workers

EVENTS = 1200
CRASHES = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


def crash(cluster: LocalCluster, workers: Workers) -> None:
    """Three times another broker is killed; the next one when all copies are there again."""
    for turn in range(CRASHES):
        before = len(workers.acked)
        cluster.kill(turn % 3)
        until = time.monotonic() + SECONDS
        while len(workers.acked) < min(EVENTS, before + EVENTS // 6) and not workers.failures:
            assert time.monotonic() < until, f"nothing more is acknowledged: {before}"
            time.sleep(0.05)
        cluster.start(turn % 3)
        cluster.wait_ready()


@pytest.mark.parametrize("ordered", ["no", "key"])
def test_every_event_is_acknowledged_once_through_crashes(
    cluster: LocalCluster, ordered: str
) -> None:
    endpoints = list(cluster.endpoints)
    with barco.Queue("t", "q", endpoints, timeout_s=SECONDS) as queue:
        queue.make(ordered="key" if ordered == "key" else "no", lease_seconds=2)
    values = [b"%d" % number for number in range(EVENTS)]
    keys = [b"key-%d" % (number % 97) for number in range(EVENTS)]
    workers = Workers(endpoints, 3, EVENTS)
    with barco.Producer(endpoints, delivery_timeout_s=SECONDS) as producer:
        for at in range(0, EVENTS, 100):
            producer.send_many("t", values[at : at + 100], keys[at : at + 100]).result(SECONDS)
        crash(cluster, workers)
    workers.join()
    assert not workers.failures, workers.failures
    assert set(workers.acked) == set(values), "all of them"
    assert not workers.again, "nothing acknowledged comes again"
    if ordered == "key":
        for key, seen in workers.order.items():
            first = list(dict.fromkeys(seen))
            assert first == sorted(first), f"{key!r}: each came for the first time in order"
    with barco.Queue("t", "q", endpoints, timeout_s=SECONDS) as queue:
        time.sleep(2.5)  # A lease, and more.
        assert queue.lease(wait_s=0.5) == []
