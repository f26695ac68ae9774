"""The source tree as the house rules see it: files, modules, imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {
    ".git",
    ".venv",
    "build",
    "dist",
    "fuzz-out",
    "corpus",
    "node_modules",
    ".demo",
    ".cluster",
    ".elastic",
    "barco-data",
}
TEXT = {".py", ".pyi", ".c", ".h", ".md", ".toml", ".sh", ".txt", ".service", ".json", ".cmake"}
NAMES = {"Makefile", ".gitignore", "run"}


def _walk(directory: Path) -> Iterator[Path]:
    for entry in sorted(directory.iterdir()):
        if entry.is_symlink() or entry.name in NOT_OURS or entry.name.endswith(".egg-info"):
            continue
        if entry.is_dir():
            if entry.name == "__pycache__" or entry.name.endswith("_cache"):
                continue
            yield from _walk(entry)
        else:
            yield entry


@cache
def files() -> list[Path]:
    """Every text file of ours, each once (the link barco/workers is not followed)."""
    return [path for path in _walk(ROOT) if path.suffix in TEXT or path.name in NAMES]


def relative(path: Path) -> str:
    """As messages name it."""
    return path.relative_to(ROOT).as_posix()


def python() -> list[Path]:
    """Every Python file."""
    return [path for path in files() if path.suffix == ".py"]


def native() -> list[Path]:
    """Every C file of the core (its tests and fuzz targets too)."""
    return [path for path in files() if path.suffix in (".c", ".h")]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text("utf-8"), str(path))


def module(path: Path) -> str:
    """The name it is imported by: workers/ is barco.workers."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "workers":
        parts.insert(0, "barco")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its name."""
    ours = [path for path in python() if relative(path).startswith(("barco/", "workers/"))]
    return {module(path): path for path in ours}


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(imported module, line, inside a function); those for type checkers are left out."""
    stack: list[tuple[ast.AST, bool]] = [(parsed(path), False)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno, inside
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for name in node.names:
                whole = f"{base}.{name.name}"
                yield (whole if whole in modules() else base), node.lineno, inside
        elif _only_for_types(node):
            continue
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
