"""Directories of ranges in places that are not theirs, with real brokers."""

import subprocess
import sys
from pathlib import Path

from running import RunningBroker


def swap(one: Path, other: Path) -> None:
    """By hand, while the broker is stopped."""
    aside = one.with_name("swapping")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def refused(broker: RunningBroker) -> tuple[str, str]:
    """The last line of a start that ends at once with 78, and all of them."""
    command = [sys.executable, "-P", "-m", "barco", "serve", "--dev", "--ports-from", "0"]
    done = subprocess.run(
        [*command, "--data-dir", str(broker.data_dir), "--workers", str(broker.workers)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78, done
    assert "restart_in" not in done.stderr and "times within" not in done.stderr, done
    return done.stderr.splitlines()[-1], done.stderr


def filled(tmp_path: Path) -> RunningBroker:
    """A single broker of two workers, with events in both ranges, stopped."""
    broker = RunningBroker(tmp_path / "data")
    broker.start()
    for number in range(40):
        query = {"partitionKey": f"k{number}"}
        answer = broker.request("POST", "/v1/topic/t/messages", query, body=b"%d" % number)
        assert answer.status == 200
    assert broker.stop() == 0
    return broker


def test_swapped_directories_are_refused_once(tmp_path: Path) -> None:
    """The end came after five deaths, with 1: a service would have tried it again for ever."""
    broker = filled(tmp_path)
    ranges = sorted(broker.data_dir.glob("range-*"))
    assert len(ranges) == 2
    swap(*ranges)
    last, _ = refused(broker)
    assert last.startswith("barco: /") and "back where they were" in last, last
    swap(*ranges)
    broker.start()
    try:
        told = broker.request("GET", "/v1/topics/t").json
        assert told["events"] == 40, told
    finally:
        broker.end()
