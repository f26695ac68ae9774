"""Exactly once at the output of a pipeline, whatever is killed: producers that repeat what has no
answer, topic, pipeline, topic."""

import importlib.util
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faultlab.pipes import PipeStorm

SECONDS = float(os.environ.get("BARCO_PIPE_SECONDS", "25"))
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster.py"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """Three brokers on addresses that nobody else has."""
    spec = importlib.util.spec_from_file_location("barco_cluster", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["barco_cluster"] = module  # Dataclasses look themselves up.
    spec.loader.exec_module(module)
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    made = module.LocalCluster(tmp_path, hosts=[f"{net}.{n + 1}" for n in range(3)], tied=True)
    made.write()
    for ordinal in range(3):
        made.start(ordinal)
    made.wait_ready()
    yield made
    made.stop()
    for ordinal in range(3):
        shutil.rmtree(made.data(ordinal), ignore_errors=True)


@pytest.mark.chaos  # `make chaos-pipe`.
@pytest.mark.timeout(int(SECONDS) + 600)
def test_each_event_once_at_the_output(cluster: Any, seed: int) -> None:
    """0 lost, 0 twice, and in order for each key."""
    print(f"seed {seed}")
    figures = PipeStorm(cluster, seed).run(SECONDS)
    print(figures)
    assert figures["events"] > 1000
    assert figures.get("pipeline", 0) + figures.get("itself", 0) >= 3, figures
