"""What a bad disk costs a ring, in turns with good ones: `make bad-disk TIMES=5`.

Three brokers on FUSE disks. Each turn: writes to a range with good disks, with a follower's disk
that takes 200 ms for each write, with good ones again, with one that hangs; p99 of each, and as a
ratio of the quiet phase just before it (1: nobody notices). Then the disk of a range's leader
hangs: how long the range has no acknowledgement. Only on a machine that does nothing else are
these the broker's figures; the load average is printed beside. About 40 s a turn.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from faultlab import fusedisk
from faultlab.baddisk import FENCED_S, SLOW_MS, bad_follower, fenced_after, latencies
from faultlab.fusedisk import FuseDisk
from faultlab.prober import percentile
from faultlab.ring import Ring

KINDS = ("slow", "hang")
SHARES = (0.5, 0.99, 1.0)


class Measure:
    """The figures of all turns."""

    def __init__(self, ring: Ring, disks: list[FuseDisk], requests: int) -> None:
        self.ring, self.disks, self.requests = ring, disks, requests
        self.quiet: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.hurt: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
        """Of p99, hurt to quiet, turn by turn."""
        self.fenced: list[float] = []

    def turn(self, number: int) -> None:
        """Both kinds at a follower, then a leader's disk."""
        for kind in KINDS:
            self.ring.wait_whole()
            quiet = latencies(self.ring, 0, self.requests)
            with bad_follower(self.ring, self.disks[1], kind):
                hurt = latencies(self.ring, 0, self.requests)
            ratio = percentile(hurt, 0.99) / percentile(quiet, 0.99)
            self.quiet[kind] += quiet
            self.hurt[kind] += hurt
            self.ratios[kind].append(ratio)
            print(f"turn {number}: {kind} follower, p99 × {ratio:.2f}, {_load()}", flush=True)
        at = number % len(self.disks)
        self.fenced.append(fenced_after(self.ring, self.disks[at], at))

    def table(self) -> None:
        """Milliseconds of all turns together, and the ratios of p99."""
        columns = ("n", "p50", "p99", "max")
        print(f"{'writes, ms':<26}" + "".join(f"{each:>9}" for each in columns))
        for kind in KINDS:
            named = ((f"quiet, before {kind}", self.quiet), (f"follower's disk {kind}", self.hurt))
            for name, values in named:
                figures = "".join(f"{percentile(values[kind], s) * 1e3:>9.1f}" for s in SHARES)
                print(f"{name:<26}{len(values[kind]):>9}{figures}")
        for kind in KINDS:
            low, middle, high = (percentile(self.ratios[kind], s) for s in (0, 0.5, 1))
            late = sum(each >= SLOW_MS / 1e3 for each in self.hurt[kind])
            print(
                f"{kind}: p99 to quiet, by turns: {low:.2f} … {middle:.2f} … {high:.2f};"
                f" answers of {SLOW_MS} ms or more: {late}"
            )
        print(
            f"leader's disk hung: p50 {percentile(self.fenced, 0.5):.2f} s,"
            f" max {max(self.fenced):.2f} s (bar {FENCED_S:g} s)"
        )


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def run(args: argparse.Namespace, root: Path) -> None:
    """Turns, and a table of those that were whole."""
    program = fusedisk.build(root)
    with contextlib.ExitStack() as stack:
        disks = [FuseDisk(program, root / f"disk-{number}") for number in range(3)]
        for disk in disks:
            stack.callback(disk.close)
        ring = Ring(root / "ring", disks=disks)  # type: ignore[arg-type]
        stack.callback(ring.close)
        for disk in disks:  # Before the ring: who waits for one could not end.
            stack.callback(disk.clear)
        ring.start()
        ring.wait_whole()
        latencies(ring, 0, args.requests)  # Warm.
        measure = Measure(ring, disks, args.requests)
        until = time.monotonic() + args.seconds
        for number in range(args.times):
            measure.turn(number)
            if time.monotonic() > until:
                break
        measure.table()


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="turns")
    parser.add_argument("--requests", type=int, default=1000, help="writes in each phase")
    parser.add_argument("--seconds", type=float, default=330, help="then no further turn")
    args = parser.parse_args()
    if reason := fusedisk.why_not():
        print(reason, file=sys.stderr)
        return 2
    root = Path(tempfile.mkdtemp(prefix="barco-bad-disk-"))
    try:
        run(args, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
