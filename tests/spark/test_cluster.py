"""On a standalone cluster, through spark-submit: the engine as people run it."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kills import kill_one
from sparklab import endpoint_of, expected, produce
from standalone import Standalone, standalone

from barco.spark import SETTINGS

EVENTS = 20_000
SCRIPT = Path(__file__).with_name("submitted.py")
OPTIONS = {"minPartitions": "12", "fetchBytes": "8192", "batchBytes": "8192"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A master and two workers."""
    with standalone(tmp_path_factory.mktemp("standalone")) as found:
        yield found


def kill_meanwhile(cluster: Standalone, done: Path, wanted: dict[str, int]) -> threading.Thread:
    """While a submitted program reads: kill Python workers and executors, then let it end."""

    def work() -> None:
        deadline = time.monotonic() + 400
        while not done.with_suffix(".running").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        for kind, count in wanted.items():
            killed = 0
            while killed < count and time.monotonic() < deadline:
                victims = cluster.python_tasks() if kind == "python" else cluster.executors()
                killed += kill_one(victims, killed)
                time.sleep(1.0 if kind == "python" else 8.0)
        done.touch()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.chaos  # Once takes 70 s.
@pytest.mark.parametrize("kills", [1, 10], ids=["once", "ten times"])
def test_a_submitted_program_reads_and_survives(
    cluster: Standalone, broker: Any, tmp_path: Path, kills: int
) -> None:
    topic = f"cluster-{kills}"
    produce(broker, topic, range(EVENTS))
    done = tmp_path / "done"
    # More may fail than by default: each kill of an executor takes all of its tasks.
    settings = SETTINGS | {"spark.task.maxFailures": "20"}
    thread = kill_meanwhile(cluster, done, {"python": kills, "executor": kills})
    found = cluster.submit(
        SCRIPT, endpoint_of(broker), topic, json.dumps(OPTIONS | {"done": str(done)}), **settings
    )
    thread.join()
    count, checksum = expected(range(EVENTS))
    assert found["tasks"] >= 12 and len(found["rounds"]) > 1
    assert found["rounds"] == [[count, checksum]] * len(found["rounds"])
