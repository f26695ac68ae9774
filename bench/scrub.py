"""What a scrub costs while events are produced: `python -m bench.scrub`, with and without it.

A broker is started on the same log again and again, with the rate of the product, without a scrub,
or with `--times` as much. Of each round: server CPU and latencies of single 1 KiB events, and how
much was read again meanwhile. About 5 s a run; the log is --gib large, so that a pass does not end.
"""

import argparse
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from barco.limits import SCRUB_BYTES_PER_SECOND
from barco.types import MiB
from bench.cases import fill, single
from bench.load import Load, median
from bench.machine import GiB, cpu_seconds
from bench.reading import segments
from bench.servers import Broker, broker

COMPRESSION = 2.3
VARIABLE = "BARCO_BENCH_SCRUB_BYTES_PER_SECOND"
HOOK = f"""\
import os
from barco import limits
limits.SCRUB_BYTES_PER_SECOND = int(os.environ["{VARIABLE}"])
"""
"""Read by each Python process that is started: the rate is no setting of the product."""

NEVER = 1
SETTLED_SECONDS = 1.0


def scrubbed(server: Broker) -> int:
    """Bytes that its worker has read again since its start."""
    text = server.request("GET", "/metrics")[2].decode()
    found = re.findall(r"^barco_storage_scrub_bytes_total(?:{.*})? (\d+)", text, re.MULTILINE)
    return sum(map(int, found))


def idle(server: Broker, rate: int, seconds: float) -> float:
    """Milliseconds of CPU a second of a worker with nothing else to do."""
    os.environ[VARIABLE] = str(rate)
    server.start()
    try:
        time.sleep(SETTLED_SECONDS)
        spent, began = sum(map(cpu_seconds, server.pids)), time.monotonic()
        time.sleep(seconds)
        spent = sum(map(cpu_seconds, server.pids)) - spent
        return spent / (time.monotonic() - began) * 1e3
    finally:
        server.stop()


def run(server: Broker, rate: int, connections: int, seconds: float) -> tuple[Load, float]:
    """One life of a broker: the load, and MiB/s read again during all of it."""
    os.environ[VARIABLE] = str(rate)
    server.start()
    try:
        before, began = scrubbed(server), time.monotonic()
        found = single(server, connections=connections, seconds=seconds)
        spent = (scrubbed(server) - before) / MiB
        return found, spent / (time.monotonic() - began)
    finally:
        server.stop()


def line(name: str, runs: Sequence[tuple[Load, float]]) -> str:
    """Medians of the rounds, and the extremes of the CPU and of p99."""
    cpu = [load.cpu_per_event * 1e6 for load, _ in runs]
    p50, p99 = ([load.figures[key] for load, _ in runs] for key in ("p50_us", "p99_us"))
    return (
        f"{name:<16}{median(cpu):8.2f} us of CPU ({min(cpu):.2f}-{max(cpu):.2f})"
        f"{median(p50):8.0f} us p50{median(p99):8.0f} us p99 ({min(p99):.0f}-{max(p99):.0f})"
        f"{median([spent for _, spent in runs]):7.1f} MiB/s read again"
    )


def main() -> None:
    """Fill, then the rounds; prints a table and the machine's load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--times", type=int, default=8)
    args = parser.parse_args()
    rates = {
        "without": NEVER,
        "with": SCRUB_BYTES_PER_SECOND,
        f"{args.times} times": args.times * SCRUB_BYTES_PER_SECOND,
    }
    found: dict[str, list[tuple[Load, float]]] = {name: [] for name in rates}
    with tempfile.TemporaryDirectory() as hook, broker() as server:
        (Path(hook) / "sitecustomize.py").write_text(HOOK)
        fill(server, int(args.gib * COMPRESSION * GiB))
        server.stop()
        os.environ["PYTHONPATH"] = hook
        print(f"{len(segments(server))} segments, load {os.getloadavg()[0]:.1f}")
        for number in range(args.rounds):
            order = list(rates)[number % len(rates) :] + list(rates)[: number % len(rates)]
            for name in order:
                found[name].append(run(server, rates[name], args.connections, args.seconds))
        resting = {name: idle(server, rate, args.seconds) for name, rate in rates.items()}
        server.start()  # As `broker` leaves it.
    for name, runs in found.items():
        print(f"{line(name, runs)}, idle {resting[name]:.1f} ms of CPU a second")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
