"""What has cost others a day: each trap of Spark's Python data sources that reads can fall into.

Others are where they belong: pushdown that is off and SQL tables without options in test_batch.py,
positions as text in test_stream.py and tests/barco/spark/test_positions.py.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from sparklab import collected, endpoint_of, expected, produce

EVENTS = 300


def run_python(script: str) -> str:
    """A program in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_batches_have_the_nullability_that_the_user_says(spark: Any, broker: Any) -> None:
    """Since Spark 4.2 a batch whose schema differs in it alone is refused."""
    produce(broker, "nullable", range(EVENTS))
    for schema in (
        "key binary, value binary",
        "value binary, key binary",
        "key string, value string, offset bigint not null, timestamp timestamp",
    ):
        reader = spark.read.schema(schema).format("barco").option("subscribe", "nullable")
        frame = reader.option("endpoints", endpoint_of(broker)).load()
        if "string" in schema:
            frame = frame.selectExpr("cast(key as binary) as key", "cast(value as binary) as value")
        assert collected(frame) == expected(range(EVENTS))
    strict = reader.schema("value binary not null, key binary")
    with pytest.raises(PySparkException, match="column value can be null: do not say NOT NULL"):
        collected(strict.option("endpoints", endpoint_of(broker)).load())


def test_a_topic_without_events_has_no_rows(spark: Any, broker: Any) -> None:
    """No partitions at all would become one whose value is None."""
    assert broker.request("PUT", "/v1/topics/empty").status in (200, 201, 204)
    reader = spark.read.format("barco").option("subscribe", "empty")
    assert reader.option("endpoints", endpoint_of(broker)).load().count() == 0


def test_tasks_run_in_the_drivers_interpreter(spark: Any) -> None:
    """Not in whichever python3 comes first in PATH, which has no pyarrow."""
    assert os.environ["PYSPARK_PYTHON"]
    found = spark.sparkContext.range(1).map(lambda _: sys.executable).collect()
    assert found == [os.environ["PYSPARK_PYTHON"]]


def test_registering_on_top_does_no_harm(spark: Any, broker: Any) -> None:
    from barco.spark import register

    register(spark)
    test_a_topic_without_events_has_no_rows(spark, broker)


def test_writing_from_another_thread(spark: Any, broker: Any) -> None:
    """Spark looks for the source in the session of the thread, which has none by itself."""
    from barco.spark import register

    def work() -> None:
        register(spark)
        frame = spark.range(EVENTS).selectExpr("cast(id as string) as value")
        writer = frame.write.format("barco").mode("append")
        writer.option("endpoints", endpoint_of(broker)).save("threads")

    with ThreadPoolExecutor(1) as other:
        other.submit(work).result()
    reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    assert reader.option("subscribe", "threads").load().count() == EVENTS


def test_reading_needs_no_pandas() -> None:
    out = run_python(
        "import sys\n"
        "sys.modules['pandas'] = None\n"
        "from barco.spark.source import BarcoSource\n"
        "from pyspark.sql.datasource import CaseInsensitiveDict\n"
        "source = BarcoSource(CaseInsensitiveDict({'subscribe': 't'}))\n"
        "print(type(source.reader(source.schema())).__name__)\n"
    )
    assert out == "BatchReader"


def telling_source() -> Any:
    """Its one column is called what the process that plans knows. Sent there by value."""
    from pyspark.sql.types import LongType, StructField, StructType

    from barco.spark import BarcoSource
    from barco.spark.base import cores

    class TellingSource(BarcoSource):
        @classmethod
        def name(cls) -> str:
            return "barco_telling"

        def schema(self) -> StructType:
            import gc

            told = f"{gc.get_freeze_count()} {cores.told()}"
            return StructType([StructField(told, LongType())])

    return TellingSource


def test_planning_collects_no_garbage_over_all_modules_and_knows_the_cores(spark: Any) -> None:
    """It runs under Spark's own daemon: 25 ms of CPU each time, for nothing."""
    spark.dataSource.register(telling_source())
    told = [spark.read.format("barco_telling").load().columns[0].split() for _ in range(8)]
    assert int(told[-1][0]) > 10_000, told
    assert told[-1][1] == str(spark.sparkContext.defaultParallelism)


def test_other_processes_keep_their_garbage_collector() -> None:
    script = (
        "import gc\nfrom barco.spark.base.settle import FREEZE_AT, settle\n"
        "for _ in range(max(FREEZE_AT)): settle()\nprint(gc.get_freeze_count())"
    )
    assert run_python(script) == "0"


def test_a_worker_can_send_a_batch_without_waiting(spark: Any) -> None:
    """The kernel gives no more than it allows anybody."""
    from barco.spark.base.daemon import SEND_BYTES

    def sizes(_: int) -> int:
        import os
        import socket

        found = 0
        for name in os.listdir("/proc/self/fd"):
            path = f"/proc/self/fd/{name}"
            if not os.path.lexists(path) or not os.readlink(path).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as each:
                if each.family == socket.AF_UNIX:
                    size = each.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                    found = max(found, size)
        return found

    allowed = int(Path("/proc/sys/net/core/wmem_max").read_text())
    (found,) = spark.sparkContext.range(1).map(sizes).collect()
    assert found >= min(SEND_BYTES, allowed)


def test_the_daemon_starts_no_threads_before_it_forks() -> None:
    out = run_python(
        "import sys, threading\n"
        "import barco.spark.base.daemon\n"
        "print([name for name in ('pyarrow', 'numpy', 'pandas') if name in sys.modules],"
        " threading.active_count())\n"
    )
    assert out == "[] 1"


def test_a_query_that_needs_no_more_of_a_task_is_no_error() -> None:
    """Spark hangs up, and the stock daemon prints a traceback for it."""
    out = run_python(
        "import os, socket\n"
        "import barco.spark.base.daemon as daemon\n"
        "def hung_up(*_):\n"
        "    raise BrokenPipeError\n"
        "daemon._stock_worker = hung_up\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        daemon.worker(socket.socketpair()[0], True)\n"
        "    finally:\n"
        "        os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert out == "1"


def test_a_failure_to_import_breaks_no_other_source_and_is_told() -> None:
    """Spark imports every package pyspark_* when a session asks for its first Python source."""
    out = run_python(
        "import sys\n"
        "sys.modules['barco._native'] = None\n"
        "import pyspark_barco, pyspark.cloudpickle as pickle\n"
        "source = pickle.loads(pickle.dumps(pyspark_barco.DefaultSource))\n"
        "print(source.name())\n"
        "try:\n"
        "    source({})\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert out.startswith("barco\n") and "barco._native" in out and "pip install" in out
    out = run_python(
        "import sys\n"
        "sys.modules['pyspark.sql.datasource'] = None\n"
        "import pyspark_barco\n"
        "print(hasattr(pyspark_barco, 'DefaultSource'))\n"
    )
    assert out == "False"


def test_many_small_tasks(spark: Any, broker: Any) -> None:
    """Workers are used again, frozen heaps and all."""
    produce(broker, "many", range(EVENTS))
    reader = spark.read.format("barco").option("subscribe", "many")
    reader = reader.option("maxRecordsPerPartition", "3")
    frame = reader.option("endpoints", endpoint_of(broker)).load()
    assert collected(frame) == expected(range(EVENTS))
