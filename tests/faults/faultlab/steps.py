"""What a growth costs those who write, step by step: the brokers' logs say when each step was
taken, and the probers how long whom it kept waiting.

Other slices wait as well while processes are started on a busy machine; that is no step's doing,
and the longest wait of each slice in a whole growth has both.
"""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from faultlab import said
from faultlab.prober import Prober, percentile
from faultlab.said import Line

STEP_S = 3.0
"""After a step was proposed: longer than anybody is to wait for it."""

BESIDE_S = 1.0
"""Of that, how long requests are counted as in the step."""

_STEP = re.compile(
    r"a step to target \d+: broker \d+: slices (\d+)(?:-(\d+))? (become|get).*?"
    r"(?:shut for ([0-9.]+) s)?$"
)

_STAGES = {
    "decided": r"epoch \d+ of shard (-?\d+) ends with group",
    "told": r"two tell shard (-?\d+) that it follows",
    "leads": r"leading epoch \d+ of shard (-?\d+)",
    "begins": r"epoch \d+ of shard (-?\d+) begins",
    "open": r"epoch \d+ of shard (-?\d+) is open",
}
"""What is said between the moment in which slices are shut and that in which they are open again,
with the token of the range that it is said of."""


class Step(NamedTuple):
    """One step, as its leader has said it."""

    at: float
    """Seconds since 1970."""
    slices: range
    splits: bool
    shut: float
    """How long what comes had waited by then, for what had come before."""


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
    stages: dict[str, list[float]] = field(default_factory=dict)
    """Of each split: seconds from when its slices were shut to each thing that follows, for the
    child that begins where its parent did (left) and the other one."""

    def add(self, other: "Costs") -> None:
        """Together with another ring's."""
        for name in ("split", "moved", "before", "during", "beside", "leading"):
            getattr(self, name).extend(getattr(other, name))
        self.statuses.update(other.statuses)
        for name, values in other.stages.items():
            self.stages.setdefault(name, []).extend(values)

    def __str__(self) -> str:
        def three(values: list[float]) -> str:
            shares = (percentile(values, share) for share in (0.5, 0.99, 1.0))
            return " / ".join(f"{value:.3f}" for value in shares) + f" s of {len(values)}"

        stages = "".join(
            f"\n  {name}: p50 {percentile(values, 0.5):.3f}, longest {max(values):.3f} s"
            for name, values in sorted(self.stages.items())
        )
        before, during = percentile(self.before, 0.99), percentile(self.during, 0.99)
        beside = percentile(self.beside, 0.99)
        return (
            f"a slice that splits waited p50/p99/max {three(self.split)}; one that moves"
            f" {three(self.moved)}; produce p50/p99/max before {three(self.before)}, in a step"
            f" {three(self.during)}, p99 {during / max(before, 1e-9):.1f} times; of other slices"
            f" {three(self.beside)}, {beside / max(before, 1e-9):.1f} times; ready to leading"
            f" {three(self.leading)}; answers {dict(self.statuses)}; of a split, after it was shut:"
            f"{stages}"
        )


def look(costs: Costs, root: Path, prober: Prober, began: float) -> None:
    """Add a growth that began at this moment (monotonic) and is over."""
    now = time.monotonic()
    offset = time.time() - now
    ready, leads, steps = [began], [began], list[Step]()
    lines = sorted(said.lines(sorted(root.glob("b*/broker-*.log"))))
    for at, _, message in lines:
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
        if step.splits:
            for name, seconds in _timeline(step, lines):
                costs.stages.setdefault(name, []).append(seconds)
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
    return Step(at, range(first, last + 1), found[3] == "become", float(found[4] or 0.0))


def _timeline(step: Step, lines: Sequence[Line]) -> Iterator[tuple[str, float]]:
    """What followed, and how long after its slices were shut; of each child as its leader says."""
    near = [each for each in lines if step.at - 0.001 <= each.at < step.at + STEP_S]
    found_in = [
        (name, int(found[1]), line)
        for line in near
        for name, pattern in _STAGES.items()
        if (found := re.match(pattern, line.message)) is not None
    ]
    tokens = {int(said.CUT.token(number)): number for number in step.slices}
    yield "left 0 answered", step.shut
    for token, number in tokens.items():
        leads = next((line for name, of, line in found_in if (name, of) == ("leads", token)), None)
        if leads is None:
            continue
        child = "left" if number == step.slices.start else "right"
        seen = set[str]()
        for name, of, line in found_in:
            mine = line.path == leads.path or name == "decided"
            of_it = of == token or name == "decided" and tokens.get(of) == step.slices.start
            if mine and of_it and name not in seen:
                seen.add(name)
                at = 1 + list(_STAGES).index(name)
                yield f"{child} {at} {name}", line.at - step.at + step.shut
