"""Rules that the fault tests take out, to prove that they notice; nobody else ever does.

BARCO_TEST_MUTANT=unfenced: a follower goes on taking appends after its promise.
BARCO_TEST_MUTANT=unsynced: appends return before they are stable.
"""

import os

MUTANT = os.environ.get("BARCO_TEST_MUTANT", "")
UNFENCED, UNSYNCED = "unfenced", "unsynced"
assert MUTANT in ("", UNFENCED, UNSYNCED), f"there is no mutant {MUTANT!r}"
