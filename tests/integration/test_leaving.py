"""A consumer leaves while a broker stands still: it is not held up, others get its slices."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from joining import JoinedCluster, three, until

import barco

SECONDS_MAX = 45.0
"""Twice five for the broker that stands still, and what a busy machine takes; it was 60 once."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def everything(pid: int) -> list[int]:
    """A process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in everything(int(child)))]


def test_a_broker_that_stands_still_holds_no_consumer_that_leaves(cluster: JoinedCluster) -> None:
    endpoint = ",".join(cluster.endpoints[:2])
    with barco.Producer(endpoint) as producer:
        producer.send_many("t", [b"x"] * 240, [str(n).encode() for n in range(240)]).result(30)
    first = barco.Consumer("t", group="g", start="earliest", endpoint=endpoint)
    second = barco.Consumer("t", group="g", start="earliest", endpoint=endpoint)
    assert until("events for the first", lambda: first.poll(1.0))
    pid = cluster.pid(2)
    assert pid is not None
    stopped = everything(pid)
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        first.close()
        took = time.monotonic() - began
        assert took < SECONDS_MAX, took

        def alone() -> bool:
            second.poll(1.0)
            with barco.Admin(cluster.endpoints[0]) as admin:
                return len(admin.group("g")["members"]) == 1

        until("the second alone in the group", alone)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    second.close()
