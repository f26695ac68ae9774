"""Other numbers of workers: ranges are cut again under load, and stay at their brokers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joining import JoinedCluster, barco, three, until
from test_growth import Load, everything, routes

Shape = list[tuple[int, int, list[int]]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    for made in three(tmp_path):
        yield made
        for broker in range(3):
            made.kill(broker)  # Nothing is looked at any more.


def shape(*workers: int) -> Shape:
    """The ranges of a ring of three whose brokers have so many workers."""
    return [
        (8 * owner + number * 8 // count, 8 // count, [(owner + seat) % 3 for seat in range(3)])
        for owner, count in enumerate(workers)
        for number in range(count)
    ]


def reached(cluster: JoinedCluster, wanted: Shape) -> None:
    for broker in range(3):
        until(f"broker {broker} sees it", lambda broker=broker: routes(cluster, broker) == wanted)
        cluster.wait_in_sync(broker)


def ask_in_file(cluster: JoinedCluster, broker: int, before: int, workers: int) -> None:
    """As an operator does: another number in the file, and a restart."""
    file = cluster.config(broker)
    text = file.read_text()
    assert f"workers = {before}\n" in text
    file.write_text(text.replace(f"workers = {before}\n", f"workers = {workers}\n"))
    restart(cluster, broker)


def restart(cluster: JoinedCluster, broker: int) -> None:
    cluster.stop([broker])
    cluster.start(broker)
    cluster.wait_ready([broker])


def words(cluster: JoinedCluster, broker: int) -> list[str]:
    """What a broker's processes have logged."""
    whole, _, _ = cluster.log(broker).read_text().rpartition("\n")
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in whole.splitlines() if line.startswith("{")
    ]
    return [str(line.get("message")) for line in lines]


def test_one_worker_becomes_two_and_four(cluster: JoinedCluster) -> None:
    """By the command for all, and then by the file of one broker that is restarted, under load."""
    load = Load(cluster)
    load.goes_on()
    at = cluster.endpoints[1]
    grown = barco("scale", "--workers", 2, "--timeout", 90, "--endpoint", at)
    assert grown.returncode == 0, grown.stdout + grown.stderr
    load.goes_on()
    reached(cluster, shape(2, 2, 2))
    ask_in_file(cluster, 0, 1, 4)
    reached(cluster, shape(4, 2, 2))
    load.goes_on()
    load.end()
    everything(cluster, load)
    # What was granted once is not asked for again: the command has the last word.
    target = cluster.topology()["target"]
    restart(cluster, 0)
    assert cluster.topology()["target"] == target
    assert sum("= 4 is asked for, instead of 2" in line for line in words(cluster, 0)) == 1
    # Fewer are refused, with words.
    fewer = barco("scale", "--workers", 1, "--endpoint", at)
    assert (fewer.returncode, "ranges would have to be joined" in fewer.stderr) == (1, True)
    assert cluster.topology()["target"] == target
    reached(cluster, shape(4, 2, 2))
