"""One screen of `barco top`, from two looks: pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from barco.cli.commands.top.rates import BrokerRow, Glance, broker_rows, rate, totals
from barco.cli.shared.talk import size_of
from barco.model.health import Diagnosis, health_of
from barco.model.ring_view import printable

TROUBLES, ROWS = 6, 12
"""Lines of what is wrong; of topics, and of groups."""

STATES = {"alive": "green", "ready": "green", "suspect": "yellow", "left": "yellow"}


def screen(before: Glance | None, now: Glance, clock: str, *, unicode: bool) -> RenderableType:
    """What is seen. clock: the time as it is shown."""
    rows = broker_rows(before, now)
    topology = now.asked.topology or {}
    all_of = totals(rows)
    name = printable(topology.get("cluster") or "one broker")
    head = Text.assemble(
        (f"barco {name}", "bold"),
        f"  {len(rows)} broker{'s' if len(rows) != 1 else ''}",
        f"  {_count(all_of['events'])} events/s",
        f"  in {_bytes(all_of['in'])}/s  out {_bytes(all_of['out'])}/s",
        f"  {_count(all_of['requests'])} requests/s",
        f"  {clock}",
    )
    health = health_of(now.asked.said, topology or None)
    return Group(
        head,
        _health(health, unicode=unicode),
        Text(),
        _brokers(rows),
        Text(),
        _stages(now),
        Text(),
        _topics(before, now),
        Text(),
        _groups(before, now),
    )


def _health(health: Diagnosis, *, unicode: bool) -> RenderableType:
    good, bad, note = ("✓", "✗", "·") if unicode else ("ok", "!!", "--")
    lines = [Text(f"{good if health.well else bad} {health.headline}", _tone(health))]
    lines += [Text(f"{bad} {each}", "red") for each in health.wrong[:TROUBLES]]
    if len(health.wrong) > TROUBLES:
        lines.append(Text(f"{bad} and {len(health.wrong) - TROUBLES} more: barco status", "red"))
    lines += [Text(f"{note} {each}", "yellow") for each in health.notes[:2]]
    return Group(*lines)


def _tone(health: Diagnosis) -> str:
    return "bold green" if health.well else "bold red"


def _brokers(rows: Sequence[BrokerRow]) -> Table:
    table = _table(
        ("broker", "address", "state"),
        ("leads", "events/s", "in/s", "out/s", "requests/s", "connections", "behind", "cores",
         "memory", "disk free"),
    )  # fmt: skip
    for row in rows:
        gauges = row.gauges
        table.add_row(
            str(row.ordinal),
            Text(row.name),
            Text(row.state, STATES.get(row.state, "red")),
            str(row.leads),
            _count(row.rates["events"]),
            _bytes(row.rates["in"]),
            _bytes(row.rates["out"]),
            _count(row.rates["requests"]),
            _count(gauges.get("connections_open")),
            _count(gauges.get("replication_groups_behind")),
            "-" if row.rates["cpu"] is None else f"{row.rates['cpu']:.2f}",
            _bytes(gauges.get("process_resident_bytes")),
            _bytes(gauges.get("storage_free_bytes")),
        )
    return table


def _stages(now: Glance) -> Table:
    """The slowest brokers first, below all of them together."""
    names = list(now.stages.get("all", ()))
    table = _table(("produces p50/p99",), names)
    slowest = sorted(
        now.stages.items(),
        key=lambda each: (each[0] != "all", -(each[1].get("whole", (0, None))[1] or 0), each[0]),
    )
    for whose, stages in slowest[:ROWS]:
        label = whose if whose == "all" else f"broker {whose}"
        told = [stages.get(name, (None, None)) for name in names]
        table.add_row(label, *(f"{_time(half)}/{_time(most)}" for half, most in told))
    return table


def _topics(before: Glance | None, now: Glance) -> Table:
    seconds = now.at - before.at if before else 0.0
    earlier = before.topics if before else {}
    found = [
        (name, count, rate(earlier.get(name), count, seconds)) for name, count in now.topics.items()
    ]
    found.sort(key=lambda each: (-(each[2] or 0), -each[1], each[0]))
    table = _table(("topic",), ("events", "events/s"))
    for name, count, speed in found[:ROWS]:
        table.add_row(Text(printable(name)), _count(count), _count(speed))
    if len(found) > ROWS:
        table.add_row(Text(f"and {len(found) - ROWS} more", "dim"), "", "")
    return table


def _groups(before: Glance | None, now: Glance) -> Table:
    seconds = now.at - before.at if before else 0.0
    table = _table(("group",), ("members", "lag", "read/s"))
    found = sorted(now.groups.items(), key=lambda each: (-each[1].lag, each[0]))
    for name, group in found[:ROWS]:
        earlier = before.groups.get(name) if before else None
        speed = rate(earlier.position if earlier else None, group.position, seconds)
        table.add_row(Text(printable(name)), str(group.members), _count(group.lag), _count(speed))
    return table


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _bytes(number: float | None) -> str:
    return "-" if number is None else size_of(number)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f}us"
    return f"{seconds * 1e3:.3g}ms" if seconds < 1 else f"{seconds:.3g}s"
