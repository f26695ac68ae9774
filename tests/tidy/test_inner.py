"""A function inside of a test that nobody uses is a test that never runs."""

import ast
import itertools

import pytest

from . import tree

Function = ast.FunctionDef | ast.AsyncFunctionDef


def unused(module: ast.AST) -> list[tuple[int, str]]:
    """(line, name) of each function that is defined in another one, or in a class of one, and named
    nowhere else in it. One that is decorated is somebody's by that; a method may be called from
    anywhere."""
    found = []
    for outer in ast.walk(module):
        if not isinstance(outer, Function):
            continue
        inner = [each for each in _inner(outer) if not each.decorator_list]
        if inner:
            names = {each.id for each in ast.walk(outer) if isinstance(each, ast.Name)}
            found += [(each.lineno, each.name) for each in inner if each.name not in names]
    return found


def _inner(outer: Function) -> list[Function]:
    """Functions of its body, not those of functions and classes in it."""
    found: list[Function] = []
    todo: list[ast.AST] = list(outer.body)
    while todo:
        each = todo.pop()
        if isinstance(each, Function):
            found.append(each)
        elif not isinstance(each, ast.ClassDef):
            todo.extend(ast.iter_child_nodes(each))
    return found


def twice(module: ast.Module) -> list[tuple[int, str]]:
    """(line, name) of each statement that stands twice in a row: one of them was another's."""
    found = []
    for outer in ast.walk(module):
        body = getattr(outer, "body", None)
        if not isinstance(body, list):
            continue
        for one, next_ in itertools.pairwise(body):
            if not isinstance(one, ast.Expr) or not isinstance(next_, ast.Expr):
                continue
            if _runs(one) and ast.dump(one) == ast.dump(next_):
                found.append((next_.lineno, ast.unparse(next_)))
    return found


def _runs(statement: ast.Expr) -> bool:
    return "asyncio.run(" in ast.unparse(statement)


def test_what_is_defined_in_a_function_is_used() -> None:
    wrong = [
        f"{tree.relative(path)}:{line}: {name}"
        for path in tree.python()
        for line, name in unused(tree.parsed(path)) + twice(tree.parsed(path))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def test() -> None:\n    async def run(): ...\n", ["run"]),
        ("def test() -> None:\n    async def run(): ...\n    asyncio.run(run())\n", []),
        ("def test():\n    if x:\n        def run(): ...\n", ["run"]),
        ("def test():\n    @upon\n    def run(): ...\n", []),
        ("def test():\n    class A:\n        def run(self): ...\n    A()\n", []),
        ("def a():\n    def b():\n        def c(): ...\n    b()\n", ["c"]),
        ("def a():\n    asyncio.run(b())\n    asyncio.run(b())\n", ["asyncio.run(b())"]),
        ("def a():\n    asyncio.run(b())\n    asyncio.run(c())\n", []),
    ],
)
def test_what_never_runs_is_found(text: str, names: list[str]) -> None:
    module = ast.parse(text)
    assert [name for _, name in unused(module) + twice(module)] == names
