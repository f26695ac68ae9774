"""What a start would refuse of the settings and of the data directory, before it is tried."""

from collections.abc import Iterator
from pathlib import Path

from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.config import Config
from barco.errors import BarcoError, ConfigError
from barco.supervisor import datadir, machine

OPTION = "--insecure-allow-open"


def address(config: Config) -> Iterator[Finding]:
    """Whether a broker would listen to others with nothing closed: a warning, for it may be told so
    on its command line, which is not seen here."""
    try:
        machine.check_bind(config, insecure_allow_open=False)
    except ConfigError as error:
        words = f"refused without {OPTION} (of a service: BARCO_OPTIONS in /etc/default/barco)"
        yield Finding("address", WARNING, f"{words}: {error.detail}")


def directory(data_dir: Path, config: Config) -> Iterator[Finding]:
    """Whether what is in it is this broker's, if there is anything."""
    try:
        identity = datadir.load(data_dir)
        if identity is None:
            return
        table = datadir.read_table(data_dir, identity)
        datadir.check_formatted(data_dir, config, identity, table)
    except BarcoError as error:
        yield Finding("data directory", FAULT, error.detail)
        return
    yield Finding("data directory", GOOD, f"{data_dir} is this broker's")
