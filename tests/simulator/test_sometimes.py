"""Rare branches that the seeds must come through: a fault that never meets one tests nothing.

Fails when a change of the machines, or of the faults, leaves one of them out.
"""

from .disk import Seen
from .plan import run
from .world import World

SECONDS = 30.0
WORLDS = {"": 40, "rollback": 10, "expire": 20, "hurt": 50, "lag": 20, "rotting": 56}
"""So many seeds of each kind."""

LOGS = """
    AWAITED Arrived, COMING Arrived, BEGINNING Arrived, LEFT Arrived, FILES Arrived,
    COMING Drain, BEGINNING Drain, FILES Drain, FILES Seal, CORE Kept, CORE StopLeading,
    LEAVE Landed, LEAVE Look, NOTE Landed, AWAITED Skip, FILES Skipped
"""
"""Where a log was, and what came: a group that waits for the core to have its generation, one for a
log that the core is just leaving; a generation that is shut while the core is getting it."""

DISKS = """
    an append ends before an earlier one, a row that was kept is restored,
    groups that were read are lost with the power, votes that were read are lost with the power,
    a sync takes what another lost
"""

JOURNALS = """
    a copy is hurt: flip, a copy is hurt: blank, a copy is hurt: cut, a copy is hurt: cut_between,
    a copy is hurt: empty, a copy is hurt: gone, both copies are damaged elsewhere,
    a copy is damaged beside a torn append, a start ends between the two files,
    an append is in one of the files, an append is torn, the journal can not be written,
    both copies lack a frame
"""

VERDICTS = """
    an append of a log is torn, a start finds a torn log, a start finds a corrupt log,
    a start finds damage in what has ended, what has ended is mended,
    a log goes on behind what was mended
"""
"""What a start makes of a log, and what follows."""

LAGS = """
    a member lags by groups, a member lags by messages, a message is ten or more late,
    who lags is asked to vote, who lags proposes
"""


def seen_in(worlds: dict[str, int]) -> Seen:
    """What the seeds of these worlds came through."""
    made: list[World] = []
    for kind, seeds in worlds.items():
        for seed in range(seeds):
            outcome = run(seed, SECONDS, made=made.append, **({kind: True} if kind else {}))
            assert outcome.violation is None, f"{kind} seed {seed}: {outcome.violation}"
    found = Seen()
    found.names.update(*(world.seen.names for world in made))
    return found


def test_the_rare_branches_are_seen() -> None:
    names = f"{LOGS},{DISKS},{JOURNALS},{VERDICTS},{LAGS}".replace("\n", " ")
    wanted = {name.strip() for name in names.split(",")}
    never = wanted - seen_in(WORLDS).names
    assert not never, f"never seen: {sorted(never)}"


def test_without_faults_they_are_not() -> None:
    """What every run comes through would say nothing about the faults."""
    made: list[World] = []
    run(0, SECONDS, faults=[], made=made.append)
    rare = {"LEFT Arrived", "a sync takes what another lost", "who lags is asked to vote"}
    assert not made[0].seen.names & rare
