"""A page of results for people to read and to keep: bench/results/<date>-<machine>.md.

One machine and one day a page. A question that is asked again the same day replaces its own rows
and leaves the others, so a page can be made in several turns; each row says when it was measured
and how busy the machine was. What is written by hand below the table is kept.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
HEAD = ("row", "what", "bar", "measured: median (min–max)", "", "beside it", "when, UTC", "others")
_MARKS = re.compile(r"\((?:R|TM)\)|®|™|\b(?:CPU|Processor|with|Core)\b|@.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Measured:
    """One row, as text."""

    id: str
    what: str
    bar: str
    figure: str
    verdict: str
    note: str


def slug(cpu: str) -> str:
    """A machine's name as part of a file's: of its processor."""
    words = re.findall(r"[a-z0-9.]+", _MARKS.sub(" ", cpu).lower())
    return "-".join(words[:4]) or "unknown"


def page_of(date: str, machine: Mapping[str, object], directory: Path = RESULTS) -> Path:
    """Where results of a day (2026-01-31) and a machine (`machine.describe()`) go."""
    return directory / f"{date}-{slug(str(machine['cpu']))}-{machine['cores']}.md"


def update(
    path: Path,
    rows: Iterable[Measured],
    order: Iterable[str],
    *,
    machine: Mapping[str, object],
    at: str,
    settings: str,
    others: float | None,
) -> None:
    """Write the page, or replace these rows in it. `order`: the ids of all rows there are.

    at: when (12:34). others: the share of the server's core that went to other programs.
    """
    known, below = _read(path)
    busy = "" if others is None else f"{max(others, 0):.0%}"
    for row in rows:
        cells = (row.id, row.what, row.bar, row.figure, row.verdict, row.note, at, busy)
        known[row.id] = _line(cells)
    ranks = {name: rank for rank, name in enumerate(order)}
    lines = sorted(known.items(), key=lambda item: ranks.get(item[0], len(ranks)))
    about = (
        f"{machine['cores']} cores, Linux {machine['kernel']}. Written by `bench/run.py --page`;"
        f" the last turn had {settings}."
    )
    text = [
        f"# {path.stem[:10]}, {machine['cpu']}",
        "",
        about,
        "",
        _line(HEAD),
        "|" + "---|" * len(HEAD),
        *(line for _, line in lines),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n" + (f"\n{below}\n" if below else ""), "utf-8")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in cells) + " |"


def _read(path: Path) -> tuple[dict[str, str], str]:
    """Lines of the table by the row's id, and what stands below it."""
    if not path.exists():
        return {}, ""
    lines = path.read_text("utf-8").splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith("|---")), len(lines)) + 1
    rows, end = {}, first
    while end < len(lines) and lines[end].startswith("| "):
        rows[lines[end].split("|")[1].strip()] = lines[end]
        end += 1
    return rows, "\n".join(lines[end:]).strip("\n")
