"""Whether the cluster can do without this broker for a moment."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import barco
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.cli.shared.routes import current_target, rounds_to
from barco.errors import BarcoError
from barco.model.ring_view import CopyState, view_of
from barco.workers.storage.files.layout import disk_space

AREA = "now"
ANSWER_SECONDS = 5.0
WHOLE = (CopyState.LEADS, CopyState.SYNCED)


def ready(status: Mapping[str, Any]) -> Iterator[Finding]:
    """As the broker says of itself."""
    if status.get("status") != "ready":
        yield Finding(AREA, FAULT, f"not ready: {status.get('reason')}")
    elif degraded := status.get("degraded"):
        yield Finding(AREA, FAULT, f"not in sync: {'; '.join(map(str, degraded))}")
    elif not status.get("inSync"):
        yield Finding(AREA, FAULT, "not in sync yet")
    else:
        yield Finding(AREA, GOOD, "the broker is in sync")
    if status.get("leaves"):
        yield Finding(AREA, WARNING, "the target names this broker no more (barco drain)")


def ring(admin: "barco.Admin", status: Mapping[str, Any]) -> Iterator[Finding]:
    """Of all ranges, also of those that this broker has no copy of, and of all brokers."""
    peers = status["peers"]
    away = [str(each["ordinal"]) for each in peers if each.get("state") != "alive"]
    if away:
        yield Finding(AREA, FAULT, f"brokers {', '.join(away)} are not up")
    try:
        topology = admin.topology(copies=True)
        view = view_of(topology)
        target = current_target(topology)
        left = sum(map(len, rounds_to(topology, target)))
    except BarcoError as error:
        yield Finding(AREA, FAULT, f"the ring is not whole: {error.detail}")
        return
    lacking = [
        f"slices {each.span} at broker {ordinal}"
        for each in view.ranges
        for ordinal in each.members
        if each.copies.get(ordinal) not in WHOLE
    ]
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        yield Finding(AREA, FAULT, f"copies that lack something: {', '.join(lacking[:3])}{more}")
    if left:
        words = f"{left} steps to the target are left (barco ring): restart when they are done"
        yield Finding(AREA, FAULT, words)
    if not (away or lacking or left):
        versions = ", ".join(f"{each['ordinal']}: {each.get('version')}" for each in peers)
        words = f"{len(view.ranges)} ranges, every copy is whole; other brokers have {versions}"
        yield Finding(AREA, GOOD, words)


def room(data_dir: Path) -> Iterator[Finding]:
    """A start writes journals and a segment anew."""
    try:
        space = disk_space(data_dir)
    except BarcoError as error:
        yield Finding("free space", FAULT, error.detail)
        return
    words = f"{space.free >> 20:,} MiB of {space.total >> 20:,} are free"
    level = FAULT if space.nearly_full else GOOD
    yield Finding("free space", level, words + (": make room first" if level == FAULT else ""))
