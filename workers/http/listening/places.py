"""Places in a topic as the ids of its events have them: a cursor, or one for each slice."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barco.errors import RequestError

ID_BYTES_MAX = 2048
"""Of an id. FEED_ID_BYTES_MAX of the core (native/broker/feed.h) is the same."""

_PLACE = re.compile(r"([0-9]{1,5})\.([0-9]{1,10})\.([0-9]{1,19})", re.ASCII)


class Place(NamedTuple):
    """The next event of a slice, and the generation of the one before it."""

    epoch: int
    offset: int


Places = Mapping[int, Place]
"""By the numbers of slices in the ring."""


def listed(places: Places) -> str:
    """`0.3.120-8.2.17`: slice, generation, offset of each that has had events."""
    return "-".join(f"{n}.{at.epoch}.{at.offset}" for n, at in sorted(places.items()) if at.offset)


def around(places: Places, number: int) -> tuple[str, str]:
    """What of the list stands before the generation of this slice, and behind its offset."""
    before = listed({n: at for n, at in places.items() if n < number})
    behind = listed({n: at for n, at in places.items() if n > number})
    return f"{before}-{number}." if before else f"{number}.", f"-{behind}" if behind else ""


def parse_listed(text: str, numbers: Iterable[int]) -> dict[int, Place]:
    """The opposite of `listed`; slices that are not in it have had no events."""
    found = dict.fromkeys(numbers, Place(0, 0))
    if len(text) > ID_BYTES_MAX:
        raise RequestError(f"An id has at most {ID_BYTES_MAX} bytes.")
    last = -1
    for part in text.split("-") if text else ():
        match = _PLACE.fullmatch(part)
        number, epoch, offset = map(int, match.groups()) if match else (-1, 0, 0)
        if number not in found or number <= last or epoch >= 2**32 or offset >= 2**63:
            raise RequestError("This is no id of a topic's events: use one as it came.")
        found[number] = Place(epoch, offset)
        last = number
    return found


def offsets(places: Places, numbers: Sequence[int]) -> tuple[int, ...]:
    """To compare two places: generations only say who wrote what was before."""
    return tuple(places[number].offset for number in numbers)
