"""Versions: of the data directory, and of what brokers say to one another."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import barco
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.config import Config, resolved
from barco.errors import BarcoError
from barco.protocol.versions import BETWEEN, SPOKEN, in_common, told
from barco.supervisor import datadir

AREA = "versions"


def directory(data_dir: Path, config: Config | None) -> Iterator[Finding]:
    """Whether this version starts with it, as `serve` would look. config: None: it is refused."""
    try:
        identity = datadir.load(data_dir)
        if identity is None:
            words = f"{data_dir} has no broker.json: say --data-dir, or --config of the broker"
            yield Finding("data directory", FAULT, words)
            return
        datadir.read_table(data_dir, identity)
        if config is not None:
            datadir.check_formatted(data_dir, resolved(config), identity)
    except BarcoError as error:
        yield Finding("data directory", FAULT, error.detail)
        return
    newest = SPOKEN["directory"][1]
    if identity.format == newest:
        words = f"{data_dir} has format {newest}, as this version writes it"
        yield Finding("data directory", GOOD, words)
    else:
        words = (
            f"{data_dir} has format {identity.format}, and gets {newest} at the start: there is no"
            " way back to a version that does not know that"
        )
        yield Finding("data directory", WARNING, words)


def spoken(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether this version and the one that runs have all in common."""
    runs, theirs = status.get("version"), status.get("versions")
    if not isinstance(theirs, Mapping):
        words = (
            f"the broker that runs (barco {runs}) does not tell what it speaks, as those before"
            " 2026-11-26: those of 2026-11-25 speak links 6 and gossip 4, as this version does"
        )
        yield Finding(AREA, WARNING, words)
        return
    shared = {name: in_common(theirs, name) for name in BETWEEN}
    if lacking := [name for name, version in shared.items() if version is None]:
        words = "; ".join(
            f"{name} {theirs.get(name)} there and {told()[name]} here" for name in lacking
        )
        yield Finding(
            AREA, FAULT,
            f"barco {barco.__version__} does not speak with barco {runs} ({words}): upgrade to one"
            " in between first, or stop all brokers and start them together",
        )  # fmt: skip
        return
    words = ", ".join(f"{name} {version}" for name, version in shared.items())
    yield Finding(AREA, GOOD, f"barco {barco.__version__} and barco {runs} speak {words}")
    read = theirs.get("directory")
    if isinstance(read, list) and read and SPOKEN["directory"][1] > read[-1]:
        words = f"barco {runs} does not read the data directory once this version has started"
        yield Finding(AREA, WARNING, words)
