"""A broker that leaves, in words: as GET /v1/drains and /status tell of it."""

from collections.abc import Mapping
from typing import Any

from barco.types import GiB, KiB, MiB


def words_of(told: Mapping[str, Any], bytes_per_second: float = 0.0) -> str:
    """For a person at the terminal. bytes_per_second: as it went until now; 0: not known."""
    if told["drained"]:
        return "drained: it may be stopped and removed"
    parts = [str(each) for each in told["waits"]]
    if left := int(told["bytesLeft"]):
        copies = int(told["copies"])
        words = f"{size(left)} of {size(int(told['bytesAll']))} left to copy"
        words += f" ({copies} generation{'s' if copies != 1 else ''})"
        if bytes_per_second > 0:
            words += f", about {span(left / bytes_per_second)}"
        parts.append(words)
    return "; ".join(parts) or "a broker is being chosen that takes copies"


def size(count: int) -> str:
    """So many bytes."""
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def span(seconds: float) -> str:
    """A time left, roughly."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 6000:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
