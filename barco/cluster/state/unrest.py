"""How often one member may disturb a range by ballots: a lie can fence, but not again and again.

Any member may send a PREPARE or ACCEPT with a higher ballot at any time, and whoever answers takes
no more of the leader's groups. Nobody can see at an honest proposer whether it had a cause. So one
that comes while others are at work (a leader that commits, or a proposer who has just begun), or a
second one in a row of the same sender, is taken from an allowance of its sender, for each range;
without one it is passed over, as if it had been lost. It is for progress only: ballots keep
everything safe, and an allowance comes back.

An allowance is by ordinal, as sessions and disks can be made up at will.
"""

from msgspec import Struct, field

from barco.limits import DISTURBANCE_SECONDS, DISTURBANCES_MAX


class Unrest(Struct):
    """The allowances of all members; as many as there are seats in open ranges."""

    _spent: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """By token and ordinal: what is spent, and when that was so."""

    def takes(self, token: int, ordinal: int, now: float) -> bool:
        """Whether one more is taken from this member. now: monotonic seconds."""
        spent, at = self._spent.get((token, ordinal), (0.0, now))
        assert now >= at, "a machine's clock does not go back"
        assert 0.0 <= spent <= DISTURBANCES_MAX, "nobody spends what he does not have"
        spent = max(0.0, spent - (now - at) / DISTURBANCE_SECONDS)
        if spent + 1 > DISTURBANCES_MAX:
            return False
        self._spent[token, ordinal] = (spent + 1, now)
        return True
