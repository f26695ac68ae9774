"""How long no range of a ring can be written, fault by fault: `make failover TIMES=7`.

Three brokers, nine clients that write all the time, one fault after the other, the ring whole in
between. For each fault: the longest time without an acknowledgement, of the broker's own range
and of the two others. Only on a machine that does nothing else are these the broker's figures;
the load average is printed beside. About 12 s a turn: kill, return, SIGTERM, return.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from faultlab.prober import Prober, percentile
from faultlab.ring import Node, Ring

TAKEN_S = 2.0
"""After a crash or a stop, before the broker comes back."""

WHOLE_S = 60.0
QUIET_S = 0.5
PHASES = ("kill", "return after kill", "SIGTERM", "return after SIGTERM")
BARS_S = dict(zip(PHASES, (0.5, 0.5, 1.0, 1.0), strict=True))


class Measure:
    """The gaps of all phases."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.prober = Prober(ring)
        self.own: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.others: dict[str, list[float]] = {phase: [] for phase in PHASES}

    def phase(self, name: str, node: Node, act: Callable[[], object]) -> None:
        """One fault, or the end of one."""
        since = time.monotonic()
        act()
        self.prober.await_all(time.monotonic() + WHOLE_S)
        gaps = [gap.seconds for gap in self.prober.gaps(since, time.monotonic())]
        self.own[name].append(gaps.pop(node.ordinal))
        self.others[name] += gaps
        print(
            f"{name} {node.ordinal}: own {self.own[name][-1]:.3f} s, others {max(gaps):.3f} s, "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        self.prober.forget()

    def turn(self, node: Node) -> None:
        """All four with one broker."""
        self.phase("kill", node, lambda: (node.kill(), time.sleep(TAKEN_S)))
        self.phase("return after kill", node, lambda: self._return(node))
        self.phase("SIGTERM", node, lambda: (node.stop(), time.sleep(TAKEN_S)))
        self.phase("return after SIGTERM", node, lambda: self._return(node))

    def _return(self, node: Node) -> None:
        node.begin()
        node.await_ready()
        self.ring.wait_whole(WHOLE_S)
        time.sleep(QUIET_S)

    def table(self) -> None:
        """For each phase, in seconds."""
        print(f"{'s without acknowledgement':<26}{'bar':>6}{'n':>5}", end="")
        print("".join(f"{each:>9}" for each in ("own p50", "p99", "max", "oth p50", "p99", "max")))
        for name in PHASES:
            print(f"{name:<26}{BARS_S[name]:>6.1f}{len(self.own[name]):>5}", end="")
            for gaps in (self.own[name], self.others[name]):
                print("".join(f"{percentile(gaps, s):>9.3f}" for s in (0.5, 0.99, 1.0)), end="")
            print()


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=21, help="turns, a broker each")
    parser.add_argument("--seconds", type=float, default=330, help="then no further turn")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="barco-failover-"))
    ring = Ring(root)
    ring.start()
    measure = Measure(ring)
    until = time.monotonic() + args.seconds
    try:
        time.sleep(2)
        for number in range(args.times):
            if time.monotonic() > until:
                break
            measure.turn(ring.nodes[number % len(ring.nodes)])
    finally:
        measure.prober.stop()
        ring.close()
        shutil.rmtree(root, ignore_errors=True)
    measure.table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
