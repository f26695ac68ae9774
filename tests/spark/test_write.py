"""Writing through Spark: every row once, whatever fails, is tried again or is killed."""

import gzip
import http.client
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kills import jvm_of, killing, python_tasks
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from sparklab import collected, digest, endpoint_of, expected, produce, run_json
from test_stream import free_ports

from barco.spark.load import Job, LoadError, events_of, telling_line, to_parquet

ROWS = 20_000
SECONDS = 800
ROOT = Path(__file__).resolve().parents[2]

how_often = pytest.mark.parametrize(
    "wanted", [1, pytest.param(10, marks=pytest.mark.chaos)], ids=["once", "ten times"]
)


@pytest.fixture(autouse=True)
def _active(spark: Any) -> None:
    """A write finds Python's sources by the session of the JVM's thread. Where a broker is started
    by a fork that runs Python, the child drops py4j's connection and so shuts that of this process
    too: the next call gets another one, and another thread of the JVM."""
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


@pytest.fixture(scope="module")
def lively(start_broker: Any) -> Any:
    """A broker of two workers that keeps its ports."""
    return start_broker(ports_from=free_ports())


def rows_of(spark: Any, first: int, count: int = ROWS, tasks: int = 4) -> Any:
    numbers = spark.range(first, first + count, 1, tasks)
    return numbers.selectExpr(
        "concat('key-', id % 97) as key",
        "concat('{\"n\":', id, ',\"text\":\"', repeat('lorem ', int(id % 40)), '\"}') as value",
    )


def rows(numbers: range) -> Any:
    """The same, without Spark: count and checksum."""
    return digest(
        (b"key-%d" % (n % 97), b'{"n":%d,"text":"%s"}' % (n, b"lorem " * (n % 40))) for n in numbers
    )


def write(frame: Any, broker: Any, topic: str, **options: Any) -> None:
    writer = frame.write.format("barco").mode("append").option("endpoints", endpoint_of(broker))
    writer.options(**options).save(topic)


def topic_of(spark: Any, broker: Any, topic: str) -> Any:
    reader = spark.read.schema("key binary, value binary").format("barco")
    return reader.option("endpoints", endpoint_of(broker)).option("subscribe", topic).load()


def test_rows_land_where_producers_put_them(spark: Any, broker: Any) -> None:
    write(rows_of(spark, 0), broker, "w1")
    assert collected(topic_of(spark, broker, "w1")) == rows(range(ROWS))
    produce(broker, "p1", range(3000))
    write(topic_of(spark, broker, "p1"), broker, "p2")
    by_slice = (
        "select partition, count(*) n, count(key) keyed from {t} where key is not null group by 1"
    )

    def slices(topic: str) -> Any:
        reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
        found = spark.sql(by_slice, t=reader.option("subscribe", topic).load()).collect()
        return sorted((row.partition, row.n, row.keyed) for row in found)

    assert collected(topic_of(spark, broker, "p2")) == expected(range(3000))
    assert slices("p1") == slices("p2")


def test_times_and_topics_are_the_rows_own(spark: Any, broker: Any) -> None:
    frame = spark.range(100).selectExpr(
        "concat('a', id % 2) as topic", "cast(id as string) as value",
        "timestamp_millis(1700000000000 + id * 3600000) as timestamp",
    )  # fmt: skip
    frame.write.format("barco").mode("append").option("endpoints", endpoint_of(broker)).save()
    reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    back = reader.option("subscribe", "a0,a1").load()
    found = back.selectExpr("topic", "cast(value as string) value", "timestamp")
    assert {tuple(row) for row in found.collect()} == {tuple(row) for row in frame.collect()}


def test_times_before_1970(spark: Any, broker: Any) -> None:
    """Where the topic takes any: written, read, and where to begin."""
    link = http.client.HTTPConnection("127.0.0.1", broker.port("discovery"), timeout=60)
    given = {"Content-Type": "application/json"}
    link.request("PUT", "/v1/topics/early", b'{"timestamps":"any"}', given)
    assert link.getresponse().status in (200, 201)
    link.close()
    frame = spark.range(-50, 50).selectExpr(
        "cast(id as string) as value", "timestamp_micros(id * 40000000000001) as timestamp"
    )
    write(frame, broker, "early")
    whole = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    whole = whole.option("subscribe", "early").load()
    back = whole.selectExpr("cast(value as string) value", "timestamp")
    assert {tuple(row) for row in back.collect()} == {tuple(row) for row in frame.collect()}
    assert back.where("timestamp < timestamp'1970-01-01 00:00:00Z'").count() == 50
    reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    reader = reader.option("subscribe", "early").option("startingTimestamp", "-400000000000")
    late = reader.option("startingOffsetsByTimestampStrategy", "latest").load()
    assert late.where("timestamp >= timestamp_millis(-400000000000)").count() == 59


def test_keys_that_are_larger_than_values(spark: Any, broker: Any) -> None:
    """All of one slice: what a shard takes as one batch is bounded with its keys."""
    frame = spark.range(0, 30_000, 1, 1).selectExpr("repeat('k', 1000) as key", "'' as value")
    write(frame, broker, "k1")
    assert topic_of(spark, broker, "k1").count() == 30_000


def test_a_job_that_fails_leaves_nothing(spark: Any, broker: Any) -> None:
    write(rows_of(spark, 0, 100), broker, "f1")
    broken = rows_of(spark, 0).where(
        f.when(f.col("value").contains('"n":19999,'), f.raise_error(f.lit("broken"))).otherwise(
            True
        )
    )
    with pytest.raises(PySparkException, match="broken"):
        write(broken, broker, "f1")
    assert collected(topic_of(spark, broker, "f1")) == rows(range(100))
    metrics = broker.request("GET", "/metrics", listener="metrics").body.decode()
    assert "\nbarco_staged_bytes 0\n" in metrics


def test_a_job_that_is_named_is_stored_once(spark: Any, broker: Any) -> None:
    for tasks in (4, 1, 3):
        write(rows_of(spark, 0, 500, tasks), broker, "n1", writerId="nightly", batchId="7")
    assert collected(topic_of(spark, broker, "n1")) == rows(range(500))
    write(rows_of(spark, 500, 500), broker, "n1", writerId="nightly", batchId="8")
    assert collected(topic_of(spark, broker, "n1")) == rows(range(1000))


@pytest.mark.parametrize(
    ("columns", "mode", "options", "said"),
    [
        (["value"], "overwrite", {"topic": "x"}, "append"),
        (["value"], "append", {}, "topic"),
        (["key"], "append", {"topic": "x"}, "no column 'value'"),
        (["value", "odd"], "append", {"topic": "x"}, "odd"),
        (["value"], "append", {"topic": "x", "tpoic": "y"}, "tpoic"),
    ],
)
def test_what_is_refused_says_why(
    spark: Any, broker: Any, columns: list[str], mode: str, options: dict[str, str], said: str
) -> None:
    frame = spark.range(1).selectExpr(*(f"cast(id as string) as {name}" for name in columns))
    writer = frame.write.format("barco").mode(mode).option("endpoints", endpoint_of(broker))
    with pytest.raises(PySparkException, match=said):
        writer.options(**options).save()


@how_often
def test_spark_workers_die_in_a_batch_write(spark: Any, lively: Any, wanted: int) -> None:
    """local[2,3]: a task is tried three times; tries that died staged rows already."""
    deadline, kills, first, jvm = time.monotonic() + SECONDS, 0, 0, jvm_of(spark)
    topic = f"sk{wanted}"
    while kills < wanted:
        assert time.monotonic() < deadline, f"{kills} kills"
        with killing(lambda _: python_tasks(jvm), first_s=0.1, pause_s=9, most=1) as times:
            write(rows_of(spark, first), lively, topic, pieceBytes="8192")
        kills, first = kills + len(times), first + ROWS
    assert collected(topic_of(spark, lively, topic)) == rows(range(first))


@how_often
def test_the_brokers_workers_die_in_a_batch_write(spark: Any, lively: Any, wanted: int) -> None:
    deadline, kills, first = time.monotonic() + SECONDS, 0, 0
    topic = f"bk{wanted}"
    while kills < wanted:
        assert time.monotonic() < deadline, f"{kills} kills"
        first_s = random.uniform(0.02, 0.3)  # A write may be over in less.
        with killing(
            lambda _: lively.worker_pids(), first_s=first_s, pause_s=7.0, most=wanted - kills
        ) as times:
            write(rows_of(spark, first), lively, topic, pieceBytes="8192")
        kills, first = kills + len(times), first + ROWS
        if kills < wanted:  # Five deaths in half a minute would be a crash loop.
            time.sleep(7.0)
    lively.wait_ready()
    assert collected(topic_of(spark, lively, topic)) == rows(range(first))


class Copy:
    """A streaming query from a topic to a topic, run again and again from its checkpoint."""

    def __init__(self, spark: Any, broker: Any, name: str, directory: Path) -> None:
        self.spark, self.broker, self.name = spark, broker, name
        self.checkpoint = str(directory / "checkpoint")

    def start(self, **trigger: Any) -> Any:
        stream = self.spark.readStream.schema("key binary, value binary").format("barco")
        stream = stream.option("endpoints", endpoint_of(self.broker))
        stream = stream.option("subscribe", f"{self.name}-in").option("maxOffsetsPerTrigger", 700)
        frame = stream.option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("barco").option("endpoints", endpoint_of(self.broker))
        writer = writer.option("topic", f"{self.name}-out").option("pieceBytes", 4096)
        return writer.option("checkpointLocation", self.checkpoint).trigger(**trigger).start()

    def finish(self) -> None:
        """Until all is copied: a query that failed is started again, as people do."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            query = self.start(availableNow=True)
            try:
                assert query.awaitTermination(300)
                return
            except PySparkException:
                time.sleep(1)
        raise AssertionError("the query does not end")

    def result(self) -> Any:
        return collected(topic_of(self.spark, self.broker, f"{self.name}-out"))


def test_a_stream_that_is_stopped_anywhere(spark: Any, broker: Any, tmp_path: Path) -> None:
    copy = Copy(spark, broker, "c1", tmp_path)
    produce(broker, "c1-in", range(5000))
    for pause in (0.8, 1.6):
        query = copy.start(processingTime="50 milliseconds")
        time.sleep(pause)
        query.stop()
    copy.finish()
    assert copy.result() == expected(range(5000))


def test_the_last_batches_of_a_stream_again(spark: Any, broker: Any, tmp_path: Path) -> None:
    """As after a crash between the sink's commit and the checkpoint's."""
    copy = Copy(spark, broker, "c2", tmp_path)
    produce(broker, "c2-in", range(2000))
    copy.finish()
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    produce(broker, "c2-in", range(2000, 2500))
    copy.finish()
    assert copy.result() == expected(range(2500))


@how_often
def test_workers_of_both_die_in_a_stream(
    spark: Any, lively: Any, tmp_path: Path, wanted: int
) -> None:
    copy, jvm = Copy(spark, lively, f"ck{wanted}", tmp_path), jvm_of(spark)
    deadline, kills, first = time.monotonic() + SECONDS, 0, 0

    def victims(_: int) -> list[int]:
        return python_tasks(jvm) if kills % 2 else lively.worker_pids()

    while kills < wanted:
        assert time.monotonic() < deadline, f"{kills} kills"
        produce(lively, f"ck{wanted}-in", range(first, first + 4000))
        first += 4000
        with killing(victims, first_s=0.5, pause_s=7.0, most=1) as times:
            copy.finish()
        kills += len(times)
        lively.wait_ready()
    assert copy.result() == expected(range(first))


@pytest.mark.chaos
def test_the_driver_is_killed_in_a_stream(spark: Any, lively: Any, tmp_path: Path) -> None:
    """SIGKILL to JVM and Python, ten times; then the rest by a driver that may live."""
    copy = Copy(spark, lively, "dk", tmp_path)
    produce(lively, "dk-in", range(30_000))
    program = (
        "import sys, time\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(ROOT / 'tests/integration')]!r}\n"
        "from pathlib import Path\nfrom types import SimpleNamespace\n"
        "from test_write import Copy\nfrom conftest import QUIET\nfrom barco.spark import session\n"
        f"broker = SimpleNamespace(port=lambda name: {lively.port('discovery')})\n"
        "spark = session('dk', 'local[2,3]', QUIET)\n"
        f"copy = Copy(spark, broker, 'dk', Path({str(tmp_path)!r}))\n"
        "query = copy.start(processingTime='100 milliseconds')\nprint('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    for number in range(10):
        driver = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
        )
        assert driver.stdout is not None
        while driver.stdout.readline().strip() != b"up":
            assert driver.poll() is None
        time.sleep(2 + number * 0.37)
        os.killpg(driver.pid, 9)
        driver.wait()
    copy.finish()
    assert copy.result() == expected(range(30_000))


@pytest.mark.chaos
def test_the_driver_is_killed_in_a_batch_write(spark: Any, lively: Any) -> None:
    """While its commit is between two shards, if it can be met there; another driver has the same
    rows in another order. They have no keys."""
    program = (
        "import sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(ROOT / 'tests/integration')]!r}\n"
        "from types import SimpleNamespace\n"
        "from test_write import keyless, write\nfrom conftest import QUIET\n"
        "from barco.spark import session\n"
        f"broker = SimpleNamespace(port=lambda name: {lively.port('discovery')})\n"
        "spark = session('db', 'local[2,3]', QUIET)\n"
        "for number in range(int(sys.argv[1]), 1000):\n"
        "    write(keyless(spark, number), broker, 'db', writerId=f'db-{number}')\n"
        "    print(number, flush=True)\n"
    )
    number = between = 0
    for _ in range(8):
        driver = subprocess.Popen(
            [sys.executable, "-c", program, str(number)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert driver.stdout is not None
        number = int(driver.stdout.readline()) + 1  # It is warm now.
        until = time.monotonic() + random.uniform(0.2, 3)
        while time.monotonic() < until and not is_between(lively, f"db-{number}"):
            number += bool(stored_of(lively, f"db-{number}") == [True, True])
        os.killpg(driver.pid, 9)
        driver.wait()
        for pid in lively.worker_pids():
            os.kill(pid, 18)
        last = number
        for each in (last, last + 1):  # It may have gone on meanwhile.
            between += sum(stored_of(lively, f"db-{each}")) == 1
            frame = keyless(spark, each).repartition(3, f.rand())
            write(frame, lively, "db", writerId=f"db-{each}")
            number = each + 1
    values = (b"%d" % n for n in range(number * ROWS))
    assert collected(topic_of(spark, lively, "db")) == digest((None, value) for value in values)
    print(f"{between} deaths between the commits of two shards")


def keyless(spark: Any, number: int) -> Any:
    first = number * ROWS
    return spark.range(first, first + ROWS, 1, 4).selectExpr("cast(id as string) as value")


def stored_of(broker: Any, writer: str) -> list[bool]:
    """For each shard, whether it has stored the write."""
    found = []
    for shard in range(2):
        link = http.client.HTTPConnection("127.0.0.1", broker.port(shard=shard), timeout=60)
        link.request("GET", f"/v1/writes/{writer}/0")
        answer = link.getresponse()
        found.append(bool(json.loads(answer.read()).get("committed")))
        link.close()
    return found


def is_between(broker: Any, writer: str) -> bool:
    """Stops a shard once it is prepared; whether the other has committed then."""
    link = http.client.HTTPConnection("127.0.0.1", broker.port(shard=1), timeout=60)
    link.request("GET", f"/v1/writes/{writer}/0")
    told = json.loads(link.getresponse().read())
    link.close()
    if told.get("state") != "prepared":
        return False
    os.kill(broker.worker_pids()[1], 19)
    link = http.client.HTTPConnection("127.0.0.1", broker.port(shard=0), timeout=60)
    for _ in range(100):
        link.request("GET", f"/v1/writes/{writer}/0")
        if json.loads(link.getresponse().read()).get("committed"):
            break
        time.sleep(0.005)
    link.close()
    return True


# --- Loads, and the demo --------------------------------------------------------------------------


def test_files_into_a_topic_and_back(spark: Any, broker: Any, tmp_path: Path) -> None:
    brokers = {"endpoints": endpoint_of(broker)}
    lines = [b'{"id":%d,"name":"n%d"}' % (n, n % 7) for n in range(3000)]
    (tmp_path / "a.ndjson").write_bytes(b"\r\n".join(lines[:1000]) + b"\n\n")
    (tmp_path / "b.ndjson").write_bytes(b"\n".join(lines[1000:]))
    job = Job(brokers, "l1", None)
    job.run(spark, [str(tmp_path / "a.ndjson"), str(tmp_path / "b.ndjson")], "ndjson", "name")
    told = job.result()
    assert told["events"] == 3000 and len(told["shards"]) == 2
    keyed = digest((b"n%d" % (n % 7), line) for n, line in enumerate(lines))
    assert collected(topic_of(spark, broker, "l1")) == keyed
    directory = str(tmp_path / "l1.parquet")
    assert to_parquet(spark, brokers, "l1", directory, overwrite=False) == 3000
    again = Job(brokers, "l2", "copy-1")
    for _ in range(2):
        again.run(spark, [directory], None, None)
    assert again.result()["events"] == 3000
    assert collected(topic_of(spark, broker, "l2")) == keyed


def test_rows_of_tables_become_json(spark: Any, broker: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,name,note\n1,ä,\n2,b,x y\n")
    found = events_of(spark, [str(tmp_path / "t.csv")], "csv", "name").collect()
    assert [(row.key, json.loads(row.value)) for row in found] == [
        ("ä", {"id": "1", "name": "ä", "note": ""}),
        ("b", {"id": "2", "name": "b", "note": "x y"}),
    ]
    with pytest.raises(LoadError, match="no column 'nmae'"):
        events_of(spark, [str(tmp_path / "t.csv")], "csv", "nmae")
    spark.range(3).write.parquet(str(tmp_path / "t.parquet"))
    found = events_of(spark, [str(tmp_path / "t.parquet")], "parquet", "id").collect()
    assert {(row.key, row.value) for row in found} == {(str(n), f'{{"id":{n}}}') for n in range(3)}
    # A column of that name does not make an event of a row: the others would be lost.
    frame = spark.sql("select 'roof' as sensor, '21' as value")
    frame.write.parquet(str(tmp_path / "sensors"))
    found = events_of(spark, [str(tmp_path / "sensors")], None, None).collect()
    assert [row.value for row in found] == ['{"sensor":"roof","value":"21"}']


def test_csv_is_read_as_other_programs_write_it(spark: Any, tmp_path: Path) -> None:
    """Doubled quotes, line ends in fields, backslashes: Spark has a way of its own with each."""
    import csv

    rows = [["1", 'say "hi"', "ends in \\"], ["2", "two\nlines", 'a,"b"'], ["3", '5" pipe', ""]]
    for name in ("q.csv", "packed/q.csv.gz"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt") if name.endswith("gz") else path.open("w") as out:
            csv.writer(out).writerows([["id", "a", "b"], *rows])
        for place in (path, path.parent) if name.endswith("gz") else (path,):
            found = events_of(spark, [str(place)], None, None).collect()
            assert [list(json.loads(row.value).values()) for row in found] == rows


@pytest.mark.parametrize(
    ("files", "key", "said"),
    [
        ({"a.csv": "id,name\n1,x\n", "b.csv": "name,id\ny,2\n"}, None, "b.csv.*header"),
        ({"a.csv": "id,name\n1,x,more\n"}, None, "a.csv.*[Mm]alformed"),
        ({"a.csv": "id\n1\n", "b.ndjson": "{}\n"}, None, "several kinds"),
        ({"a.ndjson": '{"id":1}\n{"id":\n'}, "id", "not JSON"),
    ],
    ids=["headers differ", "too many fields", "two kinds", "no key"],
)
def test_files_that_would_be_read_wrongly_are_refused(
    spark: Any, tmp_path: Path, files: dict[str, str], key: str | None, said: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(Exception) as raised:
        events_of(spark, [str(tmp_path / name) for name in files], None, key).collect()
    assert re.search(said, telling_line(str(raised.value))), telling_line(str(raised.value))


@pytest.mark.chaos  # Both have tests of their own; this is all of them at once, for 80 s.
def test_the_command_line_and_the_demo(broker: Any, tmp_path: Path) -> None:
    """Each in a process of its own, as people run them."""
    flights = tmp_path / "flights.ndjson"
    flight = '{{"id":{0},"carrier":"C{1}","hour":{2},"dep_delay":{3},"arr_delay":null}}\n'
    with flights.open("w") as out:
        for n in range(3500):
            delay = "null" if n % 50 == 0 else str(n % 90 - 10)
            out.write(flight.format(n, n % 3, 5 + n % 19, delay))
    endpoint = endpoint_of(broker)
    command = [sys.executable, "-P", "-m", "barco", "spark-load", str(flights), "--json"]
    command += ["--topic", "flown", "--endpoint", endpoint, "--key-field", "carrier"]
    told = run_json(command, dict(os.environ), 600, quiet=True)
    assert told["events"] == 3500 == sum(told["shards"].values())
    command = [sys.executable, str(ROOT / "scripts" / "demo_spark.py"), "--topic", "flown"]
    command += ["--endpoint", endpoint, "--flights", str(flights), "--dir", str(tmp_path)]
    made = run_json(command, dict(os.environ), 600)
    assert (made["flights"], made["cells"], made["parquet_rows"]) == (3500, 57, 57)
    assert made["live"] == 3000 and made["late"] > 0
    assert Path(made["picture"]).stat().st_size > 20_000
