"""How a cluster is, in words: from what its brokers say of themselves, and the ring. Pure."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

from barco.errors import ProtocolError
from barco.model.ring_view import (
    CopyState,
    RingView,
    elsewhere,
    printable,
    troubles_now,
    view_of,
)

CERTIFICATE_DAYS = 30
"""So long before its end a certificate is among what is wrong."""

_SEEN = re.compile(r"broker \d+ (is down|is behind|does not lead)\b")
"""What `degraded` has of what the ring shows: with its slices, and once."""

Said = Mapping[str, Any] | str
"""What a broker answered to GET /status, or why it did not."""


class Diagnosis(Struct):
    """What somebody should know who looks at three in the morning."""

    headline: str = ""
    """Whether events can be written, and to how many disks."""
    wrong: list[str] = field(default_factory=list)
    """What somebody has to do something about, or to wait for; the worst first."""
    notes: list[str] = field(default_factory=list)
    """What is not as it was planned, and harms nobody."""

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong


def health_of(
    said: Mapping[str, Said], topology: Mapping[str, Any] | None, now: datetime | None = None
) -> Diagnosis:
    """said: by the broker's name, of all that were asked. topology: GET /v1/topology?copies, None:
    nobody gave it."""
    health = Diagnosis()
    view = _view(topology, health)
    health.headline = _headline(view, full=any(map(_is_full, said.values())))
    if view is not None:
        health.wrong += troubles_now(view)
        health.notes += elsewhere(view)
    away = {each.name for each in view.brokers if each.state != "alive"} if view else set()
    for name, status in sorted(said.items()):
        if isinstance(status, str):
            if name.rpartition(":")[0] not in away and name not in away:
                health.wrong.append(f"{name} gives no answer: {printable(status)}")
        else:
            health.wrong += _of_broker(
                name, status, now or datetime.now(UTC), seen=view is not None
            )
            health.notes += _notes_of(name, status)
    health.wrong, health.notes = _once(health.wrong), _once(health.notes)
    return health


def health_lines(health: Diagnosis, *, unicode: bool, shown: int = 20) -> list[str]:
    """For a terminal: the headline, what is wrong, what else there is to know."""
    good, bad, note = ("✓", "✗", "·") if unicode else ("ok", "!!", "--")
    lines = [f"{good if health.well else bad} {health.headline}"]
    lines += [f"{bad} {each}" for each in health.wrong]
    lines += [f"{note} {each}" for each in health.notes]
    if len(lines) > shown:
        lines[shown - 1 :] = [f"{note} and {len(lines) - shown + 1} more: barco status --json"]
    return lines


def _view(topology: Mapping[str, Any] | None, health: Diagnosis) -> RingView | None:
    try:
        return None if topology is None else view_of(topology)
    except ProtocolError as error:
        health.notes.append(error.detail)
        return None


def _is_full(status: Said) -> bool:
    """Whether a broker that leads something has no room for it."""
    shards = [] if isinstance(status, str) else _listed(status.get("shards"))
    return any(
        each.get("ready") and _mapped(each.get("storage")).get("diskFull") for each in shards
    )


def _headline(view: RingView | None, *, full: bool) -> str:
    if full:
        return "Events are refused by a broker whose disk is full"
    if view is None:
        return "How the slices are is not known"
    if not view.ranges:
        return "No slice is led yet: nothing can be written"
    if len(view.brokers) == 1 and all(len(each.members) == 1 for each in view.ranges):
        return "All slices can be written; a single broker has the only copy of its events"
    counts = []
    for number in range(view.slices):
        found = view.at[number]
        if found is None or found.leader is None:
            counts.append(0)
            continue
        up = sum(copy is not CopyState.DOWN for copy in found.copies.values())
        counts.append(up if up > 1 or len(found.members) == 1 else 0)
    if unwritable := counts.count(0):
        return f"{unwritable} of {view.slices} slices can not be written now"
    if min(counts) < max(len(each.members) for each in view.ranges):
        return (
            f"All slices are written to {_disks(min(counts))} or more; nothing is at risk until"
            " another broker goes"
        )
    return f"All slices are written to {_disks(min(counts))}"


def _disks(count: int) -> str:
    return {1: "one disk", 2: "two disks", 3: "three disks"}.get(count, f"{count} disks")


def _of_broker(name: str, status: Mapping[str, Any], now: datetime, *, seen: bool) -> list[str]:
    """What one broker says that is wrong. seen: the ring was seen, and tells some of it better."""
    found = []
    if status.get("status") != "ready":
        found.append(f"{name} is not ready: {printable(status.get('reason') or 'it starts')}")
    told = _texts(status.get("degraded"))
    found += [each for each in told if not (seen and _SEEN.match(each))]
    for shard in _listed(status.get("shards")):
        where = f"{name}, worker {printable(shard.get('worker'))}"
        storage = _mapped(shard.get("storage"))
        if damaged := _number(storage.get("damagedSegments")):
            found.append(f"{where}: {_many(damaged, 'segment')} damaged and not repaired yet")
        if aside := _number(storage.get("setAside")):
            found.append(
                f"{where}: {_many(aside, 'log')} set aside that nobody has exported:"
                " barco recover --help"
            )
        replication = _mapped(shard.get("replication"))
        if replication.get("suspect"):
            why = printable(replication.get("suspectWhy") or "something of its own is damaged")
            found.append(f"{where} has no vote: {why}")
    found += [f"{name}: {each}" for each in _texts(_mapped(status.get("routes")).get("faults"))]
    for key, what in (("tls", "certificate"), ("mutualTls", "certificate between brokers")):
        found += _certificate(name, what, _mapped(status.get(key)).get("expires"), now)
    return found


def _notes_of(name: str, status: Mapping[str, Any]) -> list[str]:
    found = []
    if status.get("openToAll"):
        found.append(f"{name} is open to other machines without authentication")
    if status.get("waits"):
        found.append(f"{name} has joined, and waits until barco scale asks for it")
    if why := status.get("engineReason"):
        found.append(f"{name} runs on {printable(status.get('engine'))}: {printable(why)}")
    return found


def _certificate(name: str, what: str, expires: object, now: datetime) -> list[str]:
    """What is to be said of the end of one; nothing if there is time."""
    try:
        end = datetime.fromisoformat(str(expires))
    except ValueError:
        return []
    if end.tzinfo is None:
        end = end.replace(tzinfo=UTC)
    left = end - now
    if left <= timedelta(0):
        return [f"{name}: the {what} has expired: barco certs renew"]
    if left <= timedelta(days=CERTIFICATE_DAYS):
        days = math.ceil(left / timedelta(days=1))
        return [f"{name}: the {what} ends in {_many(days, 'day')}: barco certs renew"]
    return []


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' if count != 1 else ''}"


def _once(lines: list[str]) -> list[str]:
    """What several brokers say of the same thing is said once."""
    return list(dict.fromkeys(lines))


def _texts(value: object) -> list[str]:
    return [printable(each) for each in value] if isinstance(value, list) else []


def _listed(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _mapped(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
