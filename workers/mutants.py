"""What tests break on purpose; nobody else ever does. Rules that the fault tests take out, to prove
that they notice, and a network that nobody could use:

BARCO_TEST_MUTANT=unfenced: a follower goes on taking appends after its promise.
BARCO_TEST_MUTANT=unsynced: appends return before they are stable.
BARCO_TEST_MUTANT=damaging: a bit of every twentieth group that comes in is turned.
"""

import os

MUTANT = os.environ.get("BARCO_TEST_MUTANT", "")
UNFENCED, UNSYNCED, DAMAGING = "unfenced", "unsynced", "damaging"
assert MUTANT in ("", UNFENCED, UNSYNCED, DAMAGING), f"there is no mutant {MUTANT!r}"
