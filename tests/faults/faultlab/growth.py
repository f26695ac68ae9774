"""A ring of three that grows under load: brokers join, the cluster is scaled, slices move.

Whatever is done, the same clients and the same checker look at it as at a ring that is hurt.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from faultlab.mount import Mount
from faultlab.prober import Gap, Prober
from faultlab.ring import SIZE, Node, Ring
from faultlab.scene import EASE, RingScene
from faultlab.steps import Costs, look
from faultlab.wire import call

BROKERS_MAX = 12
STEP_S = 60.0
"""Until a cluster has grown to what it was asked for: then it is stuck."""

DRAIN_S = 150.0
"""Until nothing is on a broker alone: what it held is copied, and read again."""

PACE_S = 0.05
"""Between two probes of a client: there is one for each slice and each of the first brokers."""


class GrowingRing(Ring):
    """Three brokers, and those that come later."""

    def __init__(self, root: Path, *, powered: bool = False) -> None:
        """`powered`: each broker is on a file system of its own, that can be cut off."""
        net = f"127.{random.randrange(60, 250)}.{random.randrange(250)}"
        self._root = root
        self._hosts = [f"{net}.{number + 1}" for number in range(BROKERS_MAX)]
        self.disks, self._powered = [], powered
        self.nodes = [self._node(ordinal, SIZE) for ordinal in range(SIZE)]

    def _node(self, ordinal: int, brokers: int) -> Node:
        place = self._root
        if self._powered:
            (place := self._root / f"power-{ordinal}").mkdir()
            self.disks.append(Mount(place))
            assert len(self.disks) == ordinal + 1, "one for each, by ordinal"
            place = self.disks[-1].path
        data_dir = place / f"data-{ordinal}"
        return Node(self._root / f"b{ordinal}", ordinal, self._hosts[:brokers], data_dir)

    def join(self, ordinal: int) -> Node:
        """Format a new broker, and start it. The others' configurations stay as they are."""
        node = self._node(ordinal, ordinal + 1)
        self.barco(node, "format", "--join", "--config", str(node.config))
        node.start()
        self.nodes.append(node)
        return node

    def close(self) -> None:
        super().close()
        for disk in self.disks:
            disk.close()

    def barco(self, node: Node, *command: str, limit_s: float = STEP_S) -> str:
        """What a command prints; AssertionError with all of it if it fails."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "barco", *command],
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=node.environment,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def ask_for(self, brokers: int) -> None:
        """The target. Who is asked may just be dying: anybody will do; or have just come back, and
        not know the latest target yet: then it is asked again, as an operator would."""
        everywhere = ",".join(f"{node.host}:{node.port[1]}" for node in self.nodes)
        asked = ("scale", "--to", str(brokers), "--no-wait", "--endpoint", everywhere)
        until = time.monotonic() + STEP_S
        while True:
            try:
                self.barco(self.nodes[0], *asked)
                return
            except AssertionError as error:
                if "changed meanwhile" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def drain(self, ordinal: int) -> None:
        """Until nothing is on a broker alone. Whoever is asked may just be dying."""
        everywhere = ",".join(f"{node.host}:{node.port[1]}" for node in self.nodes)
        asked = ("drain", str(ordinal), "--timeout", str(DRAIN_S), "--endpoint", everywhere)
        self.barco(self.nodes[0], *asked, limit_s=DRAIN_S + 30)

    def behind(self, brokers: int) -> list[str]:
        """Who does not know yet that each of so many brokers leads its part of the ring, and what
        it knows; nobody: the ring has that size."""
        found = []
        for node in self.nodes:
            try:
                answer = call(node.port, "GET", "/v1/topology")
            except (OSError, EOFError) as error:
                return [f"{node.host}: {error!r}"]
            routes = json.loads(answer.body)["routes"] if answer.status == 200 else []
            leaders = [route["leader"] for route in routes]
            if len(leaders) != brokers or set(leaders) != set(range(brokers)):
                found.append(f"{node.host}: {answer.status} {routes}")
        return found

    def await_size(self, brokers: int) -> None:
        """Until so many lead."""
        began = time.monotonic()
        while behind := self.behind(brokers):
            late = time.monotonic() > began + STEP_S
            assert not late, f"it does not become {brokers}: {behind}"
            time.sleep(0.05)


@dataclass
class Round:
    """What came of one ring that grew."""

    acked: int
    took: dict[int, float]
    """Seconds from the call until so many brokers lead; of -n, until all but n were drained."""
    waits: list[float]
    """For each slice and each growth the longest time without an acknowledgement."""
    wrong: str
    costs: Costs = field(default_factory=Costs)

    def __str__(self) -> str:
        took = ", ".join(
            f"{size} brokers after {s:.1f} s" if size > 0 else f"the others drained in {s:.1f} s"
            for size, s in self.took.items()
        )
        worst = max(self.waits, default=0.0)
        return f"{took}; longest wait of a slice {worst:.2f} s; {self.acked} acked; {self.wrong}"


class GrowthScene(RingScene):
    """A ring that grows under load."""

    ring: GrowingRing

    def __init__(
        self, root: Path, seed: int, name: str, *, ease: float = EASE, powered: bool = False
    ) -> None:
        """`powered`: each broker is on a file system of its own, that can be cut off."""
        self._powered = powered
        super().__init__(root, seed, name, ease=ease)
        self.took: dict[int, float] = {}
        self.waits: list[float] = []
        self.costs, self._root, self._began = Costs(), root, 0.0

    def make_ring(self, root: Path, disks: Sequence[Mount]) -> GrowingRing:
        assert not disks, "they grow on the file system that is there"
        return GrowingRing(root, powered=self._powered)

    def make_prober(self) -> Prober:
        return Prober(self.ring, PACE_S, slices=True)

    def measured(self, found: Sequence[Gap]) -> None:
        self.waits += [gap.seconds for gap in found]
        look(self.costs, self._root, self.prober, self._began)

    def grow(self, brokers: int, beside: Callable[[], object] = lambda: None) -> None:
        """Brokers join until there are so many, then the cluster is scaled, also to fewer;
        something is done `beside` while it is."""
        for ordinal in range(len(self.ring.nodes), brokers):
            self.ring.join(ordinal)

        def scaled() -> None:
            self._began = began = time.monotonic()
            self.ring.ask_for(brokers)
            beside()
            self.ring.await_size(brokers)
            self.took[brokers] = time.monotonic() - began

        self.inflict(f"scale to {brokers}", scaled)

    def shed(self, brokers: int, beside: Callable[[], object] = lambda: None) -> None:
        """Those that are no part of the ring any more are drained, then stopped for good;
        something is done `beside` while they are."""
        began = time.monotonic()
        leaving = self.ring.nodes[brokers:]
        with ThreadPoolExecutor(1) as pool:
            hurt = pool.submit(beside)
            for ordinal in range(brokers, len(self.ring.nodes)):
                self.ring.drain(ordinal)
            hurt.result()
        self.took[-brokers] = time.monotonic() - began
        self.end_load()  # Clients may be at those that go.
        self.prober.stop()
        self.ring.nodes = self.ring.nodes[:brokers]
        for node in leaving:
            node.close()

    def round(self) -> Round:
        """Everything is read back and checked."""
        report = self.report()
        wrong = "; ".join(f"{check}: {found[0]} …" for check, found in report.wrong.items())
        return Round(report.acked, self.took, self.waits, wrong[:3000], self.costs)
