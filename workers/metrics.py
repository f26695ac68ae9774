"""Prometheus text exposition (format 0.0.4) of a broker's counters, summed over its workers.

There are no labels that a client can invent, so the number of time series is fixed.
"""

import re
from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SERIES_MAX = 1_000
"""More names than this are a mistake; the rest is left out and counted."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)

# Values that go up and down; everything else that the reactor counts only grows.
_GAUGE_ENDINGS = (
    "_open",
    "_waiting",
    "_in_flight",
    "_pending",
    "_used",
    "_free",
    "_registered",
    "_max",
    "_now",
    "_limit",
    "_size",
    "_streams",
    "_inflight",
    "_active",
)
_GAUGES = {
    "arena_bytes",
    "connections",
    "consumers_registered",
    "epoch",
    "group_offsets",
    "memory_bytes",
    "streams",
    "topics",
}

_HELP = {
    "consumers_registered": "Consumers registered with the broker.",
    "group_offsets": "Group offsets kept, one for each group, topic and slice.",
    "long_polls_waiting": "Requests that wait for events to become stable.",
}

# The same fact in every worker: summing it up would multiply it.
_SHARED = {"consumers_registered"}


def _is_gauge(name: str) -> bool:
    return name in _GAUGES or name.endswith(_GAUGE_ENDINGS)


def exposition(
    by_worker: Mapping[int, Mapping[str, int | float]], *, workers: int, version: str
) -> bytes:
    """The text for these workers' counters; `workers` says how many there should be."""
    lines = [
        "# HELP barco_build_info The version of barco.",
        "# TYPE barco_build_info gauge",
        f'barco_build_info{{version="{version}"}} 1',
        "# HELP barco_workers Workers that the broker has.",
        "# TYPE barco_workers gauge",
        f"barco_workers {workers}",
        "# HELP barco_workers_up Workers that answered.",
        "# TYPE barco_workers_up gauge",
        f"barco_workers_up {len(by_worker)}",
    ]
    names = sorted({name for stats in by_worker.values() for name in stats})
    known = [name for name in names if _NAME.fullmatch(name)][:SERIES_MAX]
    for name in known:
        values = [stats[name] for stats in by_worker.values() if name in stats]
        total = max(values) if name in _SHARED else sum(values)
        lines += _series(name, total)
    return ("\n".join(lines) + "\n").encode()


def _series(name: str, value: float) -> list[str]:
    gauge = _is_gauge(name)
    exposed = f"barco_{name}" if gauge or name.endswith("_total") else f"barco_{name}_total"
    text = _HELP.get(name, name.replace("_", " ").capitalize() + ", over all workers.")
    return [
        f"# HELP {exposed} {text}",
        f"# TYPE {exposed} {'gauge' if gauge else 'counter'}",
        f"{exposed} {value}",
    ]
