"""Bulk loads: files into a topic as one write, and a topic into Parquet files."""

import logging
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from barco.client.wire.ring import ring_from_topology
from barco.errors import BarcoError, NotFoundError
from barco.spark.base.fetch import Brokers
from barco.spark.base.options import OptionError
from barco.spark.sessions import session
from barco.spark.write.commit import WriteOptions, abort, later_of, new_writer, ring_of

ASK_SECONDS = 0.5
RESULT_SECONDS = 5.0
"""For what is shown while it goes on, and for what is told at the end."""
LOOKS_MAX = 4
"""How often a sum is made anew, where slices move while it is."""
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
EVENT_COLUMNS = {*PASSED_ON, "topic", "partition", "epoch", "offset", "timestampType"}
"""Parquet files with these and no others hold events; what is not passed on is given anew."""

KINDS = ("csv", "parquet")
"""By the ends of names; all others are lines."""
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


class LoadError(Exception):
    """Spark could not do it; the text is the line of its many that says why."""


def reach(brokers: Mapping[str, str], topic: str) -> None:
    """A wrong address is told at once, not when Spark is up and has waited as tasks do.

    LoadError: it is none. BarcoError: nobody answers there.
    """
    options = _options({"topic": topic, **brokers})
    Brokers(options.access, REACH_SECONDS).get("/v1/topology")


def _options(given: dict[str, str]) -> WriteOptions:
    try:
        return WriteOptions.parse(given)
    except OptionError as error:
        raise LoadError(str(error)) from error


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
        # PySpark's own handler calls Spark in the middle of a call to Spark.
        signal.signal(signal.SIGINT, _interrupted)
        try:
            yield spark
        finally:
            spark.stop()
    except (PySparkException, Py4JError, OptionError) as error:
        raise LoadError(telling_line(str(error))) from error


def _interrupted(*_: object) -> None:
    logging.disable()  # py4j tells of calls that have no answer now.
    raise KeyboardInterrupt


def telling_line(text: str) -> str:
    """The line of an error of Spark that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    files = [line for line in lines if "reading file" in line or line.startswith("Caused by: ")]
    if not ours and len(files) > 1:  # Which file, and what is wrong with it.
        ours = [
            f"{files[0].partition(': ')[2] or files[0]} {files[-1].removeprefix('Caused by: ')}"
        ]
    return ours[-1] if ours else lines[0] if lines else "Spark failed, and does not say why"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one shard is."""

    shard: str
    staged: int
    staged_bytes: int
    stored: int
    later: int | None = None
    """A later batch of the same writer in the topic."""


class Job:
    """A load of files into a topic. brokers: Spark's options of how they are reached."""

    def __init__(self, brokers: Mapping[str, str], topic: str, writer: str | None) -> None:
        given = {"topic": topic, **brokers}
        self._options = _options(given | ({"writerId": writer} if writer else {}))
        self._given = given
        self.writer = self._options.writer or new_writer()
        self._ring = ring_of(self._options)

    def before(self) -> dict[str, Any]:
        """What the writer has stored before this job, if its name was used: `events` of the same
        batch, which are not stored again, and a `laterBatch`, for which this one is passed over."""
        shards = self._shards(RESULT_SECONDS)
        told = [self._ask(shard, shard, RESULT_SECONDS) for shard in sorted(shards)]
        known = [each for each in told if each is not None]
        later = max((each.later for each in known if each.later is not None), default=None)
        return {"events": sum(each.stored for each in known), "laterBatch": later}

    def run(
        self, spark: SparkSession, files: Sequence[str], kind: str | None, key_field: str | None
    ) -> None:
        """Returns when every event is durable and visible."""
        events = events_of(spark, list(files), kind, key_field)
        write = events.write.format("barco").mode("append").options(**self._given)
        write.option("writerId", self.writer).save()

    def give_up(self) -> None:
        """It was interrupted: what is staged need not wait until it expires."""
        abort(self._options, self.writer, 0)

    def progress(self) -> list[Progress]:
        """What each shard says now; nothing of one that does not answer."""
        return [
            self._ask(shard, shard, ASK_SECONDS) or Progress(shard, 0, 0, 0)
            for shard in sorted(self._shards(ASK_SECONDS))
        ]

    def result(self) -> dict[str, Any]:
        """How many events are stored, in all and by shard; if slices move meanwhile all are asked
        again, for some would be counted twice, or never."""
        shards = self._shards(RESULT_SECONDS)
        for _ in range(LOOKS_MAX):
            stored = {shard: self._stored(shard, shards[shard]) for shard in sorted(shards)}
            before, shards = shards, self._shards(RESULT_SECONDS)
            if shards == before:
                break
        return {"events": sum(stored.values()), "shards": stored}

    def _shards(self, seconds: float) -> dict[str, tuple[str, ...]]:
        """Who holds each shard, by who leads it: now, for the ring may have grown or shrunk since
        the load began; as it was when anybody told it last, if nobody does."""
        brokers = Brokers(self._options.access, seconds)
        with suppress(BarcoError, OSError):
            self._ring = ring_from_topology(brokers.get("/v1/topology"))
        ring = self._ring
        return {ring.endpoints[key]: ring.holders[key] for key in ring.slices}

    def _stored(self, shard: str, holders: Sequence[str]) -> int:
        if (told := self._ask(shard, shard, RESULT_SECONDS)) is not None:
            return told.stored
        # Others may not have heard of the last part.
        others = [self._ask(shard, each, RESULT_SECONDS) for each in holders]
        return max((each.stored for each in others if each is not None), default=0)

    def _ask(self, shard: str, holder: str, seconds: float) -> Progress | None:
        try:
            told = Brokers(self._options.access.to(holder), seconds).get(
                f"/v1/writes/{self.writer}/0"
            )
        except NotFoundError:
            return Progress(shard, 0, 0, 0)
        except (BarcoError, OSError):
            return None
        stored = sum(count for each in told["committed"].values() for count in each.values())
        later = later_of(told, [self._given["topic"]])
        return Progress(shard, told["stagedRows"], told["stagedBytes"], stored, later)


def kind_of(spark: SparkSession, files: list[str]) -> str:
    """What the files are, by their names: those in a directory count, whatever it is called."""
    listed = spark.read.format("binaryFile").load(files).select("path")
    names = listed.select(f.lower(f.substring_index("path", "/", -1)).alias("name"))
    for suffix in PACKED:
        names = names.select(f.regexp_replace("name", f"[.]{suffix[1:]}$", "").alias("name"))
    endings = names.select(f.regexp_extract("name", "[.]([a-z0-9]+)$", 1).alias("ending"))
    kinds = _kinds(row.ending for row in endings.distinct().collect())
    if len(kinds) > 1:
        raise LoadError(f"the files are of several kinds, {' and '.join(kinds)}: say --format")
    return kinds[0] if kinds else "ndjson"


def _kinds(endings: Iterable[str]) -> list[str]:
    return sorted({ending if ending in KINDS else "ndjson" for ending in endings})


def events_of(
    spark: SparkSession, files: list[str], kind: str | None, key_field: str | None
) -> DataFrame:
    """The files' rows as events, with a value, and a key where one is asked for."""
    kind = kind or kind_of(spark, files)
    if kind == "ndjson":
        rows = spark.read.text(files).where("length(trim(value)) > 0")
        value = f.col("value").cast("binary")
        key = _field_of(f.col("value"), key_field) if key_field else None
    else:
        rows = _csv(spark, files) if kind == "csv" else spark.read.parquet(*files)
        if kind == "parquet" and _are_events(rows):
            if key_field:
                raise LoadError("the files hold events, which have their keys: no --key-field")
            return rows.select(*(name for name in PASSED_ON if name in rows.columns))
        if key_field and key_field not in rows.columns:
            raise LoadError(f"there is no column {key_field!r}, but {', '.join(rows.columns)}")
        value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
        key = f.col(f"`{key_field}`").cast("string") if key_field else None
    columns = [value.alias("value")] + ([] if key is None else [key.alias("key")])
    return rows.select(*columns)


def _field_of(line: Column, name: str) -> Column:
    """A field of a line of JSON. What is no JSON has none: it is refused, as `barco load` does."""
    key = f.get_json_object(line, "$['" + name.replace("'", "") + "']")
    broken = key.isNull() & f.get_json_object(line, "$").isNull()
    why = f.concat(f.lit("a line is not JSON: "), f.substring(line, 1, 80))
    return f.when(broken, f.raise_error(why)).otherwise(key)


def _csv(spark: SparkSession, files: list[str]) -> DataFrame:
    """As RFC 4180 has it. Spark by itself escapes by backslash, breaks a row where a quoted field
    has a line end, drops fields that are too many and takes one file's header for that of all."""
    quotes = "octet_length(value) - octet_length(replace(value, '\"', ''))"
    broken = spark.read.text(files).where(f"({quotes}) % 2 = 1")
    reader = spark.read.option("header", True).option("escape", '"').option("mode", "FAILFAST")
    reader = reader.option("enforceSchema", False)
    # A file is read by one task then.
    reader = reader.option("multiLine", not broken.isEmpty())
    # What is empty is an empty string, as `barco load` has it.
    return reader.csv(files).na.fill("")


def _are_events(rows: DataFrame) -> bool:
    """Not a table that has a column of that name among others, which would be lost."""
    types = dict(rows.dtypes)
    if not EVENT_COLUMNS.issuperset(types):
        return False
    text = ("binary", "string")
    return types.get("value") in text and types.get("key", "binary") in text


def to_parquet(
    spark: SparkSession,
    brokers: Mapping[str, str],
    topic: str,
    directory: str,
    *,
    overwrite: bool,
) -> int:
    """The events of a topic as they are now; returns how many."""
    # Spark makes the directory before it asks for the first event.
    Brokers(WriteOptions.parse(dict(brokers)).access, REACH_SECONDS).slices(topic)
    reader = spark.read.format("barco").options(**brokers)
    frame = reader.option("subscribe", topic).load()
    frame.write.mode("overwrite" if overwrite else "errorifexists").parquet(directory)
    return spark.read.parquet(directory).count()
