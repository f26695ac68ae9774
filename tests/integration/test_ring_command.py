"""`barco ring`, `status` and `top` beside real brokers: a ring of three, one killed, and back."""

import json
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


def said(cluster: JoinedCluster, command: str, *arguments: str) -> tuple[int, str]:
    """The code that a command ends with, and what it prints."""
    line = [sys.executable, "-P", "-m", "barco", command, "--endpoint", cluster.endpoints[0]]
    done = subprocess.run([*line, *arguments], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def ring(cluster: JoinedCluster, *arguments: str) -> str:
    code, out = said(cluster, "ring", *arguments)
    assert code == 0
    return out


def until(cluster: JoinedCluster, seen: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + SECONDS
    while not seen(told := ring(cluster)):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    return told


def test_a_ring_loses_a_broker_and_gets_it_back(cluster: JoinedCluster) -> None:
    told = until(cluster, lambda text: "✓ all is well" in text)
    assert told.count(" in sync, ") == 3 and "1 in sync, 2 in sync" in told
    assert said(cluster, "status")[0] == 0
    code, out = said(cluster, "status", "--json")
    assert code == 0 and json.loads(out)["health"] == {
        "headline": "All slices are written to three disks",
        "wrong": [],
        "notes": [],
    }
    cluster.kill(1)
    told = until(cluster, lambda text: "is down; slices 0-23 have 2 copies of three" in text)
    told = until(cluster, lambda text: "leads slices 8-15 in the place of broker 1" in text)
    assert "✗ broker 1 (" in told and "DOWN" in told and "✓" not in told
    code, out = said(cluster, "status")
    assert code == 3 and out.startswith("✗ All slices are written to two disks or more; nothing")
    assert said(cluster, "status", "--ready")[0] == 0
    code, out = said(cluster, "top", "--once")
    rows = {row[0]: row for line in out.splitlines() if (row := line.split())}
    assert code == 0 and "✗ broker 1 (" in out
    assert rows["1"][2:4] == ["down", "0"] and rows["2"][2:4] == ["alive", "16"]
    assert rows["2"][4] == "0" and rows["1"][4] == "-", "events a second: known, and not"
    assert "3 steps (3 splits) in " in ring(cluster, "--to", "6")
    cluster.start(1)
    told = until(cluster, lambda text: "✓ all is well" in text)
    assert " → " in told, "its range has another generation"
