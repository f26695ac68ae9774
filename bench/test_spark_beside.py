"""What does a bulk load by Spark do to those who produce meanwhile?

The broker's one worker and the producers share a core; Spark, its JVM and its Python workers, has
the other one to itself, so that what is measured is the broker's doing and not a fight for cores
that a user would not put up with. The broker's is the one that the disk interrupts: there the
kernel ends each write, and would wait up to a tick (4 ms) for Spark's. Produce calls are single
events on a few connections, each of which sends the next one when it has its answer. In turn
without Spark, and while it reads the same topic's neighbour again and again.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench import machine, sparking
from bench.cases import single
from bench.harness import LAB, METER, SETTINGS
from bench.load import Load, median
from bench.machine import CORES
from bench.servers import Broker

CASES = {"spark-beside-100": (1_000_000, 100), "spark-beside-1k": (200_000, 1024)}
"""Events and bytes of value of what is read, by row of the table."""
CONNECTIONS = 4
LEAD_SECONDS = 0.5
"""From the first query of a round to the clock: until its tasks run."""


class Reading(threading.Thread):
    """Reads a topic from its beginning to its end, and again, until it is told to stop."""

    def __init__(self, frame: Any) -> None:
        super().__init__(daemon=True)
        self._frame = frame
        self._ended = threading.Event()
        self.rounds = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Query after query."""
        try:
            while not self._ended.is_set():
                sparking.noop(self._frame)
                self.rounds += 1
        except Exception as error:  # noqa: BLE001 - raised where it is waited for.
            self.failure = error

    def end(self) -> None:
        """Returns when the last query has ended."""
        self._ended.set()
        self.join(120)
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def pinned(jvm: int, core: int) -> Iterator[None]:
    """The JVM and Spark's Python on one core; what they start later inherits it."""
    try:
        for pid in sparking.descendants(jvm):
            machine.pin(pid, core)
        yield
    finally:
        for pid in sparking.descendants(jvm):
            machine.pin(pid, *CORES)


def produce(broker: Broker, core: int) -> Load:
    """Light produce calls for a while."""
    return single(broker, connections=CONNECTIONS, core=core, cpu_core=core)


@pytest.fixture(scope="module")
def found(broker: Broker) -> Iterator[dict[str, dict[str, list[Load]]]]:
    """For each case the loads alone and beside Spark, in turn."""
    runs: dict[str, dict[str, list[Load]]] = {}
    with LAB.question(*CASES):
        if len(CORES) < 2:
            raise machine.Missing("Spark needs a core of its own here")
        interrupted = machine.interrupt_core(broker.data_dir)
        core = CORES[0] if interrupted is None else interrupted
        other = next(each for each in CORES if each != core)
        machine.pin(broker.supervisor, other)
        for pid in broker.pids:
            machine.pin(pid, core)
        spark = sparking.session(cores=1)
        with pinned(sparking.Clock(spark, None).jvm, other):
            for row, (count, event_bytes) in CASES.items():
                sparking.produce(broker, row, int(count * sparking.SCALE), event_bytes)
                reader = spark.read.format("barco").option("subscribe", row)
                frame = reader.option("endpoints", sparking.endpoint_of(broker)).load()
                runs[row] = measure(broker, frame, core)
                judge(row, runs[row], int(count * sparking.SCALE))
        spark.stop()
    yield runs


def measure(broker: Broker, frame: Any, core: int) -> dict[str, list[Load]]:
    """Rounds of both, after one that warms the JVM; which of them is first alternates."""
    runs: dict[str, list[Load]] = {"alone": [], "beside": []}
    sparking.noop(frame)
    for number in range(SETTINGS.rounds):
        for name in list(runs) if number % 2 else list(runs)[::-1]:
            if name == "alone":
                runs[name].append(produce(broker, core))
                continue
            reading = Reading(frame)
            reading.start()
            time.sleep(LEAD_SECONDS)
            runs[name].append(produce(broker, core))
            reading.end()
    return runs


def judge(row: str, runs: dict[str, list[Load]], count: int) -> None:
    """By how much the slowest hundredth of the calls became slower."""
    p99 = {name: [run.figures["p99_us"] for run in found] for name, found in runs.items()}
    p50 = {name: median([run.figures["p50_us"] for run in found]) for name, found in runs.items()}
    growth = [100 * (b / a - 1) for a, b in zip(p99["alone"], p99["beside"], strict=True)]
    rate = median([run.requests / run.seconds for run in runs["beside"]])
    note = (
        f"p99 {median(p99['alone']):.0f} to {median(p99['beside']):.0f} µs, "
        f"p50 {p50['alone']:.0f} to {p50['beside']:.0f} µs at {rate:,.0f} calls/s"
    )
    LAB.record(row, growth, note=note)


@pytest.mark.benchmark(group="produce beside a bulk load, p99", timer=METER.read)
@pytest.mark.parametrize("name", ("alone", "beside"))
@pytest.mark.parametrize("row", CASES)
def test_spark_beside(
    benchmark: Any, found: dict[str, dict[str, list[Load]]], row: str, name: str
) -> None:
    """Seconds of the slowest hundredth."""
    METER.replay(benchmark, [run.figures["p99_us"] / 1e6 for run in found[row][name]])
