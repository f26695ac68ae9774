"""Where the others of a StatefulSet were when this broker last ran: a hint for its next start."""

import ipaddress
import json
import os
from collections.abc import Sequence
from pathlib import Path

from barco.limits import BROKERS_MAX

ADDRESSES = "addresses"


def store_addresses(data_dir: Path, addresses: Sequence[str]) -> None:
    """By ordinal. Whoever can not write it does without at the next start."""
    new = data_dir / f"{ADDRESSES}.new"
    try:
        new.write_text(json.dumps(list(addresses)))
        os.replace(new, data_dir / ADDRESSES)
    except OSError:
        new.unlink(missing_ok=True)


def stored_addresses(data_dir: Path) -> tuple[str, ...]:
    """Empty where there are none, or they can not be read."""
    try:
        given = json.loads((data_dir / ADDRESSES).read_text("ascii"))
        return tuple(str(ipaddress.ip_address(each)) for each in given[:BROKERS_MAX])
    except (OSError, ValueError, TypeError, RecursionError):
        return ()
