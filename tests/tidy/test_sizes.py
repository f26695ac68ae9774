"""How long things may be: what does not fit has two subjects."""

import ast
import re

import pytest

from . import tree

MODULE_LINES_MAX = 500
C_FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100


def test_modules() -> None:
    wrong = []
    for path in tree.python() + tree.native():
        most = MODULE_LINES_MAX if path.suffix == ".py" else C_FILE_LINES_MAX
        lines = len(path.read_text("utf-8").splitlines())
        if lines > most:
            wrong.append(f"{tree.relative(path)}: {lines} lines, at most {most}")
    assert not wrong, "\n".join(wrong)


def test_lines() -> None:
    code = [path for path in tree.files() if path.suffix in (".py", ".pyi", ".c", ".h", ".sh")]
    wrong = [
        f"{tree.relative(path)}:{number}: {len(line)} columns"
        for path in code
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert not wrong, "\n".join(wrong)


def test_python_functions() -> None:
    wrong = []
    for path in tree.python():
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    wrong.append(f"{tree.relative(path)}:{node.lineno}: {node.name}, {lines} lines")
    assert not wrong, "\n".join(wrong)


def c_functions(text: str) -> list[tuple[int, int]]:
    """(first line, length) of each function: what is between a `{` and a `}` in column one.

    Structures, enumerations and tables also look so; they end with `};` or are assigned.
    """
    found, start = [], 0
    previous = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (
            line.startswith("{")
            and not previous.rstrip().endswith("=")
            or re.match(r"^[a-z].*\)\s*\{$", line)
        ):
            start = number
        elif line.startswith("}"):
            if start and line.rstrip() == "}":
                found.append((start, number - start + 1))
            start = 0
        previous = line
    return found


def test_c_functions() -> None:
    wrong = [
        f"{tree.relative(path)}:{line}: {length} lines"
        for path in tree.native()
        for line, length in c_functions(path.read_text("utf-8"))
        if length > FUNCTION_LINES_MAX
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int f(void)\n{\n    return 1;\n}\n", [(2, 3)]),
        ("int f(void) {\n    return 1;\n}\n", [(1, 3)]),
        ("struct s {\n    int a;\n};\n", []),
        ("static const int t[] =\n{\n1\n};\n", []),
    ],
)
def test_c_functions_are_found(text: str, expected: list[tuple[int, int]]) -> None:
    assert c_functions(text) == expected
