"""How long until a broker that was killed under load is ready again?"""

from typing import Any

import pytest

from bench import machine
from bench.cases import KiB, ndjson
from bench.harness import LAB, METER, SETTINGS
from bench.machine import GiB
from bench.servers import Broker

STEP_BODIES = 4096  # Of 256 KiB: a GiB of payload between two looks at the size of the log.
SMALLER = 8


def _grow(server: Broker, log_bytes: float) -> None:
    """Load until the log has so many bytes on disk; leaves the last segment unsealed."""
    while server.log_bytes() < log_bytes:
        ndjson(server, 256 * KiB, requests=STEP_BODIES, warmup=0)


def _crash_and_start(server: Broker) -> float:
    """Seconds from the start of the command until it says it is ready, nothing cached."""
    server.kill()
    machine.drop_cached(server.data_dir)
    server.start(300)
    return server.start_seconds


@pytest.fixture(scope="module")
def starts(broker: Broker) -> dict[str, float]:
    """Seconds to start on a small log and on the full one."""
    with LAB.question("recovery"):
        full = SETTINGS.recovery_gib * GiB
        found = {}
        for name, size in (("small", full / SMALLER), ("full", full)):
            _grow(broker, size)
            found[name] = _crash_and_start(broker)
        found["bytes"] = broker.log_bytes()
        note = f"{found['bytes'] / GiB:.1f} GiB; {found['small']:.2f} s with an eighth of it"
        LAB.record("recovery", [found["full"]], note=note)
        return found


@pytest.mark.benchmark(group="recovery after SIGKILL, wall time", timer=METER.read)
@pytest.mark.parametrize("log", ("small", "full"))
def test_recovery(benchmark: Any, starts: dict[str, float], log: str) -> None:
    """Wall time until ready."""
    METER.replay(benchmark, [starts[log]])
