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


def until_said(
    cluster: JoinedCluster, seen: Callable[[int, str], bool], command: str, *arguments: str
) -> str:
    """What it prints by then: another moment is another answer, on a busy machine."""
    deadline = time.monotonic() + SECONDS
    while not seen(*(told := said(cluster, command, *arguments))):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    return told[1]


def test_a_ring_loses_a_broker_and_gets_it_back(cluster: JoinedCluster) -> None:
    told = until(cluster, lambda text: "✓ all is well" in text)
    assert told.count(" in sync, ") == 3 and "1 in sync, 2 in sync" in told
    told = until_said(cluster, lambda code, _: code == 0, "status", "--json")
    assert json.loads(told)["health"] == {
        "headline": "All slices are written to three disks",
        "wrong": [],
        "notes": [],
    }
    until_said(cluster, lambda code, _: code == 0, "status")
    cluster.kill(1)
    told = until(cluster, lambda text: "is down since" in text)
    assert "; slices 0-23 have 2 copies of three" in told
    told = until(cluster, lambda text: "leads slices 8-15 in the place of broker 1" in text)
    assert "✗ broker 1 (" in told and "DOWN" in told and "✓" not in told
    words = "✗ All slices are written to two disks or more; nothing"
    until_said(cluster, lambda code, out: code == 3 and out.startswith(words), "status")
    until_said(cluster, lambda code, _: code == 0, "status", "--ready")

    def by_another(code: int, out: str) -> bool:
        rows = {row[0]: row for line in out.splitlines() if (row := line.split())}
        led = [rows[each][2:4] for each in "012" if each in rows]
        assert code == 0
        return (
            "✗ broker 1 (" in out
            and led == [["alive", "8"], ["down", "0"], ["alive", "16"]]
            and rows["2"][4] == "0"
            and rows["1"][4] == "-"  # Events a second: known, and not.
        )

    until_said(cluster, by_another, "top", "--once")
    assert "3 steps (3 splits) in " in ring(cluster, "--to", "6")
    cluster.start(1)
    told = until(cluster, lambda text: "✓ all is well" in text)
    assert " → " in told, "its range has another generation"
