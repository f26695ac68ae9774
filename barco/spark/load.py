"""Bulk loads: files into a topic as one write, and a topic into Parquet files."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from barco.errors import BarcoError
from barco.spark.commit import WriteOptions, new_writer, ring_of
from barco.spark.fetch import FAILURES, Brokers
from barco.spark.options import OptionError
from barco.spark.sessions import session

ASK_SECONDS = 0.5
REACH_SECONDS = 5.0
"""For the first answer of a broker."""
QUIET = Path(__file__).with_name("quiet.properties")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # From the first line on: Spark's own setting for it comes after a dozen warnings.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
}
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Not of a cluster's driver, which is found by its host name."""

PASSED_ON = ("key", "value", "timestamp")
"""Columns of Parquet files that hold events."""


class LoadError(Exception):
    """Spark could not do it; the text is the line of its many that says why."""


def reach(endpoints: str, topic: str) -> None:
    """A wrong address is told at once, not when Spark is up and has waited as tasks do.

    LoadError: it is none. BarcoError: nobody answers there.
    """
    try:
        options = WriteOptions.parse({"endpoints": endpoints, "topic": topic})
    except OptionError as error:
        raise LoadError(str(error)) from error
    Brokers(options.endpoints, REACH_SECONDS).get("/v1/topology")


@contextmanager
def running(master: str | None) -> Iterator[SparkSession]:
    """A session for one job; LoadError for all that Spark complains about."""
    local = master is None or master.startswith("local")
    # PySpark's own, about a version of pandas that nothing here uses.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    try:
        spark = session(
            "barco spark-load", master or "local[*]", SETTINGS | (LOCAL if local else {})
        )
        try:
            yield spark
        finally:
            spark.stop()
    except (PySparkException, OptionError) as error:
        raise LoadError(telling_line(str(error))) from error


def telling_line(text: str) -> str:
    """The line of an error of Spark that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    return ours[-1] if ours else lines[0] if lines else "Spark failed, and does not say why"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one shard is."""

    shard: str
    staged: int
    staged_bytes: int
    stored: int


class Job:
    """A load of files into a topic."""

    def __init__(self, endpoints: str, topic: str, writer: str | None) -> None:
        given = {"endpoints": endpoints, "topic": topic}
        self._options = WriteOptions.parse(given | ({"writerId": writer} if writer else {}))
        self._given = given
        self.writer = self._options.writer or new_writer()
        self._shards = sorted(set(ring_of(self._options).endpoints.values()))

    def run(
        self, spark: SparkSession, files: Sequence[str], kind: str, key_field: str | None
    ) -> None:
        """Returns when every event is durable and visible."""
        events = events_of(spark, list(files), kind, key_field)
        write = events.write.format("barco").mode("append").options(**self._given)
        write.option("writerId", self.writer).save()

    def progress(self) -> list[Progress]:
        """What each shard says now; nothing of one that does not answer."""
        return [self._ask(shard) for shard in self._shards]

    def result(self) -> dict[str, Any]:
        """How many events are stored, in all and by shard."""
        stored = {each.shard: each.stored for each in self.progress()}
        return {"events": sum(stored.values()), "shards": stored}

    def _ask(self, shard: str) -> Progress:
        try:
            told = Brokers([shard], ASK_SECONDS).get(f"/v1/writes/{self.writer}/0")
        except (BarcoError, *FAILURES):
            return Progress(shard, 0, 0, 0)
        stored = sum(count for each in told["committed"].values() for count in each.values())
        return Progress(shard, told["stagedRows"], told["stagedBytes"], stored)


def events_of(spark: SparkSession, files: list[str], kind: str, key_field: str | None) -> DataFrame:
    """The files' rows as events, with a value, and a key where one is asked for."""
    if kind == "ndjson":
        rows = spark.read.text(files).where("length(trim(value)) > 0")
        value = f.col("value").cast("binary")
        place = "$['" + (key_field or "").replace("'", "") + "']"
        key = f.get_json_object("value", place) if key_field else None
    else:
        if kind == "csv":
            # What is empty is an empty string, as `barco load` has it.
            rows = spark.read.option("header", True).csv(files).na.fill("")
        else:
            rows = spark.read.parquet(*files)
        if kind == "parquet" and _are_events(rows):
            return rows.select(*(name for name in PASSED_ON if name in rows.columns))
        if key_field and key_field not in rows.columns:
            raise LoadError(f"there is no column {key_field!r}, but {', '.join(rows.columns)}")
        value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
        key = f.col(f"`{key_field}`").cast("string") if key_field else None
    columns = [value.alias("value")] + ([] if key is None else [key.alias("key")])
    return rows.select(*columns)


def _are_events(rows: DataFrame) -> bool:
    types = dict(rows.dtypes)
    text = ("binary", "string")
    return types.get("value") in text and types.get("key", "binary") in text


def to_parquet(
    spark: SparkSession, endpoints: str, topic: str, directory: str, *, overwrite: bool
) -> int:
    """The events of a topic as they are now; returns how many."""
    reader = spark.read.format("barco").option("endpoints", endpoints)
    frame = reader.option("subscribe", topic).load()
    frame.write.mode("overwrite" if overwrite else "errorifexists").parquet(directory)
    return spark.read.parquet(directory).count()
