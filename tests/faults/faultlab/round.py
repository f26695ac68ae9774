"""One scene: a broker, a history, a load that is hurt, and the verdict."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultlab.broker import Broker
from faultlab.checker import Report, check
from faultlab.drain import CHUNKS, NDJSON, Event, drain, drain_group
from faultlab.history import History
from faultlab.load import Load
from faultlab.ring import Ring

REPLICA_S = 30.0

TOTALS: dict[str, dict[str, float]] = {}
"""By kind of fault, for the table at the end of the run."""

OUTAGES: dict[str, list[float]] = {}
"""By kind of fault: seconds in which one range of a ring could not be written."""


def outage(name: str, seconds: float) -> None:
    """One range, one fault: for the table."""
    OUTAGES.setdefault(name, []).append(seconds)


class Scene:
    """A broker and everything that was ever done to its data directory."""

    def __init__(
        self,
        root: Path,
        *,
        seed: int,
        name: str,
        data_dir: Path | None = None,
        ring: Ring | None = None,
        ease: float = 1.0,
    ) -> None:
        self._ease = ease
        self.name, self.seed = name, seed
        self.random = random.Random(seed)
        # A ring is used like a broker by whatever does not know that it is one.
        self.broker: Any = ring or Broker(data_dir or root / "data", logs=root)
        self.history = History(root / "history.jsonl")
        self.topic = "t"
        self.turn = 0
        self.down_s: list[float] = []
        self.load: Load | None = None
        print(f"{name}: seed {seed}, {root}")

    def run_load(self) -> Load:
        """A new set of clients on the same topic."""
        self.turn += 1
        self.load = Load(
            self.broker,
            self.history,
            topic=self.topic,
            seed=self.random.randrange(1 << 30),
            turn=self.turn,
            ease=self._ease,
        )
        return self.load.start()

    def hurt(self, what: str, fault: Callable[[], object]) -> None:
        """One fault, in the history."""
        since = time.monotonic()
        fault()
        self.down_s.append(time.monotonic() - since)
        self.history.fault(what, since)

    def kill_and_restart(self) -> None:
        """Everything dies at one moment, and comes back at once."""
        self.broker.kill()
        self.broker.restart()

    def settle(self) -> None:
        """Let the clients go on for a while after a fault."""
        time.sleep(0.3 + self.random.random() * 0.7)

    def end_load(self) -> None:
        """No client is under way any more."""
        if self.load is not None:
            self.load.stop()
            self.load = None

    def verdict(self, *, fresh_group: bool = True) -> Report:
        """Reads everything back and checks all that was ever done; fails the test on a finding."""
        self.broker.wait_ready()
        first, *others = getattr(self.broker, "nodes", [self.broker])
        stored = drain(first, self.topic, CHUNKS)
        report = check(self.history.records(), stored, self.topic)
        if drain(first, self.topic, NDJSON) != stored:
            report.add("C6 offsets", "chunks and NDJSON do not agree")
        for other in others:
            self._replica(report, other, stored)
        if fresh_group:
            self._fresh_group(report, stored)
        self._logs(report)
        print(f"{self.name}: {report}")
        return report

    def _replica(self, report: Report, node: Broker, stored: list[Event]) -> None:
        """C13, as far as clients see it: each broker has everything, sooner or later."""
        until = time.monotonic() + REPLICA_S
        while (found := drain(node, self.topic, CHUNKS)) != stored:
            if time.monotonic() > until:
                report.add("C13 replica", f"{node.host} has {len(found)} of {len(stored)}")
                return
            time.sleep(0.5)

    def _fresh_group(self, report: Report, stored: list[Event]) -> None:
        given = drain_group(self.broker, self.topic, f"fresh-{self.turn}")
        by_slice = sorted(given, key=lambda event: event[0])
        if by_slice != stored:
            report.add("C1 lost", f"a fresh group got {len(given)} of {len(stored)}, or others")

    def _logs(self, report: Report) -> None:
        """C12: nothing in the logs that nobody expected."""
        for path in self.broker.log_paths:
            text = path.read_text("utf-8", "replace")
            for sign in ("Traceback", "Assertion", "AddressSanitizer", "assertion"):
                if sign in text:
                    at = text.index(sign)
                    report.add("C12 log", f"{path.name}: {text[at - 300 : at + 900]}")

    def total(self, report: Report, tried: int) -> None:
        """Adds to the table of the run."""
        row = TOTALS.setdefault(self.name, dict.fromkeys(COLUMNS, 0))
        row["tried"] += tried
        row["survived"] += tried if not report.wrong else 0
        row["acked"] += report.acked
        row["lost"] += report.count("C1 lost")
        row["twice"] += report.count("C2 twice") + report.count("C2 gap")
        row["other"] += sum(map(len, report.wrong.values()))
        row["other"] -= report.count("C1 lost") + report.count("C2 twice")
        row["other"] -= report.count("C2 gap")
        if self.down_s:
            row["worst s"] = max(row["worst s"], max(self.down_s))

    def close(self) -> None:
        """Nothing of it runs any more."""
        try:
            if self.load is not None:
                self.load.stopping.set()
                self.load.stop()
        finally:
            self.broker.close()
            self.history.close()


COLUMNS = ("tried", "survived", "acked", "lost", "twice", "other", "worst s")
