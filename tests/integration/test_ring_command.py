"""`barco ring` beside real brokers: a ring of three, one of them killed, and back."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from joining import SECONDS, JoinedCluster, three


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def ring(cluster: JoinedCluster, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "barco", "ring", "--endpoint", cluster.endpoints[0]]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(cluster: JoinedCluster, seen: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + SECONDS
    while not seen(told := ring(cluster)):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    return told


def test_a_ring_loses_a_broker_and_gets_it_back(cluster: JoinedCluster) -> None:
    told = until(cluster, lambda text: "✓ all is well" in text)
    assert told.count(" in sync, ") == 3 and "1 in sync, 2 in sync" in told
    cluster.kill(1)
    told = until(cluster, lambda text: "is down; slices 0-23 have 2 copies of three" in text)
    told = until(cluster, lambda text: "leads slices 8-15 in the place of broker 1" in text)
    assert "✗ broker 1 (" in told and "DOWN" in told and "✓" not in told
    assert "3 steps (3 splits) in " in ring(cluster, "--to", "6")
    cluster.start(1)
    told = until(cluster, lambda text: "✓ all is well" in text)
    assert " → " in told, "its range has another generation"
