"""A ring for the terminal: a band of slices for each broker, and what is wrong, first."""

import textwrap
from collections.abc import Sequence

from barco.cli.shared import ring
from barco.model.ring_view import (
    CopyState,
    DrawnRange,
    RingView,
    first_troubles,
    troubles,
    verdict,
)

WIDTH, WIDTH_MIN, WIDTH_LEAST = 60, 24, 8
"""Characters for all slices: in a terminal that has them; what addresses leave room for, or are
left out; what there is at least."""

LEADS = len(" leads 000")
"""Characters behind a band, before the broker's state."""

BROKERS_MAX = 48
RANGES_MAX = 48
"""Rows of one picture; beyond, those with troubles come first."""

GENERATIONS_MAX = 4
TROUBLES_MAX = 12
CIRCLE_BROKERS_MAX = 24

RED, GREEN, YELLOW, GREY, BOLD = "31", "32", "33", "90", "1"
MARKS: dict[CopyState | None, str] = {
    CopyState.LEADS: "█",
    CopyState.SYNCED: "▒",
    CopyState.BEHIND: "░",
    CopyState.DOWN: "×",
    CopyState.UNKNOWN: "?",
    None: " ",
}
PLAIN: dict[CopyState | None, str] = {
    CopyState.LEADS: "#",
    CopyState.SYNCED: "=",
    CopyState.BEHIND: "~",
    CopyState.DOWN: "x",
}
COLOURS = {CopyState.BEHIND: YELLOW, CopyState.DOWN: RED, CopyState.UNKNOWN: YELLOW}
OF_BROKERS = ("36", "33", "35", "32", "34", "91")
WORST = (
    CopyState.DOWN,
    CopyState.UNKNOWN,
    CopyState.BEHIND,
    CopyState.LEADS,
    CopyState.SYNCED,
    None,
)
"""What a character stands for that has several slices."""


class Pen:
    """Colours, if there are any, and marks that the terminal can show."""

    def __init__(self, *, colour: bool, unicode: bool = True, columns: int = 100) -> None:
        self._colour = colour
        self.columns = columns
        self.narrow = columns < ring.COLUMNS
        """There is no room for the circle, and what is long goes on in another line."""
        self.marks = MARKS if unicode else MARKS | PLAIN
        self.bad, self.good, self.new = ("✗", "✓", "+") if unicode else ("!", "ok:", "+")
        self.arrow = "→" if unicode else "->"

    def paint(self, text: str, style: str) -> str:
        """A text in a style of ANSI's."""
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and text.strip() else text

    def folded(self, text: str, indent: str = "    ") -> str:
        """A line, where the terminal is narrow in several, all but the first indented."""
        if not self.narrow:
            return text
        room = max(self.columns, WIDTH_MIN)
        return "\n".join(textwrap.wrap(text, room, subsequent_indent=indent)) or text

    @property
    def colour(self) -> bool:
        """Whether there are any."""
        return self._colour


def ring_text(view: RingView, pen: Pen, *, circle: bool = True) -> str:
    """The whole picture, with the circle or without."""
    head = (
        f"ring {view.cluster}  {_count(len(view.brokers), 'broker')}, {view.slices} slices,"
        f" {_count(len(view.ranges), 'range')}, routes {view.version}"
    )
    parts = [pen.paint(pen.folded(head), BOLD), "\n".join(said(view, pen))]
    if circle and not pen.narrow and 1 < len(view.brokers) <= CIRCLE_BROKERS_MAX:
        parts.append(drawn_circle(view, pen))
    parts += ["\n".join(bands(view, pen)), "\n".join(listed(view, pen))]
    return "\n\n".join(parts)


def said(view: RingView, pen: Pen) -> list[str]:
    """What is wrong, a line each; or that nothing is."""
    found = first_troubles(view, TROUBLES_MAX)
    if not found:
        return [pen.paint(pen.folded(f"{pen.good} {verdict(view)}"), GREEN)]
    return [pen.paint(pen.folded(f"{pen.bad} {each}"), RED) for each in found]


def drawn_circle(view: RingView, pen: Pen) -> str:
    """Clockwise from the top: who leads what."""
    leaders = [None if each is None else each.leader for each in view.at]
    owners: dict[int, int] = {}
    for each in view.ranges:
        owners.setdefault(each.members[0], each.first)
    labels = [(first / view.slices, owner) for owner, first in owners.items()]
    middle = f"{_count(len(view.brokers), 'broker')}, {_count(len(view.ranges), 'range')}"
    return ring.circle(leaders, labels, middle, colour=pen.colour).rstrip()


def bands(view: RingView, pen: Pen) -> list[str]:
    """A row for each broker, in the order of the ring: how it holds which slices."""
    rows = _order(view)
    shown = rows[:BROKERS_MAX] + [o for o in rows[BROKERS_MAX:] if not view.broker(o).up]
    names, room = _named(view, shown, pen)
    parts = _parts(view, room)
    wide = max(map(len, names.values())) + 2
    head = "".join(f"{first:<{width + 1}}" for first, _, width in parts)
    lines = [pen.paint(" " * (wide + 2) + head + "slices", GREY)]
    for ordinal in shown:
        broker = view.broker(ordinal)
        band = " ".join(_cells(view, ordinal, part, pen) for part in parts)
        led = view.led_by(ordinal)
        state = _state(view, ordinal)
        sign = pen.new if broker.new else " "
        label = pen.paint(f"{names[ordinal]:<{wide}}", "" if broker.up else RED)
        lines.append(f"{sign} {label}{band} leads {led:>3}{pen.paint(state, RED)}".rstrip())
    if len(shown) < len(rows):
        lines.append(f"  and {len(rows) - len(shown)} brokers more")
    marks = (f"{pen.marks[copy]} {copy.value}".replace(" ", "\0") for copy in CopyState)
    legend = "  ".join(marks)  # A mark and its words stay in one line.
    indent = " " * min(wide + 2, max(2, pen.columns - len(legend)))
    return [*lines, pen.paint(pen.folded(indent + legend, indent).replace("\0", " "), GREY)]


def _named(view: RingView, shown: Sequence[int], pen: Pen) -> tuple[dict[int, str], int]:
    """What rows begin with, and how wide the bands beside it are."""
    behind = LEADS + max(len(_state(view, ordinal)) for ordinal in shown)
    short = {ordinal: f"broker {ordinal}" for ordinal in shown}
    named = {o: f"{each}  {name}" if (name := view.broker(o).name) else each
             for o, each in short.items()}  # fmt: skip

    def room(names: dict[int, str]) -> int:
        return pen.columns - len("    ") - max(map(len, names.values())) - behind

    names = named if room(named) >= WIDTH_MIN else short
    return names, max(WIDTH_LEAST, min(WIDTH, room(names)))


def _state(view: RingView, ordinal: int) -> str:
    state = view.broker(ordinal).state
    return "" if state == "alive" else f"  {state.upper()}"


def _parts(view: RingView, room: int) -> list[tuple[int, int, int]]:
    """What the bands are cut into: (first slice, slices, characters). Ranges while they fit."""
    pieces = [(each.first, each.slices) for each in view.ranges]
    if not pieces or len(pieces) > room // 4:
        return [(0, view.slices, min(view.slices, room))]
    least = max(len(str(view.slices)), 2)
    return [(f, n, max(least, round(room * n / view.slices) - 1)) for f, n in pieces]


def _cells(view: RingView, ordinal: int, part: tuple[int, int, int], pen: Pen) -> str:
    first, slices, width = part
    style = OF_BROKERS[ordinal % len(OF_BROKERS)]
    cells: list[CopyState | None] = []
    for at in range(width):
        start = first + at * slices // width
        end = max(start + 1, first + (at + 1) * slices // width)
        ranges = view.at[start:end]
        held = [None if each is None else each.copies.get(ordinal) for each in ranges]
        cells.append(min(held, key=WORST.index))
    text = ""
    for at, copy in enumerate(cells):  # Runs of one kind are painted at once.
        if at and copy is cells[at - 1]:
            continue
        run = next((n for n, c in enumerate(cells[at:]) if c is not copy), len(cells) - at)
        text += pen.paint(pen.marks[copy] * run, COLOURS.get(copy, style) if copy else style)
    return text


def _order(view: RingView) -> list[int]:
    """Owners as they come on the ring, then everybody else."""
    owners = dict.fromkeys(each.members[0] for each in view.ranges)
    return list(dict.fromkeys([*owners, *(each.ordinal for each in view.brokers)]))


def listed(view: RingView, pen: Pen) -> list[str]:
    """A row for each range: generation, leader, followers, lineage."""
    ranges = sorted(view.ranges, key=lambda each: (not _strange(each), each.first))
    shown = sorted(ranges[:RANGES_MAX], key=lambda each: each.first)
    rows = [("slices", "epoch", "leader", "followers", "lineage")]
    for each in shown:
        followers = ", ".join(
            f"{ordinal} {each.copies.get(ordinal, CopyState.UNKNOWN).value}"
            for ordinal in each.members
            if ordinal != each.leader
        )
        leader = "nobody" if each.leader is None else str(each.leader)
        rows.append(
            (
                each.span,
                str(each.epoch),
                leader,
                followers or "-",
                each.lineage(pen.arrow, GENERATIONS_MAX),
            )
        )
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    lines = []
    for number, row in enumerate(rows):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        line = pen.folded("  " + "  ".join([*cells, row[4]]).rstrip())
        style = GREY if number == 0 else (RED if _strange(shown[number - 1]) else "")
        lines.append(pen.paint(line, style) if style else line)
    if len(shown) < len(ranges):
        lines.append(f"  and {len(ranges) - len(shown)} ranges more, without troubles")
    return lines


def _strange(each: DrawnRange) -> bool:
    fine = {CopyState.LEADS, CopyState.SYNCED}
    owner = each.leader == each.members[0]
    return each.handed or not owner or not set(each.copies.values()) <= fine


def plan_text(
    before: RingView, after: RingView, rounds: Sequence[Sequence[str]], counts: str, pen: Pen
) -> str:
    """A preview: the ring as it is, as it would be, and the steps between."""
    grown = f"{len(before.brokers)} to {_count(len(after.brokers), 'broker')}"
    head = f"preview: from {grown}. Nothing is changed"
    wrong = said(before, pen) if troubles(before) else []
    parts = ["\n".join([pen.paint(pen.folded(head), BOLD), *wrong])]
    parts.append("as it is\n" + "\n".join(bands(before, pen)))
    if not pen.narrow and len(after.brokers) <= CIRCLE_BROKERS_MAX:
        parts.append(drawn_circle(after, pen))
    parts += ["as it would be\n" + "\n".join(bands(after, pen)), pen.folded(counts)]
    left = RANGES_MAX
    for number, steps in enumerate(rounds, 1):
        shown = steps[:left]
        left -= len(shown)
        if not shown:
            more = sum(map(len, rounds[number - 1 :]))
            parts.append(f"and {more} steps more in {_count(len(rounds) - number + 1, 'round')}")
            break
        lines = [f"round {number}", *(pen.folded(f"  {step}") for step in shown)]
        lines += [f"  and {len(steps) - len(shown)} more"] if len(shown) < len(steps) else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
