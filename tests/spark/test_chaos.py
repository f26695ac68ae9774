"""A Spark worker, a broker's worker or a whole broker of a ring dies in the middle of each of the
four paths: batch read, stream read, batch write, stream write. The rows are exact.

BARCO_SPARK_KILLS of each kind in each path (10: 120 kills in all); a table at the end, and with -s
a line for every one. Local mode gives a task three tries; a job or query that fails all the same is
run again, as people do, and counted. A wrong row is never forgiven.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kills import children_of, jvm_of, kill_one, python_tasks
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from ringlab import Ring, ring
from sparklab import collected, digest, endpoint_of, expected, key_of_number, value_of
from test_stream import Query
from test_write import Copy, rows_of, topic_of, write

import barco
import barco.spark

KILLS = int(os.environ.get("BARCO_SPARK_KILLS", "10"))
SECONDS = 540
"""For one path and one kind of victim."""
EVENTS = 20_000
READ = {"fetchBytes": "8192", "batchBytes": "8192", "minPartitions": "6"}

pytestmark = pytest.mark.chaos
VICTIMS = ("spark worker", "broker's worker", "broker")
PAUSES = {"spark worker": 4.0, "broker's worker": 2.5, "broker": 1.0}
"""Seconds between two. One broker's workers may die five times in half a minute, and take turns."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    """Three brokers."""
    with ring(tmp_path_factory.mktemp("ring")) as found:
        yield found


class Table:
    """What was done, and what came of it."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self.line = write_line
        self.began = time.monotonic()
        self.done: list[tuple[str, str, int, int, int]] = []

    def show(self) -> None:
        """All of it."""
        self.line(f"\n{'path':14}{'victim':18}{'kills':>6}{'runs':>6}{'again':>6}  rows")
        for path, victim, kills, runs, again in self.done:
            self.line(f"{path:14}{victim:18}{kills:6}{runs:6}{again:6}  exact")
        self.line(f"{sum(each[2] for each in self.done)} kills")


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """Shown when the module is done."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    found = Table(reporter.write_line)
    yield found
    found.show()


class Case:
    """One path and one kind of victim."""

    def __init__(self, path: str, victim: str, spark: Any, cluster: Ring, table: Table) -> None:
        self.path, self.victim, self.spark = path, victim, spark
        self.cluster, self.table = cluster, table
        self.jvm = jvm_of(spark)
        self.kills = self.runs = self.again = 0
        self.seconds = 1.5
        """What a run takes that nobody disturbs, or a guess."""
        self.deadline = time.monotonic() + SECONDS
        cluster.whole()

    def strike(self) -> bool:
        """Kill one, if there is one; a broker is started again."""
        if self.victim == "spark worker":
            return bool(kill_one(python_tasks(self.jvm), self.kills))
        ordinal = self.kills % 3
        if self.victim == "broker's worker":
            pid = self.cluster.made.pid(ordinal)
            return pid is not None and bool(kill_one(children_of(pid), self.kills // 3))
        self.cluster.made.kill(ordinal)
        time.sleep(0.5)
        self.cluster.made.start(ordinal)
        self.cluster.whole()
        return True

    def run(self, work: Callable[[], Any]) -> Any:
        """The work, again until it does not fail, while things die."""
        while True:
            assert time.monotonic() < self.deadline, f"{self.kills} kills"
            self.runs += 1
            kills, begin = self.kills, time.monotonic()
            barco.spark.register(self.spark)  # See `_active` in test_write.
            with self.killing():
                try:
                    done = work()
                    if self.kills == kills:
                        self.seconds = time.monotonic() - begin
                    return done
                except PySparkException as error:
                    self.again += 1
                    self.table.line(f"  failed, again: {str(error).splitlines()[0][:90]}")

    def killing(self) -> "_Killing":
        return _Killing(self)

    @property
    def goes_on(self) -> bool:
        """Whether there are more to kill."""
        return self.kills < KILLS

    def end(self) -> None:
        """It was exact."""
        self.table.done.append((self.path, self.victim, self.kills, self.runs, self.again))


class _Killing(threading.Thread):
    """While the block runs; Spark's workers once in it, as a task has three tries."""

    def __init__(self, case: Case) -> None:
        super().__init__(daemon=True)
        self.case, self.stop = case, threading.Event()

    def run(self) -> None:
        case = self.case
        self.stop.wait(case.seconds * (0.1 + 0.2 * (case.kills % 5)))
        while not self.stop.is_set() and case.goes_on:
            if not case.strike():
                self.stop.wait(0.02)
                continue
            case.kills += 1
            spent = time.monotonic() - case.table.began
            case.table.line(
                f"{spent:6.0f} s  {case.path}: {case.victim} {case.kills} of {KILLS} killed"
            )
            if case.victim == "spark worker":
                return
            self.stop.wait(PAUSES[case.victim])

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join()


def ended(query: Any) -> None:
    """A query to the end of what there is."""
    try:
        assert query.awaitTermination(240), "the query goes on"
    finally:
        query.stop()


def produce(cluster: Ring, topic: str, numbers: range) -> None:
    """Events with these numbers, each once."""
    with barco.Producer(cluster.endpoints, delivery_timeout_s=120.0) as producer:
        sent = [producer.send(topic, value_of(n), key=key_of_number(n)) for n in numbers]
        for each in sent:
            each.result()


def name_of(path: str, victim: str) -> str:
    return f"{path}-{victim}".replace(" ", "-").replace("'", "")


@pytest.mark.parametrize("victim", VICTIMS)
def test_batch_read(spark: Any, cluster: Ring, table: Table, victim: str) -> None:
    case = Case("batch read", victim, spark, cluster, table)
    topic = name_of("read", victim)
    produce(cluster, topic, range(EVENTS))
    wanted = expected(range(EVENTS))
    while case.goes_on:
        reader = spark.read.schema("key binary, value binary").format("barco").options(**READ)
        reader = reader.option("endpoints", cluster.endpoint).option("subscribe", topic)
        assert case.run(lambda reader=reader: collected(reader.load())) == wanted
    case.end()


@pytest.mark.parametrize("victim", VICTIMS)
def test_stream_read(spark: Any, cluster: Ring, table: Table, victim: str, tmp_path: Path) -> None:
    case = Case("stream read", victim, spark, cluster, table)
    topic, written = name_of("stream", victim), 0
    query = Query(spark, cluster, topic, tmp_path, maxOffsetsPerTrigger="1500", fetchBytes="8192")
    while case.goes_on:
        produce(cluster, topic, range(written, written + 5000))
        written += 5000
        case.run(lambda: ended(query.start(availableNow=True)))
    query.run_available()
    assert query.result() == expected(range(written))
    case.end()


KEYS = {
    "keys": ("concat('key-', id % 97)", lambda n: b"key-%d" % (n % 97)),
    "no keys": ("cast(null as string)", lambda n: None),
    "skewed": ("if(id % 10 = 0, null, 'the one')", lambda n: b"the one" if n % 10 else None),
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_batch_write(spark: Any, cluster: Ring, table: Table, victim: str, keys: str) -> None:
    """What is run again has the same rows in another order, in another number of tasks."""
    case = Case(f"write, {keys}", victim, spark, cluster, table)
    topic, first = name_of(f"write-{keys}", victim), 0
    column, key_of = KEYS[keys]
    while case.goes_on:
        named = {"pieceBytes": "8192", "writerId": f"{topic}-{first}"}
        frame = rows_of(spark, first, EVENTS).selectExpr("value", "get_json_object(value, '$.n') n")
        frame = frame.selectExpr("value", "cast(n as bigint) id").selectExpr(
            f"{column} as key", "value"
        )

        def work(frame: Any = frame, named: Any = named) -> None:
            write(frame.repartition(2 + case.runs % 4, f.rand()), cluster, topic, **named)

        case.run(work)
        first += EVENTS
    cluster.whole()
    values = (b'{"n":%d,"text":"%s"}' % (n, b"lorem " * (n % 40)) for n in range(first))
    wanted = digest((key_of(n), value) for n, value in enumerate(values))
    assert collected(topic_of(spark, cluster, topic)) == wanted
    case.end()


@pytest.mark.parametrize("victim", VICTIMS)
def test_stream_write(spark: Any, cluster: Ring, table: Table, victim: str, tmp_path: Path) -> None:
    case = Case("stream write", victim, spark, cluster, table)
    copy, written = Copy(spark, cluster, name_of("copy", victim), tmp_path), 0
    while case.goes_on:
        produce(cluster, f"{copy.name}-in", range(written, written + 4000))
        written += 4000
        case.run(lambda: ended(copy.start(availableNow=True)))
    copy.finish()
    assert endpoint_of(cluster) == cluster.endpoint
    assert copy.result() == expected(range(written))
    case.end()
