"""Who reads slices without a group, as far as they say so: Spark's tasks name their query."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from barco.errors import RequestError

HEADER = "barco-reader"

READERS_MAX = 256
"""Of a process: whoever has read longest ago is forgotten for another one."""

_SAID = re.compile(r"([A-Za-z0-9_.:/-]{1,128})(?: ([0-9]{1,18}))?", re.ASCII)


class Reader(Struct):
    """One of a topic."""

    reader: str
    topic: str
    batch: str = ""
    """The last one; empty: it has none."""
    rows: int = 0
    """Of that batch, as far as this process has handed them out."""
    total: int = 0
    at: int = 0
    """Microseconds since 1970."""


def reader_of(said: str | None) -> tuple[str, str] | None:
    """Name and batch, as a request says them."""
    if said is None:
        return None
    if (found := _SAID.fullmatch(said)) is None:
        raise RequestError("Barco-Reader is a name, or a name and the number of a batch.")
    return found[1], found[2] or ""


class ReaderNotes:
    """Of one process."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Reader] = {}

    def note(self, said: tuple[str, str], topic: str, rows: int, at_us: int) -> None:
        """It has been given so many events."""
        name, batch = said
        one = self._known.pop((name, topic), None) or Reader(name, topic)
        self._known[name, topic] = one  # The last one now.
        if one.batch != batch:
            one.batch, one.rows = batch, 0
        one.rows += rows
        one.total += rows
        one.at = at_us
        if len(self._known) > READERS_MAX:
            del self._known[next(iter(self._known))]

    def told(self) -> list[dict[str, Any]]:
        """All that are known, whoever read last at the end."""
        return [asdict(each) for each in self._known.values()]


def readers_of(told: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What processes have said, by reader and topic; whoever read last is first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in (dict(each) for part in told for each in part):
        known = found.setdefault((one["reader"], one["topic"]), one)
        if known is one:
            continue
        newer = max(known, one, key=lambda each: (int(each["batch"] or 0), each["at"]))
        same = known["batch"] == one["batch"]
        rows = known["rows"] + one["rows"] if same else newer["rows"]
        total, at = known["total"] + one["total"], max(known["at"], one["at"])
        known |= {"batch": newer["batch"], "rows": rows, "total": total, "at": at}
    return sorted(found.values(), key=lambda each: -int(each["at"]))
