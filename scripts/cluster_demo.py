#!/usr/bin/env python3
"""`make cluster-demo`: three brokers, 336,776 flights, and a SIGKILL in the middle.

One producer loads the flights, one for each token range asks all the time how long a write takes.
Half-way the broker that leads the first shard is killed, with all its workers. When everything is
loaded it comes back, every flight is read again, and what was read is held against the file: none
is missing, none is there twice, and those of each aircraft are in their order.
"""

import argparse
import itertools
import shutil
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

# Both are scripts beside this one.
import demo as flights_demo
from cluster import ClusterError, LocalCluster
from rich.console import Console
from rich.table import Table

import barco
from barco.cli.shared.ring import draw
from barco.client.wire.codec import token_of
from barco.errors import BarcoError
from barco.model.placement import Placement
from barco.types import Token

TOPIC = "flights"
PROBE_TOPIC = "probe"
BLOCK = 500
"""Flights that are handed to the producer at once."""
IN_FLIGHT = 40
PROBE_PAUSE_S = 0.005

console = Console(highlight=False)


@dataclass
class Probe:
    """Writes one event after the other to one token range, and remembers how long each took."""

    endpoints: list[str]
    key: bytes
    waits: list[tuple[float, float]] = field(default_factory=list)
    """(when it was sent, seconds until it was durable)."""
    failed: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """In a thread of its own."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """After the write that is under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(60)

    def longest(self, since: float, until: float) -> float:
        """The longest wait of the writes that were sent in this time."""
        return max((wait for sent, wait in self.waits if since <= sent < until), default=0.0)

    def _run(self) -> None:
        try:
            with barco.Producer(self.endpoints, linger_ms=0) as producer:
                while not self._ended.wait(PROBE_PAUSE_S):
                    sent = time.monotonic()
                    producer.send(PROBE_TOPIC, b"{}", key=self.key).result(60)
                    self.waits.append((sent, time.monotonic() - sent))
        except (BarcoError, TimeoutError) as error:
            self.failed = str(error)


@dataclass
class Loaded:
    """What happened while the flights were loaded; times are monotonic."""

    victim: int
    seconds: float
    killed_at: float
    back_seconds: float
    pictures: list[tuple[str, str]]


def main() -> int:
    """Parse, run, say what went wrong in one line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, default=Path(".cluster"), help="default: %(default)s")
    parser.add_argument(
        "--flights", type=Path, default=Path(".demo"), help="where the file is kept"
    )
    parser.add_argument("--stop-after", action="store_true", help="stop the brokers at the end")
    args = parser.parse_args()
    cluster = LocalCluster(args.dir.resolve(), tied=args.stop_after)
    place = flights_demo.Place(args.flights.resolve())
    place.root.mkdir(parents=True, exist_ok=True)
    try:
        run(cluster, place)
        if args.stop_after:
            cluster.stop()
        else:
            say("look around: .venv/bin/barco status; stop it: make cluster-stop")
    except (ClusterError, flights_demo.DemoError, BarcoError) as error:
        print(f"cluster-demo: {error}", file=sys.stderr)
        return 1
    return 0


def run(cluster: LocalCluster, place: "flights_demo.Place") -> None:
    """The whole of it."""
    source = flights_demo.prepare(place)
    cluster.stop()
    cluster.check_free()
    shutil.rmtree(cluster.root, ignore_errors=True)
    cluster.write()
    for ordinal in range(len(cluster.hosts)):
        cluster.start(ordinal)
    cluster.wait_ready()
    say(f"three brokers are ready: {', '.join(cluster.endpoints)}")
    probes = [Probe(cluster.endpoints, key_of(index)) for index in range(3)]
    for probe in probes:
        probe.start()
    try:
        loaded = load(cluster, place)
    finally:
        for probe in probes:
            probe.stop()
    read = read_back(cluster)
    for title, picture in loaded.pictures:
        console.print(f"\n[bold]{title}[/bold]")
        print(picture)
    show(loaded, probes, read, source)


def key_of(index: int) -> bytes:
    """A key in the token range with this ring index."""
    ring = Placement(3, 8)
    keys = (f"probe-{number}".encode() for number in itertools.count())
    return next(key for key in keys if ring.locate(Token(token_of(key)))[0] == index)


def load(cluster: LocalCluster, place: "flights_demo.Place") -> Loaded:
    """Load the flights, and kill the leader of the first shard when half of them are durable."""
    began = time.monotonic()
    pictures = [("At the start", picture(cluster))]
    leader = cluster.topology()["shards"][0]["ordinal"]
    killed_at = 0.0
    done = 0
    with place.flights.open("rb") as lines, barco.Producer(cluster.endpoints) as producer:
        waiting: list = []
        while block := list(itertools.islice(lines, BLOCK)):
            values = [line.rstrip(b"\n") for line in block]
            keys = [flights_demo.tail_number(line) for line in block]
            waiting.append(producer.send_many(TOPIC, values, keys))
            if len(waiting) >= IN_FLIGHT:
                done += waiting.pop(0).result(60)
            if not killed_at and done >= flights_demo.FLIGHTS // 2:
                cluster.kill(leader)
                killed_at = time.monotonic()
                say(f"SIGKILL to broker {leader}, {done:,} flights durable, the rest under way")
        for future in waiting:
            done += future.result(60)
    seconds = time.monotonic() - began
    if done != flights_demo.FLIGHTS:
        raise flights_demo.DemoError(f"{done} of {flights_demo.FLIGHTS} flights are durable")
    say(f"all {done:,} flights are durable after {seconds:.1f} s")
    pictures.append((f"After the death of broker {leader}", picture(cluster)))
    back = time.monotonic()
    cluster.start(leader)
    cluster.wait_ready()
    back_seconds = time.monotonic() - back
    cluster.wait_in_sync(leader)
    pictures.append((f"Broker {leader} is back", picture(cluster)))
    return Loaded(leader, seconds, killed_at, back_seconds, pictures)


def picture(cluster: LocalCluster) -> str:
    """The ring as the brokers see it now."""
    return draw(cluster.topology(), colour=console.is_terminal)


def read_back(cluster: LocalCluster) -> dict[bytes | None, list[int]]:
    """The ids of the flights of each aircraft, in the order of their slice."""
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for event in barco.read(TOPIC, cluster.endpoints):
        found[event.key].append(flights_demo.flight_id(event.value))
    return found


@dataclass(frozen=True)
class Tally:
    """What was read, held against the file."""

    count: int
    distinct: int
    keys: int
    disordered: int
    """Of the keys, those whose flights are others, or in another order."""

    @classmethod
    def of(
        cls, read: dict[bytes | None, list[int]], source: dict[bytes | None, list[int]]
    ) -> "Tally":
        """Both: the ids of the flights of each aircraft."""
        keyed = [key for key in source if key is not None]
        distinct = len({flight for flights in read.values() for flight in flights})
        disordered = sum(read.get(key) != source[key] for key in keyed)
        return cls(sum(map(len, read.values())), distinct, len(keyed), disordered)

    def add_to(self, table: Table) -> None:
        """Its rows."""
        table.add_row("read back", f"{self.count:,}")
        table.add_row("missing", f"{flights_demo.FLIGHTS - self.distinct:,}")
        table.add_row("twice", f"{self.count - self.distinct:,}")
        table.add_row("aircraft out of order", f"{self.disordered:,} of {self.keys:,}")

    def check(self, probes: list[Probe]) -> None:
        """DemoError if a write failed, or a flight is missing, twice, or out of order."""
        failed = [probe.failed for probe in probes if probe.failed]
        if failed:
            raise flights_demo.DemoError(f"a write failed: {failed[0]}")
        if (self.count, self.distinct, self.disordered) != (*[flights_demo.FLIGHTS] * 2, 0):
            raise flights_demo.DemoError("what was read is not what was written")


def show(
    loaded: Loaded,
    probes: list[Probe],
    read: dict[bytes | None, list[int]],
    source: dict[bytes | None, list[int]],
) -> None:
    """The table; DemoError if a flight is missing, twice, or out of order."""
    tally = Tally.of(read, source)
    table = Table(title="336,776 flights, three brokers, one SIGKILL")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_row("loaded and durable on two brokers", f"{flights_demo.FLIGHTS:,}")
    table.add_row("seconds", f"{loaded.seconds:.1f}")
    tally.add_to(table)
    for index, probe in enumerate(probes):
        before = probe.longest(0, loaded.killed_at - 1)
        at = probe.longest(loaded.killed_at - 1, loaded.killed_at + 5)
        table.add_row(
            f"longest write to range {index}: before, around the kill",
            f"{before * 1000:.0f} ms, {at * 1000:.0f} ms",
        )
    table.add_row(f"broker {loaded.victim} ready again after", f"{loaded.back_seconds:.1f} s")
    console.print(table)
    tally.check(probes)


def say(text: str) -> None:
    """A line on the way."""
    console.print(text)


if __name__ == "__main__":
    sys.exit(main())
