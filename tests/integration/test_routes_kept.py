"""The routes that real brokers keep beside broker.json: a hint, which may be damaged."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from joining import JoinedCluster, three, until
from schema import wrong

from barco.cluster.ring.cut import Cut
from barco.supervisor.files.routes import stored_routes
from barco.workers.http.shapes.status import STATUS


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def owners(cluster: JoinedCluster, ordinal: int) -> bool:
    """Whether a broker has kept that each range is led by its owner."""
    data = cluster.data(ordinal)
    uuid = json.loads((data / "broker.json").read_text())["cluster_uuid"]
    kept = stored_routes(data, uuid, Cut(3, 8))
    return [(route.first, route.leader) for route in kept] == [(0, 0), (8, 1), (16, 2)]


def settled(cluster: JoinedCluster) -> bool:
    """What is said of routes comes and goes while leaders change; now nothing is, by nobody."""
    told = [cluster.status(ordinal) for ordinal in range(3)]
    assert not any(wrong(each, STATUS) for each in told if each)
    routes = [each.get("routes") for each in told]
    version = cluster.topology()["version"]
    return routes == [{"version": version, "faults": []}] * 3


def test_they_are_kept_and_a_damaged_one_is_ignored_with_a_word(cluster: JoinedCluster) -> None:
    for ordinal in range(3):
        until("it is written", lambda ordinal=ordinal: owners(cluster, ordinal))
    until("nothing is wrong", lambda: settled(cluster))
    file = cluster.data(2) / "routes"
    cluster.kill(2)
    file.write_bytes(file.read_bytes()[:-1])
    cluster.start(2)
    cluster.wait_in_sync(2)
    assert cluster.log(2).read_text().count("is ignored, the routes are learned anew") == 1
    until("it is written anew", lambda: owners(cluster, 2))
    until("nothing is wrong", lambda: settled(cluster))
