"""The note of a writer: what its last batch decided, kept by the slice that its name hashes to.

A write is decided by one record in one log: the note says which attempts won, what every slice is
to get, and whatever the writer has to know to go on behind it (of a pipeline: where its input
ended). So all of that is decided by the same step.
"""

from barco.model.placement import Placement
from barco.model.token import token_of

NOTE_BYTES_MAX = 65_536
"""Of UTF-8: the positions of 1,000 slices fit."""

KEEP_SECONDS_MAX = 7 * 86_400
"""For so long a prepared write is kept at most, on which a note elsewhere decides: whoever was
killed in between may come back after a weekend, and finds everything."""


def home_of(writer: str, ring: Placement) -> int:
    """The number, in the ring, of the slice that keeps the writer's note."""
    return home_of_key(writer.encode(), ring)


def home_of_key(key: bytes, ring: Placement) -> int:
    """The number, in the ring, of the slice of a key."""
    index, slice_index = ring.locate(token_of(key))
    return index * ring.slices_per_range + slice_index
