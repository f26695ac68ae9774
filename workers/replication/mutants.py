"""What tests break on purpose; nobody else ever does. Rules that they take out, to prove that they
notice, and a network that nobody could use.

BARCO_TEST_MUTANT=unfenced: a follower goes on taking appends after its promise. (Appends that
return before they are stable are made by `tests/faults/faultlab/writes.c`, below the core.)
BARCO_TEST_MUTANT=damaging: a bit of every twentieth group that comes in is turned.
"""

import os
from typing import Any

from barco.cluster.replica.replica import Replica

MUTANT = os.environ.get("BARCO_TEST_MUTANT", "")
UNFENCED, DAMAGING = "unfenced", "damaging"
assert MUTANT in ("", UNFENCED, DAMAGING), f"there is no mutant {MUTANT!r}"


class UnfencedReplica(Replica):
    """The follower's fence is left out."""

    def _fences(self, held: Any) -> bool:
        return held.decided is not None
