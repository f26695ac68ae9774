"""`barco spark-load`: files into a topic, or a topic into Parquet files, by Spark."""

import argparse
import importlib
import importlib.metadata
import importlib.util
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from barco.cli.shared import talk

DESCRIPTION = """\
Load files into a topic with Spark, or a topic into Parquet files. For data that is larger than one
machine reads in time, or that lies where Spark can read it (hdfs:, s3a:, any path it knows).

Into a topic (FILE... --topic T): each line of an NDJSON file is one event, stored as it is; each
row of a CSV file (UTF-8, with a header, as RFC 4180 has it) becomes a JSON object with the names of
the header, every value a string; each row of a Parquet file becomes a JSON object, unless its
columns are those of an event and no others (value, and any of key, timestamp, topic, partition,
epoch and offset, as --to writes them): then value, key and timestamp are stored as they are.
Directories, patterns and compressed files (.gz and what else Spark unpacks) can be given as well.
Tasks stage the events at the shards that own them, and all of them become visible at the end, each
once, whatever fails or is tried again in between. If the command itself is killed, run it again
with the same --writer-id: what was stored before is not stored twice.

Into files (--topic T --to DIR): the events of the topic as they are now, as Parquet with the
columns key, value, topic, partition, epoch, offset and timestamp.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Needs:
  pyspark 4.2 or newer (pip install 'barco[spark]') and Java 17 or newer (JAVA_HOME, or java in
  PATH; on Debian: apt-get install default-jre-headless).

Examples:
  barco spark-load flights.ndjson --topic flights --key-field tailnum
  barco spark-load 's3a://logs/2026-*.parquet' --topic logs --master spark://head:7077
  barco spark-load trips.csv --topic trips --writer-id trips-2026-11 --json
  barco spark-load --topic flights --to flights.parquet

Progress by shard goes to the terminal, if there is one; --json prints the summary as one line of
JSON on stdout: topic, events, seconds, eventsPerSecond, and shards (events by shard endpoint) or
directory.

{talk.EXIT_CODES}"""

WATCH_SECONDS = 0.5
PYSPARK_MIN = (4, 2)


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "spark-load", help="load files in bulk with Spark, or a topic into Parquet",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("files", metavar="FILE", nargs="*", help="what to load: any path of Spark")
    parser.add_argument("--topic", required=True, type=talk.topic, help="where to, or from")
    parser.add_argument("--to", metavar="DIR", help="write the topic there, as Parquet")
    parser.add_argument("--overwrite", action="store_true", help="with --to: DIR may be there")
    parser.add_argument("--key-field", metavar="FIELD", help="the key is this field or column")
    parser.add_argument("--format", choices=("ndjson", "csv", "parquet"),
                        help="default: by the names of the files, else ndjson")  # fmt: skip
    parser.add_argument("--master", metavar="URL", default=None,
                        help="a Spark cluster (default: all cores of this machine)")  # fmt: skip
    parser.add_argument("--writer-id", metavar="ID", help="names the load, to run it again")
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Check, start Spark, load, sum up."""
    if bool(args.files) == bool(args.to):
        return talk.fail("give files to load, or --to DIR to write a topic there", 2)
    if args.to and (args.key_field or args.format or args.writer_id):
        return talk.fail("--key-field, --format and --writer-id are for loading files", 2)
    missing = _missing() or _missing_file(args)
    if missing:
        return talk.fail(missing)
    began = time.monotonic()
    # Only now: it takes a second, and needs packages that barco itself does not.
    load = importlib.import_module("barco.spark.load")
    try:
        load.reach(talk.spark_options(args), args.topic)
        summary = _to_files(load, args) if args.to else _to_topic(load, args)
    except load.LoadError as error:
        return talk.fail(str(error))
    _summarize(args, summary, time.monotonic() - began)
    return 0


def _to_topic(load: Any, args: argparse.Namespace) -> dict[str, Any]:
    job = load.Job(talk.spark_options(args), args.topic, args.writer_id)
    before = job.before() if args.writer_id else {"events": 0, "laterBatch": None}
    try:
        with load.running(args.master) as spark:
            with _Watch(job, show=not args.quiet):
                job.run(spark, args.files, args.format, args.key_field)
            return {**job.result(), "writer": job.writer, "before": before}
    except KeyboardInterrupt:
        job.give_up()
        raise


def _to_files(load: Any, args: argparse.Namespace) -> dict[str, Any]:
    with load.running(args.master) as spark:
        events = load.to_parquet(
            spark,
            talk.spark_options(args),
            args.topic,
            args.to,
            overwrite=args.overwrite,
        )
    return {"events": events, "directory": args.to}


def _missing_file(args: argparse.Namespace) -> str:
    """A file that is plainly on this machine and is not there: Spark needs seconds to say so."""
    if args.master is not None or talk.other_file_system():
        return ""
    for name in args.files:
        if not any(each in name for each in ":*?[{") and not Path(name).exists():
            return f"cannot read {name}: there is no such file"
    return ""


def _missing() -> str:
    """What Spark needs and is not there, and how to get it; empty if all is."""
    for module in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(module) is None:
            return f"the package {module} is missing: pip install 'barco[spark]'"
    found = importlib.metadata.version("pyspark")
    if tuple(int(word) for word in found.split(".")[:2]) < PYSPARK_MIN:
        return f"pyspark {found} is too old, it takes 4.2 or newer: pip install -U 'barco[spark]'"
    return talk.java_missing()


class _Watch:
    """Shows what is staged and stored at each shard, while Spark works."""

    def __init__(self, job: Any, *, show: bool) -> None:
        self._job = job
        console = Console(stderr=True)
        self._live = Live(console=console, transient=True) if show and console.is_terminal else None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._thread.join()
            self._live.stop()

    def _run(self) -> None:
        assert self._live is not None
        while not self._ended.wait(WATCH_SECONDS):
            self._live.update(self._table())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("shard")
        for name in ("staged", "bytes", "stored"):
            table.add_column(name, justify="right")
        for told in self._job.progress():
            size = talk.size_of(told.staged_bytes)
            table.add_row(told.shard, f"{told.staged:,}", size, f"{told.stored:,}")
        table.caption = f"{time.monotonic() - self._began:.0f} s"
        return table


def _tell_passed_over(args: argparse.Namespace, before: dict[str, Any]) -> None:
    """A warning: it is told with --quiet and --json too."""
    name = f"warning: batch 0 of writer {args.writer_id}"
    if before["laterBatch"] is not None:
        later = f"batch {before['laterBatch']} of the writer was stored before"
        print(f"{name} was passed over: {later}", file=sys.stderr)
    elif before["events"]:
        events = f"{before['events']:,} of its events were stored by an earlier run"
        print(f"{name} was known: {events}, and are not stored again", file=sys.stderr)


def _summarize(args: argparse.Namespace, summary: dict[str, Any], elapsed: float) -> None:
    events = summary["events"]
    if (before := summary.get("before")) is not None:
        _tell_passed_over(args, before)
    rate = events / elapsed if elapsed else 0.0
    if args.json:
        timing = {"seconds": round(elapsed, 3), "eventsPerSecond": round(rate)}
        talk.print_json({"topic": args.topic} | summary | timing)
        return
    if args.quiet:
        return
    if args.to:
        text = f"{events:,} events of {args.topic} written to {args.to}"
    else:
        shards = ", ".join(f"{count:,} at {shard}" for shard, count in summary["shards"].items())
        text = f"{events:,} events stored in {args.topic} ({shards})"
    print(f"{text} in {elapsed:.1f} s, {rate:,.0f} events/s", file=sys.stderr)
