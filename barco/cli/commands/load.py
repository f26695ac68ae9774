"""`barco load`: files into a topic, as fast as the broker takes them."""

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

import barco
from barco.cli.commands.produce import has_keys, settle, tell_keyless
from barco.cli.shared import talk
from barco.cli.shared.lines import KeyField, blocks, csv_blocks

DESCRIPTION = """\
Load files into a topic. In NDJSON files each line is one event, stored as it is; in CSV files each
row becomes a JSON object with the names of the header, every value a string.

The command returns when every event is durable. Each is stored once, however often the network or
the broker fails in between, and events with the same key keep their order, across files too.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco load flights.ndjson --topic flights --key-field tailnum
  barco load 2024-*.ndjson 2025-*.ndjson --topic trips
  barco load stations.csv --topic stations --key-field id --json

A progress bar (bytes, events, time left) goes to the terminal, if there is one; --json prints the
summary as one line of JSON on stdout. Several files are loaded one after the other.

{talk.EXIT_CODES}"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "load", help="load files in bulk, with a progress bar",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="what to load, in order"
    )
    parser.add_argument("--topic", required=True, type=talk.topic, help="where to")
    parser.add_argument("--key-field", metavar="FIELD", help="the key is this field or column")
    parser.add_argument("--format", choices=("ndjson", "csv"),
                        help="default: csv for names that end in .csv, else ndjson")  # fmt: skip
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds, default=60.0,
                        help="give an event up after so long (default: %(default)g)")  # fmt: skip
    parser.add_argument("--no-compress", action="store_true", help="leave LZ4 to the broker")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no summary")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Load every file, wait for every event, sum up."""
    if args.timeout <= 0:
        return talk.fail("--timeout is more than 0", 2)
    try:
        total = sum(file.stat().st_size for file in args.files)
        for file in args.files:
            file.open("rb").close()
    except OSError as error:
        return talk.fail(f"cannot read {error.filename}: {error.strerror}")
    began = time.monotonic()
    with (
        _progress(args) as progress,
        barco.Producer(
            talk.access(args),
            delivery_timeout_s=args.timeout,
            compress=not args.no_compress,
            buffer_bytes=64 * 1024 * 1024,
        ) as producer,
    ):
        bar = _Bar(progress, total)
        for file in args.files:
            _load(producer, file, args, bar)
        events = bar.finish()
    if events and args.key_field and not bar.keyed:
        tell_keyless(args.key_field)
    _summarize(args, events, total, time.monotonic() - began)
    return 0


class _Bar:
    """The progress: bytes read, events acknowledged; also holds what is not acknowledged yet."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, events=0)
        self._futures: deque[Future[int]] = deque()
        self._events = 0
        self.keyed = False
        """Whether any event had a key."""

    def file(self, name: str) -> None:
        self._progress.update(self._task, description=name)

    def sent(self, future: "Future[int]", read_bytes: int) -> None:
        self._futures.append(future)
        self._events += settle(self._futures)
        self._progress.update(self._task, advance=read_bytes, events=self._events)

    def finish(self) -> int:
        self._events += settle(self._futures, all=True)
        total = self._progress.tasks[0].total
        self._progress.update(self._task, completed=total, events=self._events)
        return self._events


class _EventsColumn(ProgressColumn):
    """Events acknowledged, and how many a second."""

    def render(self, task: Task) -> Text:
        events = task.fields["events"]
        rate = events / task.elapsed if task.elapsed else 0
        return Text(f"{events:,} events, {rate:,.0f}/s")


def _progress(args: argparse.Namespace) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        _EventsColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=args.quiet or not console.is_terminal,
    )


def _load(producer: "barco.Producer", file: Path, args: argparse.Namespace, bar: _Bar) -> None:
    kind = args.format or ("csv" if file.suffix.lower() == ".csv" else "ndjson")
    bar.file(file.name)
    with file.open("rb", buffering=0) as stream:
        read = 0
        for values, keys in _batches(stream, kind, args.key_field):
            future = producer.send_many(args.topic, values, keys)
            bar.keyed = bar.keyed or has_keys(keys)
            at = os.lseek(stream.fileno(), 0, os.SEEK_CUR) if stream.seekable() else 0
            bar.sent(future, at - read)
            read = at


def _batches(
    stream: BinaryIO, kind: str, key_field: str | None
) -> Iterator[tuple[list[bytes], list[bytes | None] | None]]:
    if kind == "csv":
        yield from csv_blocks(stream, key_field)
        return
    field = KeyField(key_field) if key_field else None
    for lines in blocks(stream):
        yield lines, field.keys(lines) if field else None


def _summarize(args: argparse.Namespace, events: int, size: int, elapsed: float) -> None:
    rate = events / elapsed if elapsed else 0.0
    if args.json:
        talk.print_json(
            {
                "topic": args.topic,
                "files": [str(file) for file in args.files],
                "events": events,
                "bytes": size,
                "seconds": round(elapsed, 3),
                "eventsPerSecond": round(rate),
            }
        )
    elif not args.quiet:
        print(
            f"{events:,} events acknowledged in {args.topic}: {talk.size_of(size)} in"
            f" {elapsed:.1f} s, {rate:,.0f} events/s, {talk.size_of(size / elapsed)}/s",
            file=sys.stderr,
        )
