"""Checked topics in a ring of three: whoever takes a request, and whoever leads what."""

import http.client
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three

SECONDS = 90.0
"""Generous: it only ends what has failed."""

TRIP = {"type": "object", "required": ["km"], "properties": {"km": {"type": "number"}}}
NDJSON = "application/x-ndjson"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


def produce(cluster: LocalCluster, ordinal: int, value: bytes, key: int) -> tuple[int, bytes]:
    """By a connection of its own: any process of that broker has it."""
    connection = http.client.HTTPConnection(cluster.hosts[ordinal], 9251, timeout=60)
    try:
        path = f"/v1/topic/t/messages?partitionKey={key}"
        connection.request("POST", path, value, {"Content-Type": NDJSON})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def patiently(cluster: LocalCluster, ordinal: int, value: bytes, key: int) -> int:
    """The first answer that is one: not of a broker or a leader that has not heard yet, or has just
    changed."""
    deadline = time.monotonic() + SECONDS
    while (answer := produce(cluster, ordinal, value, key))[0] in (500, 503):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer[0]


def test_every_broker_checks(cluster: LocalCluster) -> None:
    with barco.Admin(f"{cluster.hosts[0]}:9250") as admin:
        admin.create_topic("t", schema_check="reject")
    url = f"http://{cluster.hosts[1]}:9250/registry"
    registry = SchemaRegistryClient({"url": url, "timeout": 60})
    registry.register_schema("t-value", Schema(json.dumps(TRIP), "JSON"))
    # At once, and of many keys: some are led elsewhere. None of it may slip through.
    for key in range(60):
        assert patiently(cluster, key % 3, b'{"km": "x"}', key) == 422
        assert patiently(cluster, key % 3, b'{"km": 1}', key) == 200
    events = list(barco.read("t", f"{cluster.hosts[2]}:9250"))
    # Whose answer was not known was sent again.
    assert {event.value for event in events} == {b'{"km": 1}'} and len(events) >= 60
    # Who keeps the schemas has gone: what is known goes on to be used.
    cluster.kill(0)
    for key in range(60):
        assert patiently(cluster, 1 + key % 2, b'{"km": 2}', key) == 200
        assert patiently(cluster, 1 + key % 2, b'{"km": "x"}', key) == 422
