"""What processes.json notes of the logs beside it, and what follows from it for the ring.

A format of the logs that has more than the first one is written only when every broker can read it,
and has noted so: from then on an earlier version refuses the directory, in words. It is noted when
it is wanted for the first time, so that a ring that never wants it can go back.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from barco.errors import BarcoError
from barco.model.options import LOG_FORMATS
from barco.protocol import messages

PROCESSES = "processes.json"
JOURNALS, NAMED = "journals", "named"
"""In that file, outside of its checksum."""

OLDEST, NEWEST = LOG_FORMATS[0], LOG_FORMATS[-1]

log = logging.getLogger("barco.supervisor")


def journals_named(path: Path) -> bool:
    """Whether every journal here has said whose it is, so that one that does not is another's.

    Earlier versions know nothing of it, and drop it when they write the table: what they begin does
    not say it either. Damaged, it only lets such a journal be taken once more.
    """
    try:
        given: Any = json.loads((path / PROCESSES).read_text("ascii"))
        return bool(given.get(JOURNALS) == NAMED)
    except (OSError, ValueError, AttributeError, RecursionError):
        return False  # Who reads the table says what is wrong with it.


def log_format(path: Path) -> int:
    """Of the logs here: the newest that may be in them. Who reads the table says what is wrong."""
    try:
        given: Any = json.loads((path / PROCESSES).read_text("ascii"))
        return int(given["format"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return OLDEST


class NotedRing(Protocol):
    """What is needed of `barco.supervisor.cluster.Cluster`."""

    def formats(self) -> list[tuple[int, int]] | None:
        """Of the other brokers of the cluster: the newest format of logs that each reads, and has
        noted; None: one of them has not said anything yet."""

    def note_format(self, noted: int) -> None:
        """The logs here have this format now: the others are told."""


class DirectoryNotes:
    """What one directory says: whether each journal tells whose it is, the format of its logs.

    alone: it is the only broker. write: put both there, beside the table.
    """

    def __init__(self, path: Path, alone: bool, write: Callable[[], None]) -> None:
        self.named, self.format = journals_named(path), log_format(path)
        self.written = self.format if alone else OLDEST
        """The newest format that may be written."""
        self._write = write

    def note_named(self) -> None:
        """Who is up has a journal that says whose it is, after an earlier version. Once."""
        if not self.named:
            self._note(True, self.format)

    def look(self, stats: Iterable[Mapping[str, Any]], ring: NotedRing | None) -> dict[str, Any]:
        """What the workers are to be told, if anything. stats: their figures; ring: the others."""
        wanted = max((each.get(messages.WANTED, OLDEST) for each in stats), default=OLDEST)
        before, self.written = self.written, self._may_write(wanted, ring)
        if ring is not None:
            ring.note_format(self.format)
        if before == self.written:
            return {}
        return {"type": messages.FORMAT, "format": self.written}

    def _may_write(self, wanted: int, ring: NotedRing | None) -> int:
        said = [] if ring is None else ring.formats()
        if said is None:
            return OLDEST
        wanted = max([wanted, *(noted for _, noted in said)])
        found = min([wanted, NEWEST, *(read for read, _ in said)])
        if self.format < found and self._note(self.named, found):
            log.info("the logs have format %d from now on: earlier versions refuse them", found)
        return min([self.format, *(noted for _, noted in said)])

    def _note(self, named: bool, format: int) -> bool:
        before = self.named, self.format
        self.named, self.format = named, format
        try:
            self._write()
        except BarcoError as error:  # A full disk: it is tried again.
            self.named, self.format = before
            log.warning("not noted what the journals and logs are: %s", error)
            return False
        return True
