"""What survives of the window of a queue's slice, as it is packed into one value of the log."""

import struct
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from barco.model.queues import LEASE_MS_MAX, WINDOW_MAX

COUNTS_KEPT = 160
"""Of events that were given back; more are kept in memory alone, and a next leader begins anew."""

COUNT = struct.Struct("<HHI")
"""Distance from the base, how often it was given, ms until it is given again."""


class WindowValue(Struct):
    """What of a window survives."""

    base: int
    reserved: int
    done: bytes
    """A bit for each event from base on."""
    counts: bytes
    held: int = 0
    """How much longer leases may last that were given while they lasted longer than now."""

    def told(self) -> dict[str, Any]:
        """Plain values, for a value of the log."""
        told = {"reserved": self.reserved, "done": self.done, "counts": self.counts}
        return told | ({"held": self.held} if self.held else {})


def value_of(base: int, given: Mapping[str, Any]) -> WindowValue:
    """The opposite of `told`; ValueError: what was given is none."""
    reserved, done, counts = given["reserved"], given["done"], given["counts"]
    held = given.get("held", 0)
    if type(held) is not int or not 0 <= held <= LEASE_MS_MAX:
        raise ValueError("no lease of a queue lasts so long")
    if type(reserved) is not int or not 0 <= base <= reserved < 2**63:
        raise ValueError("no window of a queue")
    if type(done) is not bytes or len(done) > WINDOW_MAX // 8:
        raise ValueError("no acknowledgements of a queue")
    if type(counts) is not bytes or len(counts) > COUNTS_KEPT * COUNT.size:
        raise ValueError("no counts of a queue")
    if len(counts) % COUNT.size:
        raise ValueError("counts of a queue are cut off")
    return WindowValue(base, reserved, done, counts, held)
