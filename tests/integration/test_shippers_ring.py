"""Shippers at a ring of three: any broker takes them; what was answered outlives one of them."""

import http.client
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three

SECONDS = 90.0
"""Generous: it only ends what has failed."""
ITEMS = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


def bulk(cluster: LocalCluster, ordinal: int, first: int) -> int:
    """How many documents of keys of their own, which are on every slice of the ring, were stored;
    -1: nobody answered."""
    lines = [
        json.dumps(line)
        for n in range(first, first + ITEMS)
        for line in ({"create": {"_id": str(n)}}, {"n": n})
    ]
    connection = http.client.HTTPConnection(cluster.hosts[ordinal], 9251, timeout=30)
    try:
        connection.request("POST", "/elastic/t/_bulk", "\n".join(lines).encode())
        answer = connection.getresponse()
        said = json.loads(answer.read())
    except OSError:
        return -1
    finally:
        connection.close()
    if answer.status != 200:
        return -1
    return sum(item["create"]["status"] == 201 for item in said["items"])


def until_stored(cluster: LocalCluster, ordinal: int, first: int) -> None:
    deadline = time.monotonic() + SECONDS
    while bulk(cluster, ordinal, first) != ITEMS:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_was_answered_outlives_a_broker(cluster: LocalCluster) -> None:
    for ordinal in range(3):
        until_stored(cluster, ordinal, ordinal * ITEMS)
    cluster.kill(1)
    until_stored(cluster, 0, 3 * ITEMS)  # Its slices have other leaders now: they are waited for.
    until_stored(cluster, 2, 4 * ITEMS)
    endpoint = f"{cluster.hosts[0]}:9250"
    found = {json.loads(event.value)["n"] for event in barco.read("t", endpoint)}
    assert found == set(range(5 * ITEMS))
