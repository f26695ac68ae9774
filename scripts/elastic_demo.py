#!/usr/bin/env python3
"""`make elastic`: flights flow in while a ring of three brokers becomes one of six, and of three.

One producer loads the flights, one for each token range asks all the time how long a write takes.
Three more brokers join, the cluster is asked to have six, and each leader gives away half of its
range. Then it is asked to have three again: ranges are joined, and what only those have that leave
is copied, until they are stopped. Then every flight is read again, and what was read is held
against the file: none is missing, none is there twice, those of each aircraft are in their order.
"""

import argparse
import itertools
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

# Scripts beside this one.
import cluster_demo
import demo as flights_demo
from cluster import ClusterError, LocalCluster
from cluster_demo import Probe, Tally, console, key_of, read_back, say
from rich.table import Table

import barco
from barco.errors import BarcoError

BROKERS = 6
HOSTS = tuple(f"127.0.0.{number + 11}" for number in range(BROKERS))
BLOCK = 200
IN_FLIGHT = 20
GROW_SECONDS = 90.0


@dataclass
class Step:
    """One change of the ring, while flights flow in; times are monotonic."""

    what: str
    since: float
    until: float


@dataclass
class Flow:
    """Loads the flights at an even pace, until all are durable."""

    place: "flights_demo.Place"
    endpoints: list[str]
    pause_s: float
    done: int = 0
    failed: str = ""
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """DemoError if a flight was refused."""
        self._thread.join(300)
        if self.failed or self.done != flights_demo.FLIGHTS:
            raise flights_demo.DemoError(f"{self.done} flights are durable: {self.failed}")

    def _run(self) -> None:
        waiting: list = []
        try:
            with self.place.flights.open("rb") as lines, barco.Producer(self.endpoints) as producer:
                while block := list(itertools.islice(lines, BLOCK)):
                    values = [line.rstrip(b"\n") for line in block]
                    keys = [flights_demo.tail_number(line) for line in block]
                    waiting.append(producer.send_many(cluster_demo.TOPIC, values, keys))
                    if len(waiting) >= IN_FLIGHT:
                        self.done += waiting.pop(0).result(60)
                    time.sleep(self.pause_s)
                for future in waiting:
                    self.done += future.result(60)
        except (BarcoError, TimeoutError) as error:
            self.failed = str(error) or repr(error)


def main() -> int:
    """Parse, run, say what went wrong in one line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, default=Path(".elastic"), help="default: %(default)s")
    parser.add_argument(
        "--flights", type=Path, default=Path(".demo"), help="where the file is kept"
    )
    args = parser.parse_args()
    # At the end nobody needs six brokers: they end with this process.
    cluster = LocalCluster(args.dir.resolve(), hosts=HOSTS, tied=True)
    place = flights_demo.Place(args.flights.resolve())
    place.root.mkdir(parents=True, exist_ok=True)
    try:
        run(cluster, place)
    except (ClusterError, flights_demo.DemoError, BarcoError) as error:
        print(f"elastic: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()
    return 0


def run(cluster: LocalCluster, place: "flights_demo.Place") -> None:
    """The whole of it."""
    source = flights_demo.prepare(place)
    cluster.stop()
    cluster.check_free()
    shutil.rmtree(cluster.root, ignore_errors=True)
    cluster.write(3)
    for ordinal in range(3):
        cluster.start(ordinal)
    cluster.wait_ready(range(3))
    first = cluster.endpoints[:3]
    say(f"three brokers are ready: {', '.join(first)}")
    probes = [Probe(first, key_of(index)) for index in range(3)]
    for probe in probes:
        probe.start()
    began = time.monotonic()
    flow = Flow(place, first, pause_s=0.015)
    try:
        time.sleep(5)
        steps = [Step("before", began, time.monotonic())]
        show_picture("Three brokers", cluster)
        steps += [join(cluster, ordinal) for ordinal in range(3, BROKERS)]
        steps += [scale(cluster, BROKERS), scale(cluster, 3), drain(cluster)]
        flow.join()
        steps.append(Step("after", steps[-1].until, time.monotonic()))
    finally:
        for probe in probes:
            probe.stop()
    show(steps, probes, read_back(cluster), source)


def join(cluster: LocalCluster, ordinal: int) -> Step:
    """A broker that was not there before."""
    since = time.monotonic()
    config = ["--config", str(cluster.config(ordinal))]
    cluster.write(ordinal + 1)
    command(["format", "--join", *config])
    cluster.start(ordinal)
    cluster.wait_ready([ordinal])
    say(f"broker {ordinal} has joined: it waits")
    return Step(f"broker {ordinal} joins", since, time.monotonic())


def scale(cluster: LocalCluster, brokers: int) -> Step:
    """Until the ring has so many; what changed meanwhile is drawn."""
    since = time.monotonic()
    command(["scale", "--to", str(brokers), "--no-wait", "--endpoint", cluster.endpoints[0]])
    drawn = ""
    while True:
        topology = cluster.topology()
        leaders = {route["leader"] for route in topology["routes"]}
        if topology["version"] != drawn:
            drawn = topology["version"]
            title = f"{time.monotonic() - since:.1f} s after barco scale --to {brokers}"
            show_picture(title, cluster)
        if leaders == set(range(brokers)):
            # Members follow; until they have, another target would be refused.
            where = ["--timeout", str(GROW_SECONDS), "--endpoint", cluster.endpoints[0]]
            command(["scale", "--to", str(brokers), *where])
            return Step(f"scale to {brokers}", since, time.monotonic())
        if time.monotonic() > since + GROW_SECONDS:
            raise ClusterError(
                f"it does not become one of {brokers} brokers: {sorted(leaders)} lead"
            )
        time.sleep(0.2)


def drain(cluster: LocalCluster) -> Step:
    """Those that lead nothing any more, until nothing is on them alone; then they are stopped."""
    since = time.monotonic()
    leaving = list(range(3, BROKERS))
    for ordinal in leaving:
        where = ["--timeout", str(GROW_SECONDS), "--endpoint", cluster.endpoints[0]]
        command(["drain", str(ordinal), *where])
        say(f"broker {ordinal} is drained")
    cluster.stop(leaving)
    return Step("three are drained and stopped", since, time.monotonic())


def command(words: list[str]) -> None:
    """Run one of barco's; ClusterError with its words if it fails."""
    asked = [sys.executable, "-P", "-m", "barco", *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"barco {words[0]}: {done.stderr.strip() or done.stdout.strip()}")


def show_picture(title: str, cluster: LocalCluster) -> None:
    """The ring, as the brokers see it now."""
    console.print(f"\n[bold]{title}[/bold]")
    sys.stdout.flush()
    asked = [sys.executable, "-P", "-m", "barco", "ring", "--endpoint", cluster.endpoints[0]]
    subprocess.run(asked, check=False)


def show(
    steps: list[Step],
    probes: list[Probe],
    read: dict[bytes | None, list[int]],
    source: dict[bytes | None, list[int]],
) -> None:
    """The table; DemoError if a flight is missing, twice, or out of order."""
    tally = Tally.of(read, source)
    table = Table(title="336,776 flights, three brokers that become six, and three again")
    table.add_column("what")
    table.add_column("figure", justify="right")
    tally.add_to(table)
    for step in steps:
        waits = [wait for probe in probes for sent, wait in probe.waits
                 if step.since <= sent < step.until]  # fmt: skip
        if waits:
            waits.sort()
            typical, worst = waits[len(waits) // 2], waits[-1]
            table.add_row(
                f"{step.what}: {step.until - step.since:.1f} s; a write waits, median and longest",
                f"{typical * 1000:.1f} ms, {worst * 1000:.0f} ms",
            )
    console.print(table)
    tally.check(probes)


if __name__ == "__main__":
    sys.exit(main())
