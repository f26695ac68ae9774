"""How long does a start take when thousands of starts and fail-overs came before it?"""

from typing import Any

import pytest

from bench import machine
from bench.harness import LAB, METER, SETTINGS
from bench.old_generations import EVENTS, TOPIC, add_old_generations
from bench.servers import Broker, scratch_dir

STARTS = 3


def _start(server: Broker) -> tuple[float, float]:
    """Seconds until ready, nothing cached, and the CPU that the broker has used by then."""
    machine.drop_cached(server.data_dir)
    server.start(120)
    cpu = sum(map(machine.cpu_seconds, [server.supervisor, *server.pids]))
    return server.start_seconds, cpu


@pytest.fixture(scope="module")
def starts() -> list[float]:
    """Seconds to start, again and again; all that is old can be read."""
    with LAB.question("generations"), scratch_dir("generations") as directory:
        server = Broker(directory / "data")
        fresh = server.start().start_seconds
        server.stop()
        add_old_generations(server.data_dir, SETTINGS.generations)
        found = []
        try:
            for _ in range(STARTS):
                found.append(_start(server))
                page = server.json("GET", f"/v1/topics/{TOPIC}")
                assert page, "the topic of the old generations is known"
                server.stop()
        finally:
            server.stop()
        seconds = [wall for wall, _ in found]
        note = f"{found[-1][1]:.2f} s of CPU; {fresh:.2f} s with none"
        note += f"; {SETTINGS.generations:,} generations of {EVENTS} events"
        LAB.record("generations", seconds, note=note)
        return seconds


@pytest.mark.benchmark(group="start with old generations, wall time", timer=METER.read)
def test_generations(benchmark: Any, starts: list[float]) -> None:
    """Wall time until ready."""
    METER.replay(benchmark, starts)
