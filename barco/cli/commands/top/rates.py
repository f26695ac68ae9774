"""Figures of brokers, topics and groups between two looks: pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barco.cli.shared.asked import Reports
from barco.model.ring_view import printable

SHOWN = {
    "events": "events_total",
    "in": "value_bytes_total",
    "out": "bytes_out_total",
    "requests": "requests_total",
    "cpu": "process_cpu_seconds_total",
}
"""Rates that are shown of a broker, and the counters they come from."""


Stages = Mapping[str, Mapping[str, tuple[float | None, float | None]]]
"""By broker, or "all", and by stage: seconds that half of the produces took of late, and that 99 of
100 did."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen at a moment."""

    at: float
    """Seconds, of a clock that only goes on."""
    asked: Reports
    topics: Mapping[str, int] = field(default_factory=dict)
    """Events in each."""
    groups: Mapping[str, "GroupLook"] = field(default_factory=dict)
    stages: Stages = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A consumer group at a moment."""

    members: int
    lag: int
    position: int
    """Sum of where it is in each slice."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A line of the table of brokers. Rates are each second; None: not known (yet)."""

    ordinal: int
    name: str
    state: str
    leads: int
    """Slices."""
    rates: Mapping[str, float | None]
    gauges: Mapping[str, float]
    """By name in the metrics, without `barco_`."""


def values_of(text: str) -> dict[str, float]:
    """Prometheus' text without labels, by name without `barco_`."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("barco_") and "{" not in name:
            try:
                found[name.removeprefix("barco_")] = float(value)
            except ValueError:
                continue
    if "events_total" in found:  # Each event once, at its leader.
        found["events_total"] -= found.get("events_followed_total", 0.0)
    return found


def broker_rows(before: Glance | None, now: Glance) -> list[BrokerRow]:
    """By ordinal; of a single broker one."""
    topology = now.asked.topology or {}
    listed = topology.get("brokers") or ()
    routes = topology.get("routes") or ()
    if len(now.asked.said) == 1 and len(listed) <= 1:
        name = next(iter(now.asked.said))
        status = str(now.asked.status.get("status"))
        slices = sum(int(each["slices"]) for each in routes)
        return [_row(0, name, status, slices, name, before, now)]
    rows = []
    for each in listed:
        ordinal, ports = int(each["ordinal"]), each.get("ports") or {}
        leads = sum(int(route["slices"]) for route in routes if route["leader"] == ordinal)
        state = str(each.get("state", "alive"))
        key = f"{each['name']}:{ports.get('discovery')}"
        if isinstance(now.asked.said.get(key), str) and state == "alive":
            state = "no answer"
        rows.append(_row(ordinal, str(each["name"]), state, leads, key, before, now))
    return sorted(rows, key=lambda row: row.ordinal)


def _row(
    ordinal: int, name: str, state: str, leads: int, key: str, before: Glance | None, now: Glance
) -> BrokerRow:
    gauges = values_of(now.asked.metrics.get(key, ""))
    earlier = values_of(before.asked.metrics.get(key, "")) if before else {}
    seconds = now.at - before.at if before else 0.0
    rates = {
        what: rate(earlier.get(counter), gauges.get(counter), seconds)
        for what, counter in SHOWN.items()
    }
    return BrokerRow(ordinal, printable(name), printable(state), leads, rates, gauges)


def rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """Each second; None: not known. A counter that fell began anew, with its process."""
    if before is None or now is None or seconds <= 0:
        return None
    return (now - before if now >= before else now) / seconds


def totals(rows: list[BrokerRow]) -> dict[str, float | None]:
    """Of all brokers that have told; None: none has."""
    found: dict[str, float | None] = {}
    for what in SHOWN:
        known = [each for row in rows if (each := row.rates[what]) is not None]
        found[what] = sum(known) if known else None
    return found


def group_of(document: Mapping[str, Any]) -> GroupLook:
    """GET /v1/groups/NAME."""
    positions = document.get("positions") or ()
    return GroupLook(
        members=len(document.get("members") or ()),
        lag=sum(int(each.get("lag") or 0) for each in positions),
        position=sum(int(each.get("offset") or 0) for each in positions),
    )


def stages_of(document: Mapping[str, Any]) -> Stages:
    """GET /v1/figures. A broker of an earlier version tells none."""
    brokers = document.get("brokers") or ()
    told = {"all": document.get("stages") or {}}
    if len(brokers) > 1:
        told |= {str(each["ordinal"]): each.get("stages") or {} for each in brokers}
    return {
        whose: {name: (each.get("p50"), each.get("p99")) for name, each in stages.items()}
        for whose, stages in told.items()
        if stages
    }
