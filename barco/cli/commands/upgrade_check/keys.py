"""The configuration, as this version takes it: each key that it does not know is named."""

from collections.abc import Iterator
from pathlib import Path

from barco.cli.commands.check.finding import FAULT, GOOD, Finding
from barco.config import unknown_keys
from barco.errors import BarcoError

AREA = "configuration"


def look(path: Path | None) -> Iterator[Finding]:
    """One line for each that is unknown; who reads the values says what is wrong with those."""
    where = path or "the environment"
    try:
        unknown = unknown_keys(path)
    except BarcoError:
        return  # No file, or no TOML: `settings` says so.
    for words in unknown:
        yield Finding(AREA, FAULT, words)
    if not unknown:
        yield Finding(AREA, GOOD, f"this version knows every key of {where}")
