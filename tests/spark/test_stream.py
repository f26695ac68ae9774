"""spark.readStream.format("barco") on the real engine: every event once, whatever happens."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from sparklab import collected, endpoint_of, expected, produce

WAIT_SECONDS = 300
STARTS_MAX = 10
NOT_STARTED = "failed to connect back"
"""Spark gives the process that plans a stream ten seconds to start, and no setting changes that: on
a busy machine a query is started again."""


class Query:
    """A topic to Parquet files, with a checkpoint; run as often as one likes."""

    def __init__(self, spark: Any, broker: Any, topic: str, directory: Path, **options: str):
        self.spark, self.broker, self.directory = spark, broker, directory
        self.options = {"subscribe": topic, "startingOffsets": "earliest"} | options

    def start(self, **trigger: Any) -> Any:
        """A running query, or one that has ended already."""
        for _ in range(STARTS_MAX):
            query = self._start(trigger)
            while query.isActive and query.status["message"] == "Initializing sources":
                time.sleep(0.05)
            if query.isActive or NOT_STARTED not in str(query.exception()):
                break
        return query

    def _start(self, trigger: dict[str, Any]) -> Any:
        stream = self.spark.readStream.format("barco").options(**self.options)
        frame = stream.option("endpoints", endpoint_of(self.broker)).load()
        writer = frame.writeStream.format("parquet").option("path", str(self.directory / "out"))
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        return writer.trigger(**trigger).start()

    def run_available(self) -> list[Any]:
        """All that is there now; the progress of its batches."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(WAIT_SECONDS), "the query goes on"
        return [each for each in query.recentProgress if each.numInputRows]

    def result(self) -> tuple[int, str]:
        return collected(self.spark.read.parquet(str(self.directory / "out")))

    def await_rows(self, query: Any, rows: int) -> None:
        """Until so many have been written."""
        deadline = time.monotonic() + WAIT_SECONDS
        written = 0
        while written < rows:
            assert time.monotonic() < deadline, f"{written} of {rows} rows"
            assert query.isActive, query.exception()
            time.sleep(0.2)
            written = sum(each.numInputRows for each in query.recentProgress)


def test_available_now(spark: Any, broker: Any, tmp_path: Path) -> None:
    query = Query(spark, broker, "s1", tmp_path, maxOffsetsPerTrigger="3000", groupId="watched")
    produce(broker, "s1", range(8000))
    batches = query.run_available()
    assert sum(each.numInputRows for each in batches) == 8000
    assert len(batches) == 3 and all(each.numInputRows <= 3000 for each in batches)
    assert query.result() == expected(range(8000))
    source = batches[-1].sources[0]
    ends = json.loads(source.endOffset)["s1"]
    assert len(ends) == 8 and source.latestOffset == source.endOffset
    assert source.description.startswith("org.apache.spark")
    first = batches[0]
    for which, rows in (("starting", 8000 - first.numInputRows), ("ending", first.numInputRows)):
        given = {"subscribe": "s1", f"{which}Offsets": first.sources[0].endOffset}
        reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
        assert reader.options(**given).load().count() == rows
    group = broker.request("GET", "/v1/groups/watched").json
    assert group["lag"] == 0 and len(group["positions"]) == 8
    for place in group["positions"]:
        cursor = ends[f"{place['token']}/{place['rangeIndex']}"]
        assert int(place["offset"]) == int(cursor.partition("-")[2], 16)
    readers = broker.request("GET", "/v1/jobs").json["readers"]
    (job,) = [each for each in readers if each["reader"] == f"spark/{batches[0].id}"]
    assert (job["topic"], job["batch"]) == ("s1", str(batches[-1].batchId))
    assert job["rows"] == batches[-1].numInputRows and job["total"] == 8000
    assert query.run_available() == []  # Nothing new: no batch, and it ends.
    produce(broker, "s1", range(8000, 9000))
    batches = query.run_available()
    assert sum(each.numInputRows for each in batches) == 1000
    assert query.result() == expected(range(9000))


def test_following_live_produces_across_restarts(
    spark: Any, start_broker: Any, tmp_path: Path
) -> None:
    """A new generation each time; the query waits for the broker and misses nothing."""
    broker = start_broker(ports_from=free_ports())
    produce(broker, "live", range(500))
    query = Query(spark, broker, "live", tmp_path, fetchTimeoutMs="240000")
    running = query.start(processingTime="0 seconds")
    try:
        done = 500
        query.await_rows(running, done)
        for kill in (True, False):
            broker.kill() if kill else broker.stop()
            broker.restart()
            done += produce(broker, "live", range(done, done + 500))
            query.await_rows(running, done)
        epochs = {end[:8] for end in last_position(running)["live"].values()}
        assert epochs == {"00000004"}
    finally:
        running.stop()
    assert query.result() == expected(range(done))


def last_position(query: Any) -> dict[str, dict[str, str]]:
    """Where the last batch ended."""
    position: dict[str, dict[str, str]] = json.loads(query.lastProgress.sources[0].endOffset)
    return position


def free_ports() -> int:
    """A hundred ports in a row, for a broker that keeps them."""
    import random
    import socket

    rng = random.Random()
    for _ in range(200):
        base = rng.randrange(20_000, 24_000, 100)  # Others look elsewhere: see tests/conftest.py.
        try:
            for port in (*range(base, base + 8), base + 50, base + 51):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


def test_an_idle_query_runs_no_batches(spark: Any, broker: Any, tmp_path: Path) -> None:
    """Positions are compared as text: nothing new must be the very same text."""
    produce(broker, "idle", range(100))
    query = Query(spark, broker, "idle", tmp_path)
    running = query.start(processingTime="0 seconds")
    try:
        query.await_rows(running, 100)
        batch = running.lastProgress.batchId
        before = time.monotonic()
        while time.monotonic() < before + 2:
            time.sleep(0.1)
        assert running.lastProgress.batchId <= batch + 1
    finally:
        running.stop()


def test_from_now_on(spark: Any, broker: Any, tmp_path: Path) -> None:
    produce(broker, "now", range(100))
    query = Query(spark, broker, "now", tmp_path, startingOffsets="latest")
    assert query.run_available() == []
    produce(broker, "now", range(100, 150))
    assert sum(each.numInputRows for each in query.run_available()) == 50
    assert query.result() == expected(range(100, 150))


def test_a_topic_that_comes_later(spark: Any, broker: Any, tmp_path: Path) -> None:
    query = Query(spark, broker, "later.*", tmp_path)
    query.options["subscribePattern"] = query.options.pop("subscribe")
    produce(broker, "later-1", range(10))
    assert sum(each.numInputRows for each in query.run_available()) == 10
    produce(broker, "later-2", range(10, 30))
    query.run_available()
    query.run_available()  # The first run learns of the topic, if the trigger was before it.
    assert query.result() == expected(range(30))


def test_data_loss_is_told(spark: Any, broker: Any, tmp_path: Path) -> None:
    produce(broker, "gone", range(100))
    query = Query(spark, broker, "gone", tmp_path)
    assert sum(each.numInputRows for each in query.run_available()) == 100
    produce(broker, "gone", range(100, 300))
    assert broker.request("DELETE", "/v1/topics/gone").status in (200, 204)
    produce(broker, "gone", range(300, 400))
    with pytest.raises(Exception, match="failOnDataLoss"):
        query.run_available()
    query.options["failOnDataLoss"] = "false"
    assert sum(each.numInputRows for each in query.run_available()) == 100
    assert query.result() == expected([*range(100), *range(300, 400)])


@pytest.mark.parametrize(
    ("options", "said"), [({"startingOffset": "earliest"}, "no option 'startingoffset'"),
                          ({"endingOffsets": "latest"}, "for batch reads only")],
)  # fmt: skip
def test_a_wrong_option_is_named(
    spark: Any, broker: Any, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    """Spark's own words would be of a variable that is not set."""
    with pytest.raises(Exception, match=said):
        Query(spark, broker, "wrong", tmp_path, **options).run_available()
