"""Other numbers of workers: ranges are cut again under load, and stay at their brokers."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joining import JoinedCluster, barco, three, until
from test_growth import Load, everything, routes

from barco.model.ranges import from_plain
from barco.supervisor import machine
from barco.supervisor.machine import Cores

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
    cluster.stop([broker])
    cluster.start(broker)
    cluster.wait_ready([broker])


def logged(cluster: JoinedCluster, broker: int) -> list[dict[str, Any]]:
    whole, _, _ = cluster.log(broker).read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


def placed(cluster: JoinedCluster, broker: int) -> bool:
    """Whether each process runs on the core that a broker with this table gives it."""
    told = json.loads((cluster.data(broker) / "processes.json").read_text())["processes"]
    table, cores = from_plain(told), Cores(broker, broker, machine.cores())
    lines = logged(cluster, broker)
    pids = {line["worker"]: line["pid"] for line in lines if line["message"] == "worker started"}
    assert set(pids) == set(table.numbers)
    return all(os.sched_getaffinity(pids[each]) == {cores.of(table, each)} for each in pids)


def test_one_worker_becomes_two_and_four(cluster: JoinedCluster) -> None:
    """By the command for all, and then by the file of one broker that is restarted, under load."""
    load = Load(cluster)
    load.goes_on()
    at = cluster.endpoints[1]
    grown = barco("scale", "--workers", 2, "--timeout", 180, "--endpoint", at)
    assert grown.returncode == 0, grown.stdout + grown.stderr
    load.goes_on()
    reached(cluster, shape(2, 2, 2))
    ask_in_file(cluster, 0, 1, 4)
    reached(cluster, shape(4, 2, 2))
    load.goes_on()
    load.end()
    everything(cluster, load)
    for broker in range(3):
        until("all are where they belong", lambda broker=broker: placed(cluster, broker))


@pytest.mark.chaos
def test_four_and_two_workers_become_one(cluster: JoinedCluster) -> None:
    """What was cut is joined again, under load: also by the file of one broker."""
    load = Load(cluster)
    load.goes_on()
    at = cluster.endpoints[1]
    grown = barco("scale", "--workers", 2, "--timeout", 90, "--endpoint", at)
    assert grown.returncode == 0, grown.stdout + grown.stderr
    ask_in_file(cluster, 0, 1, 4)
    reached(cluster, shape(4, 2, 2))
    ask_in_file(cluster, 0, 4, 2)
    reached(cluster, shape(2, 2, 2))
    load.goes_on()
    fewer = barco("scale", "--workers", 1, "--timeout", 90, "--endpoint", at)
    assert fewer.returncode == 0, fewer.stdout + fewer.stderr
    reached(cluster, shape(1, 1, 1))
    load.goes_on()
    load.end()
    everything(cluster, load)


@pytest.mark.chaos
@pytest.mark.parametrize("killed", range(3))
def test_a_broker_is_killed_meanwhile(cluster: JoinedCluster, killed: int) -> None:
    """In the middle of it all; the next in line goes on, and so does whoever comes back."""
    load = Load(cluster)
    load.goes_on()
    at = cluster.endpoints[(killed + 1) % 3]
    assert barco("scale", "--workers", 2, "--no-wait", "--endpoint", at).returncode == 0
    time.sleep(0.3 + 0.5 * killed)
    cluster.kill(killed)
    time.sleep(2.0)
    cluster.start(killed)
    grown = barco("scale", "--workers", 2, "--timeout", 90, "--endpoint", at)
    assert grown.returncode == 0, grown.stdout + grown.stderr
    load.goes_on()
    load.end()
    reached(cluster, shape(2, 2, 2))
    everything(cluster, load)
