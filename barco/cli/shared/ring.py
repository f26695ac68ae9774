"""A picture of the ring for the terminal: who leads which part of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS, ROWS = 58, 21
"""Of the picture; a character is about twice as high as wide."""

COLOURS = (36, 33, 35, 32, 34, 31)
"""ANSI foregrounds, one for each broker in turn."""

NOBODY = "."
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def draw(topology: Mapping[str, Any], *, colour: bool) -> str:
    """The ring of GET /v1/topology, clockwise from the top: each part as the number of the broker
    that leads it, `.` where nobody does; outside, the broker whose range begins there."""
    size = int(topology["ringSize"])
    middle = f"{size} broker{'s' if size > 1 else ''}, {len(topology['shards'])} shards"
    labels = [(i / size, int(topology["ranges"][i]["leader"])) for i in range(min(size, 12))]
    return circle(_leaders(topology), labels, middle, colour=colour)


def circle(
    leaders: Sequence[int | None],
    labels: Sequence[tuple[float, int]],
    middle: str,
    *,
    colour: bool,
) -> str:
    """leaders: of each slice of the ring, None for nobody. labels: where a broker's part begins,
    as a share of the turn, and its ordinal."""
    grid: dict[tuple[int, int], tuple[str, int | None]] = {}
    steps = 4 * COLUMNS
    for step in range(steps):
        leader = leaders[step * len(leaders) // steps]
        mark = NOBODY if leader is None else LETTERS[leader % len(LETTERS)]
        for radius in (0.74, 0.66):
            grid[_cell(step / steps, radius)] = (mark, leader)
    for turn, owner in labels:
        _label(grid, turn, f"broker {owner}", owner)
    for at, character in enumerate(middle):
        grid[(COLUMNS - len(middle)) // 2 + at, ROWS // 2] = (character, None)
    return "\n".join(_row(grid, row, colour).rstrip() for row in range(ROWS))


def _leaders(topology: Mapping[str, Any]) -> list[int | None]:
    """The leading broker of each slice of the ring, in token order."""
    up = {
        (str(shard["token"]), index): shard["ordinal"] if shard["up"] else None
        for shard in topology["shards"]
        for index in range(int(shard["slices"][0]), int(shard["slices"][1]) + 1)
    }
    slices = int(topology["slicesPerRange"])
    tokens: Sequence[str] = [str(each["token"]) for each in topology["ranges"]]
    return [up.get((token, index)) for token in tokens for index in range(slices)]


def _cell(turn: float, radius: float) -> tuple[int, int]:
    angle = 2 * math.pi * turn
    x = (COLUMNS - 1) / 2 + radius * (COLUMNS - 1) / 2 * math.sin(angle)
    y = (ROWS - 1) / 2 - radius * (ROWS - 1) / 2 * math.cos(angle)
    return round(x), round(y)


def _label(
    grid: dict[tuple[int, int], tuple[str, int | None]], turn: float, text: str, owner: int
) -> None:
    column, row = _cell(turn, 0.98)
    if turn == 0 or turn == 0.5:
        column -= len(text) // 2
    elif turn > 0.5:
        column -= len(text) - 1
    column = max(0, min(COLUMNS - len(text), column))
    for at, character in enumerate(text):
        grid[column + at, row] = (character, owner)


def _row(grid: Mapping[tuple[int, int], tuple[str, int | None]], row: int, colour: bool) -> str:
    parts = []
    for column in range(COLUMNS):
        character, broker = grid.get((column, row), (" ", None))
        if colour and broker is not None:
            character = f"\x1b[{COLOURS[broker % len(COLOURS)]}m{character}\x1b[0m"
        parts.append(character)
    return "".join(parts)
