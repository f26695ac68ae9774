"""Metrics as text: as Prometheus has it (0.0.4), or as OpenMetrics 1.0 does."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from barco.workers.process.stages import BOUNDS_US

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_TOLD = [
    (index, bound)
    for index, bound in enumerate(BOUNDS_US)
    if bound.bit_count() == 1 and 2**4 <= bound <= 2**24
]
"""Of the buckets' bounds those that are told: powers of two, 16 µs to 17 s."""

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sample(NamedTuple):
    """One line."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""
    """Of the name: `_bucket`, say."""


class Family(NamedTuple):
    """All lines of a name."""

    name: str
    """Without `barco_`, and without `_total`."""
    kind: str
    """gauge, counter, histogram or info."""
    help: str
    samples: Sequence[Sample]


def histogram(labels: Mapping[str, str], counts: Sequence[int], sum_us: int) -> list[Sample]:
    """The lines of one: counts by bucket, and their sum in microseconds."""
    below = [0, *accumulate(counts)]
    lines = [
        Sample(below[min(index + 1, len(counts))], {**labels, "le": str(bound / 1e6)}, "_bucket")
        for index, bound in _TOLD
    ]
    return [
        *lines,
        Sample(below[-1], {**labels, "le": "+Inf"}, "_bucket"),
        Sample(sum_us / 1e6, labels, "_sum"),
        Sample(below[-1], labels, "_count"),
    ]


def text_of(families: Iterable[Family], *, open_metrics: bool) -> bytes:
    """In one of the two formats."""
    lines: list[str] = []
    for family in families:
        suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
        # Prometheus' own format knows no info, and calls a counter as its line is called.
        name = f"barco_{family.name}" + ("" if open_metrics else suffix)
        kind = "gauge" if family.kind == "info" and not open_metrics else family.kind
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {kind}"]
        for value, labels, ending in family.samples:
            lines.append(f"barco_{family.name}{ending or suffix}{_labels(labels)} {value}")
    if open_metrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{k}="{v.translate(_ESCAPED)}"' for k, v in labels.items()) + "}"
