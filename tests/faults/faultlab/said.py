"""What brokers have said in their logs, and when."""

import calendar
import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from barco.cluster.ring.cut import Cut
from faultlab.history import Record
from faultlab.ring import SIZE, SLICES

CUT = Cut(SIZE, SLICES)

_LEADS = re.compile(r"leading epoch \d+ of shard (-?\d+)")


class Line(NamedTuple):
    """Of a broker's log."""

    at: float
    """Seconds since 1970."""
    path: Path
    message: str


def lines(paths: Iterable[Path]) -> Iterator[Line]:
    """Of all of them, one log after the other."""
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            try:
                said = json.loads(line)
                clock = time.strptime(said["time"][:19], "%Y-%m-%dT%H:%M:%S")
                at = calendar.timegm(clock) + float("0" + said["time"][19:23])
                yield Line(at, path, said["message"])
            except (ValueError, KeyError, TypeError):
                continue  # The end of a line that a kill has cut.


def leaders(paths: Iterable[Path]) -> Iterator[Record]:
    """For a history: when somebody began to lead slices. A range is never longer than those of the
    first cut."""
    offset = time.time() - time.monotonic()
    tokens = {int(CUT.token(number)): number for number in range(CUT.slices)}
    for line in lines(paths):
        if (found := _LEADS.match(line.message)) is not None:
            first = tokens[int(found[1])]
            stop = first - first % SLICES + SLICES
            yield {"f": "leads", "t1": line.at - offset, "slices": [first, stop]}
