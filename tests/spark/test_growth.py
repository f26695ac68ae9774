"""A ring grows to six brokers and is one of three again while Spark streams from one topic into
another and writes a third: no batch fails, each row comes out once."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from sparklab import collected, expected, key_of_number, value_of
from test_stream import NOT_STARTED, STARTS_MAX, Query
from test_write import rows, rows_of, topic_of, write

import barco
import barco.spark

PROGRAM = Path(__file__).with_name("growing.py")
SECONDS = 800
WRITTEN = 500
"""Rows of one write."""

pytestmark = pytest.mark.chaos


class Growing:
    """The ring, in another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self.said: list[str] = []
        self.steps = 0
        """That are done."""
        self.endpoint = ",".join(json.loads(self._output.readline()))
        """For the option `endpoints`: the first three, which stay."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self) -> None:
        """The next step."""
        self._input.write("\n")
        self._input.flush()

    def _read(self) -> None:
        for line in self._output:
            self.said.append(json.loads(line))
            self.steps += "killed" not in self.said[-1]

    @property
    def goes_on(self) -> bool:
        """It has not failed, and there are more steps."""
        return self._reader.is_alive() and "ended" not in self.said


@contextlib.contextmanager
def growing(directory: Path, how: str) -> Iterator[Growing]:
    command = [sys.executable, "-P", str(PROGRAM), str(directory), how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Growing(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(120)
            finally:
                process.kill()


class Load:
    """Events by a producer, fifty a second, until it is ended."""

    def __init__(self, endpoint: str, topic: str) -> None:
        self.sent = 0
        self._endpoint, self._topic = endpoint, topic
        self._end = threading.Event()
        self._wrong: list[Exception] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        endpoints = self._endpoint.split(",")
        with barco.Producer(endpoints, delivery_timeout_s=120.0) as producer:
            under_way = []
            while not self._end.wait(0.02):
                number, self.sent = self.sent, self.sent + 1
                key = key_of_number(number)
                under_way.append(producer.send(self._topic, value_of(number), key=key))
            try:
                for each in under_way:
                    each.result(120)
            except barco.errors.BarcoError as error:
                self._wrong.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(150)

    def end(self) -> int:
        """How many were acknowledged: all that were sent."""
        self.__exit__()
        assert not self._thread.is_alive() and not self._wrong, self._wrong
        return self.sent


class Copy(Query):
    """A query from a topic into another."""

    def _start(self, trigger: dict[str, Any]) -> Any:
        stream = self.spark.readStream.schema("key binary, value binary").format("barco")
        frame = stream.options(**self.options).option("endpoints", self.broker.endpoint).load()
        writer = frame.writeStream.format("barco").option("endpoints", self.broker.endpoint)
        writer = writer.option("topic", "out")
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        return writer.trigger(**trigger).start()


def started(copy: Query) -> Any:
    """A query that has done its first batch."""
    for _ in range(STARTS_MAX):
        query = copy.start(processingTime="100 milliseconds")
        while query.isActive and batch_of(query) < 0:
            time.sleep(0.1)
        if query.isActive:
            return query
        assert NOT_STARTED in str(query.exception()), query.exception()
    raise AssertionError(f"it does not start, {STARTS_MAX} times")


def batch_of(query: Any) -> int:
    """The last one that is done; -1: none."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def failed_tasks(spark: Any, group: str | None) -> int:
    """Of the jobs of a query, or of no group: tasks that were tried again."""
    tracker = spark.sparkContext.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = map(tracker.getStageInfo, stages)
    return sum(stage.numFailedTasks for stage in found if stage is not None)


@pytest.mark.parametrize("how", ["undisturbed", "kills"])
def test_no_batch_fails_and_each_row_comes_once(
    spark: Any, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as resources:
        ring = resources.enter_context(growing(tmp_path / "ring", how))
        load = resources.enter_context(Load(ring.endpoint, "in"))
        while load.sent < 100:  # The topic is there when Spark looks for it.
            time.sleep(0.1)
        barco.spark.register(spark)
        query = started(Copy(spark, ring, "in", tmp_path))
        deadline, seconds, begun, batch = time.monotonic() + SECONDS, list[float](), 0, -1
        while ring.goes_on:  # A step begins when both have gone on since the last one.
            assert time.monotonic() < deadline, ring.said
            assert query.isActive, query.exception()
            done = ring.steps
            began = time.monotonic()
            first = len(seconds) * WRITTEN
            write(rows_of(spark, first, WRITTEN, 2), ring, "written")
            seconds.append(time.monotonic() - began)
            if done == begun and batch_of(query) > batch:
                ring.begin()
                begun, batch = begun + 1, batch_of(query)
        assert ring.said[-1] == "ended", ring.said
        sent = load.end()
        query.processAllAvailable()
        batches = batch_of(query) + 1
        retried = failed_tasks(spark, str(query.runId)), failed_tasks(spark, None)
        query.stop()
        assert query.exception() is None
        with capsys.disabled():
            print(
                f"\n{how}: {ring.said}; {sent} events through {batches} batches,"
                f" {len(seconds)} writes, the longest {max(seconds):.1f} s; tasks that were tried"
                f" again: {retried[0]} of the stream, {retried[1]} of writes"
            )
        assert collected(topic_of(spark, ring, "in")) == expected(range(sent))
        assert collected(topic_of(spark, ring, "out")) == expected(range(sent))
        assert collected(topic_of(spark, ring, "written")) == rows(range(len(seconds) * WRITTEN))
