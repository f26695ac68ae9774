"""What a member says about a successor, held against what every successor is like.

A value that no proposer of this program makes is not voted on and not learned: its epoch would be
the last one ever, or its record lead nowhere. Whether a plausible value was decided is another
question (`Lineage`).
"""

from barco.cluster.state.unclean import EPOCHS_SKIPPED
from barco.model.generation import Generation, Gid, Kind, Parent, Successor

ROUNDS_AHEAD_MAX = 10_000
"""How much higher than any known a ballot's round may be while somebody leads. Each attempt takes
one: who was away while others tried so often has heard of some of it. One further ahead would use
up the rounds."""

ROUNDS_AHEAD_IDLE_MAX = 2**40
"""While nobody leads: a member that has promised to a ballot of a liar's can only go on above it,
and the others have to follow. Each such step takes a promise, a NACK, or half of PATIENCE_SECONDS;
2^23 of them would use up the rounds."""

EPOCHS_APART_MAX = 2**20
"""Between a generation and one that was handed to it: every change of leader takes one."""


def is_plausible(gid: Gid, value: Successor, known: Generation | None) -> bool:
    """Whether this can be what follows generation `gid`, whose record is `known` if it is."""
    children = value.children
    if not all(_descends(gid, value, child) for child in children):
        return False
    if known is None:
        return True
    if value.kind is Kind.SPLIT:
        first, second = children
        spans = (first.gid.token, first.end, second.end)
        halves = spans == (gid.token, second.gid.token, known.end)
        return halves and all(_may_decide(child, known) for child in children)
    if value.kind is Kind.HANDOFF:
        return True
    (child,) = children
    covers = child.gid.token == gid.token and child.end >= known.end
    return covers and _may_decide(child, known, same=value.kind is Kind.UNCLEAN)


def _may_decide(child: Generation, known: Generation, *, same: bool = False) -> bool:
    """Whether its members can be those of a generation: as many brokers, none twice, each with its
    disk. `same`: these very brokers."""
    ordinals = [member.ordinal for member in child.members]
    before = [member.ordinal for member in known.members]
    if ordinals == before or same:
        return ordinals == before
    others = len(set(ordinals)) == len(ordinals) == len(before)
    return others and all(member.disk_uuid for member in child.members)


def _descends(gid: Gid, value: Successor, child: Generation) -> bool:
    """Its parents are this generation and what was handed to it, its epoch is theirs plus one."""
    parents = child.parents
    if not parents or parents[0] != Parent(gid, value.tail):
        return False
    step = 1 + EPOCHS_SKIPPED if value.kind is Kind.UNCLEAN else 1
    if child.gid.epoch != step + max(parent.gid.epoch for parent in parents):
        return False
    if any(abs(parent.gid.epoch - gid.epoch) > EPOCHS_APART_MAX for parent in parents):
        return False
    # What was handed over lies to the right of it, each piece behind the one before.
    tokens = [parent.gid.token for parent in parents]
    return tokens == sorted(set(tokens)) and tokens[-1] < child.end
