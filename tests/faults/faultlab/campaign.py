"""Many faults of each kind: ring after ring, a line for each round, a file of totals, a table."""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from faultlab.broker import StartError
from faultlab.checker import Report
from faultlab.drain import ReadError
from faultlab.hurts import KINDS, Kind
from faultlab.mount import Mount
from faultlab.prober import percentile
from faultlab.scene import EASE, RingScene

Totals = dict[str, Any]
"""One ring: kind, seed, rounds, what the checker counted, the gaps, how busy the machine was."""

COLUMNS = ("rounds", "of", "rings", "acked", "lost", "twice", "order", "other")
TIMES = ("p50 s", "p99 s", "max s")

RING_S = 40.0
"""A ring that would live for less time than this is not begun any more."""


def one_ring(
    kind: Kind,
    root: Path,
    seed: int,
    rounds: int,
    until: float,
    say: Callable[[str], None],
    ease: float = EASE,
) -> Totals:
    """So many rounds in a ring of its own, at the latest until then; and the verdict."""
    with ExitStack() as stack:
        disks = []
        for ordinal in range(3 if kind.powered else 0):
            (root / f"power-{ordinal}").mkdir()
            disks.append(Mount(root / f"power-{ordinal}"))
            stack.callback(disks[-1].close)
        scene = RingScene(root, seed, f"ring: {kind.name}", disks, start=False, ease=ease)
        stack.callback(scene.close)
        kind.prepare(scene.ring)
        scene.begin()
        busy = []
        for number in range(rounds):
            if time.monotonic() > until:
                break
            what, fault = kind.make(scene, number)
            began = time.monotonic()
            try:
                waited = scene.inflict(what, fault, patient=kind.patient)
            except (
                AssertionError,
                EOFError,
                OSError,
                StartError,
                subprocess.SubprocessError,
            ) as error:
                scene.slow.append(f"{what}: {error!r}"[:2000])
                break
            time.sleep(0 if kind.patient else scene.random.random() / 2)
            busy.append(os.getloadavg()[0])
            say(
                f"{kind.name} {number + 1}/{rounds}: {what}; no write for {waited}, "
                f"round {time.monotonic() - began:.1f} s, {scene.history.acked} acked, "
                f"load {busy[-1]:.1f}" + "".join(f"\n  {slow}" for slow in scene.slow[-1:])
            )
        try:
            report = scene.report()
        except (AssertionError, OSError, EOFError, ReadError) as error:
            report = Report()
            for text in (*scene.slow, f"not read back: {error!r}"[:20_000]):
                report.add("C11 liveness", text)
        return totals(kind, scene, report, max(busy, default=0.0))


def totals(kind: Kind, scene: RingScene, report: Report, busy: float) -> Totals:
    """What is kept of a ring."""
    lost, order = report.count("C1 lost"), report.count("C3 order")
    twice = report.count("C2 twice") + report.count("C2 gap")
    return {
        "kind": kind.name,
        "seed": scene.seed,
        "rounds": scene.tried,
        "acked": report.acked,
        "stored": report.stored,
        "delivered": report.delivered,
        "lost": lost,
        "twice": twice,
        "order": order,
        "other": sum(map(len, report.wrong.values())) - lost - twice - order,
        "wrong": {check: found[:20] for check, found in report.wrong.items()},
        "gaps": [round(gap, 3) for gap in scene.gaps],
        "outcomes": dict(scene.outcomes),
        "load": round(busy, 1),
    }


def read_results(path: Path) -> list[Totals]:
    """All rings so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rings: list[Totals]) -> Iterator[str]:
    """A line for each kind of fault: counts, and how long the worst range could not be written."""
    yield f"{'kind':<14}" + "".join(f"{name:>9}" for name in (*COLUMNS, *TIMES))
    for name, kind in KINDS.items():
        mine = [ring for ring in rings if ring["kind"] == name]
        if not mine:
            continue
        figures: Counter[str] = Counter({"of": kind.rounds, "rings": len(mine)})
        outcomes: Counter[str] = Counter()
        for ring in mine:
            figures.update({each: ring[each] for each in COLUMNS if each in ring})
            outcomes.update(ring["outcomes"])
        gaps = [gap for ring in mine for gap in ring["gaps"]]
        times = [percentile(gaps, share) for share in (0.5, 0.99, 1.0)]
        line = f"{name:<14}" + "".join(f"{figures[each]:>9}" for each in COLUMNS)
        yield line + "".join(f"{each:>9.2f}" for each in times)
        if outcomes:
            yield "  " + ", ".join(f"{each} {outcomes[each]}" for each in sorted(outcomes))


def closing(kind: Kind, rings: list[Totals]) -> str:
    """What a kind of faults came to, in one line."""
    sums = {each: sum(ring[each] for ring in rings) for each in ("rounds", *COLUMNS[3:])}
    gaps = [gap for ring in rings for gap in ring["gaps"]]
    return (
        f"{kind.name}: {sums['rounds']} rounds of {kind.rounds}, {sums['acked']} acknowledged, "
        f"{sums['lost']} lost, {sums['twice']} twice, {sums['order']} out of order, "
        f"{sums['other']} other findings, without writes p50 {percentile(gaps, 0.5):.2f} s, "
        f"p99 {percentile(gaps, 0.99):.2f} s, max {percentile(gaps, 1.0):.2f} s"
    )


def again(root: Path) -> Report:
    """Starts a ring that was kept, and holds its history against what it has."""
    scene = RingScene(root, 0, "ring: again")
    try:
        return scene.report()
    finally:
        scene.close()


class Campaign:
    """Works through kinds of faults until all have their counts, or the time is over."""

    def __init__(
        self,
        results: Path,
        make_root: Callable[[], Path],
        keep_s: float = math.inf,
        ease: float = EASE,
    ) -> None:
        """`keep_s`: the directory of a ring whose writes waited longer than that is kept too.
        `ease`: the clients' pauses, in those of a single broker's load."""
        self._ease = ease
        self._results = results
        self._make_root = make_root
        self._keep_s = keep_s
        self.failed = False

    def run(self, kind: Kind, rounds: int, seconds: float, seed: int) -> None:
        """So many rounds of one kind, in as many rings as it takes."""
        if reason := kind.why_not():
            self._say(f"{kind.name}: left out: {reason}")
            return
        until, left = time.monotonic() + seconds, rounds
        rings: list[Totals] = []
        while left > 0 and (left == rounds or time.monotonic() + RING_S < until):
            root = self._make_root()
            wanted = min(left, kind.rounds_per_ring)
            self._say(f"{kind.name}: seed {seed}, {root}")
            ring = one_ring(kind, root, seed, wanted, until, self._say, self._ease)
            self._keep(ring)
            rings.append(ring)
            if ring["wrong"]:
                self.failed = True
                self._say(f"{kind.name}: {json.dumps(ring['wrong'], indent=1)}\nkept: {root}")
            elif max(ring["gaps"], default=0.0) > self._keep_s:
                self._say(f"{kind.name}: kept: {root}")
            else:
                shutil.rmtree(root, ignore_errors=True)
            left -= max(1, ring["rounds"])
            seed += 1
        print(closing(kind, rings), flush=True)

    def _keep(self, ring: Totals) -> None:
        self._results.parent.mkdir(parents=True, exist_ok=True)
        with self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(ring) + "\n")

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
