"""Files that systemd hands over to a service (LoadCredential=)."""

import os
from collections.abc import Mapping
from pathlib import Path

CREDENTIALS = Path("/etc/barco/credentials")
CREDENTIAL = "credential:"


def file_named(value: str, environment: Mapping[str, str] | None = None) -> Path:
    """The file that a key names: "credential:x" is x of the unit's LoadCredential=barco:..., which
    systemd hands over under another name, and where it lies for a command by hand."""
    if not value.startswith(CREDENTIAL):
        return Path(value)
    name = value.removeprefix(CREDENTIAL)
    given = (os.environ if environment is None else environment).get("CREDENTIALS_DIRECTORY")
    return Path(given, f"barco_{name}") if given else CREDENTIALS / name
