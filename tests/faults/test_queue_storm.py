"""A queue in a storm: brokers of a ring are killed one after the other, while others lease,
acknowledge, give back or forget. Nothing acknowledged comes again, and nothing is lost.
"""

import os
import random
import secrets
import sys
import threading
import time
from pathlib import Path

import pytest

import barco
from barco.errors import BarcoError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from cluster import LocalCluster
from queue_workers import SECONDS, Workers

STORM_SECONDS = float(os.environ.get("BARCO_CHAOS_STORM_SECONDS", "60"))
KEYS = 97


class Feeder(threading.Thread):
    """Produces until it is told to end; what was confirmed has to be acknowledged."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__(daemon=True)
        self._endpoints = endpoints
        self.ended = threading.Event()
        self.stored: list[bytes] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        """A batch each tenth of a second."""
        number = 0
        try:
            with barco.Producer(self._endpoints, delivery_timeout_s=SECONDS) as producer:
                while not self.ended.wait(0.1):
                    values = [b"%d" % (number + n) for n in range(10)]
                    keys = [b"key-%d" % (int(each) % KEYS) for each in values]
                    producer.send_many("t", values, keys).result(SECONDS)
                    self.stored += values
                    number += 10
        except BarcoError as error:
            self.failure = error


@pytest.mark.chaos
@pytest.mark.timeout(int(STORM_SECONDS) + 600)
@pytest.mark.parametrize("ordered", ["no", "key"])
def test_a_queue_in_a_storm(root: Path, seed: int, ordered: str) -> None:
    chance = random.Random(seed)
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    cluster = LocalCluster(root / f"queue-{ordered}", hosts=hosts, tied=True)
    cluster.write()
    try:
        for ordinal in range(3):
            cluster.start(ordinal)
        cluster.wait_ready()
        storm(cluster, chance, ordered)
    finally:
        for ordinal in range(3):
            cluster.kill(ordinal)


def storm(cluster: LocalCluster, chance: random.Random, ordered: str) -> None:
    """Sixty seconds of it, and then the sums."""
    endpoints = list(cluster.endpoints)
    with barco.Queue("t", "q", endpoints, timeout_s=SECONDS) as queue:
        queue.make(ordered="key" if ordered == "key" else "no", lease_seconds=2)
    feeder, workers = Feeder(endpoints), Workers(endpoints, 4, 10**9)
    feeder.start()
    killed, until = 0, time.monotonic() + STORM_SECONDS
    while time.monotonic() < until and not workers.failures:
        victim = chance.randrange(3)
        cluster.kill(victim)
        killed += 1
        time.sleep(chance.uniform(0, 3))
        cluster.start(victim)
        cluster.wait_ready()
        time.sleep(chance.uniform(0, 2))
    over = time.monotonic()
    feeder.ended.set()
    feeder.join(SECONDS)
    assert feeder.failure is None, feeder.failure
    workers.wanted = len(feeder.stored)
    workers.join()
    assert not workers.failures, workers.failures
    assert set(workers.acked) >= set(feeder.stored), "all of them"
    assert not workers.again, "nothing acknowledged comes again"
    if ordered == "key":
        for key, seen in workers.order.items():
            first = list(dict.fromkeys(seen))
            assert first == sorted(first), f"{key!r}: each came for the first time in order"
    last = max(workers.acked.values()) - over
    print(f"{len(feeder.stored)} events, {killed} kills, the last ack {last:.1f} s after the storm")
    assert killed > 1 and len(feeder.stored) > 100
