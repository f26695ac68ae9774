"""A ring as SVG: who leads, who follows, how the copies are; and in words what is wrong."""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from barco.model.ring_view import (
    CopyState,
    DrawnRange,
    RingView,
    first_troubles,
    troubles,
    verdict,
)

HUES = (
    *("#2f6fb0", "#d9822b", "#2a9d74", "#b0478f", "#6b5bbd", "#c6a000"),
    *("#4fb3d9", "#a3542a", "#7cb342", "#e06a8a", "#5c7080", "#8c6d1f"),
)
"""Of brokers by ordinal, again from the first after the last."""

INK, FAINT, BAD, GOOD, LATE = "#1f2933", "#7b8794", "#c62828", "#1b7f4b", "#b7791f"
RADIUS = 205
BANDS = ((RADIUS, 46), (RADIUS - 52, 20), (RADIUS - 76, 20))
"""Outer edge and thickness: who leads, then the two others in the order of succession."""

WIDTH = 1310
LABELS_MAX = 24
TICKS_MAX = 192
ROWS_MAX = 14
TROUBLES_MAX = 8
TEXT_MAX = 66
"""Characters of a line in the panel."""

STYLE = (
    "text{font-family:'DejaVu Sans','Helvetica Neue',Arial,sans-serif;font-size:13px;"
    f"fill:{INK}}}.h{{font-size:21px;font-weight:700}}.b{{font-weight:700}}.f{{fill:{FAINT}}}"
    ".s{font-size:11px}.n{font-size:34px;font-weight:700}.m{text-anchor:middle}"
)
PATTERNS = (
    "<defs><pattern id='late' width='7' height='7' patternUnits='userSpaceOnUse'"
    " patternTransform='rotate(45)'><rect width='7' height='7' fill='#fff'/>"
    f"<rect width='3.5' height='7' fill='{LATE}'/></pattern>"
    "<pattern id='none' width='8' height='8' patternUnits='userSpaceOnUse'"
    " patternTransform='rotate(45)'><rect width='8' height='8' fill='#fff'/>"
    f"<rect width='3' height='8' fill='{BAD}'/></pattern></defs>"
)


ARROW = (
    f"<path d='M604 114h48m-11 -9l11 9l-11 9' fill='none' stroke='{FAINT}' stroke-width='3'"
    " stroke-linecap='round' stroke-linejoin='round'/>"
)


def ring_svg(view: RingView) -> str:
    """The ring, and beside it in words what is wrong, its brokers and its ranges."""
    panel, height = _panel(view)
    height = max(height, 2 * RADIUS + 170)
    parts = [_ring(view, 300, height / 2 - 10), _legend(300, height - 22), panel]
    return _document(WIDTH, height, parts)


def plan_svg(
    before: RingView, after: RingView, rounds: Sequence[Sequence[str]], counts: str
) -> str:
    """Two rings, as it is and as it would be, and the steps between them."""
    parts = [
        _text(40, 44, f"preview: {len(before.brokers)} to {len(after.brokers)} brokers", "h"),
        _text(40, 68, "Nothing is changed.", "f"),
        _text(320, 118, "as it is", "b m"),
        _text(940, 118, "as it would be", "b m"),
        ARROW,
        _ring(before, 320, 118 + RADIUS + 62),
        _ring(after, 940, 118 + RADIUS + 62),
    ]
    y = 2 * RADIUS + 270
    parts.append(_legend(630, y - 18))
    parts.append(_text(40, y + 26, counts, "b"))
    y += 54
    lines = [
        (f"round {number}" if at == 0 else "", step)
        for number, steps in enumerate(rounds, 1)
        for at, step in enumerate(steps)
    ]
    for at, (head, step) in enumerate(lines[: 2 * ROWS_MAX]):
        column, row = divmod(at, ROWS_MAX)
        x, below = 40 + 620 * column, y + 21 * row
        parts += [_text(x, below, head, "f"), _text(x + 80, below, step)]
    y += 21 * min(len(lines), ROWS_MAX)
    if len(lines) > 2 * ROWS_MAX:
        parts.append(_text(740, y, f"and {len(lines) - 2 * ROWS_MAX} steps more", "f"))
        y += 21
    return _document(WIDTH, y + 10, parts)


def _document(width: float, height: float, parts: Sequence[str]) -> str:
    size = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img'>"
    body = "\n".join(part for part in parts if part)
    title = "<title>barco ring</title>"
    paper = "<rect width='100%' height='100%' fill='#fff'/>"
    return f"{head}{title}<style>{STYLE}</style>{PATTERNS}{paper}\n{body}\n</svg>\n"


# --- The ring -------------------------------------------------------------------------------------


def _ring(view: RingView, x: float, y: float) -> str:
    parts = []
    gap = min(0.006, 0.12 / max(1, len(view.ranges)))
    for each in view.ranges:
        start, end = each.first / view.slices, (each.first + each.slices) / view.slices
        span = (start + gap / 2, end - gap / 2) if len(view.ranges) > 1 else (start, end - 1e-5)
        parts += _range_bands(view, each, span)
    if view.slices <= TICKS_MAX:
        inner, outer = RADIUS - BANDS[0][1], RADIUS
        for number in range(view.slices):
            (a, b), (c, d) = (_point(number / view.slices, r) for r in (inner, outer))
            parts.append(
                f"<path d='M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}' stroke='#fff' stroke-opacity='.55'/>"
            )
    parts += _labels(view)
    parts += _middle(view)
    return f"<g transform='translate({x:.0f} {y:.0f})'>" + "\n".join(parts) + "</g>"


def _range_bands(view: RingView, each: DrawnRange, span: tuple[float, float]) -> list[str]:
    others = [ordinal for ordinal in each.members if ordinal != each.leader]
    parts = []
    lead = _hue(each.leader) if each.leader is not None else "url(#none)"
    title = f"slices {each.span}, epoch {each.epoch}: " + (
        "nobody leads" if each.leader is None else f"broker {each.leader} leads"
    )
    parts.append(_arc(span, *BANDS[0], f"fill='{lead}'", title))
    for ordinal, (outer, thick) in zip(others, BANDS[1:], strict=False):
        copy = each.copies.get(ordinal, CopyState.UNKNOWN)
        name = f"broker {ordinal}: {copy.value}"
        parts.append(_arc(span, outer, thick, _look(ordinal, copy), name))
    return parts


def _look(ordinal: int, copy: CopyState) -> str:
    if copy is CopyState.DOWN:
        return f"fill='#fff' stroke='{BAD}' stroke-width='1.6' stroke-dasharray='5 4'"
    if copy is CopyState.BEHIND:
        return "fill='url(#late)'"
    if copy is CopyState.UNKNOWN:
        return f"fill='#e4e7eb' stroke='{FAINT}' stroke-dasharray='2 3'"
    return f"fill='{_hue(ordinal)}' fill-opacity='.62'"


def _labels(view: RingView) -> list[str]:
    owners: dict[int, list[DrawnRange]] = {}
    for each in view.ranges:
        owners.setdefault(each.members[0], []).append(each)
    if len(owners) > LABELS_MAX or len(view.brokers) == 1:
        return []
    parts = []
    for ordinal, ranges in owners.items():
        first = min(each.first for each in ranges)
        end = max(each.first + each.slices for each in ranges)
        turn = (first + end) / 2 / view.slices
        x, y = _point(turn, RADIUS + 16)
        anchor = "middle" if abs(x) < 40 else ("start" if x > 0 else "end")
        y += 12 * (1 + y / RADIUS) / 2 - (12 if y < 0 else 0)
        broker = view.broker(ordinal)
        state = "" if broker.state == "alive" else f" {broker.state}"
        fill = BAD if not broker.up else _hue(ordinal)
        new = " (new)" if broker.new else ""
        parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>"
            f"<tspan class='b' style='fill:{fill}'>broker {ordinal}{escape(state)}{new}</tspan>"
            f"<tspan class='f s' x='{x:.1f}' dy='14'>slices {first}-{end - 1}</tspan></text>"
        )
    return parts


def _middle(view: RingView) -> list[str]:
    wrong = len(troubles(view))
    told = "all is well" if not wrong else f"{wrong} trouble{'s' if wrong > 1 else ''}"
    if new := sum(each.new for each in view.brokers):
        told = f"{new} new"
    return [
        f"<text class='n m' x='0' y='-14'>{len(view.brokers)}</text>",
        _text(0, 8, f"broker{'s' if len(view.brokers) > 1 else ''}", "m"),
        _text(0, 30, f"{view.slices} slices, {len(view.ranges)} ranges", "f m s"),
        f"<text class='b m' x='0' y='56' style='fill:{BAD if wrong else GOOD}'>{told}</text>",
    ]


def _arc(span: tuple[float, float], outer: float, thick: float, look: str, title: str) -> str:
    start, end = span
    large = int(end - start > 0.5)
    (a, b), (c, d) = _point(start, outer), _point(end, outer)
    (e, f), (g, h) = _point(end, outer - thick), _point(start, outer - thick)
    inner = outer - thick
    path = (
        f"M{a:.2f} {b:.2f}A{outer} {outer} 0 {large} 1 {c:.2f} {d:.2f}"
        f"L{e:.2f} {f:.2f}A{inner} {inner} 0 {large} 0 {g:.2f} {h:.2f}Z"
    )
    return f"<path d='{path}' {look}><title>{escape(title)}</title></path>"


def _point(turn: float, radius: float) -> tuple[float, float]:
    """From the top, clockwise."""
    angle = 2 * math.pi * turn
    return radius * math.sin(angle), -radius * math.cos(angle)


def _hue(ordinal: int) -> str:
    return HUES[ordinal % len(HUES)]


# --- In words -------------------------------------------------------------------------------------


def _panel(view: RingView) -> tuple[str, float]:
    """What stands beside the ring, and how high it is."""
    x, y = 640.0, 52.0
    parts = [_text(x, y, f"ring {view.cluster}", "h")]
    y += 24
    parts.append(_text(x, y, f"routes {view.version}", "f"))
    y += 34
    found = first_troubles(view, TROUBLES_MAX)
    for line in found or [verdict(view)]:
        sign = BAD if found else GOOD
        parts.append(f"<circle cx='{x + 5:.0f}' cy='{y - 4.5:.0f}' r='5' fill='{sign}'/>")
        for piece in _wrapped(line):
            parts.append(_text(x + 20, y, piece, "b" if found else ""))
            y += 20
    y += 22
    parts.append(_row(x, y, ("broker", "address", "state", "leads"), "f s"))
    shown = [each for each in view.brokers if not each.up] + [e for e in view.brokers if e.up]
    for each in sorted(shown[:ROWS_MAX], key=lambda one: one.ordinal):
        y += 21
        parts.append(
            f"<rect x='{x:.0f}' y='{y - 11:.0f}' width='13' height='13' rx='3'"
            f" fill='{_hue(each.ordinal)}'/>"
        )
        led = view.led_by(each.ordinal)
        look = ("", None) if each.up else ("b", BAD)
        parts.append(_text(x + 22, y, str(each.ordinal), *look))
        parts.append(_row(x, y, ("", each.name, each.state, f"{led} slices"), *look))
    y += 21 * (len(shown) > ROWS_MAX)
    if len(shown) > ROWS_MAX:
        parts.append(_text(x, y, f"and {len(shown) - ROWS_MAX} brokers more", "f"))
    y += 38
    parts.append(_row(x, y, ("slices", "lineage", "leader", "followers"), "f s"))
    ranges = sorted(view.ranges, key=lambda each: (not _strange(each), each.first))
    for one in sorted(ranges[:ROWS_MAX], key=lambda each: each.first):
        y += 21
        bad = _strange(one)
        parts.append(_row(x, y, _cells(one), "b" if bad else "", BAD if bad else None))
    if len(ranges) > ROWS_MAX:
        y += 21
        parts.append(_text(x, y, f"and {len(ranges) - ROWS_MAX} ranges more", "f"))
    return "\n".join(parts), y + 60


def _cells(each: DrawnRange) -> tuple[str, str, str, str]:
    followers = ", ".join(
        f"{ordinal} {each.copies.get(ordinal, CopyState.UNKNOWN).value}"
        for ordinal in each.members
        if ordinal != each.leader
    )
    leader = "nobody" if each.leader is None else str(each.leader)
    return each.span, each.lineage("→", 3), leader, followers


def _strange(each: DrawnRange) -> bool:
    fine = {CopyState.LEADS, CopyState.SYNCED}
    return each.leader != each.members[0] or not set(each.copies.values()) <= fine


def _row(x: float, y: float, cells: Sequence[str], classes: str, fill: str | None = None) -> str:
    stops = (0, 90, 250, 330)
    return "".join(
        _text(x + stop, y, cell, classes, fill) for stop, cell in zip(stops, cells, strict=True)
    )


def _legend(x: float, y: float) -> str:
    items = (
        ("leads", f"fill='{HUES[0]}'"),
        ("follows, in sync", _look(0, CopyState.SYNCED)),
        ("catches up", _look(0, CopyState.BEHIND)),
        ("down", _look(0, CopyState.DOWN)),
        ("not known", _look(0, CopyState.UNKNOWN)),
    )
    parts, at = [], x - 255
    for name, look in items:
        parts.append(f"<rect x='{at:.0f}' y='{y - 10:.0f}' width='18' height='11' {look}/>")
        parts.append(_text(at + 24, y, name, "f s"))
        at += 44 + 7.2 * len(name)
    return "".join(parts)


def _wrapped(line: str) -> list[str]:
    lines = [""]
    for word in line.split():
        if len(lines[-1]) + len(word) >= TEXT_MAX:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _text(x: float, y: float, text: str, classes: str = "", fill: str | None = None) -> str:
    style = f" style='fill:{fill}'" if fill else ""
    named = f" class='{classes}'" if classes else ""
    return f"<text x='{x:.1f}' y='{y:.1f}'{named}{style}>{escape(text)}</text>"
