"""From a failing seed to the shortest useful trace: fewer faults, same invariant."""

from typing import Any

from .plan import Fault, Outcome, plan, run
from .trace import lines
from .world import World

ATTEMPTS_MAX = 200

KINDS = ("four", "forget", "rollback", "one", "expire", "hurt", "lag", "rotting")
"""Of worlds, which have faults of their own."""


def shrink(seed: int, seconds: float, **how: Any) -> tuple[list[Fault], Outcome]:
    """The fewest faults found with which the seed still breaks the same invariant."""
    faults = plan(seed, seconds, **{kind: how.get(kind, False) for kind in KINDS})
    outcome = run(seed, seconds, faults=faults, **how)
    assert outcome.violation is not None, f"seed {seed}: nothing to shrink"
    invariant = outcome.violation.invariant
    faults = [each for each in faults if each.time <= outcome.seconds]
    attempts, size = 0, max(1, len(faults) // 2)
    while attempts < ATTEMPTS_MAX:
        at, smaller = 0, False
        while at < len(faults) and attempts < ATTEMPTS_MAX:
            attempts += 1
            fewer = faults[:at] + faults[at + size :]
            tried = run(seed, seconds, faults=fewer, **how)
            if tried.violation is not None and tried.violation.invariant == invariant:
                faults, outcome, smaller = fewer, tried, True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    return faults, outcome


def report(seed: int, seconds: float, **how: Any) -> str:
    """What to read about a failing seed."""
    faults, _ = shrink(seed, seconds, **how)
    worlds: list[World] = []
    outcome = run(seed, seconds, faults=faults, trace=True, made=worlds.append, **how)
    trace = lines(worlds[0].trace)
    told = [f"  {f.time:9.4f}  {f.kind} {f.ordinal} {f.other} {f.number:.3f}" for f in faults]
    again = f"python -m tests.simulator --from {seed} --seeds 1 --seconds {seconds:g}"
    again += "".join(f" --{kind}" for kind in KINDS if how.get(kind)) or " --three"
    parts = [f"seed {seed}: {outcome.violation}", f"{len(faults)} faults:", *told]
    return "\n".join([*parts, f"the last {len(trace)} events:", *trace, f"again: {again}"])
