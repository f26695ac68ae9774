"""What a broker is asked to run, and where it hears more of that while it runs."""

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from barco.config import Config

COMMAND = (sys.executable, "-P", "-m", "barco.workers")
"""-P: the current directory must not shadow the installed package."""

ENTRY = "barco.workers.__main__"
"""A module whose `run` is what `COMMAND` starts: it takes a list with the title, and ends."""

Wish = Callable[[Sequence[str]], Awaitable[str]]
"""Brokers of these addresses, by ordinal, shall be in the cluster (`wish.Wisher.wish`)."""


class ServePlan(Struct, frozen=True, kw_only=True):
    """What to run."""

    config: Config
    data_dir: Path
    dev: bool = True
    insecure_allow_open: bool = False
    command: Sequence[str] = COMMAND
    """Starts a worker."""
    known_disk: Callable[[Config], str | None] = lambda config: None
    """The disk with which other brokers know this one (`barco.cli.shared.known.known_disk`)."""
    restored: bool = False
    """The data directory is from a backup, and has not been ready since."""
    read: Callable[[], Config] | None = None
    """Makes `config` once more, from the same file and options; None: it stays as it is."""
    source: Callable[[Wish], Coroutine[Any, Any, None]] | None = None
    """Somebody else who says how many brokers there shall be, for as long as the broker runs."""
