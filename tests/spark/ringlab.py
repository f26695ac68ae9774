"""Three brokers for tests of Spark, which may be killed and started again."""

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster.py"
PATIENCE_S = 240.0


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("barco_cluster", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["barco_cluster"] = module  # Dataclasses look themselves up.
    spec.loader.exec_module(module)
    return module


class Ring:
    """A cluster as a test sees it."""

    def __init__(self, made: Any) -> None:
        self.made = made

    @property
    def endpoints(self) -> list[str]:
        """Of all three."""
        return list(self.made.endpoints)

    @property
    def endpoint(self) -> str:
        """For the option `endpoints`."""
        return ",".join(self.endpoints)

    def whole(self) -> None:
        """Starts who does not run; returns when every broker leads its own range again."""
        for ordinal in range(3):
            if self.made.pid(ordinal) is None:
                self.made.start(ordinal)
        deadline = time.monotonic() + PATIENCE_S
        while not all(self._leads(endpoint) for endpoint in self.endpoints):
            assert time.monotonic() < deadline, "the ring is not whole"
            time.sleep(0.1)

    @staticmethod
    def _leads(endpoint: str) -> bool:
        """Whether a broker says that all three lead what is theirs."""
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"http://{endpoint}/v1/topology", timeout=2) as answer:
                shards = json.load(answer)["shards"]
            return [shard["ordinal"] if shard["up"] else None for shard in shards] == [0, 1, 2]
        return False


@contextlib.contextmanager
def ring(directory: Path) -> Iterator[Ring]:
    """On addresses that nobody else has, on the usual ports."""
    script = _script()
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    made = script.LocalCluster(directory, hosts=hosts, tied=True)
    made.write()
    found = Ring(made)
    try:
        found.whole()
        yield found
    finally:
        made.stop()
        for ordinal in range(3):  # Gigabytes, most of them zeros.
            shutil.rmtree(made.data(ordinal), ignore_errors=True)
