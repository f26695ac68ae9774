"""The mark of a data directory that was restored from a backup, and not ready yet.

What it holds is older than what its broker has promised since. With a cluster that was restored as
a whole that is no matter, for nobody remembers more; beside brokers that went on it would count as
lost wherever something is open, so it does not even start there.
"""

import logging
import os
from pathlib import Path

from barco.errors import DataDirError

RESTORED = "restored"
"""Names the moment of the backup, for people."""

log = logging.getLogger("barco.supervisor")


def is_restored(path: Path) -> bool:
    """Whether it was put back, and its broker was not ready since."""
    return os.path.lexists(path / RESTORED)


def check_beside(path: Path, others: list[str]) -> None:
    """DataDirError where brokers run that were not restored. others: these, in words."""
    if others:
        raise DataDirError(
            f"{path} was restored from a backup, and {', '.join(others)} of its cluster went on: a"
            " copy of an earlier day beside them would have to be counted as lost. Move it away,"
            " and give the broker a new disk: barco replace with the same options, then barco"
            f" serve. If they were all restored, too, remove {path / RESTORED} and start it again"
        )


def forget(path: Path) -> None:
    """All slices can be written: from now on it is a data directory like any other."""
    try:
        (path / RESTORED).unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s can not be removed: %s", path / RESTORED, error.strerror or error)
