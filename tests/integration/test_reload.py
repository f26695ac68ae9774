"""SIGHUP: a longer list of brokers is what `barco scale` would say, whoever reads it first."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from joining import JoinedCluster, three, until
from test_target import ordinals_of, target, told, topology


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinedCluster]:
    ring = three(tmp_path_factory.mktemp("reload"))
    made = next(ring)
    yield made
    for ordinal in range(len(made.hosts)):
        made.kill(ordinal)
    next(ring, None)


def edit(cluster: JoinedCluster, at: int, brokers: list[str], more: str = "") -> None:
    lines = [
        f"brokers = {json.dumps(brokers)}" if line.startswith("brokers = ") else line
        for line in cluster.config(at).read_text().split("# more")[0].splitlines()
    ]
    new = cluster.config(at).with_suffix(".new")
    new.write_text("\n".join(lines) + f"\n# more\n{more}\n")
    new.rename(cluster.config(at))


def hang_up(cluster: JoinedCluster, *ordinals: int) -> None:
    for at in ordinals:
        pid = cluster.pid(at)
        assert pid is not None
        os.kill(pid, signal.SIGHUP)


def said(cluster: JoinedCluster, at: int) -> list[str]:
    lines = cluster.log(at).read_text().splitlines()
    messages = [json.loads(line)["message"] for line in lines if line.startswith("{")]
    return [each for each in messages if each.startswith(("reload", "configuration read again"))]


def reloaded(cluster: JoinedCluster, *ordinals: int) -> list[str]:
    """What each says of one more SIGHUP, all of them at once."""
    before = {at: len(said(cluster, at)) for at in ordinals}
    hang_up(cluster, *ordinals)
    for at in ordinals:
        until(f"broker {at} has read", lambda at=at: len(said(cluster, at)) > before[at])
    return [said(cluster, at)[-1] for at in ordinals]


def net(cluster: JoinedCluster) -> str:
    return cluster.hosts[0].rpartition(".")[0]


def listing(cluster: JoinedCluster, count: int) -> list[str]:
    return [f"{net(cluster)}.{each + 1}" for each in range(count)]


def test_all_at_once_are_one_change(cluster: JoinedCluster) -> None:
    pids = [cluster.pid(at) for at in range(3)]
    for at in range(3):
        edit(cluster, at, listing(cluster, 4), "[topics]\nretention_hours = 9")
    for line in reloaded(cluster, 0, 1, 2):
        assert line.startswith("configuration read again: cluster.brokers lists 4: the target")
        assert line.endswith("; only the next start takes up topics.retention_hours")
    told(cluster, 1)
    found = target(cluster, 1)
    assert ordinals_of(found) == [0, 1, 2, 3]
    assert found["brokers"][3] == {"ordinal": 3, "workers": 1, "host": f"{net(cluster)}.4"}
    later = "configuration read again: only the next start takes up topics.retention_hours"
    assert reloaded(cluster, 0, 1, 2) == [later] * 3
    told(cluster, 1)
    assert [cluster.pid(at) for at in range(3)] == pids


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[topic]\nretention_hours = 9", "unknown section [topic]"),
        ("[topics]\nretention_hours = -9", "topics.retention_hours = -9"),
        ("[topics\nretention_hours = 9", "is not TOML"),
        ("[ports]\nreplication = 9300", "ports.replication"),
    ],
)
def test_what_serve_would_not_take_is_refused_whole(
    cluster: JoinedCluster, more: str, words: str
) -> None:
    """The longer list in it as well."""
    edit(cluster, 1, listing(cluster, 5), more)
    (line,) = reloaded(cluster, 1)
    assert line.startswith("reload refused, all of it, and nothing is changed") and words in line
    assert target(cluster, 1)["version"] == 1


@pytest.mark.parametrize(
    ("brokers", "words"),
    [
        (3, "lists 3 brokers, and 4 before: that takes nobody out"),
        (25, "24 is the largest number of brokers that goes"),
        (2, "a cluster has three brokers at least"),
    ],
)
def test_a_list_that_does_not_go(cluster: JoinedCluster, brokers: int, words: str) -> None:
    edit(cluster, 1, listing(cluster, brokers))
    (line,) = reloaded(cluster, 1)
    assert line.startswith("reload refused") and words in line
    assert target(cluster, 1)["version"] == 1


def test_two_files_that_disagree_are_told(cluster: JoinedCluster) -> None:
    listed = listing(cluster, 5)
    edit(cluster, 2, [*listed[:3], f"{net(cluster)}.77", listed[4]])
    (line,) = reloaded(cluster, 2)
    assert f"has broker 3 at {net(cluster)}.77, and it was listed by another broker at" in line
    assert target(cluster, 2)["version"] == 1


def test_the_longest_list_wins_in_any_order(cluster: JoinedCluster) -> None:
    """Nobody has joined yet: so a list that goes on from the last one does."""
    edit(cluster, 0, listing(cluster, 6))
    edit(cluster, 1, listing(cluster, 5))
    edit(cluster, 2, listing(cluster, 4))
    reloaded(cluster, 0, 1, 2)
    until("the longest", lambda: len(target(cluster, 1)["brokers"]) == 6)
    version = target(cluster, 1)["version"]
    assert all("read again" in line for line in reloaded(cluster, 0, 1, 2))
    told(cluster, version)


def test_who_starts_with_an_older_file_does_not_set_it_back(cluster: JoinedCluster) -> None:
    version = target(cluster, 0)["version"]
    edit(cluster, 2, listing(cluster, 3))
    cluster.stop([2])
    cluster.start(2)
    cluster.wait_ready()
    assert reloaded(cluster, 2) == ["configuration read again: it is as it was"]
    edit(cluster, 2, listing(cluster, 4))
    (line,) = reloaded(cluster, 2)
    assert line.endswith(f"the target, version {version}, of 6 brokers, has them already")
    told(cluster, version)


def test_who_is_listed_joins_and_gets_its_share(cluster: JoinedCluster) -> None:
    """A start of the new host and the file are all that there is to do."""
    cluster.join(f"{net(cluster)}.4")

    def led() -> Any:
        return [each for each in topology(cluster, 1)["routes"] if each["leader"] == 3]

    until("broker 3 leads", led)
    edit(cluster, 1, [*listing(cluster, 3), f"{net(cluster)}.44", *listing(cluster, 6)[4:]])
    (line,) = reloaded(cluster, 1)
    assert f"has broker 3 at {net(cluster)}.44, and it is at {net(cluster)}.4" in line
