#!/usr/bin/env python3
"""Measures the house: sizes of modules and functions, assertions, circles. A table in Markdown.

    python scripts/measure_house.py [ROOT]

C functions are found by their braces at the first column, Python's by ast. Works on trees before
there were floors too, so that two of them can be compared.
"""

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.tidy import graph, native, tree

C_FUNCTION = re.compile(
    r"^(?!typedef|#|struct \w+ \{|\s)[\w][\w\s*,]*\([^;{}]*\)\s*\{", re.MULTILINE
)


class Measures(NamedTuple):
    """Of some files."""

    modules: list[int]
    """Lines of each."""
    functions: list[int]
    asserts: int


def of_python(paths: Iterable[Path]) -> Measures:
    """Lines of a function are from its `def` to its end, docstring included."""
    found = Measures([], [], 0)
    asserts = 0
    for path in paths:
        text = path.read_text("utf-8")
        found.modules.append(text.count("\n"))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
            asserts += isinstance(node, ast.Assert)
    return found._replace(asserts=asserts)


def of_c(paths: Iterable[Path]) -> Measures:
    """The same of sources and headers."""
    found = Measures([], [], 0)
    asserts = 0
    for path in paths:
        text = path.read_text("utf-8")
        found.modules.append(text.count("\n"))
        for start in C_FUNCTION.finditer(text):
            end = text.find("\n}", start.end())
            inline = text.find("}\n", start.end())
            if inline >= 0 and "\n" not in text[start.end() : inline]:
                end = inline
            found.functions.append(text.count("\n", start.start(), end) + 2)
        asserts += len(re.findall(r"\bassert\(", text))
    return found._replace(asserts=asserts)


def spread(values: list[int]) -> str:
    """Median, 95th percentile and greatest."""
    ordered = sorted(values) or [0]
    return " / ".join(str(ordered[int((len(ordered) - 1) * at)]) for at in (0.5, 0.95, 1))


def loose(paths: Iterable[Path]) -> int:
    """The most modules that one folder has."""
    folders: dict[Path, int] = {}
    for path in paths:
        if path.name != "__init__.py":
            folders[path.parent] = folders.get(path.parent, 0) + 1
    return max(folders.values(), default=0)


def row(name: str, paths: list[Path], measures: Measures) -> str:
    """One line of the table."""
    asserts = measures.asserts / max(len(measures.functions), 1)
    return (
        f"| {name} | {len(paths)} | {sum(measures.modules):,} | {spread(measures.modules)} |"
        f" {spread(measures.functions)} | {asserts:.2f} | {loose(paths)} |"
    )


def main() -> None:
    """Print the table, and the circles."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    tree.ROOT = root
    print("| | files | lines | module median / p95 / max | function median / p95 / max |", end="")
    print(" asserts a function | files of the fullest folder |\n|---|---|---|---|---|---|---|")
    for top in ("barco", "workers"):
        paths = sorted((root / top).rglob("*.py"))
        paths = [path for path in paths if top == "workers" or "workers" not in path.parts]
        print(row(f"{top}/", paths, of_python(paths)))
    core = sorted((root / "native").rglob("*.[ch]"))
    core = [path for path in core if not {"tests", "fuzz"} & set(path.relative_to(root).parts)]
    print(row("native/ .c .h", core, of_c(core)))
    binding = [path for path in core if path.name.startswith(("py_", "module"))]
    print(row("… of it the CPython binding", binding, of_c(binding)))
    files = {path.relative_to(root / "native").as_posix(): path.read_text("utf-8") for path in core}
    for what, found in (
        ("Python modules", graph.circles(graph.imports())),
        ("C units", graph.circles(native.units(files))),
    ):
        shown = "; ".join(" ".join(circle) for circle in found)
        print(f"\nCircles of {what}: {len(found)}. {shown}")


if __name__ == "__main__":
    main()
