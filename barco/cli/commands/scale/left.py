"""What is left to do until the ring is as the target has it: pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barco.cli.shared.routes import current_target, routes_of
from barco.cluster.ring.plan import RingStep, plan
from barco.cluster.ring.target import Target


class WorkLeft(NamedTuple):
    """What is left to do."""

    target: Target
    missing: list[int]
    """Brokers of the target that nobody has heard of, or that are away."""
    rounds: list[list[RingStep]]
    """Steps of those that are there."""
    faults: list[str]
    """Why the routes are not whole just now."""

    @property
    def done(self) -> bool:
        """Whether the ring is as it shall be."""
        return not (self.missing or self.rounds or self.faults)


def left(topology: Mapping[str, Any]) -> WorkLeft:
    """What is to be done until the ring is as the target has it."""
    target = current_target(topology)
    table = routes_of(topology, target.cut)
    missing, faults = away(topology, target), table.faults()
    present = target.workers.keys() - set(missing)
    rounds = [] if faults else plan(table, target.wanted(target.joined(table, present)))
    return WorkLeft(target, missing, rounds, faults)


def words_of(work: WorkLeft) -> str:
    """For a person at the terminal."""
    if work.done:
        brokers = len(work.target.brokers)
        return f"done: the ring has {brokers} broker{'s' if brokers > 1 else ''}"
    parts = []
    if work.faults:
        parts.append(f"waits: {work.faults[0]}")
    if steps := [step for steps in work.rounds for step in steps]:
        parts.append(f"{len(steps)} step{'s' if len(steps) > 1 else ''} left; next: {steps[0]}")
    if work.missing:
        parts.append(f"waits for brokers {listed(work.missing)}, which have not joined")
    return "; ".join(parts)


def facts_of(work: WorkLeft) -> dict[str, Any]:
    """For programs."""
    return {
        "done": work.done,
        "missing": work.missing,
        "stepsLeft": [str(step) for steps in work.rounds for step in steps],
        "faults": work.faults,
    }


def away(topology: Mapping[str, Any], target: Target) -> list[int]:
    """Of the target: who was not heard of, or is gone. A single broker is who answers."""
    if target.cut.brokers == 1:
        return []
    there = {
        int(each["ordinal"])
        for each in topology["brokers"]
        if each.get("state", "alive") in ("alive", "suspect")
    }
    return sorted(target.workers.keys() - there)


def listed(ordinals: Sequence[int]) -> str:
    """Some ordinals, in words."""
    shown = ", ".join(map(str, ordinals[:8]))
    return shown + (f" and {len(ordinals) - 8} more" if len(ordinals) > 8 else "")
