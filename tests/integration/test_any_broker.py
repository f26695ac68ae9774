"""Any broker will do: a consumer that asks one of three gets what all of them lead."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three, undisturbed

SECONDS = 90.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


class Curl:
    """A consumer that asks one broker, with no library."""

    def __init__(
        self,
        cluster: LocalCluster,
        name: str,
        at: int,
        *,
        named: bool = False,
        topic: str = "t",
    ) -> None:
        self.cluster, self.name, self.at, self.named = cluster, name, at, named
        self.topic = topic
        self.delivery = ""
        self.headers: dict[str, str] = {}
        self.took = 0.0

    def ask(self, what: str, query: str = "") -> tuple[int, Any]:
        host = self.cluster.endpoints[self.at]
        if self.named and what in ("poll", "commit", "goodbye"):
            query += f"&delivery={self.delivery}"
        address = f"http://{host}/v1/consumer/{what}?consumerId={self.name}{query}"
        began = time.monotonic()
        try:
            request = urllib.request.Request(address, b"", method="POST")
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                self.headers = {key.lower(): value for key, value in answer.headers.items()}
                self.delivery = self.headers.get("barco-delivery", self.delivery)
                found = json.loads(text) if text[:1] == b"[" else []
                return answer.status, found
        except urllib.error.HTTPError as error:
            return error.code, []
        finally:
            self.took = time.monotonic() - began

    def register(self) -> None:
        query = f"&group=g-{self.topic}&topic={self.topic}&onNewGroup=startFromEarliest"
        assert self.ask("register", query)[0] == 200

    def poll(self, query: str = "&waitMs=3000") -> list[int]:
        status, parts = self.ask("poll", query)
        assert status in (200, 204), status
        return [value for part in parts for value in part["values"]]

    def drain(self, wanted: int) -> Counter[int]:
        """Until so many different ones have come; how often each did."""
        got: Counter[int] = Counter()
        deadline = time.monotonic() + SECONDS
        while len(got) < wanted:
            assert time.monotonic() < deadline, f"{len(got)} of {wanted}"
            got.update(self.poll())
        return got


def produce(
    cluster: LocalCluster, first: int, count: int = 90, without: int = -1, topic: str = "t"
) -> None:
    endpoints = [each for at, each in enumerate(cluster.endpoints) if at != without]
    values = [b"%d" % number for number in range(first, first + count)]
    with barco.Producer(endpoints) as producer:
        producer.send_many(topic, values, values).result(60)


@pytest.mark.parametrize("named", [False, True])
def test_one_that_asks_one_broker_gets_everything_once(cluster: LocalCluster, named: bool) -> None:
    def attempt(topic: str) -> None:
        produce(cluster, 0, topic=topic)
        consumer = Curl(cluster, topic, 0, named=named, topic=topic)
        consumer.register()
        assert set(consumer.drain(90).values()) == {1}
        owners = dict(part.split("=") for part in consumer.headers["barco-owners"].split(","))
        hosts = {endpoint.partition(":")[0] for endpoint in owners}
        own = cluster.endpoints[0].partition(":")[0]
        assert len(hosts) == 2 and own not in hosts, "the two others"
        produce(cluster, 90, topic=topic)
        found = set(consumer.drain(90).values())
        assert found == {1}, "what came before is acknowledged everywhere"
        assert consumer.ask("commit")[0] == 204
        with barco.Admin(cluster.endpoints[1]) as admin:
            assert admin.group(f"g-{topic}")["lag"] == 0
        assert consumer.ask("goodbye")[0] == 200
        with barco.Consumer(topic, group=f"g-{topic}", endpoint=cluster.endpoints) as other:
            assert other.poll(1.0) == []

    undisturbed(cluster, attempt)


def test_a_goodbye_commits_what_other_brokers_gave(cluster: LocalCluster) -> None:
    def attempt(topic: str) -> None:
        produce(cluster, 0, topic=topic)
        consumer = Curl(cluster, topic, 2, topic=topic)
        consumer.register()
        assert set(consumer.drain(90).values()) == {1}
        assert consumer.ask("goodbye")[0] == 200
        with barco.Admin(cluster.endpoints[0]) as admin:
            assert admin.group(f"g-{topic}")["lag"] == 0

    undisturbed(cluster, attempt)


def test_one_that_waits_at_a_broker_is_woken_by_an_event_of_another(cluster: LocalCluster) -> None:
    def attempt(topic: str) -> None:
        produce(cluster, 0, topic=topic)
        consumer = Curl(cluster, topic, 1, topic=topic)
        consumer.register()
        consumer.drain(90)
        assert consumer.poll("&waitMs=0") == []
        took = []
        for number in range(100, 106):
            produce(cluster, number, 1, topic=topic)
            assert consumer.poll("&waitMs=20000") == [number]
            took.append(consumer.took)
        # A machine that stands still for a while does so for one of them or the other.
        assert sorted(took)[len(took) // 2] < 5.0, took

    undisturbed(cluster, attempt)


def asks_each(cluster: LocalCluster, topic: str) -> Counter[int]:
    """One consumer polls every broker itself, and does not say so; how often each event came."""
    produce(cluster, 0, topic=topic)
    consumers = [Curl(cluster, topic, at, named=True, topic=topic) for at in range(3)]
    consumers[0].register()
    got: Counter[int] = Counter()
    deadline = time.monotonic() + SECONDS
    while len(got) < 90:  # Each leader knows it, from now on.
        assert time.monotonic() < deadline, f"{len(got)} have come"
        for consumer in consumers:
            got.update(consumer.poll("&waitMs=100&scope=broker"))
    written = 90
    while len(got) < 180:
        assert time.monotonic() < deadline, f"{len(got)} have come"
        if written < 180:  # A few at a time: who is silent for 10 s asks no broker itself any more.
            produce(cluster, written, 10, topic=topic)
            written += 10
        for consumer in consumers:
            got.update(consumer.poll("&waitMs=0"))
    return got


def test_one_that_asks_each_broker_gets_nothing_twice(cluster: LocalCluster) -> None:
    """Without a scope, as programs did that polled every broker because they had to."""

    def attempt(topic: str) -> None:
        assert set(asks_each(cluster, topic).values()) == {1}

    undisturbed(cluster, attempt)


def test_one_that_goes_on_to_another_broker_gets_nothing_twice(cluster: LocalCluster) -> None:
    """It names there what it got before. Who gave it gives nothing to others' polls for a while,
    and hears the name all the same: the next answer has another one."""

    def attempt(topic: str) -> None:
        produce(cluster, 0, topic=topic)
        consumer = Curl(cluster, topic, 0, named=True, topic=topic)
        consumer.register()
        got = consumer.drain(90)
        consumer.at = 1
        produce(cluster, 90, topic=topic)
        deadline = time.monotonic() + SECONDS
        while len(got) < 180:
            assert time.monotonic() < deadline, f"{len(got)} have come"
            got.update(consumer.poll("&waitMs=500"))
        assert set(got.values()) == {1}

    undisturbed(cluster, attempt)


def test_a_broker_that_dies_stops_nobody(cluster: LocalCluster) -> None:
    produce(cluster, 0)
    consumer = Curl(cluster, "ann", 0)
    consumer.register()
    got = consumer.drain(90)
    cluster.kill(2)
    statuses = [consumer.ask("poll", "&waitMs=0")[0] for _ in range(20)]
    assert set(statuses) <= {200, 204}, "those of the two others are served all the time"
    late = Curl(cluster, "bob", 1)
    late.register()
    assert late.ask("goodbye")[0] == 200
    produce(cluster, 90, without=2)
    got = consumer.drain(90)
    assert {number for number in got if number >= 90} == set(range(90, 180))
