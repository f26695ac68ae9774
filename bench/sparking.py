"""Spark in the measurements: a session, topics to read, one query and what it cost."""

import contextlib
import http.client
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench import machine
from bench.machine import MiB
from bench.servers import Broker

SCALE = float(os.environ.get("BARCO_BENCH_SPARK_SCALE") or 1)
"""Of the numbers of events; the bars are meant for 1."""
EVENTS_A_REQUEST = 4000
WORDS = 4096


@dataclass(frozen=True, slots=True)
class Cost:
    """What one query took."""

    seconds: float
    spark_cpu: float
    """Of the JVM and the Python workers."""
    broker_cpu: float
    """Of the broker's workers."""


def session(cores: int = 2, **settings: str) -> Any:
    """Spark on so many cores, as `barco.spark.session` makes it."""
    try:
        from barco.spark import session as barco_session
    except ImportError as error:
        raise machine.Missing(str(error)) from None
    if shutil.which("java") is None:
        raise machine.Missing("Java is not installed")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    return barco_session("bench", f"local[{cores}]", quiet | settings)


Events = tuple[list[bytes], list[bytes]]
"""Keys and values."""


def events(count: int, event_bytes: int, seed: int = 1) -> Iterator[Events]:
    """Distinct events that compress to about two fifths, a request's at a time."""
    rng = random.Random(seed)
    words = [rng.randbytes(6).hex().encode() for _ in range(WORDS)]
    made = 0
    while made < count:
        keys, values = [], []
        for number in range(made, min(made + EVENTS_A_REQUEST, count)):
            keys.append(b"user-%06d" % (number * 7919 % 100_000))
            value = b'{"id":%d,"words":"' % number
            picked = rng.choices(words, k=(event_bytes - len(value) - 2) // 13 + 1)
            values.append((value + b" ".join(picked))[: event_bytes - 2] + b'"}')
        made += len(keys)
        yield keys, values


def produce(server: Broker, topic: str, count: int, event_bytes: int) -> None:
    """Fill a topic."""
    from barco._native import batch_encode

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
    headers = {"Content-Type": "application/vnd.barco.batch", "Prefer": "return=minimal"}
    for keys, values in events(count, event_bytes):
        body = batch_encode(values, keys)
        connection.request("POST", f"/v1/topic/{topic}/messages", body, headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 204:
            raise RuntimeError(f"produce: {answer.status} {said[:200]!r}")
    connection.close()


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found, at = [pid], 0
    while at < len(found):
        found += machine.children(found[at])
        at += 1
    return found


def _cpu(pids: list[int]) -> dict[int, float]:
    spent = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            spent[pid] = machine.cpu_seconds(pid)
    return spent


class Clock:
    """Runs queries and says what each cost."""

    def __init__(self, spark: Any, server: Broker | None) -> None:
        self.jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        self._server = server

    def run(self, query: Callable[[], Any]) -> Cost:
        """The query, once."""
        broker_before = _cpu(self._server.pids if self._server else [])
        before = _cpu(descendants(self.jvm))
        begin = time.perf_counter()
        query()
        seconds = time.perf_counter() - begin
        after = _cpu(descendants(self.jvm))
        broker_after = _cpu(self._server.pids if self._server else [])
        return Cost(
            seconds,
            sum(spent - before.get(pid, 0.0) for pid, spent in after.items()),
            sum(spent - broker_before[pid] for pid, spent in broker_after.items()),
        )


def noop(frame: Any) -> None:
    """Read everything, keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def row_source() -> Any:
    """barco's source with a reader that yields tuples, as one that does not know Arrow would.

    Classes of a function are sent to Spark's workers by value: they cannot import this module.
    """
    from pyspark.sql.datasource import DataSourceReader

    from barco.spark import BarcoSource

    class RowReader(DataSourceReader):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def partitions(self) -> Any:
            return self.inner.partitions()

        def read(self, partition: Any) -> Iterator[Any]:
            for batch in self.inner.read(partition):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    class RowSource(BarcoSource):
        @classmethod
        def name(cls) -> str:
            return "barco_rows"

        def reader(self, schema: Any) -> Any:
            return RowReader(super().reader(schema))

    return RowSource


def bytes_sent(server: Broker, topic: str, columns: tuple[str, ...]) -> int:
    """What the broker sends for some columns of a whole topic."""
    from barco.client.wire.access import Access
    from barco.spark.base.fetch import Brokers, SliceFetch, Source
    from barco.spark.read.plan import slices_of

    total = 0
    described = Brokers(Access.of(endpoint_of(server)), 10.0).slices(topic)
    for each in slices_of(topic, described):
        source = Source(topic, each.token, each.index, Access.of(each.endpoint))
        fetch = SliceFetch(source, columns, fetch_bytes=4 * MiB, timeout_s=30)
        at = each.start
        while at < each.end:
            body, at, _ = fetch.get(at, each.end)
            total += len(body)
        fetch.close()
    return total


def endpoint_of(server: Broker) -> str:
    """For the option `endpoints`."""
    return f"127.0.0.1:{server.ready['ports']['discovery']}"
