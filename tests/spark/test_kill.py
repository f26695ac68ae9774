"""kill -9 in the middle of reads: a retry, never a wrong or a missing row.

Kills of a broker's worker and of Spark's Python workers, batch and streaming; ten of each with
`make chaos`. A batch query is small and quick, so it is run again until all have fallen into it.
"""

import time
from pathlib import Path
from typing import Any

import pytest
from kills import jvm_of, killing, python_tasks
from pyspark.errors import StreamingQueryException
from sparklab import collected, endpoint_of, expected, key_of_number, produce, value_of
from test_stream import Query, free_ports

import barco

EVENTS = 30_000
SECONDS = 800

how_often = pytest.mark.parametrize(
    "wanted", [1, pytest.param(10, marks=pytest.mark.chaos)], ids=["once", "ten times"]
)


@pytest.fixture(scope="module")
def lively(start_broker: Any) -> Any:
    """A broker of two workers that keeps its ports, with a topic to read."""
    broker = start_broker(ports_from=free_ports())
    produce(broker, "t", range(EVENTS))
    return broker


def read(spark: Any, broker: Any) -> Any:
    """In many small requests, so that a kill falls between two of them."""
    reader = spark.read.schema("key binary, value binary").format("barco")
    options = {"subscribe": "t", "fetchBytes": "4096", "batchBytes": "4096", "minPartitions": "6"}
    return reader.options(**options).option("endpoints", endpoint_of(broker)).load()


@how_often
def test_the_brokers_workers_die_in_a_batch_read(spark: Any, lively: Any, wanted: int) -> None:
    deadline, kills = time.monotonic() + SECONDS, 0
    while kills < wanted:
        assert time.monotonic() < deadline, f"{kills} kills"
        with killing(
            lambda _: lively.worker_pids(), first_s=0.05, pause_s=7.0, most=wanted - kills
        ) as times:
            assert collected(read(spark, lively)) == expected(range(EVENTS))
        kills += len(times)
        if kills < wanted:  # Five deaths in half a minute would be a crash loop.
            time.sleep(7.0)


@how_often
def test_sparks_workers_die_in_a_batch_read(spark: Any, lively: Any, wanted: int) -> None:
    """local[2,3]: a task is tried three times."""
    deadline, kills = time.monotonic() + SECONDS, 0
    jvm = jvm_of(spark)
    while kills < wanted:
        assert time.monotonic() < deadline, f"{kills} kills"
        with killing(lambda _: python_tasks(jvm), first_s=0.05, pause_s=9, most=1) as times:
            assert collected(read(spark, lively)) == expected(range(EVENTS))
        kills += len(times)


@how_often
def test_everything_dies_in_a_streaming_read(
    spark: Any, lively: Any, tmp_path: Path, wanted: int
) -> None:
    """Both in turn, while events come in; the query goes on from its checkpoint when it fails."""
    topic = f"stream-{wanted}"
    query = Query(spark, lively, topic, tmp_path, maxOffsetsPerTrigger="2000", fetchBytes="8192")
    produce(lively, topic, range(EVENTS))
    jvm, deadline = jvm_of(spark), time.monotonic() + SECONDS

    def victims(killed: int) -> list[int]:
        return python_tasks(jvm) if (kills + killed) % 2 else lively.worker_pids()

    written, kills = EVENTS, 0
    while kills < 2 * wanted:
        assert time.monotonic() < deadline, f"{kills} kills"
        with killing(victims, first_s=0.5, pause_s=3.5, most=2 * wanted - kills) as times:
            running = query.start(availableNow=True)
            try:
                running.awaitTermination(120)
            except StreamingQueryException:
                assert running.exception() is not None
            running.stop()
        kills += len(times)
        written += produce_patiently(lively, topic, written)
    while not finished(query):
        assert time.monotonic() < deadline
    assert query.result() == expected(range(written))


def produce_patiently(broker: Any, topic: str, written: int) -> int:
    """More events, each once, while a worker may have just died: the client's business."""
    with barco.Producer(endpoint_of(broker), delivery_timeout_s=120.0) as producer:
        sent = [
            producer.send(topic, value_of(number), key=key_of_number(number))
            for number in range(written, written + 1000)
        ]
    return len([each.result() for each in sent])


def finished(query: Query) -> bool:
    """Whether a run went to the end of what there is."""
    running = query.start(availableNow=True)
    try:
        return bool(running.awaitTermination(120))
    except StreamingQueryException:
        return False
