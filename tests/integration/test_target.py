"""The brokers of which a cluster shall consist: said to any of them, kept, told to all."""

from collections.abc import Iterator
from typing import Any

import pytest
from joining import JoinedCluster, barco, three, until

import barco as client
from barco.errors import BarcoError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinedCluster]:
    yield from three(tmp_path_factory.mktemp("target"))


def topology(cluster: JoinedCluster, at: int) -> dict[str, Any]:
    with client.Admin(cluster.endpoints[at], timeout_s=30.0) as admin:
        return dict(admin.topology())


def target(cluster: JoinedCluster, at: int) -> dict[str, Any]:
    return dict(topology(cluster, at)["target"])


def put(cluster: JoinedCluster, at: int, ordinals: Any, /, **changes: Any) -> dict[str, Any]:
    seen = topology(cluster, at)
    asked = {
        "cluster": seen["cluster"],
        "version": seen["target"]["version"],
        "brokers": [{"ordinal": each, "workers": 1} for each in ordinals],
    }
    with client.Admin(cluster.endpoints[at], timeout_s=30.0) as admin:
        return dict(admin.set_target(asked | changes))


def ordinals_of(found: dict[str, Any]) -> list[int]:
    return [each["ordinal"] for each in found["brokers"]]


def told(cluster: JoinedCluster, version: int) -> None:
    for at in range(3):
        until(f"broker {at} hears", lambda at=at: target(cluster, at)["version"] == version)


def test_before_anybody_asks_it_is_the_first_cut(cluster: JoinedCluster) -> None:
    assert target(cluster, 0) == {
        "version": 0,
        "brokers": [{"ordinal": each, "workers": 1} for each in range(3)],
    }
    assert put(cluster, 1, range(3))["version"] == 0


def test_it_is_said_to_any_broker_and_told_to_all(cluster: JoinedCluster) -> None:
    """What nobody has joined for may be taken back."""
    found = put(cluster, 2, range(6))
    assert (found["version"], ordinals_of(found)) == (1, [0, 1, 2, 3, 4, 5])
    told(cluster, 1)
    assert put(cluster, 0, range(6), version=0) == found  # The same again, whatever was seen.
    with pytest.raises(BarcoError, match="it is version 1, and not 0"):
        put(cluster, 0, range(4), version=0)
    assert put(cluster, 1, range(4))["version"] == 2
    told(cluster, 2)


@pytest.mark.parametrize(
    ("ordinals", "changes", "words"),
    [
        (range(2), {}, "a ring has at least three"),
        (range(48), {}, "24 is the largest"),
        ([0, 1, 2, 7], {}, "no ring has brokers"),
        (range(4), {"cluster": "0" * 16}, "this is cluster"),
        (range(4), {"brokers": []}, "names no broker"),
        (range(4), {"brokers": [{"ordinal": 0, "workers": 9}]}, "at least three"),
        (range(4), {"brokers": [{"ordinal": -1, "workers": 1}]}, "whole number from 0"),
        (range(4), {"brokers": 6}, "brokers a list"),
        (range(4), {"more": 6}, "no field"),
    ],
)
def test_what_does_not_go(
    cluster: JoinedCluster, ordinals: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BarcoError, match=words):
        put(cluster, 1, ordinals, **changes)
    assert target(cluster, 1)["version"] == 2


def test_another_disk_is_refused(cluster: JoinedCluster) -> None:
    brokers: list[dict[str, Any]] = [{"ordinal": each, "workers": 1} for each in range(6)]
    brokers[1]["diskUuid"] = "a" * 32
    with pytest.raises(BarcoError, match="broker 1 is known with disk"):
        put(cluster, 1, [], brokers=brokers)


def test_it_survives_the_death_of_all_and_goes_with_slice_0(cluster: JoinedCluster) -> None:
    for ordinal in range(3):
        cluster.kill(ordinal)
    for ordinal in range(3):
        cluster.start(ordinal)
    cluster.wait_ready()
    told(cluster, 2)
    assert ordinals_of(target(cluster, 1)) == [0, 1, 2, 3]
    cluster.wait_in_sync(1)
    cluster.kill(0)  # It leads slice 0; its next in line has the event too.
    cluster.wait_ready([1, 2])
    assert put(cluster, 2, range(6))["version"] == 3
    cluster.start(0)
    cluster.wait_ready([0])
    cluster.wait_in_sync(0)
    told(cluster, 3)
    assert put(cluster, 0, range(5))["version"] == 4
    told(cluster, 4)


def test_scale_says_so_and_looks_on(cluster: JoinedCluster) -> None:
    """Brokers 3 and 4 never came: nothing is left to do, and nothing is reached."""
    at = ("--endpoint", cluster.endpoints[1])
    planned = barco("scale", "--to", 6, "--plan", *at)
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.count("become") == 3 and planned.stdout.startswith("round 1  broker 0")
    assert "brokers 3, 4, 5 have not joined yet" in planned.stdout
    assert target(cluster, 1)["version"] == 4
    for _ in range(2):  # The same again looks on.
        begun = barco("scale", "--to", 4, "--timeout", 6, *at)
        assert begun.returncode == 1 and "waits for brokers 3, which" in begun.stdout
        assert "not reached in 6 s; what was said stays" in begun.stderr
    told(cluster, 5)
    assert barco("scale", "--to", 6, "--no-wait", "--json", *at).returncode == 0
    told(cluster, 6)
    back = barco("scale", "--to", 3, *at)
    assert (back.returncode, "done: the ring has 3 brokers" in back.stdout) == (0, True)
    for size, words in ((2, "at least three"), (48, "24 is the largest"), (99_999, "at most")):
        refused = barco("scale", "--to", size, *at)
        assert (refused.returncode, words in refused.stderr) == (2, True), refused
