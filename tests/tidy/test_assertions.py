"""Assertions for each function, by folder: not fewer than there are. The house wants 0.5.

They state what holds whatever comes from outside; bytes of others are checked and refused.
"""

import ast
import re

import pytest

from . import tree
from .test_sizes import c_functions

LEAST = {
    # 0.5 is what is wanted; where it is less, this is a ratchet.
    "native/log": 0.5,
    "native/broker": 0.11,
    "barco/cluster": 0.27,
    "workers/replication": 0.28,
}
"""Of a folder and those in it; raised when there are more."""


def measured(folder: str) -> tuple[int, int]:
    """(functions, assertions)."""
    functions = assertions = 0
    for path in tree.files():
        if not tree.relative(path).startswith(folder + "/"):
            continue
        text = path.read_text("utf-8")
        if path.suffix == ".py":
            nodes = list(ast.walk(tree.parsed(path)))
            functions += sum(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in nodes)
            assertions += sum(isinstance(n, ast.Assert) for n in nodes)
        elif path.suffix in (".c", ".h"):
            functions += len(c_functions(text))
            assertions += len(re.findall(r"^\s*assert\(", text, re.MULTILINE))
    return functions, assertions


@pytest.mark.parametrize("folder", LEAST)
def test_assertions(folder: str) -> None:
    functions, assertions = measured(folder)
    assert functions > 50, f"{folder} has moved"
    share = assertions / functions
    least = LEAST[folder]
    assert share >= least, f"{folder}: {assertions} assertions in {functions} functions"
    assert share < least + 0.1 or least >= 0.5, f"{folder}: raise the ratchet to {share:.2f}"


def test_assertions_have_no_effects() -> None:
    """What is called there only looks; `walrus` would do something."""
    wrong = [
        f"{name}:{node.lineno}"
        for name, path in tree.modules().items()
        for node in ast.walk(tree.parsed(path))
        if isinstance(node, ast.Assert)
        and any(
            isinstance(each, (ast.NamedExpr, ast.Await, ast.Yield)) for each in ast.walk(node.test)
        )
    ]
    assert not wrong, wrong


def test_c_assertions_have_no_effects() -> None:
    effect = re.compile(r"assert\([^;]*(\+\+|--|[^=!<>]=[^=])[^;]*\);")
    wrong = [
        f"{tree.relative(path)}: {found.group()}"
        for path in tree.native()
        if tree.relative(path).startswith("native/") and "/tests/" not in tree.relative(path)
        for found in effect.finditer(path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
    assert effect.search("assert(i++ < 3);") and effect.search("assert((a = b));")
    assert not effect.search("assert(a <= b && c != d && e == f && !g);")
