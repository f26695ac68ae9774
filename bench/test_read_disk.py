"""How fast is a replay from disk, against what fio reads from the same files?"""

import time
from typing import Any

import pytest

from bench import machine
from bench.cases import fill
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.load import median
from bench.machine import GiB
from bench.reading import fio_bytes_per_second, read_once, segments
from bench.servers import TOPIC, Broker

COMPRESSION = 2.3  # Of the generated payloads, about: payload bytes a stored byte.


def _replay_once(server: Broker) -> float:
    """Bytes a second of a broker that has just started, so that memory holds none of it."""
    machine.drop_cached(server.data_dir)
    server.start()
    try:
        run = read_once(server, TOPIC.format(topic="0000"))
        return run.received_per_second
    finally:
        server.stop()


@pytest.fixture(scope="module")
def rates(broker: Broker) -> dict[str, list[float]]:
    """Replay and fio in turn, on one log, each past the page cache."""
    found: dict[str, list[float]] = {"barco": [], "fio": []}
    with LAB.question("read-disk"):
        fill(broker, int(SETTINGS.replay_gib * COMPRESSION * GiB))
        broker.stop()
        files = segments(broker)
        for _ in range(SETTINGS.rounds):
            # A start removes the segment that was made ahead and never used.
            files = [file for file in files if file.exists()]
            machine.drop_cached(broker.data_dir)
            found["fio"].append(fio_bytes_per_second(files))
            time.sleep(0.2)
            found["barco"].append(_replay_once(broker))
        ours, theirs = found["barco"], found["fio"]
        note = f"{median(ours) / 1e6:,.0f} against {median(theirs) / 1e6:,.0f} MB/s"
        LAB.record("read-disk", ratios(ours, theirs), note=note)
    return found


@pytest.mark.benchmark(group="reading from disk, wall time a stored MB", timer=METER.read)
@pytest.mark.parametrize("reader", ("barco", "fio"))
def test_read_disk(benchmark: Any, rates: dict[str, list[float]], reader: str) -> None:
    """Wall time a megabyte."""
    benchmark.extra_info["mb_per_second"] = round(median(rates[reader]) / 1e6)
    METER.replay(benchmark, [1e6 / rate for rate in rates[reader]])
