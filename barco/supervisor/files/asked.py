"""How many workers the configuration last asked for, and got: a number in a file.

Only a configuration that says another number than it did asks for anything. So one that was never
changed does not undo, at each start, what was said by `barco scale` since.
"""

import contextlib
import logging
import os
from pathlib import Path

from barco.limits import WORKERS_MAX

ASKED = "workers"
NEW = ".new"

log = logging.getLogger("barco.supervisor")


def asked_before(path: Path, formatted: int) -> int:
    """What it last asked for; `formatted` if it never asked for anything else. What can not be read
    is as if it had never been: then it asks once more."""
    with contextlib.suppress(OSError, ValueError):
        number = int((path / ASKED).read_text("ascii"))
        if 1 <= number <= WORKERS_MAX:
            return number
    return formatted


def note_asked(path: Path, workers: int) -> None:
    """It has got them. Not synced: after a power cut it may ask for them once more."""
    assert 1 <= workers <= WORKERS_MAX
    new = path / (ASKED + NEW)
    try:
        new.write_text(f"{workers}\n", "ascii")
        os.replace(new, path / ASKED)
    except OSError as error:
        log.warning("%s is not written: %s", path / ASKED, error.strerror or error)
