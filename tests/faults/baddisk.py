"""What a bad disk costs a ring, in turns with good ones: `make bad-disk TIMES=10`.

Three brokers on FUSE disks. Each turn: writes to a range with good disks, then with a follower's
disk that hangs, with good ones, with one that takes 200 ms for each write (every other turn the two
the other way round), and with good ones again. A bad phase is compared with the two good ones
around it, and a good one with the good one before it by the same rule: that is what the machine
moves by itself (the noise). Then the disk of a range's leader hangs: how long the range has no
acknowledgement. Who writes has a core of its own, where there are two. Only on a machine that does
nothing else are these the broker's figures; the load average is printed beside. About 40 s a turn.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from faultlab import fusedisk
from faultlab.baddisk import FENCED_S, SLOW_MS, bad_follower, fenced_after, latencies
from faultlab.fusedisk import FuseDisk
from faultlab.prober import percentile
from faultlab.ring import Ring

GOOD, SLOW, HANG = "good", "slow", "hang"
KINDS = (HANG, SLOW)
SHARES = (0.5, 0.99, 1.0)
COMPARED = (0.5, 0.99)


class Measure:
    """The figures of all turns."""

    def __init__(self, ring: Ring, disks: list[FuseDisk], requests: int) -> None:
        self.ring, self.disks, self.requests = ring, disks, requests
        self.all: dict[str, list[float]] = {kind: [] for kind in (GOOD, *KINDS)}
        self.ratios: dict[str, list[dict[float, float]]] = {kind: [] for kind in (GOOD, *KINDS)}
        """Of p50 and p99, turn by turn: to the good phases around it, or to the one before."""
        self.fenced: list[float] = []

    def turn(self, number: int, *, leader: bool) -> None:
        """Both kinds at a follower, between good ones, then a leader's disk."""
        good = [self._good()]
        for kind in KINDS if number % 2 else KINDS[::-1]:
            with bad_follower(self.ring, self.disks[1], kind):
                hurt = self._phase(kind)
            good.append(self._good())
            around = [(good[-2][share] + good[-1][share]) / 2 for share in COMPARED]
            self._compare(number, kind, hurt, around)
            self._compare(number, GOOD, good[-1], [good[-2][share] for share in COMPARED])
        if leader:
            at = number % len(self.disks)
            self.fenced.append(fenced_after(self.ring, self.disks[at], at))

    def _good(self) -> dict[float, float]:
        self.ring.wait_whole()
        return self._phase(GOOD)

    def _phase(self, kind: str) -> dict[float, float]:
        found = latencies(self.ring, 0, self.requests)
        self.all[kind] += found
        return {share: percentile(found, share) for share in COMPARED}

    def _compare(
        self, number: int, kind: str, phase: dict[float, float], with_: list[float]
    ) -> None:
        ratios = {share: phase[share] / other for share, other in zip(COMPARED, with_, strict=True)}
        self.ratios[kind].append(ratios)
        said = ", ".join(f"p{share * 100:.0f} × {each:.2f}" for share, each in ratios.items())
        print(f"turn {number}: {kind:<5} {said}, {_load()}", flush=True)

    def table(self) -> None:
        """Milliseconds of all turns together, and the ratios by turns."""
        columns = ("n", "p50", "p99", "max", "≥ 200 ms")
        print(f"{'writes, ms':<26}" + "".join(f"{each:>9}" for each in columns))
        for kind, values in self.all.items():
            figures = "".join(f"{percentile(values, share) * 1e3:>9.2f}" for share in SHARES)
            late = sum(each >= SLOW_MS / 1e3 for each in values)
            name = "all disks good" if kind == GOOD else f"a follower's disk: {kind}"
            print(f"{name:<26}{len(values):>9}{figures}{late:>9}")
        for kind, turns in self.ratios.items():
            name = "good to good (noise)" if kind == GOOD else f"{kind} to good around it"
            for share in COMPARED:
                values = [each[share] for each in turns]
                low, middle, high = (percentile(values, s) for s in (0, 0.5, 1))
                print(
                    f"{name:<26} p{share * 100:.0f}: median × {middle:.2f}"
                    f" ({low:.2f} to {high:.2f}, {len(values)} times)"
                )
        if self.fenced:
            print(
                f"leader's disk hung: p50 {percentile(self.fenced, 0.5):.2f} s,"
                f" max {max(self.fenced):.2f} s (bar {FENCED_S:g} s)"
            )


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """What is started within has all cores but the last; who is within has that one after it."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        yield
        return
    os.sched_setaffinity(0, cores[:-1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores[-1:])


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def run(args: argparse.Namespace, root: Path) -> None:
    """Turns, and a table of those that were whole."""
    program = fusedisk.build(root)
    with contextlib.ExitStack() as stack:
        with _apart():
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
            measure.turn(number, leader=not args.follower)
            if time.monotonic() > until:
                break
        measure.table()


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="turns")
    parser.add_argument("--requests", type=int, default=2000, help="writes in each phase")
    parser.add_argument("--seconds", type=float, default=500, help="then no further turn")
    parser.add_argument("--follower", action="store_true", help="no leader's disk hangs")
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
