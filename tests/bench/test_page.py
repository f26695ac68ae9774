"""Pages of results: rows of several turns of one day, one machine a page."""

from pathlib import Path

import pytest

from bench.page import Measured, page_of, slug, update

MACHINE = {"cpu": "AMD EPYC 9R14", "cores": 2, "kernel": "6.18.1", "load_average": 0.1}
ORDER = ["single", "nginx", "redis"]


def row(name: str, figure: str) -> Measured:
    return Measured(name, f"what of {name}", "≤ 10 µs", figure, "pass", "a | note")


def turn(path: Path, at: str, *rows: Measured) -> list[str]:
    update(path, rows, ORDER, machine=MACHINE, at=at, settings="7 rounds of 2 s", others=0.04)
    return [line for line in path.read_text("utf-8").splitlines() if line.startswith("| what", 9)]


def table(path: Path) -> list[list[str]]:
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_a_second_turn_replaces_its_own_rows_only(tmp_path: Path) -> None:
    path = page_of("2026-11-23", MACHINE, tmp_path)
    assert path.name == "2026-11-23-amd-epyc-9r14-2.md"
    turn(path, "10:00", row("redis", "3.1"), row("single", "9.0"))
    path.write_text(path.read_text("utf-8") + "\nRemarks by hand.\n", "utf-8")
    turn(path, "11:30", row("single", "8.0"), row("nginx", "1.3"))
    found = {each[0]: (each[3], each[6], each[7]) for each in table(path)}
    assert list(found) == ORDER, "in the order of the bench"
    assert found == {
        "single": ("8.0", "11:30", "4%"),
        "nginx": ("1.3", "11:30", "4%"),
        "redis": ("3.1", "10:00", "4%"),
    }
    text = path.read_text("utf-8")
    assert text.startswith("# 2026-11-23, AMD EPYC 9R14\n\n2 cores, Linux 6.18.1.")
    assert text.endswith("\nRemarks by hand.\n"), "what was written below is kept"
    assert "a / note" in text, "a bar within a cell would be another cell"


@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "intel-xeon-e5-2680"),
        ("", "unknown"),
    ],
)
def test_names_of_machines(cpu: str, name: str) -> None:
    assert slug(cpu) == name
