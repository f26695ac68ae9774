"""How brokers tell one another when a consumer was last heard of: by a number that only grows.

It is on a circle of 2^64. Its upper part is the next one for each time that it is told; the lower
part says how long ago the consumer was heard of, so that a broker need not tell of each sign at
once, and nobody takes it for one of now.
"""

from barco.cluster.gossip.facts import following

_AGES = 2**16
_UNIT_S = 0.01
_TURNS = 2**64 // _AGES


def told_after(heard: int, age_s: float) -> int:
    """The number to tell after another one, of a sign so long ago."""
    assert age_s >= 0, "nobody is heard of before it speaks"
    turn = following(heard // _AGES) % _TURNS
    return turn * _AGES + _AGES - 1 - min(_AGES - 1, round(age_s / _UNIT_S))


def age_of(heard: int) -> float:
    """How long ago the sign was when it was told, in seconds; a registration is one of now."""
    if heard < _AGES:
        return 0.0
    return (_AGES - 1 - heard % _AGES) * _UNIT_S
