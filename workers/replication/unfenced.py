"""A mutant for the tests of the ring: what they check must be broken by it."""

from typing import Any

from barco.cluster.replica.replica import Replica


class UnfencedReplica(Replica):
    """Mutant 1: the follower's fence is left out."""

    def _fences(self, held: Any) -> bool:
        return held.decided is not None
