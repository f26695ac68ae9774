"""The registry in a ring of three: asked everywhere, one answer; and no id twice, whoever dies."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx2 import TransportError

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three

NOT_NOW = (SchemaRegistryError, TransportError)

SECONDS = 90.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ready(cluster: LocalCluster, ordinal: int) -> bool:
    try:
        client(cluster, ordinal).get_subjects()
    except NOT_NOW:
        return False
    return True


def client(cluster: LocalCluster, *ordinals: int) -> SchemaRegistryClient:
    urls = ",".join(f"http://{cluster.hosts[each]}:9250/registry" for each in ordinals)
    return SchemaRegistryClient({"url": urls, "max.retries": 0, "timeout": 20})


def keeper(cluster: LocalCluster, by: int) -> int:
    """Who leads slice 0."""
    with barco.Admin(f"{cluster.hosts[by]}:9250") as admin:
        routes = admin.topology()["routes"]
    return int(next(each["leader"] for each in routes if each["first"] == 0))


def schema(name: str) -> Schema:
    return Schema(json.dumps({"type": "fixed", "name": name, "size": 1}), "AVRO")


class Registering(threading.Thread):
    """One schema after the other, each until it is answered; each name twice, by two of them."""

    def __init__(self, cluster: LocalCluster, ordinals: tuple[int, ...], prefix: str) -> None:
        super().__init__(daemon=True)
        self.given: dict[str, int] = {}
        self.ends = threading.Event()
        self._registry = client(cluster, *ordinals)
        self._prefix = prefix

    def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            name = f"{self._prefix}{number}"
            try:
                self.given[name] = self._registry.register_schema(name, schema(name))
                number += 1
            except NOT_NOW:
                time.sleep(0.05)


def test_no_id_twice_when_its_keeper_is_killed(cluster: LocalCluster) -> None:
    until(lambda: all(ready(cluster, ordinal) for ordinal in range(3)))
    victim = keeper(cluster, 1)
    others = tuple(each for each in range(3) if each != victim)
    threads = [
        Registering(cluster, (each,), prefix)
        for each, prefix in zip((*others, *others), "aabb", strict=True)
    ]
    for each in threads:
        each.start()
    until(lambda: all(len(each.given) >= 20 for each in threads))
    cluster.kill(victim)
    before = [len(each.given) for each in threads]
    until(lambda: all(len(t.given) >= n + 20 for t, n in zip(threads, before, strict=True)))
    for each in threads:
        each.ends.set()
        each.join(SECONDS)
    until(lambda: keeper(cluster, others[0]) != victim)
    cluster.start(victim)
    until(lambda: ready(cluster, victim))
    given: dict[str, int] = {}
    for each in threads:
        for name, id in each.given.items():
            assert given.setdefault(name, id) == id, f"{name}: two answers"
    assert len(set(given.values())) == len(given) >= 80, "one id was given to two schemas"
    for ordinal in range(3):
        registry = client(cluster, ordinal)
        assert set(given) <= set(answered(registry.get_subjects))
        for name, id in list(given.items())[:: max(1, len(given) // 40)]:
            assert answered(registry.get_schema, id).schema_str == schema(name).schema_str
            assert answered(registry.get_latest_version, name).schema_id == id


def answered(ask: Callable[..., Any], *arguments: object) -> Any:
    """As soon as somebody keeps the schemas: they go back to who was killed about now."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return ask(*arguments)
        except NOT_NOW as error:
            told = isinstance(error, SchemaRegistryError) and error.http_status_code < 500
            if told or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
