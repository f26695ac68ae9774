"""Rules that the tests take out, to prove that they notice; nobody else ever does.

BARCO_TEST_MUTANT=unfenced: a follower goes on taking appends after its promise. (Appends that
return before they are stable are made by `tests/faults/faultlab/writes.c`, below the core.)
"""

import os

MUTANT = os.environ.get("BARCO_TEST_MUTANT", "")
UNFENCED = "unfenced"
assert MUTANT in ("", UNFENCED), f"there is no mutant {MUTANT!r}"
