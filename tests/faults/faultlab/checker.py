"""The offline checker: a history and what was read back after it, held against the promises."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from faultlab.drain import Event
from faultlab.history import Record, parse_value

SHOWN_MAX = 5

Name = tuple[str, int]
"""An event: who wrote it, and its number."""

SETTLED_SECONDS = 10.0
"""After a fault the owner takes its ranges back some 5 s later, and every new leader serves
consumers 2 s after that: what was handed out and not committed by then comes again (D6)."""


ANSWERED_SECONDS = 1.0
"""From a broker to a client on a busy machine."""


@dataclass
class Report:
    """What was wrong, by check; and how much was looked at."""

    acked: int = 0
    refused: int = 0
    unknown: int = 0
    stored: int = 0
    delivered: int = 0
    faults: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def add(self, check: str, text: str) -> None:
        """One violation."""
        self.wrong.setdefault(check, []).append(text)

    def count(self, check: str) -> int:
        """How many violations of a check there are."""
        return len(self.wrong.get(check, []))

    def __str__(self) -> str:
        text = (
            f"{self.acked} acked, {self.unknown} unknown, {self.refused} refused, "
            f"{self.stored} stored, {self.delivered} delivered, {self.faults} faults"
        )
        for check, found in sorted(self.wrong.items()):
            text += f"\n  {check}: {len(found)}"
            text += "".join(f"\n    {each}" for each in found[:SHOWN_MAX])
        return text


def check(history: Iterable[Record], stored: list[Event], topic: str) -> Report:
    """All checks on one topic. `stored`: a complete read, in the order of slices and offsets."""
    records = [each for each in history if each.get("topic", topic) == topic]
    report = Report(stored=len(stored))
    report.faults = sum(each["f"] == "fault" for each in records)
    placed = _stored(report, stored)
    _sends(report, records, placed)
    _deliveries(report, records, {event[0:3:2]: event for event in stored})
    _sessions(report, records)
    _positions(report, records)
    return report


def _stored(report: Report, stored: list[Event]) -> dict[Name, tuple[int, int]]:
    """C5 on what was read back, C2, and offsets without gaps. Where each event is."""
    placed: dict[Name, tuple[int, int]] = {}
    ends: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for slice_, epoch, offset, key, value in stored:
        name = parse_value(value.encode("latin-1"))
        if name is None or name[2] != key:
            report.add("C5 phantom", f"{slice_}/{offset}: key {key!r}, value {value[:60]!r}")
            continue
        if name[:2] in placed:
            report.add("C2 twice", f"{name} at {placed[name[:2]]} and {(slice_, offset)}")
        if offset != ends.get(slice_, 0):
            report.add("C7 gap", f"{slice_}: {offset} after {ends.get(slice_, 0)}")
        if epoch < epochs.get(slice_, 0):
            report.add("C6 offsets", f"{slice_}/{offset}: epoch {epoch} after {epochs[slice_]}")
        ends[slice_], epochs[slice_] = offset + 1, epoch
        placed[name[:2]] = (slice_, offset)
    return placed


def _sends(report: Report, records: list[Record], placed: dict[Name, tuple[int, int]]) -> None:
    """C1, C3, C4, and C5 for events that nobody sent."""
    sent: Counter[str] = Counter()
    known: set[Name] = set()
    last: dict[tuple[str, str | None], tuple[int, int, int]] = {}
    for record in records:
        if record["f"] != "send":
            continue
        sent[record["type"]] += len(record["ns"])
        for number in record["ns"]:
            name = (record["proc"], number)
            known.add(name)
            place = placed.get(name)
            if record["type"] == "ok":
                if place is None:
                    report.add("C1 lost", f"{name} key {record['key']} status {record['status']}")
                elif record["key"] is not None:
                    _order(report, last, (record["proc"], record["key"]), number, place)
            elif record["type"] == "fail" and place is not None:
                report.add("C4 refused", f"{name} at {place}, status {record['status']}")
            elif record["type"] == "gap":
                report.add("C2 gap", f"{name}: {record['status']} to the sequence that is next")
    report.acked, report.refused = sent["ok"], sent["fail"]
    report.unknown = sent["info"]
    for name in placed.keys() - known:
        report.add("C5 phantom", f"{name} was sent by nobody")


def _order(
    report: Report,
    last: dict[tuple[str, str | None], tuple[int, int, int]],
    line: tuple[str, str | None],
    number: int,
    place: tuple[int, int],
) -> None:
    """A producer's events of one key lie in one slice, in the order of its calls."""
    before = last.get(line)
    later = before is not None and number > before[0]
    if before is not None and later and (place[0] != before[1] or place[1] <= before[2]):
        report.add("C3 order", f"{line}: {before} before {(number, *place)}")
    last[line] = (number, *place)


def _deliveries(
    report: Report, records: list[Record], stored: dict[tuple[int, ...], Event]
) -> None:
    """C6: what anybody was ever given is what stands there now. D6: the group got everything."""
    given: set[tuple[int, ...]] = set()
    for record in records:
        if record["f"] not in ("poll", "read"):
            continue
        report.delivered += len(record["events"])
        for event in record["events"]:
            place = (event[0], event[2])
            if record["f"] == "poll":
                given.add(place)
            if stored.get(place) != tuple(event):
                report.add("C6 offsets", f"{place}: was {event[1:5]}, is {stored.get(place)}")
    ends: dict[int, int] = {}
    for slice_, offset in given:
        ends[slice_] = max(ends.get(slice_, -1), offset)
    for slice_, end in ends.items():
        missing = [offset for offset in range(end) if (slice_, offset) not in given]
        if missing:
            report.add("C7 skipped", f"slice {slice_}: {len(missing)} from {missing[0]} on")


def _sessions(report: Report, records: list[Record]) -> None:
    """C8: between two faults a consumer that is not registered anew goes forward only, unless a
    slice was led anew meanwhile: then it goes on behind what was committed (D6), and never before
    that, whatever happens."""
    ends: dict[tuple[str, int, int], tuple[int, float]] = {}
    committed: dict[int, int] = {}
    for record in sorted(records, key=lambda each: each["t1"]):
        if record["f"] == "fault":
            ends.clear()
        elif record["f"] == "commit":
            committed |= {int(each): offset for each, offset in record["positions"].items()}
        if record["f"] != "poll":
            continue
        at = record["t1"]
        for slice_, _, offset, _, _ in record["events"]:
            line = (record["proc"], record["session"], slice_)
            end, since = ends.get(line, (0, at))
            if offset < end and not (_hurt(records, at) or _led(records, slice_, since, at)):
                report.add("C8 backwards", f"{line}: {offset} after {end}")
            if offset < committed.get(slice_, 0):
                report.add(
                    "C8 committed", f"{line}: {offset}, and {committed[slice_]} was committed"
                )
            ends[line] = offset + 1, at


def _led(records: list[Record], slice_: int, since: float, until: float) -> bool:
    """Whether somebody began to lead a slice between two answers of it."""
    return any(
        each["f"] == "leads"
        and since - ANSWERED_SECONDS <= each["t1"] <= until
        and each["slices"][0] <= slice_ < each["slices"][1]
        for each in records
    )


def _hurt(records: list[Record], at: float) -> bool:
    """Whether a fault was going on, or its changes of leader were."""
    return any(
        each["f"] == "fault" and each["t0"] <= at <= each["t1"] + SETTLED_SECONDS
        for each in records
    )


def _positions(report: Report, records: list[Record]) -> None:
    """C9: a committed offset never goes back, whatever happens."""
    last: dict[tuple[str, str], int] = {}
    for record in sorted(records, key=lambda each: each["t1"]):
        if record["f"] != "commit":
            continue
        for slice_, offset in record["positions"].items():
            line = (record["group"], slice_)
            if offset < last.get(line, 0):
                report.add("C9 commit", f"{line}: {offset} after {last[line]}")
            last[line] = max(offset, last.get(line, 0))
