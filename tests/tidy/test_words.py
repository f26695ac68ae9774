"""Words that have no place in the tree: unfinished work, other people's machines, vague names."""

import ast
import re

from . import tree

# Put together here, or this file would be its own first finding.
BANNED = {
    r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b": "finish it, or open an issue",
    r"(?<![\w.])/wo" + r"rk/": "a path of one machine",
    r"\.lib" + r"rary/": "a path of one machine",
    r"(?i)\bhel" + r"pers?\b": "say what it does",
    r"NotImplemented" + r"Error": "no stubs",
    r"[ \t]+$": "trailing blanks",
}
TIDY = "tests/tidy/test_words.py"


def test_banned_words() -> None:
    patterns = [(re.compile(pattern), why) for pattern, why in BANNED.items()]
    wrong = []
    for path in tree.files():
        if tree.relative(path) == TIDY:
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            for pattern, why in patterns:
                if pattern.search(line):
                    wrong.append(f"{tree.relative(path)}:{number}: {why}: {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)


def test_files_end_with_a_newline() -> None:
    wrong = []
    for path in tree.files():
        text = path.read_bytes()
        if text and (not text.endswith(b"\n") or text.endswith(b"\n\n") or b"\r\n" in text):
            wrong.append(tree.relative(path))
    assert not wrong, f"one newline at the end, LF only: {wrong}"


def test_modules_say_what_they_are() -> None:
    wrong = [
        tree.relative(path)
        for path in tree.python()
        if path.stat().st_size and not ast.get_docstring(tree.parsed(path))
    ]
    assert not wrong, f"without a docstring: {wrong}"


def _public(node: ast.AST) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, kinds) and not node.name.startswith("_")


def test_public_names_have_a_docstring() -> None:
    """Methods that a base class or a library names (`on_...`) are explained there."""
    wrong = []
    for path in tree.modules().values():
        outer = tree.parsed(path).body
        inner = [
            item
            for node in outer
            if isinstance(node, ast.ClassDef) and _public(node) and not node.bases
            for item in node.body
        ]
        for node in [*outer, *inner]:
            if not _public(node):
                continue
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            if not ast.get_docstring(node) and not _inherited(node):
                wrong.append(f"{tree.relative(path)}:{node.lineno}: {node.name}")
    assert not wrong, "without a docstring:\n" + "\n".join(wrong)


def _inherited(node: ast.AST) -> bool:
    """A call-back of a library, or decorated: the sentence stands elsewhere."""
    if getattr(node, "name", "").startswith("on_"):
        return True
    decorators = [ast.unparse(item) for item in getattr(node, "decorator_list", [])]
    return any(name.split(".")[-1] in ("override", "overload", "setter") for name in decorators)
