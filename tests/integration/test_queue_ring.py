"""A queue in a ring of three real brokers: at any of them, and through crashes."""

import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barco
from barco.errors import BarcoError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

SECONDS = 120.0
"""Generous: it only ends what has failed."""

EVENTS = 1200
CRASHES = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    found = LocalCluster(tmp_path, hosts=hosts, tied=True)
    found.write()
    try:
        for ordinal in range(3):
            found.start(ordinal)
        found.wait_ready()
        yield found
    finally:
        for ordinal in range(3):
            found.kill(ordinal)


class Workers:
    """Some who take part, each at a broker of its own, and what they have seen."""

    def __init__(self, endpoints: list[str], count: int, wanted: int) -> None:
        self.acked: dict[bytes, float] = {}
        """When the answer to the acknowledgement was there."""
        self.again: list[bytes] = []
        """What was acknowledged, and came all the same."""
        self.order: dict[bytes, list[int]] = {}
        self.failures: list[Exception] = []
        self._wanted = wanted
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(
                target=self._work, args=([endpoints[n % 3], *endpoints], n), daemon=True
            )
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        return len(self.acked) >= self._wanted or bool(self.failures)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def _work(self, endpoints: list[str], seed: int) -> None:
        chance = random.Random(seed)
        try:
            with barco.Queue("t", "q", endpoints, timeout_s=SECONDS) as queue:
                while not self.done:
                    self._some(queue, chance)
        except Exception as error:  # noqa: BLE001 - told by the test.
            self.failures.append(error)

    def _some(self, queue: barco.Queue, chance: random.Random) -> None:
        began = time.monotonic()
        try:
            got = queue.lease(20, wait_s=0.5)
        except BarcoError as error:
            assert error.retryable, error
            return
        keep = [each for each in got if chance.random() < 0.8]
        with self._lock:
            self.again += [
                each.value for each in got if self.acked.get(each.value or b"", began) < began
            ]
            for each in got:
                self.order.setdefault(each.key or b"", []).append(int(each.value or b"0"))
        if keep:
            queue.ack(*keep)
            now = time.monotonic()
            with self._lock:
                for each in keep:
                    self.acked.setdefault(each.value or b"", now)
        rest = [each for each in got if each not in keep]
        if rest and chance.random() < 0.7:  # Of the others the time ends.
            try:
                queue.nack(*rest)
            except BarcoError as error:
                assert error.status == 409 or error.retryable, error


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
