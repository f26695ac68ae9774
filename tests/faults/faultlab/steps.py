"""What a growth costs those who write, step by step: the brokers' logs say when each step was
taken, and the probers how long whom it kept waiting.

Other slices wait as well while processes are started on a busy machine; that is no step's doing,
and the longest wait of each slice in a whole growth has both.
"""

import calendar
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from faultlab.prober import Prober, percentile

STEP_S = 3.0
"""After a step was proposed: longer than anybody is to wait for it."""

BESIDE_S = 1.0
"""Of that, how long requests are counted as in the step."""

_STEP = re.compile(r"a step to target \d+: broker \d+: slices (\d+)(?:-(\d+))? (become|get)")


class Step(NamedTuple):
    """One step, as its leader has said it."""

    at: float
    """Seconds since 1970."""
    slices: range
    splits: bool


@dataclass
class Costs:
    """Of one ring that grew, or of several."""

    split: list[float] = field(default_factory=list)
    """For each slice that was split the longest time without an acknowledgement, in seconds."""
    moved: list[float] = field(default_factory=list)
    """The same, for those whose range got other members."""
    before: list[float] = field(default_factory=list)
    """Seconds of each request that was answered with 200, before the growth."""
    during: list[float] = field(default_factory=list)
    """In the second after each step."""
    beside: list[float] = field(default_factory=list)
    """The same, of slices that no step of that time has kept waiting."""
    leading: list[float] = field(default_factory=list)
    """For each growth: from the last new process that was ready, to the last new leader."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Of all that was answered during the growths."""

    def add(self, other: "Costs") -> None:
        """Together with another ring's."""
        for name in ("split", "moved", "before", "during", "beside", "leading"):
            getattr(self, name).extend(getattr(other, name))
        self.statuses.update(other.statuses)

    def __str__(self) -> str:
        def three(values: list[float]) -> str:
            shares = (percentile(values, share) for share in (0.5, 0.99, 1.0))
            return " / ".join(f"{value:.3f}" for value in shares) + f" s of {len(values)}"

        before, during = percentile(self.before, 0.99), percentile(self.during, 0.99)
        beside = percentile(self.beside, 0.99)
        return (
            f"a slice that splits waited p50/p99/max {three(self.split)}; one that moves"
            f" {three(self.moved)}; produce p50/p99/max before {three(self.before)}, in a step"
            f" {three(self.during)}, p99 {during / max(before, 1e-9):.1f} times; of other slices"
            f" {three(self.beside)}, {beside / max(before, 1e-9):.1f} times; ready to leading"
            f" {three(self.leading)}; answers {dict(self.statuses)}"
        )


def look(costs: Costs, root: Path, prober: Prober, began: float) -> None:
    """Add a growth that began at this moment (monotonic) and is over."""
    now = time.monotonic()
    offset = time.time() - now
    ready, leads, steps = [began], [began], list[Step]()
    for at, message in _lines(root):
        since = at - offset
        if since < began:
            continue
        if message == "worker ready":
            ready.append(since)
        elif message.startswith("leading epoch"):
            leads.append(since)
        elif (step := _step(at, message)) is not None:
            steps.append(step)
            gaps = prober.gaps(since, min(since + STEP_S, now))
            waits = [gap.seconds for gap in gaps if gap.at in step.slices]
            (costs.split if step.splits else costs.moved).extend(waits)
            costs.during += prober.took(since, since + BESIDE_S)
    for step in steps:
        near = [each.slices for each in steps if abs(each.at - step.at) < STEP_S]
        since = step.at - offset
        but = frozenset(itertools.chain.from_iterable(near))
        costs.beside += prober.took(since, since + BESIDE_S, but)
    costs.before += prober.took(began - STEP_S, began)
    last = max(leads)
    costs.leading.append(last - max(each for each in ready if each <= last))
    costs.statuses += prober.answered(began)


def _step(at: float, message: str) -> Step | None:
    found = _STEP.match(message)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    return Step(at, range(first, last + 1), found[3] == "become")


def _lines(root: Path) -> Iterator[tuple[float, str]]:
    """(seconds since 1970, message) of all brokers' logs."""
    for path in sorted(root.glob("b*/broker-*.log")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                said = json.loads(line)
                clock = time.strptime(said["time"][:19], "%Y-%m-%dT%H:%M:%S")
                yield calendar.timegm(clock) + float("0" + said["time"][19:23]), said["message"]
            except (ValueError, KeyError):
                continue  # The end of a line that a kill has cut.
